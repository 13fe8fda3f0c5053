// A compiled pattern of a tokenizer file: finds its matches in a text one after the other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace cmforge {

/// What matching needs besides the pattern. One thread at a time; any pattern may use it.
class PatternScratch {
 public:
  PatternScratch();
  ~PatternScratch();
  PatternScratch(PatternScratch&&) noexcept;
  PatternScratch& operator=(PatternScratch&&) noexcept;

 private:
  friend class Pattern;
  struct State;
  std::unique_ptr<State> state_;
};

/// Immutable: any thread may use it, each with a PatternScratch of its own.
class Pattern {
 public:
  /// `pattern` in the language of tokenizer files (pattern_syntax.h). Fails as TranslatePattern, and with
  /// kUnsupported where PCRE2 does not take the translation (look-behind without a fixed length, too large).
  static Result<Pattern> Compile(std::string_view pattern);

  /// Matches `text` itself.
  static Pattern Literal(std::string_view text);

  /// One match, or none (begin == npos).
  struct Match {
    size_t begin = std::string_view::npos, end = 0;
    explicit operator bool() const { return begin != std::string_view::npos; }
  };

  /// The matches of a text from left to right. An empty match that touches the match before it is not one.
  class Matches {
   public:
    Matches(const Pattern& pattern, std::string_view text, PatternScratch& scratch)
        : pattern_(&pattern), text_(text), scratch_(&scratch) {}
    /// Fails: kLimit (backtracking beyond all bounds).
    Result<Match> Next();

   private:
    const Pattern* pattern_;
    std::string_view text_;
    PatternScratch* scratch_;
    size_t at_ = 0;
    size_t last_end_ = std::string_view::npos;
  };

 private:
  struct Code;
  [[nodiscard]] Result<Match> FindFrom(std::string_view text, size_t at, PatternScratch& scratch) const;

  std::shared_ptr<const Code> code_;  // null: a literal
  std::string literal_;
};

}  // namespace cmforge
