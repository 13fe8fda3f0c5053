// Ranges never wrap; UTF-8 validation follows Unicode table 3-7.
#include "base/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace cmforge {
namespace {

TEST(ByteRange, ComparesWithoutWrapping) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE(ByteRange::Checked(0, 0, 0, "x"));
  EXPECT_TRUE(ByteRange::Checked(4, 6, 10, "x"));
  EXPECT_FALSE(ByteRange::Checked(4, 7, 10, "x"));
  EXPECT_FALSE(ByteRange::Checked(kMax, 2, 10, "x"));
  EXPECT_FALSE(ByteRange::Checked(2, kMax, 10, "x"));
  EXPECT_EQ(ByteRange::Checked(2, kMax, 10, "x").error().name, "Bounds");
}

TEST(IsUtf8, AcceptsEveryScalarAndRefusesTheRest) {
  for (const char* good : {"", "abc", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(good));
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE4\xBD", "\xE4\xBD\x41", "\xFF"}) {
    EXPECT_FALSE(IsUtf8(bad));
  }
}

}  // namespace
}  // namespace cmforge
