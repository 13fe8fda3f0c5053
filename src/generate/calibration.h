// Channel statistics of a text: every linear operator's input is watched while the model reads it.
#pragma once

#include <span>

#include "base/progress.h"
#include "model/language_model.h"
#include "model/tensor_source.h"
#include "quant/channel_stats.h"

namespace cmforge {

struct CalibrationOptions {
  int64_t window = 512;    // tokens; each begins anew
  bool wants_head = true;  // the head costs logits at every token
};

/// Mean squares over all tokens of the text, and how much each logit of the head moves the answers. An expert counts the tokens that chose it, the others as zeros,
/// and its down projection's inputs as they are weighed by the router: as an evaluation of all experts sees
/// them. Experts of
/// `tensors` that no token chose have zeros. The same model and tokens give the same numbers.
/// Fails: kUsage (no tokens, or tokens outside the vocabulary), kUnsupported (a model that shows nothing,
/// like a Core ML package), kCancelled, and what Step gives.
Result<ChannelStats> Calibrate(const LanguageModel& model, const TensorSource& tensors,
                               std::span<const TokenId> tokens, const CalibrationOptions& options,
                               const RunControl& control);

}  // namespace cmforge
