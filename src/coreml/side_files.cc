// Copying and making the side files.
#include "coreml/side_files.h"

#include <algorithm>
#include <iterator>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/side_files.h"

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 32 << 20;

class SideFiles {
 public:
  SideFiles(const PackageSource& source, const fs::path& folder) : source_(source), folder_(folder) {}

  Result<std::vector<std::string>> Write() {
    if (!source_.checkpoint.empty()) {
      CMF_CHECK(CopyAll());
    } else {
      CMF_CHECK(MakeAll());
    }
    return std::move(written_);
  }

 private:
  Result<void> Put(const std::string& name, std::string_view text) {
    CMF_CHECK(WriteFileAtomically(folder_ / name, AsBytes(text)));
    written_.push_back(name);
    return {};
  }
  Result<void> PutJson(const std::string& name, const Json& json) {
    return Put(name, DumpJson(json, 2) + "\n");
  }

  Result<void> CopyAll() {
    std::error_code error;
    for (const char* name : kSideFiles) {
      const fs::path from = source_.checkpoint / name;
      if (!fs::exists(from, error)) continue;
      CMF_TRY(const MappedFile file, MappedFile::Open(from));
      CMF_CHECK(WriteFileAtomically(folder_ / name, file.bytes()));
      written_.push_back(name);
    }
    const fs::path from = source_.checkpoint / "config.json";
    CMF_TRY(const std::string text, ReadTextFile(from, kMaxConfigBytes));
    CMF_TRY(Json config, ParseJson(text, from.string()));
    if (!config.is_object()) return Fail(ErrorKind::kCorrupt, from.string() + ": no JSON object");
    Complete(config, TokenizerClass());
    return PutJson("config.json", config);
  }

  /// What readers of packages look for at the top of config.json.
  void Complete(Json& config, const std::string& tokenizer_class) const {
    if (!config.contains("tokenizer_class")) config["tokenizer_class"] = tokenizer_class;
    const auto eos = config.find("eos_token_id");
    if ((eos == config.end() || eos->is_null()) && source_.chat && !source_.chat->eos_token_ids.empty()) {
      const std::vector<TokenId>& ids = source_.chat->eos_token_ids;
      config["eos_token_id"] = ids.size() == 1 ? Json(ids[0]) : Json(ids);
    }
  }

  [[nodiscard]] std::string TokenizerClass() const {
    if (!source_.checkpoint.empty()) {
      const fs::path file = source_.checkpoint / "tokenizer_config.json";
      const auto text = ReadTextFile(file, kMaxConfigBytes);
      const auto json = text ? ParseJson(*text, file.string()) : Result<Json>(Json(nullptr));
      if (json && json->is_object()) {
        const auto named = json->find("tokenizer_class");
        if (named != json->end() && named->is_string()) return named->get<std::string>();
      }
    }
    return source_.config.arch_name.starts_with("gemma") ? "GemmaTokenizer" : "Qwen2Tokenizer";
  }

  Result<void> MakeAll() {
    CMF_CHECK(PutJson("config.json", MadeConfig()));
    CMF_CHECK(PutJson("generation_config.json", MadeGeneration()));
    if (source_.chat && !source_.chat->chat_template.empty())
      CMF_CHECK(Put("chat_template.jinja", source_.chat->chat_template));
    if (source_.tokenizer_json.empty()) return {};
    CMF_CHECK(Put("tokenizer.json", source_.tokenizer_json));
    return PutJson("tokenizer_config.json", MadeTokenizerConfig());
  }

  [[nodiscard]] static Json RopeJson(const RopeConfig& rope) {
    static constexpr std::string_view kNames[] = {"default", "linear",   "dynamic",     "llama3",
                                                  "yarn",    "longrope", "proportional"};
    Json json = {{"rope_type", kNames[static_cast<size_t>(rope.kind)]},
                 {"rope_theta", rope.theta},
                 {"partial_rotary_factor", rope.partial_rotary_factor}};
    if (rope.kind == RopeKind::kDefault || rope.kind == RopeKind::kProportional) return json;
    json["factor"] = rope.factor;
    if (rope.original_max_position_embeddings > 0)
      json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
    if (rope.kind == RopeKind::kLlama3) {
      json["low_freq_factor"] = rope.low_freq_factor;
      json["high_freq_factor"] = rope.high_freq_factor;
    }
    if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
    if (rope.kind == RopeKind::kYarn) {
      json["beta_fast"] = rope.beta_fast;
      json["beta_slow"] = rope.beta_slow;
      json["truncate"] = rope.truncate;
      if (rope.mscale) json["mscale"] = *rope.mscale;
      if (rope.mscale_all_dim) json["mscale_all_dim"] = *rope.mscale_all_dim;
    }
    if (rope.kind == RopeKind::kLongRope) {
      json["long_factor"] = rope.long_factor;
      json["short_factor"] = rope.short_factor;
    }
    return json;
  }

