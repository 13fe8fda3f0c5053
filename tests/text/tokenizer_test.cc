// The tokenizer as a whole: special tokens in text, streaming, look-ups, threads, bounds, and files that are
// wrong.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "text/tokenizer_cases.h"

namespace cmforge {
namespace {

using Ids = std::vector<TokenId>;

// A small file to be varied: BPE over a few letters.
Json SmallFile() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "<": 4, "|": 5, ">": 6, " ": 7, "abc": 8},
              "merges": [["a", "b"], ["ab", "c"]]}})");
}

Json Added(std::string_view content, bool special) {
  return {{"id", 99},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

std::shared_ptr<const Tokenizer> Make(const Json& json) {
  auto tokenizer = Tokenizer::FromJson(json.dump(), "t.json");
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *tokenizer : nullptr;
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text, const TokenizeOptions& options = {}) {
  auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids ? *ids : Ids();
}

std::string MessageFor(const std::string& json) {
  const auto tokenizer = Tokenizer::FromJson(json, "t.json");
  return tokenizer ? "" : tokenizer.error().message;
}

TEST(Tokenizer, LooksUpTokensBothWays) {
  Json file = SmallFile();
  file["added_tokens"] = {Added("<|x|>", true), Added("tool", false), Added("ab", true)};
  const auto t = Make(file);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->IdOf("<|x|>"), 9);  // the file's 99 is not trusted
  EXPECT_EQ(t->IdOf("tool"), 10);
  EXPECT_EQ(t->IdOf("ab"), 3);  // of the model's vocabulary
  EXPECT_EQ(t->IdOf("nothing"), std::nullopt);
  EXPECT_EQ(t->TokenText(9), "<|x|>");
  EXPECT_EQ(t->TokenText(8), "abc");
  EXPECT_EQ(t->TokenText(11), "");
  EXPECT_EQ(t->TokenText(-1), "");
  EXPECT_TRUE(t->IsSpecial(9) && t->IsSpecial(3));
  EXPECT_FALSE(t->IsSpecial(10) || t->IsSpecial(0) || t->IsSpecial(1000));
  EXPECT_EQ(t->vocab_size(), 11);
  ASSERT_EQ(t->added_tokens().size(), 3u);
  EXPECT_EQ(t->added_tokens()[1].content, "tool");
  EXPECT_EQ(t->Decode(Ids{9, 0, 10, 12345, -7, 3}, true), "atool");
  EXPECT_EQ(t->Decode(Ids{9, 0, 10, 12345, -7, 3}, false), "<|x|>atoolab");
}

TEST(Tokenizer, TakesSpecialTokensInTextForTextWhenTold) {
  Json file = SmallFile();
  file["added_tokens"] = {Added("<|a|>", true), Added("<|b|>", false), Added("cc", false)};
  const auto t = Make(file);
  ASSERT_TRUE(t);
  TokenizeOptions plain;
  plain.allow_special_in_text = false;
  EXPECT_EQ(Encode(*t, "a<|a|>b"), (Ids{0, 9, 1}));
  EXPECT_EQ(Encode(*t, "a<|a|>b", plain), (Ids{0, 4, 5, 0, 5, 6, 1}));
  EXPECT_EQ(Encode(*t, "<|b|>", plain), (Ids{4, 5, 1, 5, 6}));  // not marked special, but spelled like one
  EXPECT_EQ(Encode(*t, "acc", plain), (Ids{0, 11}));            // an ordinary added token stays one
}

TEST(Tokenizer, KeepsTheModelFromSpellingSpecialTokens) {
  // The vocabulary itself holds the special token, and merges or a whole-word look-up reach it.
  Json file = SmallFile();
  file["model"]["vocab"]["<|"] = 9;
  file["model"]["vocab"]["<|>"] = 10;
  file["model"]["merges"] = Json::parse(R"(["< |", "<| >", "a b"])");
  file["added_tokens"] = {Added("<|>", true)};
  for (const bool ignore_merges : {false, true}) {
    file["model"]["ignore_merges"] = ignore_merges;
    const auto t = Make(file);
    ASSERT_TRUE(t);
    TokenizeOptions plain;
    plain.allow_special_in_text = false;
    EXPECT_EQ(Encode(*t, "<|>"), (Ids{10}));
    EXPECT_EQ(Encode(*t, "<|>", plain), (Ids{4, 5, 6}));
    EXPECT_EQ(Encode(*t, "<|>"), (Ids{10})) << "the cache must not confuse the two";
  }
  Json unigram = SmallFile();
  unigram["model"] = Json::parse(R"({"type": "Unigram", "unk_id": 0,
    "vocab": [["<unk>", 0], ["<s>", 0], ["<", -9], ["s", -9], [">", -9]]})");
  unigram["added_tokens"] = {Added("<unk>", true), Added("<s>", true)};
  const auto t = Make(unigram);
  ASSERT_TRUE(t);
  TokenizeOptions plain;
  plain.allow_special_in_text = false;
  EXPECT_EQ(Encode(*t, "<s>"), (Ids{1}));
  EXPECT_EQ(Encode(*t, "<s>", plain), (Ids{2, 3, 4}));
}

