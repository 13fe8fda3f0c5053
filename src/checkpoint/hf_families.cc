// The families themselves.
#include "checkpoint/hf_families.h"

#include <algorithm>
#include <vector>

#include "checkpoint/messages.h"

namespace cmforge {
namespace {

constexpr NormStyle kPlain = NormStyle::kPlain;
constexpr NormStyle kOnePlus = NormStyle::kOnePlus;

constexpr std::string_view kGemma2Defaults = R"({
  "tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
  "query_pre_attn_scalar": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
  "max_position_embeddings": 8192})";

// Published files leave out what equals the library's default: the 4B one has neither heads nor vocabulary.
constexpr std::string_view kGemma3Defaults = R"({
  "tie_word_embeddings": true, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "vocab_size": 262208, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
  "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 6, "rope_theta": 1000000.0,
  "rope_local_base_freq": 10000.0, "max_position_embeddings": 131072})";

constexpr std::string_view kGemma4Defaults = R"({
  "tie_word_embeddings": true, "head_dim": 256, "global_head_dim": 512, "hidden_activation": "gelu_pytorch_tanh",
  "rms_norm_eps": 1e-6, "sliding_window": 512, "sliding_window_pattern": 6, "query_pre_attn_scalar": 1.0,
  "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0, "max_position_embeddings": 131072,
  "rope_parameters": {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25}}})";

constexpr std::string_view kHybridDefaults =
    R"({"partial_rotary_factor": 0.25, "full_attention_interval": 4, "norm_topk_prob": true})";

constexpr std::string_view kLfm2Defaults = R"({
  "tie_word_embeddings": true, "rope_theta": 1000000.0, "norm_eps": 1e-5, "block_auto_adjust_ff_dim": true})";
constexpr std::string_view kLfm2MoeDefaults =
    R"({"tie_word_embeddings": true, "rope_theta": 1000000.0, "norm_eps": 1e-5, "norm_topk_prob": true})";

constexpr HfFamily kFamilies[] = {
    {.name = "llama"},
    {.name = "nanbeige"},
    {.name = "mistral", .layers = LayerRule::kEvery, .defaults = R"({"sliding_window": 4096})"},
    {.name = "phi3", .layers = LayerRule::kEvery, .defaults = R"({"rms_norm_eps": 1e-5})"},
    {.name = "qwen2", .layers = LayerRule::kUpper, .has_qkv_bias = true},
    {.name = "qwen2_vl", .layers = LayerRule::kUpper, .has_qkv_bias = true},
    {.name = "qwen2_5_vl", .layers = LayerRule::kUpper, .has_qkv_bias = true},
    {.name = "qwen2_moe", .layers = LayerRule::kEvenLower, .defaults = R"({"qkv_bias": true})"},
    {.name = "qwen3", .layers = LayerRule::kUpper, .has_qk_norm = true},
    {.name = "qwen3_vl", .layers = LayerRule::kFull, .has_qk_norm = true},
    {.name = "qwen3_moe", .layers = LayerRule::kAllIfSwitchedOn, .has_qk_norm = true},
    {.name = "qwen3_vl_moe",
     .layers = LayerRule::kFull,
     .has_qk_norm = true,
     .defaults = R"({"norm_topk_prob": true})"},
    {.name = "qwen3_next",
     .norm_style = kOnePlus,
     .layers = LayerRule::kInterval,
     .has_qk_norm = true,
     .defaults = kHybridDefaults},
    {.name = "qwen3_5",
     .norm_style = kOnePlus,
     .layers = LayerRule::kInterval,
     .has_qk_norm = true,
     .defaults = kHybridDefaults},
    {.name = "qwen3_5_moe",
     .norm_style = kOnePlus,
     .layers = LayerRule::kInterval,
     .always_renormalizes = true,
     .has_qk_norm = true,
     .defaults = kHybridDefaults},
    {.name = "gemma",
     .norm_style = kOnePlus,
     .scales_embedding = true,
     .defaults = R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
                     "max_position_embeddings": 8192})"},
    {.name = "gemma2",
     .norm_style = kOnePlus,
     .layers = LayerRule::kEvenLayers,
     .scales_embedding = true,
     .applies_score_cap = true,
     .has_four_norms = true,
     .defaults = kGemma2Defaults},
    {.name = "gemma3",
     .norm_style = kOnePlus,
     .layers = LayerRule::kPattern,
     .scales_embedding = true,
     .has_qk_norm = true,
     .has_four_norms = true,
     .defaults = kGemma3Defaults},
    {.name = "gemma4",
     .norm_style = kPlain,
     .layers = LayerRule::kPatternLastFull,
     .scales_embedding = true,
     .has_qk_norm = true,
     .has_four_norms = true,
     .defaults = kGemma4Defaults},
    {.name = "laguna",
     .sigmoid_router = true,
     .has_qk_norm = true,
     .defaults = R"({"norm_topk_prob": true})"},
    {.name = "lfm2", .layers = LayerRule::kConvolutions, .has_qk_norm = true, .defaults = kLfm2Defaults},
    {.name = "lfm2_moe",
     .layers = LayerRule::kConvolutions,
     .sigmoid_router = true,
     .has_qk_norm = true,
     .defaults = kLfm2MoeDefaults},
};

