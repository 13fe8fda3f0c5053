// The sums, the text and the picture.
#include "cli/size_chart.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "cli/console.h"
#include "cmf/envelope.h"
#include "convert/quant_plan.h"

namespace cmforge::cli {
namespace {

struct Amount {
  int64_t tensors = 0, weights = 0;
  uint64_t bytes = 0;
  std::set<DType> dtypes;

  void Add(const TensorInfo& info) {
    ++tensors;
    weights += ElementCount(info.shape).value_or(0);
    bytes += info.nbytes;
    dtypes.insert(info.dtype);
  }
  [[nodiscard]] std::string Note(bool with_encodings) const {
    std::string note = fmt::format("{} tensor{}", tensors, tensors == 1 ? "" : "s");
    if (weights > 0)
      note += fmt::format(", {:.2f} bpw", static_cast<double>(bytes) * 8 / static_cast<double>(weights));
    for (const DType dtype : dtypes) {
      if (with_encodings) note += fmt::format(", {}", DTypeName(dtype));
    }
    return note;
  }
};

// "skill.sql.model.norm.weight" -> "skill sql"; tensors of the model itself by what they are for.
std::string RoleLabel(const OpenedSource& source, const TensorInfo& info) {
  if (source.cmf && info.name.starts_with("skill.")) {
    if (const auto ref = cmf::SplitSkillTensorName(info.name, source.cmf->header().skills))
      return fmt::format("skill {}", ref->id);
  }
  if (info.name.starts_with("model.mtp.")) return "draft head";
  return std::string(RoleName(RoleOf(info.name, info.shape)));
}

SizeGroup Group(std::string title, const std::map<std::string, Amount>& amounts, bool with_encodings) {
  SizeGroup group;
  group.title = std::move(title);
  for (const auto& [label, amount] : amounts)
    group.bars.push_back({label, amount.bytes, amount.Note(with_encodings)});
  std::stable_sort(group.bars.begin(), group.bars.end(),
                   [](const SizeBar& a, const SizeBar& b) { return a.bytes > b.bytes; });
  return group;
}

// All bytes of the files: payloads, sections, and what belongs to nothing.
SizeGroup Sections(const OpenedSource& source, uint64_t weights) {
  SizeGroup group{"by section", {{"weights", weights, ""}}};
  const auto add = [&](const char* label, uint64_t bytes, std::string note) {
    if (bytes > 0) group.bars.push_back({label, bytes, std::move(note)});
  };
  if (!source.cmf) {
    add("tokenizer", source.tokenizer_json().size(), "");
    return group;
  }
  uint64_t files = 0, header = 0, directory = 0, masks = 0, vocab = 0, index = 0;
  for (const cmf::Part& part : source.cmf->parts()) {
    files += part.bytes.size();
    header += cmf::kEnvelopeSize + part.envelope.header.size;
    directory += part.envelope.directory.size;
    masks += part.envelope.masks.size;
    vocab += part.envelope.vocab.size;
    index += part.envelope.index.size;
  }
  add("tokenizer", vocab, "");
  add("masks", masks, fmt::format("{} tasks", source.cmf->masks().masks.size()));
  add("sparse index", index, "deprecated");
  add("header", header, "");
  add("directory", directory, fmt::format("{} tensors", source.tensors->tensors().size()));
  const uint64_t live = weights + header + directory + masks + vocab + index;
  if (files > live) {
    const uint64_t rest = files - live;
    // Pages cost at most 4 KiB a tensor; more than that is what appends and removals left behind.
    const bool is_dead = rest > (source.tensors->tensors().size() + 16) * cmf::kDataAlignment;
    add(is_dead ? "dead space" : "padding", rest, is_dead ? "`cmforge compact` reclaims it" : "");
  }
  return group;
}

// Eighths of a column, so that small shares still show.
std::string BarText(double columns) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<int>(columns * 8 + 0.5);
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  return bar + kEighths[eighths % 8];
}
int BarColumns(double columns) { return (static_cast<int>(columns * 8 + 0.5) + 7) / 8; }

// Bytes, not columns, are what fmt pads; labels may hold any UTF-8.
int Columns(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}
std::string Padded(std::string text, int columns) {
  text.append(static_cast<size_t>(std::max(0, columns - Columns(text))), ' ');
  return text;
}

constexpr int kColours[] = {36, 32, 33, 35, 34, 31, 96, 92};  // of a terminal, one a row

std::string LayerStrip(const std::vector<uint64_t>& layers) {
  static constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const uint64_t most = *std::max_element(layers.begin(), layers.end());
  std::string strip;
  for (const uint64_t bytes : layers) strip += kHeights[most == 0 ? 0 : (bytes * 7 + most / 2) / most];
  return strip;
}

std::string Escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) safe += c;
    }
  }
  return IsUtf8(safe) ? safe : "?";
}

