// Patterns: recorded splits of the reference, classes code point by code point, the hand-written scanners
// against the pattern engine, and patterns that must be refused.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "text/tokenizer/known_patterns.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/pattern_syntax.h"
#include "text/tokenizer/pre_tokenizers.h"
#include "text/tokenizer/properties.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer_cases.h"

namespace cmforge {
namespace {

std::vector<std::string> Split(const PreTokenizerChain& chain, std::string_view text) {
  PatternScratch scratch;
  std::vector<std::string> pieces;
  const auto done = chain.Run(Piece{text, 0}, scratch, true, [&](const Piece& piece) -> Result<void> {
    pieces.emplace_back(piece.text);
    return {};
  });
  EXPECT_TRUE(done) << done.error().message;
  return pieces;
}

PreTokenizerChain SplitChain(const std::vector<std::string>& patterns, bool invert = false) {
  Json steps = Json::array();
  for (const std::string& pattern : patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", invert ? "Removed" : "Isolated"},
                     {"invert", invert}});
  }
  auto chain = PreTokenizerChain::FromJson({{"type", "Sequence"}, {"pretokenizers", steps}});
  EXPECT_TRUE(chain) << chain.error().message;
  return chain ? std::move(*chain) : PreTokenizerChain();
}

// A look-ahead that always holds keeps the pattern engine at work where a scanner would take over.
std::string ForTheEngine(std::string_view pattern) { return "(?:" + std::string(pattern) + ")"; }

TEST(Patterns, SplitAsRecorded) {
  std::ifstream file(tokenizer_cases::Folder() / "_regex/cases.jsonl");
  std::string text, name;
  PreTokenizerChain chain, engine;
  int lines = 0, differences = 0;
  while (std::getline(file, text) && differences < 10) {
    const auto line = ParseJson(text, "cases");
    ASSERT_TRUE(line) << line.error().message;
    if (line->contains("patterns")) {
      auto patterns = (*line)["patterns"].get<std::vector<std::string>>();
      name = (*line)["pattern_set"].get<std::string>();
      chain = SplitChain(patterns);
      for (std::string& pattern : patterns) pattern = ForTheEngine(pattern);
      engine = SplitChain(patterns);
      continue;
    }
    const auto sample = (*line)["t"].get<std::string>();
    for (const PreTokenizerChain* tried : {&chain, &engine}) {
      std::vector<size_t> cuts;
      for (const std::string& piece : Split(*tried, sample)) cuts.push_back(utf8::CountCodePoints(piece));
      if (cuts != (*line)["cuts"].get<std::vector<size_t>>()) {
        ++differences;
        ADD_FAILURE() << name << (tried == &chain ? "" : " (engine)") << ": " << (*line)["t"].dump()
                      << " gives " << testing::PrintToString(cuts) << ", wanted " << (*line)["cuts"].dump();
      }
    }
    ++lines;
  }
  EXPECT_GE(lines, 4000);
}

CodePointSet SetFromText(const std::string& text) {
  std::istringstream words(text);
  std::vector<unicode::CodePointRange> ranges;
  std::string word;
  while (words >> word) {
    const size_t dash = word.find('-');
    const auto first = static_cast<uint32_t>(std::stoul(word.substr(0, dash), nullptr, 16));
    const auto last = dash == std::string::npos
                          ? first
                          : static_cast<uint32_t>(std::stoul(word.substr(dash + 1), nullptr, 16));
    ranges.push_back({first, last});
  }
  return CodePointSet::Of(std::move(ranges));
}

std::string Text(uint32_t c) {
  std::string text;
  utf8::Append(text, c);
  return text;
}

template <class F>
CodePointSet CodePointsWhere(const F& accepts) {
  std::vector<unicode::CodePointRange> ranges;
  for (uint32_t c = 0; c <= unicode::kMaxCodePoint; ++c) {
    if (c == 0xD800) c = 0xE000;
    if (accepts(c)) ranges.push_back({c, c});
  }
  return CodePointSet::Of(std::move(ranges));
}

