// Reading meta.yaml and finding the parts it names.
#include "coreml/package_meta.h"

#include <yaml-cpp/yaml.h>

#include "base/mapped_file.h"

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBytes = 1 << 20;
constexpr int64_t kMaxChunks = 999;

/// "..." stands in listings for elements left out; it is no value.
bool IsEllipsis(const YAML::Node& node) { return node.IsScalar() && node.Scalar() == "..."; }

template <class T>
bool Decode(const YAML::Node& node, T& out) {
  return YAML::convert<T>::decode(node, out);
}

template <class T>
bool Decode(const YAML::Node& node, std::optional<T>& out) {
  return Decode(node, out.emplace());
}

template <class T>
bool Decode(const YAML::Node& node, std::vector<T>& out) {
  if (!node.IsSequence()) return false;
  out.clear();
  for (const YAML::Node& item : node) {
    if (!IsEllipsis(item) && !Decode(item, out.emplace_back())) return false;
  }
  return true;
}

template <class K, class V>
bool Decode(const YAML::Node& node, std::map<K, V>& out) {
  if (!node.IsMap()) return false;
  out.clear();
  for (const auto& pair : node) {
    K key{};
    if (IsEllipsis(pair.first)) continue;
    if (!Decode(pair.first, key) || !Decode(pair.second, out[key])) return false;
  }
  return true;
}

/// Values by key, in the places where they may lie, best first.
class Lookup {
 public:
  static Lookup OfFile(const YAML::Node& root) {
    Lookup lookup;
    const YAML::Node info = root["model_info"];
    if (info && info.IsMap()) {
      const YAML::Node parameters = info["parameters"];
      if (parameters && parameters.IsMap()) lookup.places_.push_back(parameters);
      lookup.places_.push_back(info);
    }
    lookup.places_.push_back(root);
    return lookup;
  }
  static Lookup Inside(const YAML::Node& map) {
    Lookup lookup;
    lookup.places_.push_back(map);
    return lookup;
  }

  [[nodiscard]] YAML::Node Find(const char* key) const {
    for (const YAML::Node& place : places_) {
      const YAML::Node node = place[key];
      if (node && !node.IsNull()) return node;
    }
    return YAML::Node(YAML::NodeType::Undefined);
  }

  /// Key, place, key, place, ...; places of absent keys stay as they are.
  Result<void> Read() const { return {}; }
  template <class T, class... Rest>
  Result<void> Read(const char* key, T& out, Rest&&... rest) const {
    const YAML::Node node = Find(key);
    if (node && !Decode(node, out)) {
      const std::string text = node.IsScalar() ? node.Scalar() : "a list or map";
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("'{}': '{}' is not what belongs there", key, text.substr(0, 80)));
    }
    return Read(std::forward<Rest>(rest)...);
  }

 private:
  std::vector<YAML::Node> places_;
};

Result<void> CheckRange(const char* key, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is {}, {} to {} makes sense", key, value, low, high));
}

Result<void> ReadSampling(const YAML::Node& node, RecommendedSampling& out) {
  if (!node || !node.IsMap()) return {};
  return Lookup::Inside(node).Read("do_sample", out.do_sample, "temperature", out.temperature, "top_p",
                                   out.top_p, "top_k", out.top_k, "min_p", out.min_p, "repetition_penalty",
                                   out.repetition_penalty);
}

Result<void> ReadStates(const YAML::Node& node, std::vector<StateMeta>& out) {
  if (!node || !node.IsSequence()) return {};
  for (const YAML::Node& item : node) {
    if (!item.IsMap()) return Fail(ErrorKind::kCorrupt, "'states' holds something that is no map");
    StateMeta& state = out.emplace_back();
    CMF_CHECK(Lookup::Inside(item).Read("name", state.name, "shape", state.shape, "dtype", state.dtype,
                                        "layers", state.layers));
  }
  return {};
}

Result<PackageMeta> Parse(const YAML::Node& root) {
  if (!root.IsMap()) return Fail(ErrorKind::kCorrupt, "no map of keys");
  const Lookup lookup = Lookup::OfFile(root);
  PackageMeta meta;
  CMF_CHECK(lookup.Read("name", meta.name, "version", meta.version, "architecture", meta.architecture));
  CMF_CHECK(lookup.Read("context_length", meta.context_length, "state_length", meta.state_length,
                        "batch_size", meta.batch_size, "num_chunks", meta.num_chunks));
  CMF_CHECK(lookup.Read("model_prefix", meta.model_prefix, "embeddings", meta.embeddings, "lm_head",
                        meta.lm_head, "ffn", meta.ffn));
  for (const char* key :
       {"lut_embeddings", "lut_embeddings_per_channel", "lut_ffn", "lut_ffn_per_channel", "lut_ffn_mixed",
        "lut_lmhead", "lut_lmhead_per_channel", "quant_ffn", "quant_lmhead", "quant_embeddings"}) {
    std::optional<std::string> text;
    CMF_CHECK(lookup.Read(key, text));
    if (text) meta.weights[key] = *text;
  }
  CMF_CHECK(lookup.Read("split_lm_head", meta.split_lm_head, "vocab_size", meta.vocab_size, "hidden_size",
                        meta.hidden_size, "num_layers", meta.num_layers, "lm_head_chunk_sizes",
                        meta.lm_head_chunk_sizes));
  CMF_CHECK(lookup.Read("prefill_dynamic_slice", meta.prefill_dynamic_slice, "prefill_last_token_output",
                        meta.prefill_last_token_output));
  CMF_CHECK(ReadSampling(lookup.Find("recommended_sampling"), meta.recommended_sampling));
  CMF_CHECK(lookup.Read("recurrent_state", meta.recurrent_state, "prefill_full_batches_only",
                        meta.prefill_full_batches_only, "layer_types", meta.layer_types));
  CMF_CHECK(ReadStates(lookup.Find("states"), meta.states));
  CMF_CHECK(lookup.Read("local_attention_window", meta.local_attention_window, "local_cache_length",
                        meta.local_cache_length, "per_layer_inputs", meta.per_layer_inputs,
                        "final_logit_softcap", meta.final_logit_softcap, "kv_shared_layers",
                        meta.kv_shared_layers));
  CMF_CHECK(CheckRange("num_chunks", meta.num_chunks, 1, kMaxChunks));
  CMF_CHECK(CheckRange("batch_size", meta.batch_size, 1, 1 << 20));
  CMF_CHECK(CheckRange("context_length", meta.context_length, 0, int64_t{1} << 31));
  CMF_CHECK(CheckRange("split_lm_head", meta.split_lm_head, 1, 4096));
  return meta;
}

