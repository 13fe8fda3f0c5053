// The reader of large JSON documents, against the JSON values that the rest of the program uses.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/json.h"
#include "text/tokenizer/json_cursor.h"

namespace cmforge {
namespace {

// Reads any value into a Json.
Result<Json> Read(JsonCursor& cursor) {
  switch (cursor.Peek()) {
    case JsonCursor::Kind::kObject: {
      Json object = Json::object();
      CMF_CHECK(cursor.EnterObject());
      while (true) {
        std::string_view key;
        CMF_TRY(const bool more, cursor.NextKey(key));
        if (!more) return object;
        const std::string name(key);
        CMF_TRY(object[name], Read(cursor));
      }
    }
    case JsonCursor::Kind::kArray: {
      Json array = Json::array();
      CMF_CHECK(cursor.EnterArray());
      while (true) {
        CMF_TRY(const bool more, cursor.NextElement());
        if (!more) return array;
        CMF_TRY(Json value, Read(cursor));
        array.push_back(std::move(value));
      }
    }
    case JsonCursor::Kind::kString: {
      CMF_TRY(const std::string_view text, cursor.String());
      return Json(std::string(text));
    }
    case JsonCursor::Kind::kNumber: {
      CMF_TRY(const double number, cursor.Number());
      return Json(number);
    }
    default: {
      if (cursor.TakeNull()) return Json();
      CMF_TRY(const bool value, cursor.Bool());
      return Json(value);
    }
  }
}

Result<Json> ReadAll(std::string_view text) {
  JsonCursor cursor(text);
  CMF_TRY(Json json, Read(cursor));
  CMF_CHECK(cursor.End());
  return json;
}

TEST(JsonCursor, ReadsWhatJsonSays) {
  for (const char* text : {R"({})", R"([])", R"( [ 1 , -2.5e3 , "x" , null , true , false ] )",
                           R"({"a":{"b":[[],[{}],{"c":""}]},"d":0})", R"("\"\\\/\b\f\n\r\té\ud83d\ude00€")",
                           "\"é中😀\"", R"({"":[""]})", "1e300", "[0.1]"}) {
    const auto got = ReadAll(text);
    ASSERT_TRUE(got) << text << ": " << got.error().message;
    EXPECT_EQ(*got, Json::parse(text)) << text;
  }
}

TEST(JsonCursor, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           "{",
                           "[1",
                           "[1,]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "\"\n\"",
                           "\"",
                           "nul",
                           "[1 2]",
                           "1 2",
                           "{\"a\":1 \"b\":2}",
                           "[}",
                           "{]",
                           "\"\\"}) {
    EXPECT_FALSE(ReadAll(text)) << text;
  }
}

TEST(JsonCursor, SkipsOneValue) {
  JsonCursor cursor(R"([{"a":"}]\"","b":[1,{}]} , 12.5,"x" , null ])");
  ASSERT_TRUE(cursor.EnterArray());
  for (const char* wanted : {R"({"a":"}]\"","b":[1,{}]})", "12.5", R"("x")", "null"}) {
    ASSERT_TRUE(cursor.NextElement().value());
    EXPECT_EQ(cursor.Skip().value(), wanted);
  }
  EXPECT_FALSE(cursor.NextElement().value());
  EXPECT_TRUE(cursor.End());
  for (const char* text : {"{\"a\":\"", "[[]", "\"\\", "", "]"}) {
    JsonCursor broken(text);
    EXPECT_FALSE(broken.Skip()) << text;
  }
}

TEST(JsonCursor, TellsWholeNumbersFromOthers) {
  const auto number = [](std::string_view text) { return JsonCursor(text).Unsigned(); };
  EXPECT_EQ(number("18446744073709551615").value(), 18446744073709551615u);
  EXPECT_EQ(number("0").value(), 0u);
  for (const char* text : {"18446744073709551616", "-1", "1.0", "1e3", "01", "x", ""})
    EXPECT_FALSE(number(text)) << text;
}

TEST(JsonCursor, NeverReadsBeyondABrokenDocument) {
  const std::string document = R"({"a":[1,2.5,"x\u00e9\n",{"b":null}],"c":"\ud83d\ude00","d":true})";
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string text = document.substr(0, random() % (document.size() + 1));
    for (int edits = 0; edits < 2 && !text.empty(); ++edits)
      text[random() % text.size()] = "\"\\{}[],:0u x"[random() % 12];
    const auto heap = std::make_unique<char[]>(text.size());  // so that a sanitizer sees the end
    std::copy(text.begin(), text.end(), heap.get());
    (void)ReadAll({heap.get(), text.size()});
    JsonCursor cursor({heap.get(), text.size()});
    (void)cursor.Skip();
  }
}

}  // namespace
}  // namespace cmforge