Json ReadUnicode(const char* name) {
  const auto text = ReadTextFile(tokenizer_cases::Folder() / "_unicode" / name);
  EXPECT_TRUE(text) << text.error().message;
  auto json = ParseJson(*text, name);
  EXPECT_TRUE(json) << json.error().message;
  return *json;
}

void ExpectSame(const CodePointSet& got, const CodePointSet& wanted, const std::string& what) {
  const CodePointSet extra = got.Minus(wanted), missing = wanted.Minus(got);
  for (const auto& range : extra.ranges()) {
    ADD_FAILURE() << what << " has too many: " << std::hex << range.first << '-' << range.last;
    break;
  }
  for (const auto& range : missing.ranges()) {
    ADD_FAILURE() << what << " lacks: " << std::hex << range.first << '-' << range.last;
    break;
  }
}

// All code points, one after the other, in one text.
const std::string& Everything() {
  static const std::string text = [] {
    std::string all;
    for (uint32_t c = 0; c <= unicode::kMaxCodePoint; ++c) {
      if (c == 0xD800) c = 0xE000;
      utf8::Append(all, c);
    }
    return all;
  }();
  return text;
}

CodePointSet MatchesInEverything(const std::string& regex) {
  const auto pattern = Pattern::Compile("(?:" + regex + ")++");
  EXPECT_TRUE(pattern) << pattern.error().message;
  if (!pattern) return {};
  PatternScratch scratch;
  std::vector<unicode::CodePointRange> ranges;
  Pattern::Matches matches(*pattern, Everything(), scratch);
  while (true) {
    const auto match = matches.Next();
    EXPECT_TRUE(match) << match.error().message;
    if (!match || !*match) break;
    const char* begin = Everything().data() + match->begin;
    const char* last = utf8::Previous(Everything().data() + match->end);
    ranges.push_back({utf8::Decode(begin), utf8::Decode(last)});
  }
  return CodePointSet::Of(std::move(ranges));
}

TEST(Patterns, ClassesHoldTheRecordedCodePoints) {
  const Json classes = ReadUnicode("classes.json")["classes"];
  int compared = 0;
  for (const auto& [name, members] : classes.items()) {
    if (name.find(' ') != std::string::npos || name.starts_with("(?i")) continue;
    const CodePointSet wanted = SetFromText(members.get<std::string>());
    ExpectSame(MatchesInEverything(name), wanted, name);
    if (name[0] == '\\')
      ExpectSame(MatchesInEverything("[^" + name + "]"), wanted.Complement(), "[^" + name + "]");
    ++compared;
  }
  EXPECT_GE(compared, 45);
  for (const auto& [name, members] : classes.items()) {
    if (!name.starts_with("(?i")) continue;
    ExpectSame(MatchesInEverything(name), SetFromText(members.get<std::string>()), name);
    const std::string letter = name.substr(4, 1);
    ExpectSame(MatchesInEverything("(?i:[" + letter + "])"), SetFromText(members.get<std::string>()), name);
  }
}

TEST(Patterns, ComponentsHoldTheRecordedCodePoints) {
  const Json classes = ReadUnicode("classes.json")["classes"];
  const auto set = [&](const char* name) { return SetFromText(classes[name].get<std::string>()); };
  ExpectSame(CodePointsWhere(unicode::IsWhiteSpace), set("WhitespaceSplit separators"), "white space");
  ExpectSame(CodePointsWhere(unicode::IsNumeric), set("Digits members"), "digits");
  ExpectSame(CodePointsWhere(unicode::IsBertPunctuation), set("Punctuation members"), "punctuation");
  ExpectSame(CodePointsWhere(unicode::IsPatternWord), set("\\w"), "word characters");
  ExpectSame(CodePointsWhere(unicode::IsTokenWord), set("Whitespace words"), "words between white space");
  const unicode::CategoryTable& table = unicode::CategoryTable::Get();
  ExpectSame(
      CodePointsWhere([&](uint32_t c) { return (unicode::Bit(table.Of(c)) & unicode::kLetterBits) != 0; }),
      set("\\p{L}"), "letters of the table");
}

