// meta.yaml as ANEMLL's readers take it: required keys in their place, names they can make sense of.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <numeric>
#include <regex>

#include "base/json.h"
#include "base/mapped_file.h"
#include "coreml/lint/package.h"

namespace cmforge::coreml::lint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRequired[] = {"lut_embeddings", "lut_ffn",        "lut_lmhead",
                                     "num_chunks",     "context_length", "batch_size"};
constexpr const char* kPart = "meta.yaml";
constexpr uint64_t kMaxConfigBytes = 64 << 20;

class MetaKeys {
 public:
  MetaKeys(const YAML::Node& root, Findings& findings) : findings_(findings) {
    const YAML::Node info = root["model_info"];
    const bool has_info = info && info.IsMap();
    const YAML::Node parameters = has_info ? info["parameters"] : YAML::Node();
    if (has_info && parameters && parameters.IsMap()) {
      place_ = parameters;
    } else {
      findings_.Add(rules::kMetaPlace, kPart,
                    "no model_info.parameters: both of ANEMLL's readers look there alone");
      place_ = has_info && info["context_length"] ? info : root;
    }
  }

  void Check() const {
    for (const char* key : kRequired) {
      if (!Has(key)) findings_.Add(rules::kMetaKey, kPart, fmt::format("'{}' is missing", key));
    }
    for (const char* key : {"lut_embeddings", "lut_ffn", "lut_lmhead"}) {
      const std::string bits = Text(key);
      static const std::regex kBits("none|[123468](,-?[0-9]+)?");
      if (Has(key) && !std::regex_match(bits, kBits)) {
        findings_.Add(rules::kMetaValue, kPart,
                      fmt::format("'{}' is '{}': none, or 1, 2, 3, 4, 6 or 8 bits", key, bits.substr(0, 40)));
      }
    }
    for (const char* key : {"context_length", "state_length", "vocab_size", "hidden_size", "num_layers",
                            "local_attention_window", "local_cache_length"}) {
      const std::string count = Text(key);
      static const std::regex kNone("-[0-9]+|[+]?0+");
      if (std::regex_match(count, kNone)) {
        findings_.Add(rules::kMetaValue, kPart,
                      fmt::format("'{}' is {}: 1 or more", key, count.substr(0, 40)));
      }
    }
    if (!Has("split_lm_head"))
      findings_.Add(rules::kHeadSplitUnsaid, kPart, "'split_lm_head' is missing: readers take 8 outputs");
    if (Text("model_prefix").starts_with("gemma3")) {
      findings_.Add(rules::kWindowPrefix, kPart,
                    fmt::format("'model_prefix' is '{}': the Swift reader turns on a window of 512",
                                Text("model_prefix")));
    }
    if (Text("model_type") == "monolithic")
      findings_.Add(rules::kMetaVariant, kPart,
                    "'model_type' is monolithic: embeddings, chunks and head in one model");
    for (const char* key : {"argmax_in_model", "update_mask_prefill", "split_rotate", "single_cache"}) {
      if (Text(key) == "true") findings_.Add(rules::kMetaVariant, kPart, fmt::format("'{}' is true", key));
    }
    if (Has("sliding_window")) findings_.Add(rules::kMetaVariant, kPart, "'sliding_window' is set");
    const YAML::Node sampling = place_["recommended_sampling"];
    if (!sampling || !sampling.IsMap()) return;
    for (const char* key : {"temperature", "top_p", "top_k"}) {
      if (!sampling[key]) {
        findings_.Add(
            rules::kSampling, kPart,
            fmt::format("'recommended_sampling' has no {}: the Swift reader ignores all of it", key));
      }
    }
  }

 private:
  [[nodiscard]] bool Has(const char* key) const {
    const YAML::Node node = place_[key];
    return node && !node.IsNull();
  }
  [[nodiscard]] std::string Text(const char* key) const {
    const YAML::Node node = place_[key];
    return node && node.IsScalar() ? node.Scalar() : "";
  }

  YAML::Node place_;
  Findings& findings_;
};

