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

}  // namespace

std::string_view SourceFormatName(SourceFormat format) {
  switch (format) {
    case SourceFormat::kCmf:
      return "cmf";
    case SourceFormat::kCheckpoint:
      return "checkpoint";
    case SourceFormat::kSafetensors:
      return "safetensors";
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
    if (fs::exists(path / "config.json", error)) return FromCheckpoint(path, mode);
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: a folder without config.json: name a .cmf file or a Hugging Face folder",
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

Result<OpenedSource> OpenSourceBytes(Bytes bytes, std::string name) {
  CMF_TRY(cmf::File file, cmf::File::OpenBytes(bytes, std::move(name)));
  return FromCmf(std::move(file));
}

}  // namespace cmforge
