// Held-out measurements.
#include "open/quality.h"

#include "cmf/masks.h"
#include "cmf/signature.h"
#include "generate/perplexity.h"

namespace cmforge {

Result<HeldOut> MeasureHeldOut(const LanguageModel& baseline, const LanguageModel& specialist,
                               const ActiveSet* active, const Tokenizer& tokenizer, std::string_view text,
                               const RunControl& control) {
  CMF_TRY(const std::vector<TokenId> tokens, tokenizer.Encode(text));
  PerplexityOptions options;
  options.context = 256;
  CMF_TRY(const PerplexityResult before, Perplexity(baseline, nullptr, tokens, options, control));
  options.active = active;
  CMF_TRY(const PerplexityResult after, Perplexity(specialist, nullptr, tokens, options, control));
  cmf::Sha256 hash;
  hash.Update(AsBytes(text));
  return HeldOut{before.ppl, after.ppl, after.tokens, cmf::HexOf(hash.Finish())};
}

Json MaskQuality(const HeldOut& measured) {
  return {{"metric", "heldout_ppl_ratio"},
          {"value", measured.value / measured.baseline},
          {"baseline_dense", measured.baseline},
          {"n_samples", measured.tokens},
          {"dataset_sha256", measured.sha256}};
}

Json SkillQuality(const HeldOut& measured) {
  return {{"metric", "ppl"},
          {"backbone", measured.baseline},
          {"overlaid", measured.value},
          {"n_samples", measured.tokens},
          {"dataset_sha256", measured.sha256}};
}

Result<void> CheckSkillQuality(const Json& quality) {
  if (quality.is_null()) return {};
  const auto part = [&](const char* key) {
    return quality.is_object() ? quality.value(key, Json()) : Json();
  };
  // The same evidence as a mask's, under a skill's names.
  const Json as_mask = {{"metric", part("metric")},
                        {"value", part("overlaid")},
                        {"baseline_dense", part("backbone")},
                        {"n_samples", 1},
                        {"dataset_sha256", part("dataset_sha256")}};
  if (cmf::CheckQuality(as_mask)) return {};
  return Fail(ErrorKind::kUsage,
              "quality: a figure needs metric, backbone, overlaid and dataset_sha256 (64 hex digits) of "
              "held-out data, or "
              "null for not measured");
}

}  // namespace cmforge
