// The pre-tokenizers.
#include "text/tokenizer/pre_tokenizers.h"

#include <limits>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/known_patterns.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/splitting.h"
#include "text/tokenizer/unicode_tables.h"

namespace cmforge {

namespace {

constexpr size_t kMaxSteps = 64;  // they nest on the stack

Result<void> SplitAtMatches(const Pattern& pattern, const Piece& in, SplitBehavior behavior, bool invert,
                            PatternScratch& scratch, PieceSink sink) {
  Splitter splitter(in, behavior, sink);
  Pattern::Matches matches(pattern, in.text, scratch);
  size_t gap = 0;
  while (true) {
    CMF_TRY(const auto match, matches.Next());
    if (!match) break;
    if (gap < match.begin) CMF_CHECK(splitter.Part(gap, match.begin, invert));
    CMF_CHECK(splitter.Part(match.begin, match.end, !invert));
    gap = match.end;
  }
  if (gap < in.text.size()) CMF_CHECK(splitter.Part(gap, in.text.size(), invert));
  return splitter.Finish();
}

class PatternSplit : public PreTokenizer {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Result<void> Split(const Piece& in, PatternScratch& scratch, PieceSink sink) const override {
    return SplitAtMatches(pattern_, in, behavior_, invert_, scratch, sink);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// A pattern whose matches cover every text, run by a hand-written scanner.
class KnownSplit : public PreTokenizer {
 public:
  explicit KnownSplit(ScanFn scan) : scan_(scan) {}

  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    const unicode::CategoryTable& categories = unicode::CategoryTable::Get();
    for (size_t at = 0; at < in.text.size();) {
      const size_t end = scan_(in.text, at, categories);
      CMF_CHECK(sink(in.Sub(at, end)));
      at = end;
    }
    return {};
  }

 private:
  ScanFn scan_;
};

class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(bool (*is_match)(uint32_t), SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    return SplitAtCharacters(in, behavior_, sink, is_match_);
  }

 private:
  bool (*is_match_)(uint32_t);
  SplitBehavior behavior_;
};

// Runs of word characters and runs of what is neither those nor white space, which vanishes. The words are those of
// the library's plain regexes (joiners are in, superscripts are not), unlike the \w of a Split pattern.
class WordSplit : public PreTokenizer {
 public:
  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    const char* const text = in.text.data();
    const char* const end = text + in.text.size();
    size_t begin = 0;
    Kind last = kSpace;
    for (const char* at = text; at != end;) {
      const auto offset = static_cast<size_t>(at - text);
      const Kind kind = KindOf(utf8::Next(at));
      if (kind == last) continue;
      if (last != kSpace) CMF_CHECK(sink(in.Sub(begin, offset)));
      begin = offset;
      last = kind;
    }
    if (last == kSpace) return {};
    return sink(in.Sub(begin, in.text.size()));
  }

 private:
  enum Kind : uint8_t { kSpace, kWord, kOther };
  static Kind KindOf(uint32_t c) {
    if (unicode::IsWhiteSpace(c)) return kSpace;
    return unicode::IsTokenWord(c) ? kWord : kOther;
  }
};

class CharDelimiterSplit : public PreTokenizer {
 public:
  explicit CharDelimiterSplit(uint32_t delimiter) : delimiter_(delimiter) {}

  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    return SplitAtCharacters(in, SplitBehavior::kRemoved, sink, [&](uint32_t c) { return c == delimiter_; });
  }

 private:
  uint32_t delimiter_;
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}

  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    for (size_t at = 0; at < in.text.size();) {
      size_t end = at;
      for (size_t i = 0; i < length_ && end < in.text.size(); ++i) {
        end += static_cast<size_t>(utf8::LengthOf(in.text[end]));
      }
      CMF_CHECK(sink(in.Sub(at, end)));
      at = end;
    }
    return {};
  }

 private:
  size_t length_;  // in code points, at least 1
};

