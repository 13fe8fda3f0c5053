// Normalizers, code point by code point against what the reference was observed to do.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/unicode_normalize.h"
#include "text/tokenizer/unicode_tables.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer_cases.h"

namespace cmforge {
namespace {

std::string Text(uint32_t c) {
  std::string text;
  utf8::Append(text, c);
  return text;
}

class Normalize {
 public:
  explicit Normalize(const Json& json) : chain_(std::move(*NormalizerChain::FromJson(json))) {}

  std::string operator()(std::string_view text) const {
    std::string buffers[2];
    PatternScratch scratch;
    const auto piece = chain_.Apply(Piece{text, 0}, buffers, scratch);
    EXPECT_TRUE(piece);
    return std::string(piece->text);
  }

 private:
  NormalizerChain chain_;
};

std::vector<bool> MembersOf(const std::string& ranges) {
  std::vector<bool> members(unicode::kMaxCodePoint + 1, false);
  std::istringstream words(ranges);
  std::string word;
  while (words >> word) {
    const size_t dash = word.find('-');
    const size_t first = std::stoul(word.substr(0, dash), nullptr, 16);
    const size_t last = dash == std::string::npos ? first : std::stoul(word.substr(dash + 1), nullptr, 16);
    for (size_t c = first; c <= last; ++c) members[c] = true;
  }
  return members;
}

Json Recorded() {
  const auto text = ReadTextFile(tokenizer_cases::Folder() / "_unicode/normalizers.json");
  EXPECT_TRUE(text);
  return *ParseJson(*text, "normalizers.json");
}

void ForEachCodePoint(const std::function<void(uint32_t)>& f) {
  for (uint32_t c = 0; c <= unicode::kMaxCodePoint; ++c) {
    if (c == 0xD800) c = 0xE000;
    f(c);
  }
}

// A normalizer that removes some code points, makes others blanks or surrounds them, and keeps the rest.
void ExpectMap(const Json& normalizer, const Json& recorded) {
  const Normalize normalize(normalizer);
  const auto removed = MembersOf(recorded.value("removed", ""));
  const auto to_space = MembersOf(recorded.value("to_space", ""));
  const auto spaced = MembersOf(recorded.value("spaced", ""));
  int differences = 0;
  ForEachCodePoint([&](uint32_t c) {
    const std::string here = Text(c);
    const std::string middle = removed[c] ? "" : to_space[c] ? " " : spaced[c] ? " " + here + " " : here;
    if (normalize("x" + here + "y") != "x" + middle + "y" && ++differences < 5) {
      ADD_FAILURE() << normalizer.dump() << " at " << std::hex << c << ": " << normalize("x" + here + "y");
    }
  });
}

TEST(Normalizers, RemoveAndReplaceTheRecordedCodePoints) {
  const Json recorded = Recorded();
  ExpectMap({{"type", "StripAccents"}}, recorded["stripaccents"]);
  ExpectMap({{"type", "Nmt"}}, recorded["nmt"]);
  ExpectMap({{"type", "BertNormalizer"},
             {"clean_text", true},
             {"handle_chinese_chars", true},
             {"strip_accents", false},
             {"lowercase", false}},
            recorded["bert_clean_text_and_chinese"]);
}

TEST(Normalizers, StripTheRecordedWhiteSpace) {
  const Normalize strip(Json{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
  const auto removed = MembersOf(Recorded()["strip"]["removed"].get<std::string>());
  ForEachCodePoint([&](uint32_t c) {
    const std::string here = Text(c);
    EXPECT_EQ(strip(here + here + "x" + here), removed[c] ? "x" : here + here + "x" + here) << std::hex << c;
  });
  const Normalize left(Json{{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}});
  EXPECT_EQ(left("  x  "), "x  ");
  EXPECT_EQ(left("   "), "");
}

TEST(Normalizers, LowercaseOneCharacterAtATime) {
  const Normalize lower(Json{{"type", "Lowercase"}});
  for (const auto& [hex, wanted] : Recorded()["lowercase"]["maps"].items()) {
    EXPECT_EQ(lower(Text(static_cast<uint32_t>(std::stoul(hex, nullptr, 16)))), wanted.get<std::string>())
        << hex;
  }
  EXPECT_EQ(lower("AbC ÀΩЖ"), "abc àωж");
  EXPECT_EQ(lower("ΟΔΟΣ"), "οδοσ");  // no final sigma
  EXPECT_EQ(lower("İ"), "i̇");
  EXPECT_EQ(lower("ẞ"), "ß");
}

TEST(Normalizers, KeepTheUnicodeFormsOfTheReferencesOlderTables) {
  const Json recorded = Recorded();
  for (const auto& [key, type] :
       {std::pair{"nfc", "NFC"}, {"nfd", "NFD"}, {"nfkc", "NFKC"}, {"nfkd", "NFKD"}}) {
    const Normalize normalize(Json{{"type", type}});
    const auto unchanged = MembersOf(recorded[key]["unchanged_though_unicode14_maps"].get<std::string>());
    ForEachCodePoint([&](uint32_t c) {
      if (unchanged[c]) {
        EXPECT_EQ(normalize(Text(c)), Text(c)) << type << ' ' << std::hex << c;
      }
    });
  }
}

TEST(Normalizers, ComposeReorderAndDecompose) {
  const Normalize nfc(Json{{"type", "NFC"}}), nfd(Json{{"type", "NFD"}}), nfkc(Json{{"type", "NFKC"}});
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("xe\u0323\u0302y"), "xệy");
  EXPECT_EQ(nfc("e\u0302\u0323"), "ệ");            // reordered first
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");  // jamo
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");        // excluded from composition
  EXPECT_EQ(nfc("\u212B"), "Å");                   // a singleton
  EXPECT_EQ(nfd("ệ"), "e\u0323\u0302");
  EXPECT_EQ(nfd("\uAC01"), "\u1100\u1161\u11A8");
  EXPECT_EQ(nfkc("ﬁ①ｱ"), "fi1ア");
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");  // a pair of Unicode 13: unknown
  EXPECT_EQ(nfc("a\u0345\u1AC1"), "a\u0345\u1AC1");                // a mark of Unicode 14: not reordered
  // Nothing depends on where the text is cut into stretches.
  const std::string sample = "déjà vu \u0301x q\u0307\u0323 각 中文 Å";
  for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    std::string once, twice;
    AppendNormalized(sample, form, once);
    AppendNormalized(once, form, twice);
    EXPECT_EQ(once, twice);
    EXPECT_EQ(IsSurelyNormal(sample, form) ? sample : once, once);
  }
}

TEST(Normalizers, ReplacePrependAndSpellBytes) {
  EXPECT_EQ(
      Normalize(Json{{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "$1"}})("xababy"),
      "x$1$1y");
  EXPECT_EQ(Normalize(Json{{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "-"}})("ab"),
            "-a-b-");
  EXPECT_EQ(Normalize(Json{{"type", "Prepend"}, {"prepend", "▁"}})(""), "");
  EXPECT_EQ(Normalize(Json{{"type", "ByteLevel"}})("é "), "Ã©Ġ");
  EXPECT_EQ(Normalize(Json())("as it is"), "as it is");
}

TEST(Normalizers, AreRefusedByName) {
  for (const auto& [json, message] : std::vector<std::pair<Json, std::string>>{
           {{{"type", "Magic"}}, "normalizer: unknown type 'Magic'"},
           {{{"typ", "NFC"}}, "normalizer: without a 'type'"},
           {"NFC", "normalizer: not an object"},
           {{{"type", "Strip"}, {"strip_left", 1}}, "normalizer Strip: 'strip_left' of another kind"},
           {{{"type", "Prepend"}}, "normalizer Prepend: 'prepend' missing"},
           {{{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}},
            "normalizer Replace: pattern: byte 1"},
           {{{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}, "normalizer Precompiled: character 0"},
           {{{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}},
            "normalizer Precompiled: a trie of 4294967295"},
       }) {
    const auto chain = NormalizerChain::FromJson(json);
    ASSERT_FALSE(chain) << json.dump();
    EXPECT_TRUE(chain.error().message.starts_with(message)) << chain.error().message;
  }
}

}  // namespace
}  // namespace cmforge
