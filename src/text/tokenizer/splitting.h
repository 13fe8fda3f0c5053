// Cutting a piece at matches, in the five ways of SplitDelimiterBehavior.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "text/tokenizer/piece.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

enum class SplitBehavior : uint8_t {
  kRemoved,             // matches vanish
  kIsolated,            // each match is a piece
  kMergedWithPrevious,  // a match ends the piece before it; of neighbouring matches only the first
  kMergedWithNext,      // a match begins the piece after it; of neighbouring matches only the last
  kContiguous,          // neighbouring matches form one piece
};

/// Takes the parts of a piece in order, matches and the gaps between them, and hands on what they become.
/// Empty pieces are never handed on.
class Splitter {
 public:
  Splitter(const Piece& in, SplitBehavior behavior, PieceSink sink)
      : in_(in), behavior_(behavior), sink_(sink) {}

  Result<void> Part(size_t begin, size_t end, bool is_match) {
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (is_match) return {};
        return Emit(begin, end);
      case SplitBehavior::kIsolated:
        return Emit(begin, end);
      case SplitBehavior::kContiguous:
        if (has_held_ && is_match == held_is_match_) {
          held_end_ = end;
          return {};
        }
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (has_held_ && is_match && !held_is_match_) {
          held_end_ = end;
          held_is_match_ = true;
          return {};
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (has_held_ && held_is_match_ && !is_match) {
          has_held_ = false;
          return Emit(held_begin_, end);
        }
        break;
    }
    CMF_CHECK(Finish());
    has_held_ = true;
    held_begin_ = begin;
    held_end_ = end;
    held_is_match_ = is_match;
    return {};
  }

  /// After the last part.
  Result<void> Finish() {
    if (!has_held_) return {};
    has_held_ = false;
    return Emit(held_begin_, held_end_);
  }

 private:
  Result<void> Emit(size_t begin, size_t end) {
    if (begin == end) return {};
    return sink_(in_.Sub(begin, end));
  }

  Piece in_;
  SplitBehavior behavior_;
  PieceSink sink_;
  bool has_held_ = false;
  size_t held_begin_ = 0, held_end_ = 0;
  bool held_is_match_ = false;
};

/// Splits where single characters match.
template <class IsMatch>
Result<void> SplitAtCharacters(const Piece& in, SplitBehavior behavior, PieceSink sink,
                               const IsMatch& is_match) {
  Splitter splitter(in, behavior, sink);
  const char* const text = in.text.data();
  const char* const end = text + in.text.size();
  size_t gap = 0;
  for (const char* at = text; at != end;) {
    const auto begin = static_cast<size_t>(at - text);
    if (!is_match(utf8::Next(at))) continue;
    if (gap < begin) CMF_CHECK(splitter.Part(gap, begin, false));
    gap = static_cast<size_t>(at - text);
    CMF_CHECK(splitter.Part(begin, gap, true));
  }
  if (gap < in.text.size()) CMF_CHECK(splitter.Part(gap, in.text.size(), false));
  return splitter.Finish();
}

}  // namespace cmforge
