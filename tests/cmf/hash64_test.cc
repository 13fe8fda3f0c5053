// hash64 against published values, and the ways of computing it against each other.
#include "cmf/hash64.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace cmforge::cmf {
namespace {

std::vector<std::byte> Generate(size_t size, auto value) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(value(i));
  return bytes;
}

TEST(Hash64, HasTheKnownValues) {
  const auto counting = [](size_t i) { return i; };
  const auto zero = [](size_t) { return 0; };
  const auto hex = [](const std::vector<std::byte>& bytes) { return Hash64Hex(Hash64(bytes)); };
  EXPECT_EQ(hex({}), "0000000000000000");
  EXPECT_EQ(hex(Generate(1, zero)), "b456bcfc34c2cb2c");
  EXPECT_EQ(hex(Generate(1, [](size_t) { return 1; })), "d522b5d820b5e72f");
  EXPECT_EQ(hex(Generate(1, [](size_t) { return 255; })), "f23558ba5cbea776");
  EXPECT_EQ(Hash64Hex(Hash64(AsBytes("a"))), "247f1eaecb8be39a");
  EXPECT_EQ(Hash64Hex(Hash64(AsBytes("abc"))), "2331a18680193f35");
  EXPECT_EQ(hex(Generate(7, counting)), "5951a902c6df9cce");
  EXPECT_EQ(hex(Generate(8, counting)), "3a9e0c13529c4f9b");
  EXPECT_EQ(hex(Generate(9, counting)), "87103ac7d2393fa8");
  EXPECT_EQ(hex(Generate(8, zero)), "46abcca593a3c687");
  EXPECT_EQ(hex(Generate(16, zero)), "00ddbea04ad81625");
  EXPECT_EQ(hex(Generate(16, counting)), "2b19df6caaecd551");
  EXPECT_EQ(hex(Generate(16, [](size_t i) { return i ^ 8; })), "2b19df6caaecd551")
      << "swapped words are invisible";
  EXPECT_EQ(hex(Generate(64, counting)), "79d1716e27089b08");
  EXPECT_EQ(hex(Generate(64, zero)), "df8f278726291401");
  EXPECT_EQ(hex(Generate(256, counting)), "9955bb876c0706bf");
  EXPECT_EQ(hex(Generate(1000, [](size_t i) { return 7 * i + 3; })), "72788dd965e2db40");
  EXPECT_EQ(hex(Generate(1000, zero)), "ca9b0729d8334827");
  EXPECT_EQ(hex(Generate(4096, [](size_t) { return 255; })), "10d856f65b354658");
  EXPECT_EQ(Hash64Hex(Hash64(AsBytes(std::string_view("CMF\x01", 4)))), "582301f9adce5408");
  EXPECT_EQ(Hash64Hex(Hash64(AsBytes("model.embed_tokens.weight"))), "d4b275618347dadb");
}

TEST(Hash64, IsTheSameInPiecesOfAnyLengthAndOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto bytes = Generate(random() % 300, [&](size_t) { return random(); });
    const uint64_t whole = Hash64(bytes);
    Hash64Stream stream;
    for (size_t at = 0; at < bytes.size();) {
      const size_t step = std::min<size_t>(random() % 20, bytes.size() - at);
      stream.Update(Bytes(bytes).subspan(at, step));
      at += step;
    }
    EXPECT_EQ(stream.Finish(), whole) << bytes.size() << " bytes";
    const size_t cut = random() % (bytes.size() / 8 + 1);
    const uint64_t back = Hash64Fold(Bytes(bytes).subspan(8 * cut), cut);
    EXPECT_EQ(Hash64Finish(back ^ Hash64Fold(Bytes(bytes).first(8 * cut), 0), bytes.size()), whole);
  }
}

TEST(Hash64, HexGoesBothWays) {
  EXPECT_EQ(ParseHash64Hex(Hash64Hex(0x0123456789ABCDEF)), 0x0123456789ABCDEFu);
  EXPECT_EQ(ParseHash64Hex("0123456789ABCDEF"), 0x0123456789ABCDEFu);
  for (const char* bad : {"", "123", "0123456789abcdeg", "0123456789abcdef0", "-123456789abcdef"})
    EXPECT_FALSE(ParseHash64Hex(bad)) << bad;
}

}  // namespace
}  // namespace cmforge::cmf
