// Opening and writing models on disk.
#include "mil/package.h"

#include <unistd.h>

#include <set>

#include "base/links.h"
#include "base/unfinished.h"
#include "mil/analysis.h"
#include "mil/compiled.h"
#include "mil/manifest.h"
#include "mil/proto.h"
#include "mil/text.h"

namespace cmforge::mil {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTextLimit = uint64_t{1} << 30;

Result<Model> ReadModelFile(const fs::path& path) {
  CMF_TRY(const MappedFile file, MappedFile::Open(path));
  auto model = ParseModel(file.bytes());
  if (!model) return Fail(std::move(model).error().In(path.string()));
  return model;
}

Result<Model> ReadCompiled(const fs::path& folder) {
  Model model;
  const fs::path data = folder / "coremldata.bin", text_file = folder / "model.mil";
  std::error_code ignored;
  for (const fs::path& file : {data, text_file}) {
    if (!fs::exists(file, ignored))
      return Fail(ErrorKind::kNotFound,
                  fmt::format("{}: a compiled model has it, it is not there", file.string()));
  }
  CMF_TRY(const MappedFile file, MappedFile::Open(data));
  auto header = ParseCompiledDescription(file.bytes());
  if (!header) return Fail(std::move(header).error().In(data.string()));
  model.specification_version = header->specification_version;
  model.description = std::move(header->description);
  CMF_TRY(const std::string text, ReadTextFile(text_file, kTextLimit));
  auto program = ParseProgramText(text);
  if (!program) return Fail(std::move(program).error().In(text_file.string()));
  model.program = std::move(*program);
  // The description says the same, and a compiled form written again gets it from there.
  for (auto& [name, function] : model.program.functions)
    function.attributes.erase(std::string(kFlexibleShapesAttribute));
  return model;
}

void CollectFiles(const Value& value, std::set<std::string>& files) {
  if (const BlobRef* blob = value.blob()) files.insert(blob->file);
}

/// Names of all weight files a program uses.
std::set<std::string> WeightFilesOf(const Program& program) {
  std::set<std::string> files;
  for (const auto& [name, function] : program.functions) {
    for (const Operation& op : function.body.operations) {
      for (const auto& [attribute, value] : op.attributes) CollectFiles(value, files);
      for (const auto& [parameter, arguments] : op.inputs) {
        for (const Argument& argument : arguments) {
          if (const auto* value = std::get_if<Value>(&argument)) CollectFiles(*value, files);
        }
      }
    }
  }
  return files;
}

Result<void> LinkOrCopy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (error) fs::copy_file(from, to, error);
  if (error)
    return Fail(ErrorKind::kIo,
                fmt::format("{}: cannot copy {}: {}", to.string(), from.string(), error.message()));
  return {};
}

Result<Package> Open(const fs::path& path, MappedFile::Mode mode) {
  Package package;
  package.path = path;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    package.form = PackageForm::kFile;
    package.model_path = path.parent_path().empty() ? fs::path(".") : path.parent_path();
    CMF_TRY(package.model, ReadModelFile(path));
  } else if (fs::exists(path / "model.mil", error) || fs::exists(path / "coremldata.bin", error)) {
    package.form = PackageForm::kCompiled;
    package.model_path = path;
    CMF_TRY(package.model, ReadCompiled(path));
  } else {
    CMF_TRY(const fs::path file, ModelFileOf(path));
    package.model_path = file.parent_path();
    CMF_TRY(package.model, ReadModelFile(file));
  }
  package.weights = std::make_shared<Weights>(package.model_path, mode);
  return package;
}

}  // namespace

Error WithRemedy(Error error) {
  if (error.kind == ErrorKind::kCorrupt || error.kind == ErrorKind::kNotFound) {
    error.message.append(": ").append(kModelRemedy);
  } else if (error.kind == ErrorKind::kUnsupported) {
    error.message += ": convert the original to an ML Program for iOS 18 or older";
  }
  return error;
}

Result<Package> OpenPackage(const fs::path& path, MappedFile::Mode mode) {
  std::error_code error;
  if (!fs::exists(path, error))
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: no such file or folder: check the path", path.string()));
  const auto has = [&](const char* name) { return fs::exists(path / name, error); };
  if (fs::is_directory(path, error) && !has("Manifest.json") && !has("model.mil") && !has("coremldata.bin")) {
    return Fail(
        ErrorKind::kNotFound,
        fmt::format("{}: neither Manifest.json (a package) nor model.mil (a compiled model) is in it: {}",
                    path.string(), has("meta.yaml") ? "name one of the models in it" : "check the path"));
  }
  auto package = Open(path, mode);
  if (!package) return Fail(WithRemedy(std::move(package).error()));
  return package;
}

// ---- folders that appear whole

StagedFolder::StagedFolder(StagedFolder&& other) noexcept { *this = std::move(other); }

StagedFolder& StagedFolder::operator=(StagedFolder&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(staging_, other.staging_);
  return *this;
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!staging_.empty()) fs::remove_all(staging_, ignored);
}

