// HfTraitsOf and LayOutForHf.
#include "checkpoint/hf_layout.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "quant/encoding.h"

namespace cmforge {
namespace {

constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kMtp = "model.mtp.";

struct LayerName {
  int64_t layer;
  std::string_view suffix;
};

std::optional<LayerName> SplitLayer(std::string_view name) {
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return LayerName{layer, name.substr(static_cast<size_t>(end - name.data()) + 1)};
}

bool Replace(std::string& text, std::string_view from, std::string_view to) {
  if (!text.starts_with(from)) return false;
  text.replace(0, from.size(), to);
  return true;
}

class Layouter {
 public:
  Layouter(const TensorSource& tensors, const ModelConfig& config, const HfTraits& traits,
           std::string_view family)
      : tensors_(tensors), config_(config), traits_(traits), family_(family) {}

  Result<std::vector<HfTensor>> Run() {
    for (const TensorInfo& info : tensors_.tensors()) {
      if (info.name.starts_with("skill.")) continue;
      CMF_CHECK(Add(info));
    }
    return std::move(layout_);
  }

 private:
  [[nodiscard]] int64_t WidthOf(int64_t layer) const {
    const bool is_doubled =
        traits_.is_double_wide && layer >= config_.num_layers - config_.num_kv_shared_layers;
    return traits_.ffn_width * (is_doubled ? 2 : 1);
  }

  static RowSlice Whole(const TensorInfo& info) {
    return {info.name, 0, info.shape.empty() ? 1 : info.shape[0]};
  }

  void Put(std::string name, Shape shape, std::vector<RowSlice> slices) {
    const int64_t row_length = RowsOf(shape).cols;
    layout_.push_back({std::move(name), std::move(shape), std::move(slices), row_length});
  }

  Result<void> Add(const TensorInfo& info) {
    const auto in_layer = SplitLayer(info.name);
    if (!in_layer) {
      Put(NameOf(info.name), info.shape, {Whole(info)});
      return {};
    }
    const std::string prefix(info.name.substr(0, info.name.size() - in_layer->suffix.size()));
    if (in_layer->suffix.starts_with("mlp.experts.") && family_ == "qwen3_5_moe")
      return AddBank(prefix, info, *in_layer);
    if (family_ == "phi3" && AddPhi3(prefix, info, in_layer->suffix)) return {};
    if (family_ == "qwen3_next" && config_.linear_attention && AddQwen3Next(prefix, info, in_layer->suffix))
      return {};
    Shape shape = info.shape;
    std::vector<RowSlice> slices = {Whole(info)};
    FillUp(in_layer->layer, in_layer->suffix, shape, slices);
    Put(prefix + SuffixOf(in_layer->suffix), std::move(shape), std::move(slices));
    return {};
  }

  // Dense feed-forward layers that are narrower than the folder's one width.
  void FillUp(int64_t layer, std::string_view suffix, Shape& shape, std::vector<RowSlice>& slices) const {
    if (!suffix.starts_with("mlp.") || shape.empty()) return;
    const int64_t width = WidthOf(layer);
    for (const std::string_view rows :
         {"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.gate_proj.bias", "mlp.up_proj.bias"}) {
      if (suffix != rows || shape[0] >= width) continue;
      slices.push_back({"", 0, width - shape[0]});
      shape[0] = width;
    }
    if (suffix == "mlp.down_proj.weight" && shape.size() == 2) shape[1] = std::max(shape[1], width);
  }

  // q, k, v and gate, up in one matrix each. True when the tensor is dealt with.
  bool AddPhi3(const std::string& prefix, const TensorInfo& info, std::string_view suffix) {
    for (const auto& [first, others, fused] :
         {std::tuple{"self_attn.q_proj", std::vector<const char*>{"self_attn.k_proj", "self_attn.v_proj"},
                     "self_attn.qkv_proj"},
          std::tuple{"mlp.gate_proj", std::vector<const char*>{"mlp.up_proj"}, "mlp.gate_up_proj"}}) {
      for (const std::string_view kind : {".weight", ".bias"}) {
        for (const char* other : others) {
          if (suffix == other + std::string(kind)) return true;
        }
        if (suffix != first + std::string(kind)) continue;
        const int64_t layer = SplitLayer(info.name)->layer;
        Shape shape = info.shape;
        std::vector<RowSlice> slices = {Whole(info)};
        FillUp(layer, suffix, shape, slices);
        for (const char* other : others) {
          const TensorInfo* part = tensors_.Find(prefix + other + std::string(kind));
          if (part == nullptr) return false;
          Shape part_shape = part->shape;
          slices.push_back(Whole(*part));
          FillUp(layer, other + std::string(kind), part_shape, slices);
          shape[0] += part_shape[0];
        }
        Put(prefix + fused + std::string(kind), std::move(shape), std::move(slices));
        return true;
      }
    }
    return false;
  }

