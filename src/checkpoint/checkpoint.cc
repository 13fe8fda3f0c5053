// OpenCheckpoint: the readers of this room one after another.
#include "checkpoint/checkpoint.h"

#include <algorithm>

#include "checkpoint/canonical_source.h"
#include "checkpoint/messages.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_fit.h"

namespace cmforge {
namespace {

Result<std::shared_ptr<const MappedFile>> OpenTokenizer(const std::filesystem::path& path,
                                                        MappedFile::Mode mode) {
  std::error_code ignored;
  if (std::filesystem::symlink_status(path, ignored).type() == std::filesystem::file_type::not_found)
    return nullptr;
  CMF_TRY(MappedFile file, MappedFile::Open(path, mode));
  if (IsLfsPointer(file.bytes())) return Fail(LfsPointerError(path.string()));
  if (IsBlank(AsText(file.bytes()))) return Fail(BlankFileError(path.string()));
  return std::make_shared<const MappedFile>(std::move(file));
}

/// MLX writes convolutions as [C, K, 1] and adds 1 to zero-centred norm weights when it does so.
bool IsMlxLayout(const TensorSource& raw) {
  const auto all = raw.tensors();
  return std::any_of(all.begin(), all.end(), [](const TensorInfo& info) {
    return info.name.ends_with("linear_attn.conv1d.weight") && info.shape.size() == 3 && info.shape[1] > 1 &&
           info.shape[2] == 1;
  });
}

}  // namespace

Result<Checkpoint> OpenCheckpoint(const std::filesystem::path& folder, MappedFile::Mode mode) {
  Checkpoint result;
  CMF_TRY(result.tokenizer, OpenTokenizer(folder / "tokenizer.json", mode));
  CMF_TRY(const HfConfigFiles files, ReadHfConfigFiles(folder, result.tokenizer_json()));
  CMF_TRY(result.config, ParseHfConfig(files));
  HfConfig& config = result.config;
  if (!result.tokenizer) {
    config.warnings.push_back(folder.string() + ": no tokenizer.json: the model knows token ids, no text");
  }
  CMF_TRY(result.raw, SafetensorsSource::Open(folder, mode));
  CMF_TRY(result.tensors, MakeCanonicalSource(result.raw, config));
  if (config.model.norm_style == NormStyle::kOnePlus && IsMlxLayout(*result.raw)) {
    config.model.norm_style = NormStyle::kPlain;
    config.warnings.push_back(folder.string() +
                              ": MLX layout: norm weights are taken as they are, 1 was added already");
  }
  CMF_CHECK(FitTensors(*result.tensors, config));
  result.warnings = config.warnings;
  return result;
}

}  // namespace cmforge