/// "_lut6", "_int8", or nothing.
std::string Suffix(const PackageMeta& meta, const char* part) {
  const auto text = [&](const std::string& key) {
    const auto it = meta.weights.find(key);
    return it == meta.weights.end() || it->second == "none" ? std::string() : it->second;
  };
  if (const std::string quant = text(std::string("quant_") + part); !quant.empty())
    return "_" + quant.substr(0, quant.find(','));
  const std::string lut = text(std::string("lut_") + part);
  return lut.empty() ? "" : "_lut" + lut;
}

/// The name without the extension of a model.
std::string Stem(std::string name) {
  for (const std::string_view extension : {".mlmodelc", ".mlpackage"}) {
    if (name.ends_with(extension)) name.resize(name.size() - extension.size());
  }
  return name;
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != ".." && name != "." &&
         name.find('\0') == std::string::npos;
}

}  // namespace

Result<PackageMeta> ParsePackageMeta(const std::string& yaml) {
  if (yaml.size() > kMaxBytes)
    return Fail(ErrorKind::kLimit, fmt::format("{} bytes, at most {} are read", yaml.size(), kMaxBytes));
  try {  // yaml-cpp reports by exceptions; none leaves this function
    return Parse(YAML::Load(yaml));
  } catch (const YAML::Exception& e) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("line {}, column {}: {}", e.mark.line + 1, e.mark.column + 1, e.msg), "Parse");
  }
}

Error MetaError(Error error, const fs::path& folder) {
  error = std::move(error).In((folder / "meta.yaml").string());
  error.message.append(": ").append(remedies::kMeta);
  return error;
}

Result<PackageMeta> ReadPackageMeta(const fs::path& folder) {
  const fs::path file = folder / "meta.yaml";
  CMF_TRY(const std::string text, ReadTextFile(file, kMaxBytes));
  auto meta = ParsePackageMeta(text);
  if (!meta) return Fail(MetaError(std::move(meta).error(), folder));
  return meta;
}

Result<void> CheckIsModelOrPackage(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {};
  for (const char* name : {"meta.yaml", "Manifest.json", "model.mil", "coremldata.bin"}) {
    if (fs::exists(path / name, error)) return {};
  }
  return Fail(
      ErrorKind::kNotFound,
      fmt::format("{}: neither meta.yaml (a package folder), Manifest.json (an .mlpackage) nor model.mil "
                  "(an .mlmodelc) is in it: check the path",
                  path.string()));
}

Result<PackageParts> FindParts(const fs::path& folder, const PackageMeta& meta) {
  const std::string prefix = meta.model_prefix.empty() ? "llama" : meta.model_prefix;
  std::vector<std::string> missing;
  const auto find = [&](const std::string& name, const std::string& fallback) -> fs::path {
    std::error_code error;
    for (const std::string& stem : {Stem(name), fallback}) {
      if (!IsPlainName(stem)) continue;
      for (const std::string& candidate :
           {stem == Stem(name) ? name : stem, stem + ".mlmodelc", stem + ".mlpackage"}) {
        if (IsPlainName(candidate) && fs::is_directory(folder / candidate, error)) return folder / candidate;
      }
    }
    missing.push_back(name == Stem(name) ? name + ".mlmodelc" : name);
    return {};
  };
  PackageParts parts;
  const std::string first = meta.ffn.empty() ? fmt::format("{}_FFN_PF{}_chunk_01of{:02}", prefix,
                                                           Suffix(meta, "ffn"), meta.num_chunks)
                                             : meta.ffn;
  const size_t number = first.rfind("_chunk_01of");
  for (int64_t chunk = 1; chunk <= meta.num_chunks; ++chunk) {
    std::string name = first;
    if (number == std::string::npos && meta.num_chunks > 1) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: ffn '{}' has no _chunk_01of in its name, num_chunks is {}: {}",
                              (folder / "meta.yaml").string(), first, meta.num_chunks, remedies::kChunkName));
    }
    if (number != std::string::npos) name.replace(number + 7, 2, fmt::format("{:02}", chunk));
    parts.chunks.push_back(find(name, ""));
  }
  parts.embeddings =
      find(meta.embeddings.empty() ? prefix + "_embeddings" + Suffix(meta, "embeddings") : meta.embeddings,
           prefix + "_embeddings");
  parts.lm_head =
      find(meta.lm_head.empty() ? prefix + "_lm_head" + Suffix(meta, "lmhead") : meta.lm_head, "");
  if (missing.empty()) return parts;
  return Fail(ErrorKind::kNotFound,
              fmt::format("{}: meta.yaml names {} that {} not there: {}: {}", folder.string(),
                          missing.size() == 1 ? "a part" : "parts", missing.size() == 1 ? "is" : "are",
                          fmt::join(missing, ", "), remedies::kMissingPart));
}

}  // namespace cmforge::coreml