  // Rows grouped by key head: q, k, v, z; and b, a.
  bool AddQwen3Next(const std::string& prefix, const TensorInfo& info, std::string_view suffix) {
    const LinearAttentionConfig& linear = *config_.linear_attention;
    if (suffix == "linear_attn.in_proj_z.weight" || suffix == "linear_attn.in_proj_a.weight") return true;
    if (suffix != "linear_attn.in_proj_qkv.weight" && suffix != "linear_attn.in_proj_b.weight") return false;
    const bool is_ba = suffix == "linear_attn.in_proj_b.weight";
    const std::string other =
        prefix + (is_ba ? "linear_attn.in_proj_a.weight" : "linear_attn.in_proj_z.weight");
    const TensorInfo* partner = tensors_.Find(other);
    if (partner == nullptr || linear.num_key_heads == 0) return false;
    const int64_t key = linear.key_head_dim, groups = linear.num_key_heads;
    const int64_t ratio = linear.num_value_heads / groups, value = ratio * linear.value_head_dim;
    std::vector<RowSlice> slices;
    for (int64_t g = 0; g < groups; ++g) {
      if (is_ba) {
        slices.push_back({info.name, g * ratio, (g + 1) * ratio});
        slices.push_back({other, g * ratio, (g + 1) * ratio});
        continue;
      }
      slices.push_back({info.name, g * key, (g + 1) * key});
      slices.push_back({info.name, (groups + g) * key, (groups + g + 1) * key});
      slices.push_back({info.name, 2 * groups * key + g * value, 2 * groups * key + (g + 1) * value});
      slices.push_back({other, g * value, (g + 1) * value});
    }
    Shape shape = info.shape;
    shape[0] += partner->shape[0];
    Put(prefix + (is_ba ? "linear_attn.in_proj_ba.weight" : "linear_attn.in_proj_qkvz.weight"),
        std::move(shape), std::move(slices));
    return true;
  }

  // gate_up_proj [experts, 2 inner, hidden] and down_proj [experts, hidden, inner], made at expert 0.
  Result<void> AddBank(const std::string& prefix, const TensorInfo& info, const LayerName& name) {
    const bool is_gate = name.suffix == "mlp.experts.0.gate_proj.weight";
    const bool is_down = name.suffix == "mlp.experts.0.down_proj.weight";
    if (!is_gate && !is_down) return {};
    const int64_t experts = config_.moe ? config_.moe->num_experts : 0;
    std::vector<RowSlice> slices;
    for (int64_t e = 0; e < experts; ++e) {
      for (const std::string_view matrix : is_gate ? std::vector<std::string_view>{"gate_proj", "up_proj"}
                                                   : std::vector<std::string_view>{"down_proj"}) {
        const std::string part = fmt::format("{}mlp.experts.{}.{}.weight", prefix, e, matrix);
        const TensorInfo* expert = tensors_.Find(part);
        if (expert == nullptr || expert->shape != info.shape) {
          return Fail(
              ErrorKind::kUnsupported,
              fmt::format(
                  "{}: tensor '{}': {}: a folder of this family has all experts in every layer, of one size",
                  tensors_.path(), part, expert == nullptr ? "not there" : ShapeText(expert->shape)));
        }
        slices.push_back(Whole(*expert));
      }
    }
    Shape shape = {experts, info.shape[0] * (is_gate ? 2 : 1), info.shape[1]};
    layout_.push_back({prefix + (is_gate ? "mlp.experts.gate_up_proj" : "mlp.experts.down_proj"),
                       std::move(shape), std::move(slices), info.shape[1]});  // a row is one of an expert's
    return {};
  }