namespace {

/// A process that was killed leaves its staging folder behind, and between two renames the old one under its name.
void RemoveLeftovers(const fs::path& target) {
  std::error_code ignored;
  const std::string wanted = target.filename().string();
  std::vector<fs::path> leftovers;
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const fs::path name = entry.path().filename();
    const std::string temporary = (name.extension() == ".old" ? name.stem() : name).string();
    if (IsLeftover(temporary, wanted) && entry.is_directory(ignored)) leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) {
    if (path.extension() == ".old" && !fs::exists(target, ignored)) {
      fs::rename(path, target, ignored);
    } else {
      fs::remove_all(path, ignored);
    }
  }
}

}  // namespace

Result<StagedFolder> StagedFolder::Create(const fs::path& target) {
  StagedFolder folder;
  folder.target_ = FollowLinks(target.has_filename() ? target : target.parent_path());
  RemoveLeftovers(folder.target_);
  std::error_code error;
  if (fs::exists(folder.target_, error) && !fs::is_directory(folder.target_, error)) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: is a file, a folder should be written", target.string()));
  }
  for (int i = 0; i < 1000; ++i) {
    fs::path staging = folder.target_;
    staging += fmt::format(".tmp-{}-{}", ::getpid(), i);
    if (fs::create_directory(staging, error)) {
      folder.staging_ = std::move(staging);
      return folder;
    }
    if (error) break;
  }
  return Fail(
      error == std::errc::no_such_file_or_directory ? ErrorKind::kNotFound : ErrorKind::kIo,
      fmt::format("{}: cannot create the folder: {}: check the path", target.string(), error.message()));
}

Result<void> StagedFolder::MakeFolder(const fs::path& inside) const {
  std::error_code error;
  fs::create_directories(staging_ / inside, error);
  if (error)
    return Fail(ErrorKind::kIo, fmt::format("{}: {}", (staging_ / inside).string(), error.message()));
  return {};
}

Result<void> StagedFolder::Commit() {
  std::error_code error;
  fs::path old = staging_;
  old += ".old";
  const bool replaces = fs::exists(target_, error);
  if (replaces) fs::rename(target_, old, error);
  if (!error) fs::rename(staging_, target_, error);
  if (error) {
    std::error_code ignored;
    if (replaces && !fs::exists(target_, ignored)) fs::rename(old, target_, ignored);
    return Fail(ErrorKind::kIo,
                fmt::format("{}: cannot be put in place: {}", target_.string(), error.message()));
  }
  staging_.clear();
  if (replaces) fs::remove_all(old, error);
  return {};
}

// ---- writing

Result<PackageWriter> PackageWriter::Create(const fs::path& path) {
  PackageWriter writer;
  CMF_TRY(writer.folder_, StagedFolder::Create(path));
  CMF_CHECK(writer.folder_.MakeFolder("Data/com.apple.CoreML/weights"));
  CMF_TRY(writer.weights_,
          BlobWriter::Create(writer.folder_.path() / "Data/com.apple.CoreML/weights/weight.bin"));
  return writer;
}

Result<void> PackageWriter::Commit(const Model& model) {
  const fs::path data = folder_.path() / "Data/com.apple.CoreML";
  const bool has_weights = weights_.entries() > 0;
  CMF_CHECK(weights_.Commit());
  std::error_code error;
  if (!has_weights) fs::remove_all(data / "weights", error);
  const Weights weights(data);
  CMF_CHECK(CheckModel(model, &weights));
  const std::string bytes = SerializeModel(model);
  CMF_CHECK(WriteFileAtomically(data / "model.mlmodel", AsBytes(bytes)));
  const Sha256Digest model_hash = Sha256Of(AsBytes(bytes));
  Sha256 weights_hash;
  weights_hash.Add(AsBytes("weights of "));
  weights_hash.Add(std::as_bytes(std::span(model_hash)));
  const std::string manifest = ManifestText(UuidOf(model_hash), UuidOf(weights_hash.Finish()), has_weights);
  CMF_CHECK(WriteFileAtomically(folder_.path() / "Manifest.json", AsBytes(manifest)));
  return folder_.Commit();
}

Result<void> WriteCompiled(const Package& source, const fs::path& target) {
  CMF_TRY(StagedFolder folder, StagedFolder::Create(target));
  const Model& model = source.model;
  const std::string class_name = source.path.stem().string();
  CMF_CHECK(folder.MakeFolder("analytics"));
  const std::pair<const char*, std::string> files[] = {
      {"model.mil", CompiledProgramText(model)},
      {"coremldata.bin", CompiledDescription(model)},
      {"metadata.json", CompiledMetadata(model, class_name)},
      {"analytics/coremldata.bin", CompiledAnalytics(model, class_name)},
  };
  for (const auto& [name, bytes] : files)
    CMF_CHECK(WriteFileAtomically(folder.path() / name, AsBytes(bytes)));
  for (const std::string& name : WeightFilesOf(model.program)) {
    CMF_TRY(const BlobFile* file, source.weights->File(name));  // also refuses names that leave the folder
    const fs::path inside = fs::path(file->path()).lexically_relative(source.model_path);
    CMF_CHECK(folder.MakeFolder(inside.parent_path()));
    CMF_CHECK(LinkOrCopy(file->path(), folder.path() / inside));
  }
  return folder.Commit();
}

}  // namespace cmforge::mil
