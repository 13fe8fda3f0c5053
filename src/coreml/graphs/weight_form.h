// How the matrices of a package are stored: as fp16, as indices into tables of fp16 numbers (a palette), or
// as integers with a scale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace cmforge::coreml {

struct WeightForm {
  enum class Kind : uint8_t { kHalf, kPalette, kScaled };

  Kind kind = Kind::kHalf;
  int bits = 16;
  // Palette: output channels (rows) that share a table. Scaled: columns that share a scale. 0: all of them.
  int64_t group = 0;

  [[nodiscard]] bool is_compressed() const { return kind != Kind::kHalf; }
  bool operator==(const WeightForm&) const = default;
};

/// Output channels that share a table where nothing else is said; as fast as packages of the field.
inline constexpr int64_t kUsualPaletteGroup = 8;

/// "none", or BITS[,GROUP] with 2, 3, 4, 6 or 8 bits; a GROUP of 0 or less means one table for the whole
/// tensor.
/// Fails: kUsage, naming what is wrong.
Result<WeightForm> ParsePaletteForm(std::string_view text);

/// "none", "int8" (a scale an output channel) or "int4[,BLOCK]" (a scale for BLOCK columns of one, 32 if not
/// given).
/// Fails: kUsage.
Result<WeightForm> ParseScaledForm(std::string_view text);

/// "lut6,8", "int8", "int4,32", "fp16".
[[nodiscard]] std::string FormText(const WeightForm& form);

/// What file names say of a part in that form: "_lut6", "_int4", or nothing.
[[nodiscard]] std::string FormSuffix(const WeightForm& form);

/// The form a matrix of that size can have: where the group does not divide, the largest divisor below it,
/// which is never less accurate.
[[nodiscard]] WeightForm FormFor(const WeightForm& form, int64_t rows, int64_t cols);

/// The next palette width above `bits`; 0 above 8.
[[nodiscard]] int NextPaletteWidth(int bits);

}  // namespace cmforge::coreml
