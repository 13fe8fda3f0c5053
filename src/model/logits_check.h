// What comes out of weights that hold NaN or infinity, or of activations that overflow: the last thing every
// LanguageModel asks about its logits, so that no caller takes them for an answer.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"

namespace cmforge {

/// Costs less than a thousandth of the product that the logits come from. Minus infinity is allowed: it bars a token.
/// Fails: kCorrupt, naming the model and what to do. The step's sequences have moved and are of no use then.
Result<void> CheckLogits(std::span<const float> logits, std::string_view model);

}  // namespace cmforge
