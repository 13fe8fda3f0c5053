// Encoding choice per tensor and the order of tensors in the file.
#include "convert/quant_plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "cmf/shards.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

struct PresetNames {
  QuantPreset preset;
  std::array<std::string_view, 3> aliases;
};

constexpr PresetNames kPresets[] = {
    {{"f32", DType::kF32}, {"fp32"}},
    {{"f16", DType::kF16}, {"fp16"}},
    {{"bf16", DType::kBF16}, {}},
    {{"q8", DType::kQ8Row}, {"q8_row", "q8row"}},
    {{"q8_2f", DType::kQ8TwoField}, {"q82f", "q8f"}},
    {{"q4", DType::kQ4Block}, {"q4_block", "q4block"}},
    {{"q4t", DType::kQ4Tiled}, {"q4_tiled"}},
    {{"q4tp", DType::kQ4tp}, {"q4t_pred"}},
    {{"q2tp", DType::kQ4tp, false, true}, {"q2t_pred"}},
    {{"q1", DType::kQ1}, {}},
    {{"q1p", DType::kQ1, true}, {"q1_ptq"}},
    {{"q1s", DType::kQ1s}, {"q1_mask"}},
    {{"q1t", DType::kQ1t}, {"q1_ternary"}},
    {{"vbit", DType::kVbitRo}, {"v_bit", "vbit_ro"}},
    {{"vbit_plain", DType::kVbit}, {}},
    {{"keep", DType::kF16, false, false, true}, {}},
};

bool EndsWith(std::string_view name, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return name.ends_with(s); });
}

bool StaysPrecise(std::string_view name) {
  return EndsWith(name, {"linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight", "mlp.gate.weight",
                         "shared_expert_gate.weight", "self_attn.g_proj.weight", "_conv1d.weight"});
}

/// Whether a tensor may be stored as the source has it.
Result<void> CheckKept(const TensorInfo& tensor) {
  if (static_cast<int>(tensor.dtype) < kCmfDTypeCount) return {};
  return Fail(ErrorKind::kUsage,
              fmt::format("tensor '{}': {} cannot be stored in a .cmf: choose an encoding for it",
                          tensor.name, DTypeName(tensor.dtype)));
}

bool IsGateOrUp(std::string_view name) { return EndsWith(name, {".gate_proj.weight", ".up_proj.weight"}); }

}  // namespace

Result<QuantPreset> ParseQuantPreset(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  std::string all;
  for (const auto& [preset, aliases] : kPresets) {
    if (lower == preset.name) return preset;
    for (const std::string_view alias : aliases) {
      if (!alias.empty() && lower == alias) return preset;
    }
    all += fmt::format("{}{}", all.empty() ? "" : ", ", preset.name);
  }
  return Fail(ErrorKind::kUsage, fmt::format("quant '{}' is not known: use one of {}", name, all));
}

Result<TensorQuantRule> ParseTensorQuantRule(std::string_view text) {
  const size_t at = text.rfind('=');
  if (at == text.npos || at == 0) {
    return Fail(ErrorKind::kUsage,
                fmt::format("tensor-quant '{}': write GLOB=QUANT, like '*.mlp.*=q4t'", text));
  }
  CMF_TRY(const QuantPreset preset, ParseQuantPreset(text.substr(at + 1)));
  return TensorQuantRule{std::string(text.substr(0, at)), preset};
}

