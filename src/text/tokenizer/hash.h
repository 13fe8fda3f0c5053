// Hashing of short byte strings for the tables of the tokenizer. Seeded per process, so that nobody can write
// a file or a text whose strings all fall into one slot; nothing that leaves the tables depends on the seed.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace cmforge {

/// A random number that is the same for the life of the process.
[[nodiscard]] uint64_t HashSeed();

[[nodiscard]] inline uint64_t MixHash(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

[[nodiscard]] inline uint64_t HashBytes(std::string_view text, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  const char* p = text.data();
  size_t left = text.size();
  uint64_t hash = seed ^ left * kOdd;
  const auto load = [](const char* at, size_t bytes) {
    uint64_t word = 0;
    std::memcpy(&word, at, bytes);
    return word;
  };
  while (left > 16) {
    hash = MixHash(load(p, 8) ^ kOdd, load(p + 8, 8) ^ hash);
    p += 16;
    left -= 16;
  }
  uint64_t low = 0, high = 0;
  if (left >= 8) {
    low = load(p, 8);
    high = load(p + left - 8, 8);
  } else if (left >= 4) {
    low = load(p, 4);
    high = load(p + left - 4, 4);
  } else if (left > 0) {
    low = static_cast<uint8_t>(p[0]);
    high = static_cast<uint64_t>(static_cast<uint8_t>(p[left / 2])) << 8 | static_cast<uint8_t>(p[left - 1]);
  }
  return MixHash(low ^ hash ^ kOdd, high ^ (seed | 1));
}

}  // namespace cmforge