void CheckHeadSizes(const PackageMeta& meta, Findings& findings) {
  const auto& sizes = meta.lm_head_chunk_sizes;
  if (sizes.empty()) return;
  if (static_cast<int64_t>(sizes.size()) != meta.split_lm_head) {
    findings.Add(rules::kHeadSizes, kPart,
                 fmt::format("'lm_head_chunk_sizes' lists {} widths, 'split_lm_head' is {}", sizes.size(),
                             meta.split_lm_head));
  }
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0}, [](int64_t a, int64_t b) {
    return a < 0 || b < 0 || b > INT64_MAX - a ? -1 : a + b;
  });
  if (meta.vocab_size && sum != *meta.vocab_size) {
    findings.Add(rules::kHeadSizes, kPart,
                 fmt::format("'lm_head_chunk_sizes' sum to {}, 'vocab_size' is {}", sum, *meta.vocab_size));
  }
}

/// 'num_layers' against whatever else counts them.
void CheckLayers(const fs::path& folder, const PackageMeta& meta, Findings& findings) {
  if (!meta.num_layers) return;
  const int64_t layers = *meta.num_layers;
  const auto differs = [&](const std::string& what) {
    findings.Add(rules::kMetaValue, kPart, fmt::format("'num_layers' is {}, {}", layers, what));
  };
  if (const auto listed = static_cast<int64_t>(meta.layer_types.size()); listed > 0 && listed != layers)
    differs(fmt::format("'layer_types' lists {}", listed));
  for (const StateMeta& state : meta.states) {
    const auto last = std::max_element(state.layers.begin(), state.layers.end());
    if (last != state.layers.end() && *last >= layers)
      differs(fmt::format("state '{}' is of layer {} too", state.name, *last));
  }
  const auto text = ReadTextFile((folder / "config.json").string(), kMaxConfigBytes);
  if (!text) return;  // reported where the file is looked at
  const auto config = ParseJson(*text, "config.json");
  if (!config || !config->is_object()) return;
  const auto inner = config->find("text_config");
  for (const Json* place : {&*config, inner != config->end() ? &*inner : nullptr}) {
    if (!place || !place->is_object()) continue;
    const auto count = place->find("num_hidden_layers");
    if (count == place->end() || !count->is_number_integer()) continue;
    if (*count != layers) differs(fmt::format("config.json says {}", count->dump()));
    return;
  }
}

}  // namespace

Result<void> CheckMetaKeys(const std::string& yaml, Findings& findings) {
  try {  // yaml-cpp reports by exceptions; none leaves this function
    const YAML::Node root = YAML::Load(yaml);
    if (!root.IsMap()) return Fail(ErrorKind::kCorrupt, "no map of keys");
    MetaKeys(root, findings).Check();
    return {};
  } catch (const YAML::Exception& e) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("line {}, column {}: {}", e.mark.line + 1, e.mark.column + 1, e.msg), "Parse");
  }
}

void CheckMetaNames(const fs::path& folder, const PackageMeta& meta, const PackageParts& parts,
                    Findings& findings) {
  CheckHeadSizes(meta, findings);
  CheckLayers(folder, meta, findings);
  const std::string first = parts.chunks.front().filename().string();
  static const std::regex kName("(.*FFN[^/]*_chunk_)([0-9]+)of([0-9]+)(.*)");
  std::smatch match;
  if (!std::regex_match(first, match, kName)) {
    findings.Add(rules::kFfnName, kPart,
                 fmt::format("'{}': readers look for FFN..._chunk_01of{:02}", first, meta.num_chunks));
    return;
  }
  const std::string stem = match[1], of = match[3], rest = match[4];
  if (of.size() > 9 || std::stoll(of) != meta.num_chunks) {
    findings.Add(rules::kFfnName, kPart,
                 fmt::format("'{}' says {} chunks, 'num_chunks' {}", first, of, meta.num_chunks));
  }
  int64_t count = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    count += name.starts_with(stem) && name.ends_with(rest);
  }
  if (count != meta.num_chunks) {
    findings.Add(
        rules::kChunkFiles, kPart,
        fmt::format("{} files are named {}*{}, readers want {}", count, stem, rest, meta.num_chunks));
  }
}

}  // namespace cmforge::coreml::lint
