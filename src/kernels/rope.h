// Rotary embedding: the frequencies that a RopeConfig means, and the angles of a position.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

/// Immutable. Frequencies and angles are f64, only the cosines and sines are rounded to f32, so far positions
/// lose no digits.
class RopeFrequencies {
 public:
  RopeFrequencies() = default;

  /// `context_length`: what a sequence may grow to; longrope takes its long factors above the original
  /// length. Fails: kUnsupported or kCorrupt with the field and its value (an odd number of rotated dims,
  /// factor lists of another length, theta or factor not positive).
  static Result<RopeFrequencies> Make(const RopeConfig& config, int64_t head_dim,
                                      int64_t max_position_embeddings, int64_t context_length);

  /// Pairs are (i, i + half()), i < half(); dims from 2 * half() on pass through.
  [[nodiscard]] int64_t half() const { return half_; }

  /// cosines[half], sines[half] of `position`, the attention factor included.
  ///
  /// The dynamic kind stretches by the position itself (as decoding token by token does), so that a key keeps
  /// one rotation however the prompt was cut.
  void Angles(int64_t position, float* cosines, float* sines) const;

 private:
  int64_t half_ = 0;
  double magnitude_ = 1.0;  // multiplied into cosines and sines
  std::vector<double> frequencies_;
  // dynamic only
  bool is_dynamic_ = false;
  double theta_ = 0, factor_ = 1;
  int64_t original_length_ = 0;
};

}  // namespace cmforge
