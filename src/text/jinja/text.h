// Strings of a rendering: pieces of others without copying, and a builder that carries along which bytes came
// from traced input (template.h, Rendering).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace cmforge::jinja {

/// Bytes [begin, end) of `text`, pointing into it.
[[nodiscard]] Str Piece(Runtime& rt, const Str& text, uint64_t begin, uint64_t end);
[[nodiscard]] inline Value PieceValue(Runtime& rt, const Str& text, uint64_t begin, uint64_t end) {
  return rt.View(Piece(rt, text, begin, end));
}

/// White space (or the code points of `chars`) taken off the ends.
[[nodiscard]] Str Strip(Runtime& rt, const Str& text, const std::string_view* chars, bool left, bool right);

/// First occurrence of `needle` in `text` at or behind `from`; npos when there is none. Linear time.
[[nodiscard]] uint64_t Find(std::string_view text, std::string_view needle, uint64_t from = 0);
/// Up to `most` occurrences that do not overlap, found from the back, so descending. Linear time.
[[nodiscard]] std::vector<uint64_t> FindFromBack(std::string_view text, std::string_view needle,
                                                 uint64_t most);

/// Collects a string. Beyond the rendering's memory it stops collecting and Finish() fails.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& rt) : rt_(rt) {}

  void Append(std::string_view text) {
    if (Fits(text.size())) text_.append(text);
  }
  void Append(char c) { Append(std::string_view(&c, 1)); }
  void Append(const Str& text);
  void Append(const Str& text, uint64_t begin, uint64_t end);
  /// `text` instead of the bytes of `source` at `at`: traced if they were.
  void AppendFor(std::string_view text, const Str& source, uint64_t at);
  void AppendRepeated(std::string_view text, uint64_t times);
  /// What has no single source: traced when any of `source` is.
  void AppendWhole(std::string_view text, const Str& source) { AppendTraced(text, !source.traced.empty()); }
  void AppendTraced(std::string_view text, bool is_traced);

  [[nodiscard]] uint64_t size() const { return text_.size(); }
  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] const std::vector<TraceRange>& traced() const { return traced_; }
  [[nodiscard]] bool overflowed() const { return overflowed_; }

  Result<Value> Finish(bool is_markup = false);
  /// The text itself, for the result of a rendering.
  std::string Take() { return std::move(text_); }

 private:
  [[nodiscard]] bool Fits(uint64_t size);
  void NoteTraced(uint64_t begin, uint64_t end);

  Runtime& rt_;
  std::string text_;
  std::vector<TraceRange> traced_;
  bool overflowed_ = false;
};

/// head + tail as one string.
Result<Value> Join(Runtime& rt, const Str& head, const Str& tail, bool is_markup = false);

/// Escapes & < > " ' for HTML.
void AppendEscaped(TextBuilder* out, const Str& text);

}  // namespace cmforge::jinja