// Cuts where the script changes. Blanks and code points without a script belong to what stands before them;
// at the very front of a piece they are lost, as in the reference.
class UnicodeScripts : public PreTokenizer {
 public:
  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    const char* const text = in.text.data();
    const char* const end = text + in.text.size();
    size_t begin = in.text.size();
    int last = kNone;
    for (const char* at = text; at != end;) {
      const auto offset = static_cast<size_t>(at - text);
      const int script = ScriptOf(utf8::Next(at));
      if (script == kNone || script == last) continue;
      if (begin < offset) CMF_CHECK(sink(in.Sub(begin, offset)));
      begin = offset;
      last = script;
    }
    if (begin == in.text.size()) return {};
    return sink(in.Sub(begin, in.text.size()));
  }

 private:
  static constexpr int kNone = -1;

  static int ScriptNamed(std::string_view name) {
    const auto names = unicode::kScriptNames;
    return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
  }

  static int ScriptOf(uint32_t c) {
    static const int kHan = ScriptNamed("Han"), kHiragana = ScriptNamed("Hiragana"),
                     kKatakana = ScriptNamed("Katakana"), kCommon = ScriptNamed("Common"),
                     kDevanagari = ScriptNamed("Devanagari"), kUnknown = ScriptNamed("Unknown");
    if (c == ' ' || unicode::Contains(unicode::kScriptlessInPreTokenizer, c)) return kNone;
    if (c == 0x30FC) return kHan;
    if (c == 0x953 || c == 0x954) return kDevanagari;  // of no script of their own since then
    if (c == 0x589 || c == 0x61C) return kCommon;
    const int script = unicode::ValueInRuns(unicode::kScriptRuns, c);
    if (script == kUnknown) return kNone;
    return script == kHiragana || script == kKatakana ? kHan : script;
  }
};

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}

  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    const std::string& mark = options_.replacement;
    std::string text;
    text.reserve(in.text.size() + in.text.size() / 4 + mark.size());
    size_t from_start = 0;
    const bool begins_with_mark = in.text[0] == ' ' || in.text.starts_with(mark);
    if (!begins_with_mark && (options_.prepend == PrependScheme::kAlways ||
                              (options_.prepend == PrependScheme::kFirst && in.from_start > 0))) {
      text = mark;
    }
    for (size_t i = 0; i < in.text.size(); ++i) {
      if (in.text[i] == ' ') {
        text += mark;
      } else {
        text.push_back(in.text[i]);
      }
      if (i < in.from_start) from_start = text.size();
    }
    const Piece out{text, from_start};
    if (!options_.split) return sink(out);
    size_t begin = 0;
    for (size_t at = text.find(mark, 1); at != std::string::npos; at = text.find(mark, at + mark.size())) {
      CMF_CHECK(sink(out.Sub(begin, at)));
      begin = at;
    }
    return sink(out.Sub(begin, text.size()));
  }

 private:
  MetaspaceOptions options_;
};

class ByteLevelPrefix : public PreTokenizer {
 public:
  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    if (in.text.starts_with(' ')) return sink(in);
    std::string text = " ";
    text += in.text;
    return sink(Piece{text, in.from_start == 0 ? 0 : in.from_start + 1});
  }
};

class ByteLevelSpelling : public PreTokenizer {
 public:
  Result<void> Split(const Piece& in, PatternScratch&, PieceSink sink) const override {
    std::string text;
    byte_level::AppendSpelling(in.text.substr(0, in.from_start), text);
    const size_t from_start = text.size();
    byte_level::AppendSpelling(in.text.substr(in.from_start), text);
    return sink(Piece{text, from_start});
  }
};

using Steps = std::vector<std::unique_ptr<const PreTokenizer>>;