  /// The model's description in the words of a checkpoint's config.json.
  [[nodiscard]] Json MadeConfig() const {
    const ModelConfig& c = source_.config;
    Json json = {{"model_type", c.arch_name},
                 {"hidden_size", c.hidden_size},
                 {"intermediate_size", c.intermediate_size},
                 {"num_hidden_layers", c.num_layers},
                 {"num_attention_heads", c.num_attention_heads},
                 {"num_key_value_heads", c.num_kv_heads},
                 {"head_dim", c.head_dim},
                 {"vocab_size", c.vocab_size},
                 {"max_position_embeddings", c.max_position_embeddings},
                 {"rms_norm_eps", c.rms_norm_eps},
                 {"hidden_act", c.hidden_act == Activation::kSilu ? "silu" : "gelu_pytorch_tanh"},
                 {"tie_word_embeddings", c.tie_word_embeddings},
                 {"rope_theta", c.rope.theta},
                 {"rope_parameters", RopeJson(c.rope)}};
    if (c.linear_attention) {
      json["linear_num_key_heads"] = c.linear_attention->num_key_heads;
      json["linear_num_value_heads"] = c.linear_attention->num_value_heads;
      json["linear_key_head_dim"] = c.linear_attention->key_head_dim;
      json["linear_value_head_dim"] = c.linear_attention->value_head_dim;
      json["linear_conv_kernel_dim"] = c.linear_attention->conv_kernel;
      json["layer_types"] = Json::array();
      for (const LayerKind kind : c.layer_types) {
        json["layer_types"].push_back(kind == LayerKind::kLinearAttention ? "linear_attention"
                                                                          : "full_attention");
      }
    }
    if (c.moe) {
      json["num_experts"] = c.moe->num_experts;
      json["num_experts_per_tok"] = c.moe->top_k;
      json["moe_intermediate_size"] = c.moe->intermediate_size;
      json["norm_topk_prob"] = c.moe->norm_topk_prob;
      json["shared_expert_intermediate_size"] = c.moe->shared_expert_intermediate_size;
    }
    if (source_.chat && source_.chat->bos_token_id) json["bos_token_id"] = *source_.chat->bos_token_id;
    Complete(json, TokenizerClass());
    return json;
  }

  [[nodiscard]] Json MadeGeneration() const {
    Json json = Json::object();
    if (source_.chat && source_.chat->bos_token_id) json["bos_token_id"] = *source_.chat->bos_token_id;
    if (source_.chat && !source_.chat->eos_token_ids.empty())
      json["eos_token_id"] = source_.chat->eos_token_ids;
    if (source_.chat && source_.chat->pad_token_id) json["pad_token_id"] = *source_.chat->pad_token_id;
    const RecommendedSampling& s = source_.sampling;
    if (s.do_sample) json["do_sample"] = *s.do_sample;
    if (s.temperature) json["temperature"] = *s.temperature;
    if (s.top_p) json["top_p"] = *s.top_p;
    if (s.top_k) json["top_k"] = *s.top_k;
    if (s.min_p) json["min_p"] = *s.min_p;
    if (s.typical_p) json["typical_p"] = *s.typical_p;
    if (s.repetition_penalty) json["repetition_penalty"] = *s.repetition_penalty;
    return json;
  }

  [[nodiscard]] Json MadeTokenizerConfig() const {
    Json json = {{"tokenizer_class", TokenizerClass()}};
    if (!source_.chat) return json;
    const auto name = [&](const char* key, TokenId id) {
      for (const auto& [text, known] : AddedTokens(source_.tokenizer_json)) {
        if (known == id) json[key] = text;
      }
    };
    if (source_.chat->bos_token_id) name("bos_token", *source_.chat->bos_token_id);
    if (!source_.chat->eos_token_ids.empty()) name("eos_token", source_.chat->eos_token_ids[0]);
    if (source_.chat->pad_token_id) name("pad_token", *source_.chat->pad_token_id);
    if (!source_.chat->chat_template.empty()) json["chat_template"] = source_.chat->chat_template;
    return json;
  }

  const PackageSource& source_;
  const fs::path folder_;
  std::vector<std::string> written_;
};

}  // namespace

bool IsSideFile(std::string_view name) {
  return name == "config.json" ||
         std::find(std::begin(kSideFiles), std::end(kSideFiles), name) != std::end(kSideFiles);
}

Result<std::vector<std::string>> WriteSideFiles(const PackageSource& source, const fs::path& folder) {
  return SideFiles(source, folder).Write();
}

}  // namespace cmforge::coreml
