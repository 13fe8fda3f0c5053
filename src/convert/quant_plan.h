// Which encoding each tensor gets: one preset for the matrices, rules for what must stay precise, exceptions
// by glob, and a fall-back where a shape does not fit an encoding (facts of the format, docs/formats/cmf.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/dtype.h"
#include "model/tensor_source.h"

namespace cmforge {

/// What `--quant` names. Mostly a dtype; q1p is q1 with error diffusion, q2tp is a mix, keep leaves a tensor as it is.
struct QuantPreset {
  std::string_view name;         // canonical: "q8", "q4t"
  DType dtype = DType::kQ8Row;   // nothing for `keep`
  bool error_diffusion = false;  // q1p
  bool is_q2tp_mix = false;      // gate/up of experts (or of dense layers) q2tp, everything else q4tp
  bool keep = false;
};

/// Names and aliases, any case: f32 f16|fp16 bf16 q8|q8_row|q8row q8_2f|q82f|q8f q4|q4_block|q4block
/// q4t|q4_tiled q4tp|q4t_pred q2tp|q2t_pred q1 q1p|q1_ptq q1s|q1_mask q1t|q1_ternary vbit|v_bit (writes
/// vbit_ro) vbit_plain keep. Fails: kUsage with the list of names.
Result<QuantPreset> ParseQuantPreset(std::string_view name);

/// `GLOB=QUANT`; '*' matches any run of characters, '?' one.
struct TensorQuantRule {
  std::string glob;
  QuantPreset preset;
};
Result<TensorQuantRule> ParseTensorQuantRule(std::string_view text);
[[nodiscard]] bool GlobMatches(std::string_view glob, std::string_view text);

/// What a tensor is for; decides which stay in 16 bits under a quantizing preset.
enum class TensorRole : uint8_t {
  kEmbedding,
  kHead,
  kNorm,
  kAttention,
  kFeedForward,
  kExpert,
  kRouter,
  kRecurrent,
  kConvolution,
  kGate,
  kBias,
  kOther,
};
[[nodiscard]] TensorRole RoleOf(std::string_view name, std::span<const int64_t> shape);
[[nodiscard]] std::string_view RoleName(TensorRole role);

struct PlannedTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF16;
  bool error_diffusion = false;
  bool is_kept = false;  // as the source has it, whatever that is
  std::string fallback;  // why the preset's encoding was not taken; empty when it was, or was never meant
  DType wanted = DType::kF16;
};

struct QuantPlan {
  std::vector<PlannedTensor> tensors;  // in the order they are written
};

/// Plans all tensors of `source`, in canonical order (cmf/shards.h). Tensors of skills (skill.*) keep their encoding unless
/// a rule names them: they were trained and measured in it. A matrix whose shape the wanted encoding cannot hold becomes
/// q8_2f, or keeps a quantized encoding that it has. Fails: kUsage (a rule whose encoding a matching tensor cannot take, or
/// that matches nothing; names it), kUnsupported (a tensor in a reserved encoding that would have to be decoded).
Result<QuantPlan> PlanQuantization(const TensorSource& source, const QuantPreset& preset,
                                   std::span<const TensorQuantRule> rules);

}  // namespace cmforge