TEST(Tokenizer, TellsWhatThePostProcessorAdds) {
  Json file = SmallFile();
  file["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "S", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "E", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "B", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"S": {"id": "S", "ids": [4, 5], "tokens": ["<", "|"]}, "E": {"id": "E", "ids": [6], "tokens": [">"]}}})");
  const auto t = Make(file);
  ASSERT_TRUE(t);
  EXPECT_EQ(Ids(t->prefix_ids().begin(), t->prefix_ids().end()), (Ids{4, 5}));
  EXPECT_EQ(Ids(t->suffix_ids().begin(), t->suffix_ids().end()), (Ids{6}));
  EXPECT_EQ(Encode(*t, "a"), (Ids{4, 5, 0, 6}));
  TokenizeOptions bare;
  bare.add_special = false;
  EXPECT_EQ(Encode(*t, "a", bare), (Ids{0}));
  EXPECT_EQ(t->EncodePair("a", "b").value(), (Ids{1, 0}));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const auto t = Make(SmallFile());
  ASSERT_TRUE(t);
  const auto ids = t->Encode("ab\xFFz");
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(ids.error().message, "tokenizer: the text is not UTF-8 at byte 2");
}

TEST(Tokenizer, StreamsWhatDecodingAtOnceGives) {
  const auto t = tokenizer_cases::Load(tokenizer_cases::Folder() / "qwen3-small/tokenizer.json");
  ASSERT_TRUE(t);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Ids ids;
    for (size_t n = random() % 40; n-- > 0;) ids.push_back(static_cast<TokenId>(random() % 2400));
    const auto stream = t->NewStream(round % 2 == 0);
    std::string text;
    for (const TokenId id : ids) {
      const std::string chunk = stream->Push(id);
      EXPECT_TRUE(IsUtf8(chunk));
      text += chunk;
    }
    text += stream->Finish();
    ASSERT_EQ(text, t->Decode(ids, round % 2 == 0));
  }
  // A stream keeps its tokenizer alive.
  auto other = tokenizer_cases::Load(tokenizer_cases::Folder() / "qwen3-small/tokenizer.json");
  const auto id = other->IdOf("a");
  const auto stream = other->NewStream();
  other.reset();
  EXPECT_EQ(stream->Push(id.value()), "a");
}

TEST(Tokenizer, GoesOnStreamingAfterBytesWereTakenBack) {
  Json file = SmallFile();
  file["decoder"] =
      Json::parse(R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]})");
  file["model"]["vocab"] = {{"<0x41>", 0}, {"<0xE4>", 1}, {"x", 2}};
  file["model"]["merges"] = Json::array();
  const auto t = Make(file);
  ASSERT_TRUE(t);
  const auto stream = t->NewStream();
  EXPECT_EQ(stream->Push(0), "A");
  EXPECT_EQ(stream->Push(1), "");
  // At once this decodes to two U+FFFD and x; the A can't be taken back.
  EXPECT_EQ(stream->Push(2), "\uFFFDx");
  EXPECT_EQ(stream->Push(2), "x");
  EXPECT_EQ(stream->Finish(), "");
}