Result<SplitBehavior> BehaviorOf(const Component& component) {
  CMF_TRY(const std::string name, component.String("behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return component.Wrong(fmt::format("unknown behavior '{}'", name.substr(0, 100)));
}

Result<std::unique_ptr<const PreTokenizer>> SplitFrom(const Component& component) {
  CMF_TRY(const SplitBehavior behavior, BehaviorOf(component));
  CMF_TRY(const bool invert, component.Bool("invert"));
  // Of a pattern that covers every text nothing is left between the matches: keeping the matches or removing
  // what is not a match is the same.
  const bool keeps_matches =
      (behavior == SplitBehavior::kIsolated) || (behavior == SplitBehavior::kRemoved && invert);
  if (const ScanFn scan = keeps_matches ? KnownPattern(component.RegexText("pattern")) : nullptr) {
    return std::make_unique<const KnownSplit>(scan);
  }
  CMF_TRY(Pattern pattern, component.PatternField("pattern"));
  return std::make_unique<const PatternSplit>(std::move(pattern), behavior, invert);
}

// `spells_bytes` tells whether the last step so far is a ByteLevel.
Result<void> AddSteps(const Json& json, Steps& steps, bool& spells_bytes) {
  CMF_TRY(const Component component, Component::Of(json, "pre-tokenizer"));
  const std::string_view type = component.type();
  const auto add = [&](auto step) -> Result<void> {
    steps.push_back(std::make_unique<const decltype(step)>(std::move(step)));
    if (steps.size() > kMaxSteps) {
      return Fail(ErrorKind::kLimit, fmt::format("pre-tokenizer: more than {} steps", kMaxSteps));
    }
    return {};
  };
  if (type == "Sequence") {
    CMF_TRY(const Json* list, component.Array("pretokenizers"));
    for (const Json& step : *list) CMF_CHECK(AddSteps(step, steps, spells_bytes));
    return {};
  }
  spells_bytes = false;
  if (type == "ByteLevel") {
    CMF_TRY(const bool adds_prefix, component.Bool("add_prefix_space"));
    CMF_TRY(const bool uses_regex, component.Bool("use_regex", true));
    if (adds_prefix) CMF_CHECK(add(ByteLevelPrefix()));
    if (uses_regex) CMF_CHECK(add(KnownSplit(KnownPattern(kGpt2Pattern))));
    spells_bytes = true;
    return add(ByteLevelSpelling());
  }
  if (type == "Split") {
    CMF_TRY(auto step, SplitFrom(component));
    steps.push_back(std::move(step));
    return {};
  }
  if (type == "Metaspace") {
    CMF_TRY(MetaspaceOptions options, MetaspaceOptions::From(component));
    return add(Metaspace(std::move(options)));
  }
  if (type == "Digits") {
    CMF_TRY(const bool individual, component.Bool("individual_digits"));
    return add(CharacterSplit(unicode::IsNumeric,
                              individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  }
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (component.Find("behavior")) {
      CMF_TRY(behavior, BehaviorOf(component));
    }
    return add(CharacterSplit(unicode::IsBertPunctuation, behavior));
  }
  if (type == "WhitespaceSplit") {
    return add(CharacterSplit(unicode::IsWhiteSpace, SplitBehavior::kRemoved));
  }
  if (type == "BertPreTokenizer") {
    CMF_CHECK(add(CharacterSplit(unicode::IsWhiteSpace, SplitBehavior::kRemoved)));
    return add(CharacterSplit(unicode::IsBertPunctuation, SplitBehavior::kIsolated));
  }
  if (type == "Whitespace") {
    return add(WordSplit());
  }
  if (type == "UnicodeScripts") return add(UnicodeScripts());
  if (type == "CharDelimiterSplit") {
    CMF_TRY(const uint32_t delimiter, component.Character("delimiter"));
    return add(CharDelimiterSplit(delimiter));
  }
  if (type == "FixedLength") {
    uint64_t length = 5;
    if (component.Find("length")) {
      CMF_TRY(length, component.Count("length"));
    }
    if (length == 0) return component.Wrong("'length' is 0");
    return add(FixedLength(static_cast<size_t>(length)));
  }
  return component.UnknownType();
}

}  // namespace

Result<PreTokenizerChain> PreTokenizerChain::FromJson(const Json& json) {
  PreTokenizerChain chain;
  if (!json.is_null()) CMF_CHECK(AddSteps(json, chain.steps_, chain.ends_in_bytes_));
  return chain;
}

Result<void> PreTokenizerChain::RunFrom(size_t step, const Piece& in, PatternScratch& scratch,
                                        bool spell_bytes, PieceSink sink) const {
  const size_t count = steps_.size() - (ends_in_bytes_ && !spell_bytes ? 1 : 0);
  if (step == count) return sink(in);
  if (step + 1 == count) return steps_[step]->Split(in, scratch, sink);
  return steps_[step]->Split(in, scratch, [&](const Piece& piece) -> Result<void> {
    return RunFrom(step + 1, piece, scratch, spell_bytes, sink);
  });
}

}  // namespace cmforge