TEST(Patterns, ScannersAgreeWithTheEngineOnRandomText) {
  // Characters that the patterns tell apart, ordinary and odd ones.
  const std::vector<std::string> alphabet = {
      "a",      "b",          "s",      "t",      "e",      "r",  "l",      "v",      "d",      "m",
      "S",      "T",          "R",      "L",      "E",      "é",  "ß",      "ſ",      "K",      "中",
      "文",     "あ",         "1",      "2",      "²",      "½",  "Ⅷ",      "①",      "٣",      "'",
      "'",      "’",          ".",      ",",      "!",      "/",  "-",      "_",      "$",      "€",
      "😀",      " ",          " ",      " ",      "\n",     "\r", "\t",     "\u00A0", "\u0085", "\u2028",
      "\u3000", "\u200B",     "\u0301", "\u0903", "\u20DD", "ʰ",  "ǅ",      "\u0000", "\u001C", "\u180E",
      "\uFEFF", "\U00010FFF", "\uE000", "İ",      "Ω",      "ا",  "\u0E33", "한"};
  std::mt19937 random(12345);
  for (const std::string_view pattern : KnownPatterns()) {
    const PreTokenizerChain scanner = SplitChain({std::string(pattern)});
    const PreTokenizerChain inverted = SplitChain({std::string(pattern)}, /*invert=*/true);
    const PreTokenizerChain engine = SplitChain({ForTheEngine(pattern)});
    const PreTokenizerChain inverted_engine = SplitChain({ForTheEngine(pattern)}, /*invert=*/true);
    for (int round = 0; round < 4000; ++round) {
      std::string text;
      for (size_t length = random() % 24; length-- > 0;) text += alphabet[random() % alphabet.size()];
      const auto pieces = Split(scanner, text);
      ASSERT_EQ(pieces, Split(engine, text)) << pattern;
      ASSERT_EQ(pieces, Split(inverted, text)) << pattern;
      ASSERT_EQ(pieces, Split(inverted_engine, text)) << pattern;
    }
    // Each code point between letters, blanks and apostrophes.
    std::string text;
    for (uint32_t c = 1; c < 0x32000; c += c < 0x3000 ? 1 : 7) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      const std::string here = Text(c);
      text += "a" + here + "b " + here + "1" + here + here + " \n" + here + "'" + here + "A";
    }
    ASSERT_EQ(Split(scanner, text), Split(engine, text)) << pattern;
  }
}

std::string Translated(std::string_view pattern) {
  const auto result = TranslatePattern(pattern);
  return result ? *result : "error: " + result.error().message;
}