TEST(Tokenizer, GivesManyThreadsTheSameAnswers) {
  const auto t = tokenizer_cases::Load(tokenizer_cases::Folder() / "qwen3-small/tokenizer.json");
  ASSERT_TRUE(t);
  const std::string text =
      "The quick brown fox, jumping over 12345 lazy dogs; 中文 and é.\n\n<|im_end|> done";
  const Ids wanted = Encode(*t, text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        if (t->Encode(text).value() != wanted || t->Decode(wanted, false) != text) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Not a matter of speed: quadratic work on these would not end within the test's time.
TEST(Tokenizer, EndsOnTheWorstTexts) {
  Json file = SmallFile();
  Json& vocab = file["model"]["vocab"];
  Json merges = Json::array({{"a", "b"}});
  std::string run = "a";
  for (TokenId id = 100; run.size() < 4096; ++id) {
    merges.push_back({run, run});
    run += run;
    vocab[run] = id;
  }
  file["model"]["merges"] = merges;
  const auto t = Make(file);
  ASSERT_TRUE(t);
  const std::string one_letter(1 << 20, 'a');
  EXPECT_EQ(Encode(*t, one_letter).size(), (1u << 20) / 4096);
  EXPECT_EQ(t->Decode(Encode(*t, one_letter)), one_letter);
  std::string mixed;
  for (int i = 0; i < 1 << 19; ++i) mixed += i % 3 == 0 ? "ab" : "a";
  EXPECT_EQ(t->Decode(Encode(*t, mixed)), mixed);

  file["pre_tokenizer"] =
      Json::parse(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})");
  const auto bytes = Make(file);
  ASSERT_TRUE(bytes);
  EXPECT_TRUE(bytes->Encode(std::string(1 << 20, ' ')).has_value());
}

TEST(Tokenizer, CutsLongPiecesOnlyWhereNothingJoins) {
  // The whole text is one piece. Small texts go undivided, long ones are cut where the merges allow it: the
  // same text must come out the same wherever it stands.
  Json file = SmallFile();
  file["model"]["vocab"] = {{"▁", 0},  {"a", 1},   {"b", 2},  {"▁a", 3}, {"ab", 4},
                            {"ba", 5}, {"▁ab", 6}, {"▁▁", 7}, {"<u>", 8}};
  file["model"]["merges"] = Json::parse(R"(["b a", "▁ a", "a b", "▁a b", "▁ ▁"])");
  for (const bool fuse : {false, true}) {
    file["model"]["unk_token"] = "<u>";
    file["model"]["fuse_unk"] = fuse;
    const auto t = Make(file);
    ASSERT_TRUE(t);
    std::mt19937 random(3);
    const std::vector<std::string> letters = {"▁", "a", "b", "é", "中"};
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (int i = 0; i < 40; ++i) text += letters[random() % letters.size()];
      // b never joins ▁: cutting by hand between them gives short pieces, which are not cut by the model.
      Ids wanted;
      std::string part;
      const auto flush = [&] {
        if (!part.empty()) {
          const Ids ids = Encode(*t, part);
          wanted.insert(wanted.end(), ids.begin(), ids.end());
        }
        part.clear();
      };
      for (size_t i = 0; i < text.size();) {
        if (!part.empty() && part.back() == 'b' && text.compare(i, 3, "▁") == 0) flush();
        const size_t length = static_cast<uint8_t>(text[i]) < 0x80   ? 1
                              : static_cast<uint8_t>(text[i]) < 0xE0 ? 2
                                                                     : 3;
        part += text.substr(i, length);
        i += length;
      }
      flush();
      ASSERT_EQ(Encode(*t, text), wanted) << text;
    }
  }
}

TEST(Tokenizer, TakesAddedTokensWithoutTheirFlags) {
  Json bare = SmallFile(), full = SmallFile();
  bare["added_tokens"] = {{{"id", 9}, {"content", "<s>"}, {"special", true}},
                          {{"id", 10}, {"content", "<t>"}}};
  full["added_tokens"] = {Added("<s>", true), Added("<t>", false)};
  full["added_tokens"][1]["normalized"] = true;
  const auto a = Make(bare), b = Make(full);
  ASSERT_TRUE(a && b);
  ASSERT_EQ(a->added_tokens().size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a->added_tokens()[i].normalized, b->added_tokens()[i].normalized) << i;
    EXPECT_EQ(a->added_tokens()[i].special, b->added_tokens()[i].special) << i;
  }
  EXPECT_EQ(Encode(*a, "a<s>ab<t>"), Encode(*b, "a<s>ab<t>"));
}