constexpr const char* kHues[] = {"#2f7fb8", "#3a9d6a", "#c98a1b", "#8d5fb0", "#c2504a",
                                 "#3aa3a8", "#7a8b2c", "#b0577f", "#5c6b7a", "#9a7b4f"};

}  // namespace

uint64_t SizeGroup::total() const {
  uint64_t sum = 0;
  for (const SizeBar& bar : bars) sum += bar.bytes;
  return sum;
}

SizeChart MakeSizeChart(const OpenedSource& source) {
  SizeChart chart;
  std::map<std::string, Amount> roles, encodings;
  uint64_t weights = 0;
  for (const TensorInfo& info : source.tensors->tensors()) {
    roles[RoleLabel(source, info)].Add(info);
    encodings[std::string(DTypeName(info.dtype))].Add(info);
    weights += info.nbytes;
    constexpr std::string_view kLayers = "model.layers.";
    if (!info.name.starts_with(kLayers)) continue;
    size_t layer = 0;
    std::from_chars(info.name.data() + kLayers.size(), info.name.data() + info.name.size(), layer);
    if (layer >= 65536) continue;
    if (chart.layer_bytes.size() <= layer) chart.layer_bytes.resize(layer + 1);
    chart.layer_bytes[layer] += info.nbytes;
  }
  chart.groups = {Sections(source, weights), Group("by role", roles, true),
                  Group("by encoding", encodings, false)};
  if (source.cmf && source.cmf->parts().size() > 1) {
    SizeGroup shards{"by shard", {}};
    for (const cmf::Part& part : source.cmf->parts()) {
      shards.bars.push_back({fmt::format("shard {}", shards.bars.size() + 1), part.bytes.size(),
                             fmt::format("{} tensors", part.directory.size())});
    }
    chart.groups.push_back(std::move(shards));
  }
  return chart;
}

std::string ChartText(const SizeChart& chart, int width, bool has_colour) {
  int label_width = 8, note_width = 0;
  for (const SizeGroup& group : chart.groups) {
    for (const SizeBar& bar : group.bars) {
      label_width = std::max(label_width, std::min(Columns(bar.label), 24));
      note_width = std::max(note_width, std::min(Columns(bar.note), 24));  // longer ones may stick out
    }
  }
  constexpr int kNumbers = 20;  // size and share
  const int room = std::clamp(width - label_width - kNumbers - note_width - 6, 10, 40);
  std::string text;
  for (const SizeGroup& group : chart.groups) {
    const uint64_t total = group.total();
    text += fmt::format("\n{}\n", group.title);
    for (size_t i = 0; i < group.bars.size(); ++i) {
      const SizeBar& bar = group.bars[i];
      const double share = total ? static_cast<double>(bar.bytes) / static_cast<double>(total) : 0;
      std::string drawn = BarText(share * room);
      const int drawn_columns = BarColumns(share * room);
      if (has_colour) drawn = fmt::format("\033[{}m{}\033[0m", kColours[i % std::size(kColours)], drawn);
      std::string line =
          fmt::format("  {} {}{:{}} {:>9} {:>5.1f}%", Padded(bar.label, label_width), drawn, "",
                      room - drawn_columns, HumanBytes(static_cast<double>(bar.bytes)), share * 100);
      if (!bar.note.empty()) line += "  " + bar.note;
      text += line + "\n";
    }
  }
  const auto layers = static_cast<int>(chart.layer_bytes.size());
  if (layers > 1 && layers + label_width + 6 <= width) {
    const auto [least, most] = std::minmax_element(chart.layer_bytes.begin(), chart.layer_bytes.end());
    const std::string strip = LayerStrip(chart.layer_bytes);
    text +=
        fmt::format("\nby layer\n  {} {}{}{} {}\n", Padded(fmt::format("0 to {}", layers - 1), label_width),
                    has_colour ? "\033[36m" : "", strip, has_colour ? "\033[0m" : "",
                    *least == *most ? fmt::format("{} each", HumanBytes(static_cast<double>(*most)))
                                    : fmt::format("{} to {}", HumanBytes(static_cast<double>(*least)),
                                                  HumanBytes(static_cast<double>(*most))));
  }
  return text;
}

