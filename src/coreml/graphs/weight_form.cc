// Forms of weights, as text and for a given matrix.
#include "coreml/graphs/weight_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace cmforge::coreml {
namespace {

constexpr std::array kWidths = {2, 3, 4, 6, 8};
constexpr int64_t kUsualBlock = 32;

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What stands before the first comma and, if there is one, behind it.
struct Pair {
  std::string_view first;
  std::optional<std::string_view> second;
};
Pair SplitAtComma(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == text.npos) return {text, std::nullopt};
  return {text.substr(0, comma), text.substr(comma + 1)};
}

int64_t LargestDivisor(int64_t of, int64_t most) {
  for (int64_t d = std::min(of, most); d > 1; --d) {
    if (of % d == 0) return d;
  }
  return 1;
}

}  // namespace

Result<WeightForm> ParsePaletteForm(std::string_view text) {
  if (text == "none") return WeightForm();
  const auto [width, group_text] = SplitAtComma(text);
  const int64_t bits = ParseInteger(width).value_or(0);
  const auto group = group_text ? ParseInteger(*group_text) : kUsualPaletteGroup;
  if (!group || std::find(kWidths.begin(), kWidths.end(), bits) == kWidths.end()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("'{}': {}: give none, or 2, 3, 4, 6 or 8 bits and perhaps ,GROUP: the output "
                            "channels that share a table, 0 for all",
                            text, group ? "no width of a palette" : "no whole number behind the comma"));
  }
  return WeightForm{WeightForm::Kind::kPalette, static_cast<int>(bits), std::max<int64_t>(*group, 0)};
}

Result<WeightForm> ParseScaledForm(std::string_view text) {
  if (text == "none") return WeightForm();
  if (text == "int8") return WeightForm{WeightForm::Kind::kScaled, 8, 0};
  const auto [name, block_text] = SplitAtComma(text);
  const auto block = block_text ? ParseInteger(*block_text) : kUsualBlock;
  if (name == "int4" && block.value_or(0) > 0) return WeightForm{WeightForm::Kind::kScaled, 4, *block};
  return Fail(ErrorKind::kUsage,
              fmt::format("'{}': give none, int8, or int4,BLOCK with the columns that share a scale", text));
}

std::string FormText(const WeightForm& form) {
  switch (form.kind) {
    case WeightForm::Kind::kHalf:
      break;
    case WeightForm::Kind::kPalette:
      return fmt::format("lut{},{}", form.bits, form.group);
    case WeightForm::Kind::kScaled:
      return form.group > 0 ? fmt::format("int{},{}", form.bits, form.group)
                            : fmt::format("int{}", form.bits);
  }
  return "fp16";
}

std::string FormSuffix(const WeightForm& form) {
  if (!form.is_compressed()) return "";
  return fmt::format("_{}{}", form.kind == WeightForm::Kind::kPalette ? "lut" : "int", form.bits);
}

WeightForm FormFor(const WeightForm& form, int64_t rows, int64_t cols) {
  WeightForm out = form;
  const int64_t count = form.kind == WeightForm::Kind::kPalette ? rows : cols;
  if (form.is_compressed() && form.group > 0) out.group = LargestDivisor(count, form.group);
  if (out.group == 0) out.group = count;
  return out;
}

int NextPaletteWidth(int bits) {
  const auto* next = std::upper_bound(kWidths.begin(), kWidths.end(), bits);
  return next == kWidths.end() ? 0 : *next;
}

}  // namespace cmforge::coreml
