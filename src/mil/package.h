// Models on disk: .mlpackage folders, compiled .mlmodelc folders, bare .mlmodel files.
//
//   X.mlpackage/Manifest.json
//   X.mlpackage/Data/com.apple.CoreML/model.mlmodel
//   X.mlpackage/Data/com.apple.CoreML/weights/weight.bin
//
//   X.mlmodelc/model.mil  coremldata.bin  metadata.json  analytics/coremldata.bin  weights/weight.bin
#pragma once

#include <filesystem>
#include <memory>

#include "mil/model.h"
#include "mil/weights.h"

namespace cmforge::mil {

enum class PackageForm : uint8_t { kPackage, kCompiled, kFile };

struct Package {
  std::filesystem::path path;        // what was opened
  std::filesystem::path model_path;  // the folder "@model_path" stands for
  PackageForm form = PackageForm::kPackage;
  Model model;
  std::shared_ptr<const Weights> weights;
};

/// The end of a message about a model whose files are not what they should be.
inline constexpr std::string_view kModelRemedy = "copy the file again, or convert the model again";

/// `error` of a model's files, saying what to do about it.
[[nodiscard]] Error WithRemedy(Error error);

/// Opens any of the three forms; weights stay on disk. Does not check the program (see CheckModel).
/// Fails: kNotFound (no such path, a file the package lists and lacks), kCorrupt (manifest, model or text,
/// with file and place), kUnsupported (other kinds of models).
Result<Package> OpenPackage(const std::filesystem::path& path,
                            MappedFile::Mode mode = MappedFile::Mode::kMap);

/// A folder that appears under its name only when it is complete, replacing what was there.
class StagedFolder {
 public:
  StagedFolder() = default;
  StagedFolder(StagedFolder&&) noexcept;
  StagedFolder& operator=(StagedFolder&&) noexcept;
  ~StagedFolder();

  /// Fails: kNotFound (no such parent), kIo, kUsage (the target is a file).
  static Result<StagedFolder> Create(const std::filesystem::path& target);
  [[nodiscard]] const std::filesystem::path& path() const { return staging_; }  // where to write
  Result<void> MakeFolder(const std::filesystem::path& inside) const;
  Result<void> Commit();

 private:
  std::filesystem::path target_, staging_;
};

/// Writes a .mlpackage: weights first, in any order, then the model that names them.
class PackageWriter {
 public:
  static Result<PackageWriter> Create(const std::filesystem::path& path);
  [[nodiscard]] BlobWriter& weights() { return weights_; }
  /// Checks the model against what was written, then gives the package its name. Identifiers in the manifest
  /// derive from content. Fails: as CheckModel; kIo.
  Result<void> Commit(const Model& model);

 private:
  StagedFolder folder_;
  BlobWriter weights_;
};

/// Writes the compiled form of an open model; weight files are linked where the file system allows, else
/// copied. Fails: kUnsupported (features only Apple's compiler knows), kIo.
Result<void> WriteCompiled(const Package& source, const std::filesystem::path& target);

}  // namespace cmforge::mil