constexpr HfFamily kCommon = {.name = "", .layers = LayerRule::kEvery, .applies_score_cap = true};

// Decoders whose tensors are named much like a llama's although they compute something else (other norms,
// other rotations, multipliers, routers), and others that people try.
constexpr std::string_view kNotRun[] = {"apertus",
                                        "arcee",
                                        "baichuan",
                                        "bamba",
                                        "bert",
                                        "bitnet",
                                        "bloom",
                                        "chatglm",
                                        "codegen",
                                        "cohere",
                                        "cohere2",
                                        "dbrx",
                                        "deepseek_v2",
                                        "deepseek_v3",
                                        "deepseek_v4",
                                        "diffllama",
                                        "dots1",
                                        "ernie4_5",
                                        "ernie4_5_moe",
                                        "exaone",
                                        "exaone4",
                                        "falcon",
                                        "falcon_h1",
                                        "falcon_mamba",
                                        "gemma3n",
                                        "glm",
                                        "glm4",
                                        "glm4_moe",
                                        "gpt2",
                                        "gpt_bigcode",
                                        "gpt_neo",
                                        "gpt_neox",
                                        "gpt_oss",
                                        "gptj",
                                        "granite",
                                        "granitemoe",
                                        "granitemoehybrid",
                                        "granitemoeshared",
                                        "helium",
                                        "hunyuan_v1_dense",
                                        "hunyuan_v1_moe",
                                        "internlm",
                                        "internlm2",
                                        "jamba",
                                        "jetmoe",
                                        "kimi_k2",
                                        "kimi_linear",
                                        "llama4",
                                        "mamba",
                                        "mamba2",
                                        "minicpm",
                                        "minicpm3",
                                        "minimax",
                                        "ministral3",
                                        "mixtral",
                                        "moonshine",
                                        "mpt",
                                        "nemotron",
                                        "nemotron_h",
                                        "olmo",
                                        "olmo2",
                                        "olmo3",
                                        "olmoe",
                                        "opt",
                                        "persimmon",
                                        "phi",
                                        "phimoe",
                                        "phi3small",
                                        "phi4_multimodal",
                                        "plamo",
                                        "recurrent_gemma",
                                        "rwkv",
                                        "rwkv7",
                                        "smollm3",
                                        "spark2_5",
                                        "stablelm",
                                        "starcoder2",
                                        "t5",
                                        "t5gemma",
                                        "xverse",
                                        "zamba",
                                        "zamba2"};

}  // namespace

Result<const HfFamily*> FindHfFamily(std::string_view model_type) {
  std::string_view base = model_type;
  if (base.ends_with("_text")) base.remove_suffix(5);
  for (const HfFamily& family : kFamilies) {
    if (family.name == base) return &family;
  }
  if (std::find(std::begin(kNotRun), std::end(kNotRun), base) != std::end(kNotRun)) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("model_type '{}' is a family this build does not run; it runs {}", model_type,
                            HfFamilyNames()));
  }
  return nullptr;
}

const HfFamily& CommonHfFamily() { return kCommon; }

std::span<const HfFamily> HfFamilies() { return kFamilies; }

std::string HfFamilyNames() {
  std::vector<std::string_view> names;
  for (const HfFamily& family : kFamilies) names.push_back(family.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<void> CheckNeutralKeys(std::string_view what, const Json& config) {
  struct Neutral {
    const char* key;
    double value;  // false counts as 0
  };
  constexpr double kNone = -1;  // no value is neutral
  static constexpr Neutral kNeutral[] = {
      {"alibi", 0},
      {"attention_multiplier", kNone},
      {"attn_temperature_tuning", 0},
      {"clip_qkv", kNone},
      {"embedding_multiplier", 1},
      {"enable_moe_block", 0},
      {"kv_lora_rank", 0},
      {"llama_4_scaling_beta", 0},
      {"logit_scale", 1},
      {"logits_scaling", 1},
      {"moe_apply_router_weight_on_input", 0},
      {"no_rope_layer_interval", 0},
      {"no_rope_layers", kNone},
      {"parallel_attn", 0},
      {"q_lora_rank", 0},
      {"residual_multiplier", 1},
      {"rope_interleave", 0},
      {"rope_interleaved", 0},
      {"scale_depth", kNone},
      {"scale_emb", 1},
      {"swa_attention_sink_enabled", 0},
      {"use_alibi", 0},
      {"use_bidirectional_attention", 0},
      {"use_parallel_residual", 0},
  };
  for (const auto& [key, neutral] : kNeutral) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    if (found->is_boolean() && found->get<bool>() == (neutral == 1)) continue;
    if (found->is_number() && found->get<double>() == neutral) continue;
    // A string says for which other tokens attention looks both ways ("vision"); text stays causal.
    if (found->is_string() && std::string_view(key) == "use_bidirectional_attention") continue;
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: {} is {}, which this build does not run: take another model", what, key,
                            Shown(DumpJson(*found).substr(0, 60))));
  }
  return {};
}

}  // namespace cmforge
