// OpenCheckpoint: the readers of this room one after another.
#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/canonical_source.h"
#include "checkpoint/messages.h"
#include "checkpoint/plain_names.h"
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

/// The name of a tensor in the first layer that the config does not count; empty when there is none. Layers that predict
/// further tokens stand behind the last one in some families, announced by the config or known by their projection.
std::string FirstBeyond(const TensorSource& tensors, const HfConfig& config) {
  std::map<int64_t, std::string> beyond;
  std::set<int64_t> predicts;
  for (const std::string& name : tensors.skipped()) {
    const auto plain = ToPlainName(name, config);
    if (!plain || plain->layer < 0) continue;
    beyond.try_emplace(plain->layer, name);
    if (name.find(".eh_proj.") != name.npos) predicts.insert(plain->layer);
  }
  const int64_t announced = config.model.mtp ? config.model.mtp->num_layers : 0;
  for (const auto& [layer, name] : beyond) {
    if (layer - config.model.num_layers >= announced && !predicts.contains(layer)) return name;
  }
  return {};
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
  if (const std::string beyond = FirstBeyond(*result.tensors, config); !beyond.empty()) {
    config.warnings.push_back(
        fmt::format("{}: tensor '{}': a layer beyond the {} that num_hidden_layers counts, left out like any "
                    "behind it: correct config.json if it is part of the model",
                    folder.string(), Shown(beyond), config.model.num_layers));
  }
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