bool GlobMatches(std::string_view glob, std::string_view text) {
  size_t g = 0, t = 0, star = glob.npos, mark = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      mark = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g;
      ++t;
    } else if (star != glob.npos) {  // let the last star take one character more
      g = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

TensorRole RoleOf(std::string_view name, std::span<const int64_t> shape) {
  if (name.find("embed_tokens") != name.npos) return TensorRole::kEmbedding;
  if (name.ends_with("lm_head.weight")) return TensorRole::kHead;
  if (name.ends_with(".bias")) return TensorRole::kBias;
  if (name.find("norm") != name.npos && shape.size() <= 1) return TensorRole::kNorm;
  if (name.ends_with("mlp.gate.weight") || name.ends_with("expert_bias")) return TensorRole::kRouter;
  if (name.find("conv") != name.npos && shape.size() != 2) return TensorRole::kConvolution;
  if (EndsWith(name, {"A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight"}))
    return TensorRole::kRecurrent;
  if (EndsWith(name, {"shared_expert_gate.weight", "g_proj.weight"})) return TensorRole::kGate;
  if (name.find(".experts.") != name.npos || name.find("shared_expert.") != name.npos)
    return TensorRole::kExpert;
  if (name.find("attn.") != name.npos) return TensorRole::kAttention;
  if (name.find(".mlp.") != name.npos) return TensorRole::kFeedForward;
  return TensorRole::kOther;
}

std::string_view RoleName(TensorRole role) {
  constexpr std::string_view kNames[] = {"embedding",    "head",    "norm",   "attention",
                                         "feed-forward", "experts", "router", "recurrent",
                                         "convolution",  "gate",    "bias",   "other"};
  return kNames[static_cast<size_t>(role)];
}

Result<QuantPlan> PlanQuantization(const TensorSource& source, const QuantPreset& preset,
                                   std::span<const TensorQuantRule> rules) {
  QuantPlan plan;
  const bool has_experts =
      std::any_of(source.tensors().begin(), source.tensors().end(),
                  [](const TensorInfo& t) { return t.name.find(".mlp.experts.") != std::string::npos; });
  struct Use {
    int64_t matches = 0, taken = 0;
    std::string refused;  // the first tensor that kept its own type, and why
  };
  std::vector<Use> uses(rules.size());
  for (const TensorInfo& tensor : source.tensors()) {
    PlannedTensor planned{.name = tensor.name, .shape = tensor.shape};
    const std::string_view name = tensor.name;
    const int64_t count = ElementCount(tensor.shape).value_or(0);
    const bool is_matrix = tensor.shape.size() == 2;
    const TensorQuantRule* rule = nullptr;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!GlobMatches(rules[i].glob, name)) continue;
      rule = &rules[i];
      ++uses[i].matches;
    }
    const QuantPreset& chosen = rule ? rule->preset : preset;
    if (chosen.keep || (!rule && name.starts_with("skill."))) {
      planned.dtype = planned.wanted = tensor.dtype;
      planned.is_kept = true;
      CMF_CHECK(CheckKept(tensor));
      plan.tensors.push_back(std::move(planned));
      continue;
    }
    if (FindEncoding(tensor.dtype) == nullptr && static_cast<int>(tensor.dtype) < kCmfDTypeCount) {
      return Fail(
          ErrorKind::kUnsupported,
          fmt::format("{}: tensor '{}': {} is a reserved encoding that nothing can decode: leave it as it is "
                      "with --tensor-quant '{}=keep'",
                      source.path(), name, DTypeName(tensor.dtype), name));
    }
    if (tensor.dtype == DType::kU8) {
      planned.dtype = DType::kU8;
    } else if (chosen.dtype == DType::kF32 || name.ends_with(".tid2eid")) {
      planned.dtype = DType::kF32;
    } else if (is_matrix && (rule || (count >= 32 && !StaysPrecise(name)))) {
      planned.dtype = chosen.dtype;
      if (chosen.is_q2tp_mix && IsGateOrUp(name) && name.find(".mtp.") == name.npos &&
          (!has_experts || name.find("expert") != name.npos)) {
        planned.dtype = DType::kQ2tp;
      }
      planned.error_diffusion = chosen.error_diffusion;
    } else if (rule && chosen.dtype == DType::kBF16) {
      planned.dtype = DType::kBF16;
    }
    planned.wanted = planned.dtype;
    if (rule) {
      Use& use = uses[static_cast<size_t>(rule - rules.data())];
      if (planned.dtype == chosen.dtype || (chosen.is_q2tp_mix && planned.dtype == DType::kQ2tp)) {
        ++use.taken;
      } else if (use.refused.empty()) {
        use.refused = fmt::format("tensor '{}': {}", name,
                                  tensor.shape.size() == 2
                                      ? fmt::format("is always {}", DTypeName(planned.dtype))
                                      : fmt::format("shape {} is not 2-D", ShapeText(tensor.shape)));
      }
    }
    const Encoding* encoding = FindEncoding(planned.dtype);
    if (std::string reason = encoding->reason_against(tensor.shape); !reason.empty()) {
      if (rule) {
        return Fail(ErrorKind::kUsage,
                    fmt::format("tensor-quant '{}={}': tensor '{}': {}: choose another encoding for it",
                                rule->glob, rule->preset.name, name, reason));
      }
      // Whatever is quantized already gains nothing from a wider encoding.
      const bool is_quantized = tensor.dtype == DType::kQ8Row || tensor.dtype == DType::kQ4Block;
      planned.dtype = is_quantized ? tensor.dtype : DType::kQ8TwoField;
      planned.error_diffusion = false;
      planned.fallback = std::move(reason);
    }
    plan.tensors.push_back(std::move(planned));
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (uses[i].matches == 0) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("tensor-quant '{}': no tensor has such a name: see `cmforge info --tensors`",
                              rules[i].glob));
    }
    // Vectors among the matrices that a pattern is meant for stay as they are; one that only vectors match cannot be met.
    if (uses[i].taken == 0 && !uses[i].refused.empty()) {
      return Fail(ErrorKind::kUsage, fmt::format("tensor-quant '{}={}': {}: choose another encoding for it",
                                                 rules[i].glob, rules[i].preset.name, uses[i].refused));
    }
  }
  std::unordered_map<std::string, size_t> position;
  for (const std::string& name : cmf::CanonicalOrder(source.tensors()))
    position.emplace(name, position.size());
  std::sort(plan.tensors.begin(), plan.tensors.end(), [&](const PlannedTensor& a, const PlannedTensor& b) {
    return position.at(a.name) < position.at(b.name);
  });
  return plan;
}

}  // namespace cmforge
