// What ParseJson accepts and refuses.
#include "base/json.h"

#include <gtest/gtest.h>

namespace cmforge {
namespace {

TEST(ParseJson, KeepsOrderAndBigIntegers) {
  const auto json = ParseJson(
      "\xEF\xBB\xBF {\"b\":1,\"a\":{\"x\":[null,true]},\"m\":1000000000000000019884624838656}\n", "t");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(DumpJson(*json), R"({"b":1,"a":{"x":[null,true]},"m":1e+30})");
}

TEST(ParseJson, NamesADuplicateKey) {
  const auto json = ParseJson(R"({"a":1,"w":1,"w":2})", "file.json");
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(json.error().message, "file.json: key 'w' occurs twice");
}

TEST(ParseJson, BoundsDepth) {
  EXPECT_TRUE(ParseJson(std::string(100, '[') + std::string(100, ']'), "t"));
  EXPECT_FALSE(ParseJson(std::string(100000, '['), "t"));
}

TEST(ParseJson, RefusesGarbageWithItsPlace) {
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "nul", "{\"a\":1} x", "\"\xFF\""}) {
    const auto json = ParseJson(text, "t");
    ASSERT_FALSE(json) << text;
    EXPECT_NE(json.error().message.find("not valid JSON near byte"), std::string::npos)
        << json.error().message;
  }
}

}  // namespace
}  // namespace cmforge
