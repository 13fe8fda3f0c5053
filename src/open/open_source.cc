// Telling formats apart and filling in OpenedSource.
#include "open/open_source.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/messages.h"
#include "checkpoint/safetensors.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

OpenedSource FromCmf(cmf::File file) {
  OpenedSource source;
  source.format = SourceFormat::kCmf;
  source.path = std::string(file.path());
  source.config = file.config();
  source.chat = file.chat();
  source.sampling = file.header().sampling;
  source.cmf = std::make_shared<const cmf::File>(std::move(file));
  source.tensors = source.cmf;
  source.tokenizer_path = source.path + ": vocab section";
  return source;
}

Result<OpenedSource> FromCheckpoint(const fs::path& folder, MappedFile::Mode mode) {
  CMF_TRY(Checkpoint checkpoint, OpenCheckpoint(folder, mode));
  OpenedSource source;
  source.format = SourceFormat::kCheckpoint;
  source.path = folder.string();
  source.tensors = std::move(checkpoint.tensors);
  source.config = std::move(checkpoint.config.model);
  source.chat = std::move(checkpoint.config.chat);
  source.sampling = checkpoint.config.sampling;
  source.tokenizer_file = std::move(checkpoint.tokenizer);
  source.tokenizer_path = (folder / "tokenizer.json").string();
  source.warnings = std::move(checkpoint.warnings);
  return source;
}

/// The tensors of something that has none.
class NoTensors : public TensorSource {
 public:
  explicit NoTensors(std::string path) : path_(std::move(path)) {}
  std::span<const TensorInfo> tensors() const override { return {}; }
  const TensorInfo* Find(std::string_view) const override { return nullptr; }
  Result<TensorView> Read(std::string_view name) const override {
    return Fail(ErrorKind::kNotFound, fmt::format("{}: no tensor '{}'", path_, name));
  }
  std::string_view path() const override { return path_; }

 private:
  std::string path_;
};

/// The configuration files of a package are those of a checkpoint; what cannot be read of them costs a warning,
/// since the parts say all that running needs.
Result<OpenedSource> FromPackage(const fs::path& folder, MappedFile::Mode mode) {
  CMF_TRY(coreml::PackageMeta meta, coreml::ReadPackageMeta(folder));
  OpenedSource source;
  source.format = SourceFormat::kCoremlPackage;
  source.path = folder.string();
  source.tensors = std::make_shared<NoTensors>(source.path);
  source.tokenizer_path = (folder / "tokenizer.json").string();
  std::error_code error;
  if (fs::exists(source.tokenizer_path, error)) {
    CMF_TRY(MappedFile mapped, MappedFile::Open(source.tokenizer_path, mode));
    source.tokenizer_file = std::make_shared<const MappedFile>(std::move(mapped));
  }
  source.config.emplace();
  source.config->arch_name = meta.architecture;
  source.config->num_layers = meta.num_layers.value_or(0);
  source.config->hidden_size = meta.hidden_size.value_or(0);
  source.config->vocab_size = meta.vocab_size.value_or(0);
  source.config->max_position_embeddings = meta.context_length;
  auto files = ReadHfConfigFiles(folder, source.tokenizer_json());
  auto config = files ? ParseHfConfig(*files) : Result<HfConfig>(Fail(std::move(files).error()));
  if (config) {
    source.config = std::move(config->model);
    source.chat = std::move(config->chat);
    source.sampling = config->sampling;
  } else {
    source.warnings.push_back(
        fmt::format("{}: end tokens and chat template are not known", config.error().message));
  }
  if (meta.context_length > 0)
    source.config->max_position_embeddings = meta.context_length;  // that of the caches
  const RecommendedSampling& said = meta.recommended_sampling;
  if (!(said == RecommendedSampling())) source.sampling = said;
  source.package = std::make_shared<const coreml::PackageMeta>(std::move(meta));
  return source;
}

}  // namespace

std::string_view SourceFormatName(SourceFormat format) {
  switch (format) {
    case SourceFormat::kCmf:
      return "cmf";
    case SourceFormat::kCheckpoint:
      return "checkpoint";
    case SourceFormat::kSafetensors:
      return "safetensors";
    case SourceFormat::kCoremlPackage:
      return "coreml";
  }
  return "";
}

std::string_view OpenedSource::tokenizer_json() const {
  if (tokenizer_file) return AsText(tokenizer_file->bytes());
  return cmf ? AsText(cmf->tokenizer_json()) : std::string_view();
}

Result<OpenedSource> OpenSource(const fs::path& path, MappedFile::Mode mode) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const bool has_weights = fs::exists(path / "model.safetensors", error) ||
                             fs::exists(path / "model.safetensors.index.json", error);
    if (fs::exists(path / "meta.yaml", error) && !has_weights) return FromPackage(path, mode);
    if (fs::exists(path / "config.json", error)) return FromCheckpoint(path, mode);
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: a folder without config.json or meta.yaml: name a .cmf file, a Hugging Face folder "
                    "or a Core ML package",
                    path.string()));
  }
  if (path.extension() == ".safetensors") {
    CMF_TRY(auto file, SafetensorsSource::Open(path, mode));
    OpenedSource source;
    source.format = SourceFormat::kSafetensors;
    source.path = path.string();
    source.tensors = std::move(file);
    return source;
  }
  CMF_TRY(cmf::File file, cmf::File::Open(path, mode));
  OpenedSource source = FromCmf(std::move(file));
  const fs::path sidecar = path.parent_path() / "tokenizer.json";
  if (source.tokenizer_json().empty() && fs::exists(sidecar, error)) {
    CMF_TRY(MappedFile mapped, MappedFile::Open(sidecar, mode));
    if (IsLfsPointer(mapped.bytes())) return Fail(LfsPointerError(sidecar.string()));
    if (IsBlank(AsText(mapped.bytes()))) return Fail(BlankFileError(sidecar.string()));
    source.tokenizer_file = std::make_shared<const MappedFile>(std::move(mapped));
    source.tokenizer_path = sidecar.string();
    source.warnings.push_back(fmt::format("{}: no tokenizer inside: using '{}' beside it", path.string(),
                                          sidecar.filename().string()));
  }
  return source;
}

Result<void> RequireTensors(const OpenedSource& source) {
  if (source.format != SourceFormat::kCoremlPackage) return {};
  return Fail(
      ErrorKind::kUnsupported,
      fmt::format("{}: a Core ML package runs, its tensors are parts of programs: name the checkpoint or "
                  ".cmf file it was made from",
                  source.path));
}

Result<OpenedSource> OpenSourceBytes(Bytes bytes, std::string name) {
  CMF_TRY(cmf::File file, cmf::File::OpenBytes(bytes, std::move(name)));
  return FromCmf(std::move(file));
}

}  // namespace cmforge
