// Where the bytes of a model are, as bars: for a terminal, and the same as a picture (SVG).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "open/open_source.h"

namespace cmforge::cli {

struct SizeBar {
  std::string label;
  uint64_t bytes = 0;
  std::string note;  // "28 tensors, 4.50 bpw" (bits per weight)
};

/// Bars that add up to one whole, the largest first.
struct SizeGroup {
  std::string title;  // "by section"
  std::vector<SizeBar> bars;

  [[nodiscard]] uint64_t total() const;
};

struct SizeChart {
  std::vector<SizeGroup> groups;      // by section, role and encoding; by shard where there are several
  std::vector<uint64_t> layer_bytes;  // weights of each layer
};

[[nodiscard]] SizeChart MakeSizeChart(const OpenedSource& source);

/// Lines of text, each ended; `width` columns are there, `has_colour` allows escape sequences.
[[nodiscard]] std::string ChartText(const SizeChart& chart, int width, bool has_colour);

/// A whole SVG document that follows the viewer's light or dark scheme. `title` and `subtitle` may be any text.
[[nodiscard]] std::string ChartSvg(const SizeChart& chart, std::string_view title, std::string_view subtitle);

}  // namespace cmforge::cli