TEST(Tokenizer, NamesWhatIsWrongWithAFile) {
  const auto with = [](const char* pointer, const Json& value) {
    Json file = SmallFile();
    file[Json::json_pointer(pointer)] = value;
    return file.dump();
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "t.json: json: "},
      {"[]", "t.json: json: "},
      {"{", "t.json: json: "},
      {"{\"version\":\"1.0\"}", "t.json: model: missing"},
      {SmallFile().dump() + "{}", "t.json: json: byte"},
      {"{\"a\": 1, \"a\": 2}", "t.json: json: unknown key 'a'"},
      {"{\"version\": \"1.0\", \"version\": \"1.0\"}", "t.json: json: key 'version' occurs twice"},
      {"{\"\\ud800\": 1}", "t.json: json: byte 8: a pair of surrogates expected"},
      {with("/version", "2.0"), "t.json: version: \"2.0\", \"1.0\" expected"},
      {with("/nonsense", 1), "t.json: json: unknown key 'nonsense'"},
      {with("/model/type", "Magic"), "t.json: model: unknown type 'Magic'"},
      {with("/model/vocab/a", -1), "t.json: model: 'vocab': the id of token 'a'"},
      {with("/model/vocab/a", 4294967295u), "t.json: model: 'vocab': the id of token 'a'"},
      {with("/model/vocab", "x"), "t.json: model: 'vocab'"},
      {with("/model/merges", {"a"}), "t.json: model: 'merges': merge 0: 'a' is not two tokens"},
      {with("/model/merges", {"a b", "a z"}),
       "t.json: model: 'merges': merge 1: token 'z' is not in the vocabulary"},
      {with("/model/merges", {"b a"}),
       "t.json: model: 'merges': merge 0: token 'ba' is not in the vocabulary"},
      {with("/model/merges", {{"a", "b", "c"}}),
       "t.json: model: 'merges': merge 0: not a list of two tokens"},
      {with("/added_tokens", {{{"id", 1}, {"special", true}}}),
       "t.json: added_tokens: entry 0: 'content' is missing"},
      {with("/decoder", {{"type", "Magic"}}), "t.json: decoder: unknown type 'Magic'"},
      {with("/pre_tokenizer", {{"type", "Magic"}}), "t.json: pre-tokenizer: unknown type 'Magic'"},
      {with("/post_processor", {{"type", "Magic"}}), "t.json: post-processor: unknown type 'Magic'"},
      {with("/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"Regex", "a)"}}}, {"behavior", "Isolated"}, {"invert", false}}),
       "t.json: pre-tokenizer Split: pattern: byte 1: ')' without '('"},
      {with("/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Torn"}, {"invert", false}}),
       "t.json: pre-tokenizer Split: unknown behavior 'Torn'"},
      {with("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}),
       "t.json: pre-tokenizer FixedLength: 'length' is 0"},
      {with("/padding", {{"strategy", {{"Fixed", 1e9}}}}), "t.json: padding: "},
      {with("/truncation", {{"max_length", 3}}), "t.json: truncation: 'stride'"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_TRUE(MessageFor(json).starts_with(message)) << MessageFor(json) << "\nfor " << json.substr(0, 200);
  }
}

TEST(Tokenizer, BoundsWhatAHostileFileCanAskFor) {
  std::string deep = R"({"type":"Sequence","normalizers":[)";
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += deep;
  EXPECT_NE(MessageFor("{\"normalizer\":" + nested), "");
  Json file = SmallFile();
  // Each template doubles the text: 2^40 without a bound.
  Json step = Json::parse(R"({"type": "TemplateProcessing", "pair": [], "special_tokens": {},
    "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]})");
  file["post_processor"] = {{"type", "Sequence"}, {"processors", Json::array()}};
  for (int i = 0; i < 40; ++i) file["post_processor"]["processors"].push_back(step);
  EXPECT_EQ(MessageFor(file.dump()), "t.json: post-processor: the text occurs more than 16 times");
  file = SmallFile();
  file["padding"] =
      Json::parse(R"({"strategy": {"Fixed": 1000000000000}, "direction": "Left", "pad_id": 0})");
  EXPECT_TRUE(MessageFor(file.dump()).starts_with("t.json: padding: to 1000000000000 tokens"));
  file = SmallFile();
  file["model"]["vocab"]["far"] = 2147483646;  // ids need not be dense, and no table grows for this one
  const auto t = Make(file);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->vocab_size(), 2147483647);
  EXPECT_EQ(t->TokenText(2147483646), "far");
  EXPECT_EQ(t->TokenText(8), "abc");
  EXPECT_EQ(t->TokenText(5000), "");
}

}  // namespace
}  // namespace cmforge