std::string ChartSvg(const SizeChart& chart, std::string_view title, std::string_view subtitle) {
  constexpr int kWidth = 860, kLeft = 190, kBar = 380, kRow = 26, kMargin = 28;
  std::string body;
  int y = kMargin + 18;
  const auto put = [&](int x, int at, const char* css, std::string_view text) {
    body += fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n", x, at, css, Escaped(text));
  };
  put(kMargin, y, "title", title);
  put(kMargin, y += 22, "note", subtitle);
  for (const SizeGroup& group : chart.groups) {
    const uint64_t total = group.total();
    put(kMargin, y += 44, "group", group.title);
    y += 10;
    for (size_t i = 0; i < group.bars.size(); ++i, y += kRow) {
      const SizeBar& bar = group.bars[i];
      const double share = total ? static_cast<double>(bar.bytes) / static_cast<double>(total) : 0;
      put(kMargin, y + 16, "label", bar.label);
      body += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"16\" rx=\"3\" class=\"track\"/>\n",
                          kLeft, y + 3, kBar);
      body += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"16\" rx=\"3\" fill=\"{}\"/>\n",
                          kLeft, y + 3, std::max(share * kBar, bar.bytes > 0 ? 1.5 : 0.0),
                          kHues[i % std::size(kHues)]);
      put(kLeft + kBar + 12, y + 16, "value",
          fmt::format("{}  {:.1f}%", HumanBytes(static_cast<double>(bar.bytes)), share * 100));
      if (!bar.note.empty()) put(kLeft + kBar + 125, y + 16, "note", bar.note);
    }
  }
  if (chart.layer_bytes.size() > 1) {
    constexpr int kHeight = 60;
    put(kMargin, y += 44, "group", "by layer");
    y += 12;
    const uint64_t most =
        std::max<uint64_t>(1, *std::max_element(chart.layer_bytes.begin(), chart.layer_bytes.end()));
    const double step =
        static_cast<double>(kWidth - 2 * kMargin) / static_cast<double>(chart.layer_bytes.size());
    for (size_t i = 0; i < chart.layer_bytes.size(); ++i) {
      const double height = kHeight * static_cast<double>(chart.layer_bytes[i]) / static_cast<double>(most);
      body += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>layer {}: "
          "{}</title></rect>\n",
          kMargin + step * static_cast<double>(i), y + kHeight - height, std::max(step - 2, step * 0.6),
          height, kHues[0], i, HumanBytes(static_cast<double>(chart.layer_bytes[i])));
    }
    y += kHeight;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\">\n"
      "<title>{2}</title>\n"
      "<style>\n"
      "text{{font-family:system-ui,sans-serif;font-size:13px;fill:#222}}\n"
      ".title{{font-size:20px;font-weight:600}} .group{{font-size:14px;font-weight:600}} .note{{fill:#777}}\n"
      ".track{{fill:#eee}} .page{{fill:#fff}}\n"
      "@media (prefers-color-scheme:dark){{text{{fill:#ddd}} .note{{fill:#999}} .track{{fill:#333}} "
      ".page{{fill:#1b1b1b}}}}\n"
      "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{3}</svg>\n",
      kWidth, y + kMargin, Escaped(title), body);
}

}  // namespace cmforge::cli
