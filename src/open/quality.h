// Measured quality of a mask or a skill: perplexity with and without it on held-out text, with what is needed to
// repeat the measurement.
#pragma once

#include "base/json.h"
#include "base/progress.h"
#include "base/result.h"
#include "model/language_model.h"
#include "text/tokenizer.h"

namespace cmforge {

struct HeldOut {
  double baseline = 0, value = 0;  // perplexity of the whole backbone, and of the specialist
  int64_t tokens = 0;              // scored
  std::string sha256;              // of the text
};

/// Both models on `text`, windows of 256 tokens; `active` restricts the specialist only.
Result<HeldOut> MeasureHeldOut(const LanguageModel& baseline, const LanguageModel& specialist,
                               const ActiveSet* active, const Tokenizer& tokenizer, std::string_view text,
                               const RunControl& control);

/// As a mask's meta has it (spec 5.1): the ratio of the perplexities.
[[nodiscard]] Json MaskQuality(const HeldOut& measured);
/// As a skill's record has it (spec 9).
[[nodiscard]] Json SkillQuality(const HeldOut& measured);

/// A skill's held-out contract: null, or metric, backbone, overlaid and dataset_sha256. Fails: kUsage naming what a figure
/// needs: without its evidence it is not written.
Result<void> CheckSkillQuality(const Json& quality);

}  // namespace cmforge
