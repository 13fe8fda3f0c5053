// hash64: two multiplications a word, no dependency from one word to the next, so that several are in flight.
#include "cmf/hash64.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace cmforge::cmf {
namespace {

constexpr uint64_t kSalt = 0x9E3779B97F4A7C15;

inline uint64_t Fmix64(uint64_t x) {  // the finaliser of murmur3
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCD;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53;
  x ^= x >> 33;
  return x;
}

}  // namespace

uint64_t Hash64Fold(Bytes piece, uint64_t first_word) {
  const std::byte* at = piece.data();
  uint64_t salt = first_word * kSalt;
  uint64_t fold = 0;
  size_t words = piece.size() / 8;
  for (; words >= 4; words -= 4, at += 32) {
    const uint64_t a = Fmix64(LoadLe<uint64_t>(at)) ^ salt;
    const uint64_t b = Fmix64(LoadLe<uint64_t>(at + 8)) ^ (salt + kSalt);
    const uint64_t c = Fmix64(LoadLe<uint64_t>(at + 16)) ^ (salt + 2 * kSalt);
    const uint64_t d = Fmix64(LoadLe<uint64_t>(at + 24)) ^ (salt + 3 * kSalt);
    fold ^= (a ^ b) ^ (c ^ d);
    salt += 4 * kSalt;
  }
  for (; words > 0; --words, at += 8, salt += kSalt) fold ^= Fmix64(LoadLe<uint64_t>(at)) ^ salt;
  if (const size_t rest = piece.size() % 8; rest != 0) {
    std::byte last[8] = {};
    std::memcpy(last, at, rest);
    fold ^= Fmix64(LoadLe<uint64_t>(last)) ^ salt;
  }
  return fold;
}

uint64_t Hash64Finish(uint64_t fold, uint64_t size) { return Fmix64(fold ^ size); }

uint64_t Hash64(Bytes bytes) { return Hash64Finish(Hash64Fold(bytes, 0), bytes.size()); }

void Hash64Stream::Update(Bytes bytes) {
  if (const size_t held = size_ % 8; held != 0) {
    const size_t taken = std::min(bytes.size(), 8 - held);
    std::memcpy(pending_ + held, bytes.data(), taken);
    size_ += taken;
    bytes = bytes.subspan(taken);
    if (size_ % 8 != 0) return;
    fold_ ^= Hash64Fold(pending_, size_ / 8 - 1);
  }
  const size_t whole = bytes.size() / 8 * 8;
  fold_ ^= Hash64Fold(bytes.first(whole), size_ / 8);
  if (whole < bytes.size()) std::memcpy(pending_, bytes.data() + whole, bytes.size() - whole);
  size_ += bytes.size();
}

uint64_t Hash64Stream::Finish() const {
  const size_t held = size_ % 8;
  const uint64_t last = held == 0 ? 0 : Hash64Fold(Bytes(pending_, held), size_ / 8);
  return Hash64Finish(fold_ ^ last, size_);
}

std::string Hash64Hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

std::optional<uint64_t> ParseHash64Hex(std::string_view hex) {
  if (hex.size() != 16) return std::nullopt;
  uint64_t value = 0;
  for (const char c : hex) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return value;
}

}  // namespace cmforge::cmf