  // Names outside the layers.
  [[nodiscard]] std::string NameOf(const std::string& plain) const {
    std::string name = plain;
    if (family_.starts_with("lfm2") && plain == "model.norm.weight") return "model.embedding_norm.weight";
    if (Replace(name, kMtp, "mtp.")) {
      Replace(name, "mtp.eh_proj.", "mtp.fc.");
      Replace(name, "mtp.enorm.", "mtp.pre_fc_norm_embedding.");
      Replace(name, "mtp.hnorm.", "mtp.pre_fc_norm_hidden.");
    }
    return name;
  }

  [[nodiscard]] std::string SuffixOf(std::string_view plain) const {
    std::string suffix(plain);
    if (family_ == "laguna") Replace(suffix, "mlp.expert_bias", "mlp.experts.e_score_correction_bias");
    if (!family_.starts_with("lfm2")) return suffix;
    Replace(suffix, "input_layernorm.", "operator_norm.");
    Replace(suffix, "post_attention_layernorm.", "ffn_norm.");
    Replace(suffix, "self_attn.o_proj.", "self_attn.out_proj.");
    Replace(suffix, "self_attn.q_norm.", "self_attn.q_layernorm.");
    Replace(suffix, "self_attn.k_norm.", "self_attn.k_layernorm.");
    Replace(suffix, "short_conv.", "conv.");
    if (Replace(suffix, "mlp.", "feed_forward.")) {
      for (const auto& [from, to] :
           {std::pair<std::string_view, std::string_view>{"gate_proj.weight", "w1.weight"},
            {"up_proj.weight", "w3.weight"},
            {"down_proj.weight", "w2.weight"}}) {
        if (suffix.ends_with(from)) suffix.replace(suffix.size() - from.size(), from.size(), to);
      }
    }
    return suffix;
  }

  const TensorSource& tensors_;
  const ModelConfig& config_;
  const HfTraits& traits_;
  const std::string_view family_;
  std::vector<HfTensor> layout_;
};

}  // namespace

HfTraits HfTraitsOf(const TensorSource& tensors, const ModelConfig& config) {
  HfTraits traits;
  const auto in_layer = [&](int64_t layer, std::string_view suffix) {
    return tensors.Find(fmt::format("{}{}.{}", kLayers, layer, suffix));
  };
  int64_t most_heads = config.num_attention_heads;
  for (const int64_t heads : config.attention_heads_per_layer) most_heads = std::max(most_heads, heads);
  const int64_t first_shared = config.num_layers - config.num_kv_shared_layers;
  int64_t shared_width = 0;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const auto note = [&](bool& trait, std::string_view suffix) {
      trait = trait || in_layer(i, suffix) != nullptr;
    };
    note(traits.has_qkv_bias, "self_attn.q_proj.bias");
    note(traits.has_o_bias, "self_attn.o_proj.bias");
    note(traits.has_mlp_bias, "mlp.gate_proj.bias");
    note(traits.has_qk_norm, "self_attn.q_norm.weight");
    note(traits.has_four_norms, "pre_feedforward_layernorm.weight");
    const bool is_full = config.layer_types[static_cast<size_t>(i)] == LayerKind::kFullAttention;
    if (is_full && in_layer(i, "self_attn.k_proj.weight") && !in_layer(i, "self_attn.v_proj.weight"))
      traits.is_v_from_k = true;
    if (const TensorInfo* gate = in_layer(i, "self_attn.g_proj.weight"); gate && !gate->shape.empty())
      traits.is_gate_per_channel = traits.is_gate_per_channel || gate->shape[0] > most_heads;
    const TensorInfo* gate = in_layer(i, "mlp.gate_proj.weight");
    if (gate == nullptr || gate->shape.size() != 2) continue;
    traits.dense_layers.push_back(i);
    int64_t& width = i < first_shared ? traits.ffn_width : shared_width;
    width = std::max(width, gate->shape[0]);
  }
  traits.is_double_wide = shared_width > 0 && shared_width == 2 * traits.ffn_width;
  if (!traits.is_double_wide) traits.ffn_width = std::max(traits.ffn_width, shared_width);
  traits.has_head = tensors.Find("lm_head.weight") != nullptr;
  for (const TensorInfo& info : tensors.tensors()) {
    if (info.name.starts_with(kMtp) && info.name.ends_with("input_layernorm.weight")) ++traits.mtp_layers;
  }
  return traits;
}

Result<std::vector<HfTensor>> LayOutForHf(const TensorSource& tensors, const ModelConfig& config,
                                          const HfTraits& traits, std::string_view family) {
  return Layouter(tensors, config, traits, family).Run();
}

}  // namespace cmforge
