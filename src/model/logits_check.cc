// One comparison a logit, without a branch.
#include "model/logits_check.h"

#include <limits>

namespace cmforge {

Result<void> CheckLogits(std::span<const float> logits, std::string_view model) {
  int wrong = 0;  // NaN compares with nothing
  for (const float logit : logits) wrong |= logit <= std::numeric_limits<float>::max() ? 0 : 1;
  if (wrong == 0) return {};
  return Fail(
      ErrorKind::kCorrupt,
      fmt::format("{}: the logits are not numbers: a weight is NaN or infinite, or the model overflows: try "
                  "--compute exact, else fetch the weights again (`cmforge convert` of the checkpoint names "
                  "the tensor)",
                  model));
}

}  // namespace cmforge
