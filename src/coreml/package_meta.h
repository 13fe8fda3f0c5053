// meta.yaml: what an ANEMLL package folder says about itself. Read leniently: values may lie under
// model_info.parameters (as packages have them), under model_info, or at the top (as the specification prints
// them); unknown keys are ignored, null is absent.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge::coreml {

struct StateMeta {
  std::string name;
  Shape shape;
  std::string dtype;
  std::vector<int64_t> layers;
};

struct PackageMeta {
  std::string name, version, architecture;
  int64_t context_length = 0;
  std::optional<int64_t> state_length;
  int64_t batch_size = 64;
  int64_t num_chunks = 1;
  std::string model_prefix;
  std::string embeddings, lm_head,
      ffn;  // names of parts; of the first chunk. Made from the prefix when absent
  std::map<std::string, std::string> weights;  // lut_*, quant_*: as written
  int64_t split_lm_head = 8;
  std::optional<int64_t> vocab_size, hidden_size, num_layers;
  std::vector<int64_t> lm_head_chunk_sizes;
  bool prefill_dynamic_slice = false;
  bool prefill_last_token_output = false;
  RecommendedSampling recommended_sampling;
  // Extensions
  bool recurrent_state = false;
  bool prefill_full_batches_only = false;
  std::vector<std::string> layer_types;
  std::vector<StateMeta> states;
  std::optional<int64_t> local_attention_window, local_cache_length, per_layer_inputs;
  std::optional<double> final_logit_softcap;
  std::map<int64_t, int64_t> kv_shared_layers;
};

/// How messages about a package end, in errors and in findings of lint.
namespace remedies {
inline constexpr std::string_view kMeta = "correct it, or convert the model again";
inline constexpr std::string_view kMissingPart =
    "bring back what is missing, or correct the names in meta.yaml";
inline constexpr std::string_view kChunkName = "name the first chunk PREFIX_FFN_PF_chunk_01ofNN";
inline constexpr std::string_view kContract = "convert the model again, or correct meta.yaml";
}  // namespace remedies

/// Fails: kCorrupt for YAML that does not parse, numbers that are none or make no sense (key and value
/// named), more than 999 chunks; kLimit above 1 MiB.
Result<PackageMeta> ParsePackageMeta(const std::string& yaml);

/// Fails: kNotFound for a folder that is neither a model nor a package: what of them is not in it.
Result<void> CheckIsModelOrPackage(const std::filesystem::path& path);

/// The parts of a package, each an existing path.
struct PackageParts {
  std::filesystem::path embeddings, lm_head;
  std::vector<std::filesystem::path> chunks;
};

/// Each part as named, else the compiled form, else the package beside it. Fails: kNotFound naming every part
/// that is not there.
Result<PackageParts> FindParts(const std::filesystem::path& folder, const PackageMeta& meta);

/// An error of ParsePackageMeta with the file's path and what to do.
[[nodiscard]] Error MetaError(Error error, const std::filesystem::path& folder);

/// meta.yaml of a folder. Fails: kNotFound, as ParsePackageMeta with the path.
Result<PackageMeta> ReadPackageMeta(const std::filesystem::path& folder);

}  // namespace cmforge::coreml
