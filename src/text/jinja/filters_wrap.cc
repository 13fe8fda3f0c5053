// wordwrap: Python's textwrap for every line, white space and tabs kept as they are.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/numbers.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/text.h"

namespace cmforge::jinja::filters {
namespace {

bool IsBlank(char32_t c) { return c == '\t' || c == '\n' || c == '\v' || c == '\f' || c == '\r' || c == ' '; }
bool IsWord(char32_t c) { return c == '_' || IsAlnum(c); }
bool IsLetter(char32_t c) { return IsWord(c) && !IsDecimal(c); }
bool IsWordPunct(char32_t c) {
  return IsWord(c) || c == '!' || c == '"' || c == '\'' || c == '&' || c == '.' || c == ',' || c == '?';
}

// A line in code points, cut into chunks that may stand at the end or start of a wrapped line.
class Wrapper {
 public:
  Wrapper(Runtime& rt, std::u32string line, int64_t width, bool break_long, bool break_hyphens)
      : rt_(rt),
        line_(std::move(line)),
        width_(static_cast<size_t>(width)),
        break_long_(break_long),
        break_hyphens_(break_hyphens) {}

  struct Piece {
    size_t begin = 0;
    size_t size = 0;
  };

  // Wrapped lines as ranges of code points.
  Result<std::vector<Piece>> Wrap() {
    Cut();
    std::vector<Piece> lines;
    size_t at = 0;
    while (at < chunks_.size()) {
      if (!rt_.Spend()) return rt_.LimitFault();
      if (!lines.empty() && IsBlankChunk(chunks_[at])) ++at;  // blanks at the start of a further line go
      std::vector<Piece> line;
      size_t size = 0;
      for (; at < chunks_.size() && size + chunks_[at].size <= width_; ++at) {
        line.push_back(chunks_[at]);
        size += chunks_[at].size;
      }
      if (at < chunks_.size() && chunks_[at].size > width_) {
        if (break_long_) {
          // The part may be empty, and is then what the next rule takes off.
          const size_t taken = LongPart(chunks_[at], width_ - size);
          line.push_back({chunks_[at].begin, taken});
          chunks_[at].begin += taken;
          chunks_[at].size -= taken;
        } else if (line.empty()) {
          line.push_back(chunks_[at++]);
        }
      }
      if (!line.empty() && IsBlankChunk(line.back())) line.pop_back();  // blanks at the end go
      if (!line.empty()) {
        lines.push_back({line.front().begin, line.back().begin + line.back().size - line.front().begin});
      }
    }
    return lines;
  }

 private:
  [[nodiscard]] bool IsBlankChunk(const Piece& p) const {
    return std::all_of(line_.begin() + static_cast<std::ptrdiff_t>(p.begin),
                       line_.begin() + static_cast<std::ptrdiff_t>(p.begin + p.size), IsSpace);
  }

  // How much of a chunk longer than the line fits: behind a hyphen if possible.
  [[nodiscard]] size_t LongPart(const Piece& chunk, size_t space) const {
    if (!break_hyphens_ || chunk.size <= space) return std::min(space, chunk.size);
    for (size_t i = space; i-- > 1;) {
      if (line_[chunk.begin + i] != '-') continue;
      const bool has_other = std::any_of(line_.begin() + static_cast<std::ptrdiff_t>(chunk.begin),
                                         line_.begin() + static_cast<std::ptrdiff_t>(chunk.begin + i),
                                         [](char32_t c) { return c != '-'; });
      return has_other ? i + 1 : space;
    }
    return space;
  }

  [[nodiscard]] char32_t At(size_t i) const { return i < line_.size() ? line_[i] : 0; }

  [[nodiscard]] size_t RunOf(size_t at, bool blank) const {
    size_t end = at;
    while (end < line_.size() && IsBlank(line_[end]) == blank) ++end;
    return end;
  }

  // Two or more hyphens with a word behind them: a dash.
  [[nodiscard]] size_t DashEnd(size_t at) const {
    size_t end = at;
    while (At(end) == '-') ++end;
    return end >= at + 2 && end < line_.size() && IsWord(line_[end]) ? end : at;
  }

  [[nodiscard]] size_t WordEnd(size_t begin) const {
    for (size_t i = begin + 1;; ++i) {
      if (i >= line_.size() || IsBlank(line_[i])) return i;
      if (line_[i] == '-') {
        const bool after_letters =
            i >= 2 && IsLetter(line_[i - 1]) &&
            (IsLetter(line_[i - 2]) || (i >= 3 && line_[i - 2] == '-' && IsLetter(line_[i - 3])));
        const size_t next = At(i + 2) == '-' ? i + 3 : i + 2;
        if (after_letters && IsLetter(At(i + 1)) && IsLetter(At(next))) return i + 1;
        if (IsWordPunct(line_[i - 1]) && DashEnd(i) != i) return i;
      }
    }
  }

  void Cut() {
    for (size_t at = 0; at < line_.size();) {
      size_t end = RunOf(at, true);
      if (end == at && !break_hyphens_) end = RunOf(at, false);
      if (end == at && at > 0 && IsWordPunct(line_[at - 1])) end = DashEnd(at);
      if (end == at) end = WordEnd(at);
      chunks_.push_back({at, end - at});
      at = end;
    }
  }

  Runtime& rt_;
  std::u32string line_;
  size_t width_;
  bool break_long_;
  bool break_hyphens_;
  std::vector<Piece> chunks_;
};

}  // namespace

Result<Value> WordWrap(Runtime& rt, const Bound& b) {
  if (b[0].is_undefined()) return UndefinedFault(b[0]);
  CMF_TRY(const Str* const text, AsString(b[0], "what is wrapped"));
  int64_t width = 79;
  if (b.has(1)) {
    CMF_TRY(width, ToIndex(b[1]));
  }
  std::string_view newline = "\n";
  if (b.has(3) && !b[3].is_none()) {
    CMF_TRY(const Str* const given, AsString(b[3], "wrapstring"));
    newline = given->view();
  }
  if (!rt.Spend(static_cast<int64_t>(text->size))) return rt.LimitFault();
  TextBuilder out(rt);
  const std::string_view all = text->view();
  for (Line line = NextLine(all, 0); line.begin < all.size(); line = NextLine(all, line.next)) {
    if (width <= 0) return RuntimeFault("ValueError: invalid width {} (must be > 0)", width);
    if (line.begin > 0) out.Append(newline);
    std::u32string codes;
    for (uint64_t i = line.begin; i < line.end;) codes += DecodeUtf8(all, &i);
    std::vector<uint64_t> starts;  // bytes of every code point
    for (uint64_t i = line.begin; i < line.end; i += CodePointSize(all, i)) starts.push_back(i);
    starts.push_back(line.end);
    Wrapper wrapper(rt, std::move(codes), width, !b.has(2) || Flag(b, 2), !b.has(4) || Flag(b, 4));
    CMF_TRY(const std::vector<Wrapper::Piece> pieces, wrapper.Wrap());
    bool is_first = true;
    for (const Wrapper::Piece& piece : pieces) {
      if (!is_first) out.Append(newline);
      is_first = false;
      out.Append(*text, starts[piece.begin], starts[piece.begin + piece.size]);
    }
  }
  return out.Finish();
}

}  // namespace cmforge::jinja::filters