TEST(Patterns, KeepTheMeaningThatTheFileGivesThem) {
  struct Case {
    std::string_view pattern, text;
    std::vector<std::string> pieces;
  };
  const std::vector<Case> cases = {
      {"a{2}+", "aaaaa", {"aaaa", "a"}},  // repeats, not possessive
      {"a{2}?b", "aab", {"aab"}},         // optional, not lazy
      {"a{,2}b", "aaab", {"a", "aab"}},   // from 0
      {"x{,}", "x{,}", {"x{,}"}},         // no interval: literal
      {"a(?i)b|c", "aBC", {"aB", "C"}},   // the option reaches over the alternatives: a(?i:b|c)
      {"(?m:.)x", "\nx", {"\nx"}},        // m: dot matches newline
      {".+", "a\nb", {"a", "\n", "b"}},   // else it does not
      {"^b", "a\nb", {"a\n", "b"}},       // ^ and $ are of lines
      {"a$", "a\nb", {"a", "\nb"}},
      {"\\h+", "xafg", {"x", "af", "g"}},  // hexadecimal digits
      {"[a-z&&[^aeiou]]+", "abcde", {"a", "bcd", "e"}},
      {"[]a]+", "x]a", {"x", "]a"}},
      {"[a[bc]]+", "xabc", {"x", "abc"}},
      {"[[:^alpha:]]+", "a1b", {"a", "1", "b"}},
      {"[a-\\d]+", "x-1a", {"x", "-1a"}},
      {"(?x) a  b # c\n", "xab", {"x", "ab"}},
      {"(?<n>a)\\k<n>", "xaa", {"x", "aa"}},
      {"(a)\\1", "xaa", {"x", "aa"}},
      {"\\bb", "ab b", {"ab ", "b"}},
      {"\\u0041\\x42\\x{43}\\t", "xABC\t", {"x", "ABC\t"}},
      {"a++a|a", "aaa", {"a", "a", "a"}},
      {"(?i:k)", "xK", {"x", "K"}},  // the Kelvin sign
      {"\\p{^L}+", "a1b", {"a", "1", "b"}},
      {"\\p{Script_That_Is_Not}|a", "a", {}},
  };
  for (const Case& c : cases) {
    if (c.pieces.empty()) {
      EXPECT_TRUE(Translated(c.pattern).starts_with("error: pattern: byte")) << Translated(c.pattern);
      continue;
    }
    EXPECT_EQ(Split(SplitChain({std::string(c.pattern)}), c.text), c.pieces)
        << c.pattern << " = " << Translated(c.pattern);
  }
}

TEST(Patterns, AreRefusedWithTheirByte) {
  for (const auto& [pattern, message] : std::vector<std::pair<std::string, std::string>>{
           {"(a", "byte 2: '(' is never closed"},
           {"a)", "byte 1: ')' without '('"},
           {"[a", "byte 2: '[' is never closed"},
           {"[b-a]", "byte 4: a range that runs backwards"},
           {"*a", "byte 0: nothing to repeat"},
           {"a\\", "byte 2: a lone '\\' at the end"},
           {"\\p{Klingon}", "byte 3: the property 'Klingon' is not supported"},
           {"\\p{L", "byte 3: '\\p{' is never closed"},
           {"(?~a)", "byte 2: this kind of group is not supported"},
           {"\\x{110000}", "byte 10: not a code point"},
           {"a{3,2}", "byte 1: a repeat range that runs backwards"},
           {"a\xFF", "byte 1: not UTF-8"},
           {std::string(200, '('), "groups nested deeper than 100"},
           {std::string(200, '['), "classes nested deeper than 100"},
           {std::string(20000, 'a'), "20000 bytes, at most 16384"},
       }) {
    const auto compiled = Pattern::Compile(pattern);
    ASSERT_FALSE(compiled) << pattern.substr(0, 20);
    EXPECT_NE(compiled.error().message.find(message), std::string::npos) << compiled.error().message;
  }
}

TEST(Patterns, ThatBacktrackWithoutEndAreGivenUp) {
  const auto pattern = Pattern::Compile("(?:a+)+b");
  ASSERT_TRUE(pattern);
  PatternScratch scratch;
  const std::string text(5000, 'a');
  Pattern::Matches matches(*pattern, text, scratch);
  const auto match = matches.Next();
  // PCRE2 may see at once that there is no 'b'; if it tries, it must give up with an error.
  if (!match) {
    EXPECT_EQ(match.error().kind, ErrorKind::kLimit);
  } else {
    EXPECT_FALSE(*match);
  }
  const auto nasty = Pattern::Compile("(?:a|aa)+$(?<!a)");
  ASSERT_TRUE(nasty);
  Pattern::Matches more(*nasty, text, scratch);
  const auto given_up = more.Next();
  ASSERT_FALSE(given_up);
  EXPECT_EQ(given_up.error().kind, ErrorKind::kLimit);
  EXPECT_NE(given_up.error().message.find("gave up"), std::string::npos);
}

}  // namespace
}  // namespace cmforge
