// Options of compression, and the choice between two widths.
#include "coreml/compression.h"

#include <algorithm>

namespace cmforge::coreml {

Result<void> ResolveMixed(Compression& options) {
  if (!options.ffn_mixed) return {};
  const double average = *options.ffn_mixed;
  if (!(average > 2 && average < 8))
    return Fail(ErrorKind::kUsage,
                fmt::format("{} bits on average: give a number above 2 and below 8", average));
  WeightForm& form = options.ffn;
  if (form.kind == WeightForm::Kind::kScaled)
    return Fail(ErrorKind::kUsage, "the decoder has scaled integers: give palettes or those");
  if (!form.is_compressed()) {
    form = {WeightForm::Kind::kPalette, 2, kUsualPaletteGroup};
    for (int next; (next = NextPaletteWidth(form.bits)) > 0 && next < average;) form.bits = next;
  }
  const int low = form.bits, high = NextPaletteWidth(low);
  if (average > low && average < high) return {};
  return Fail(
      ErrorKind::kUsage,
      high > 0
          ? fmt::format("{} bits on average cannot be made of palettes of {} and {} bits: give a "
                        "number between them",
                        average, low, high)
          : fmt::format("{} bits on average: the decoder has the width below the average, and no palette is "
                        "wider than its {} bits: give a narrower one, or none",
                        average, low));
}

WiderChoice ChooseWider(std::vector<PaletteCandidate> candidates, int low, int high, double average) {
  const auto gain = [](const PaletteCandidate& c) {
    return (c.error_low - c.error_high) / static_cast<double>(c.numbers);
  };
  std::sort(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return gain(a) != gain(b) ? gain(a) > gain(b) : a.name < b.name;
  });
  double numbers = 0;
  for (const PaletteCandidate& c : candidates) numbers += static_cast<double>(c.numbers);
  const double budget = (average - low) * numbers * (1 + 1e-9);  // extra bits; sums of doubles may be off
  double spent = 0;
  WiderChoice choice;
  for (const PaletteCandidate& c : candidates) {
    const double extra = static_cast<double>(c.numbers) * (high - low);
    if (spent + extra > budget) continue;
    spent += extra;
    choice.names.push_back(c.name);
  }
  choice.average = numbers > 0 ? low + spent / numbers : low;
  return choice;
}

}  // namespace cmforge::coreml
