// hash64 (spec 8): the 64-bit hash of tensor payloads and metadata sections. Not cryptographic.
//
//   fold = XOR over i of ( fmix64(word_i) XOR i * 0x9E3779B97F4A7C15 ),  words 8 bytes LE, the last
//   zero-padded hash = fmix64(fold XOR length)
//
// XOR makes the fold a set union: pieces may be hashed in any order, on any thread, and combined. The price
// is part of the format: swapping two aligned words does not change the hash, and hash64 of nothing is 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace cmforge::cmf {

[[nodiscard]] uint64_t Hash64(Bytes bytes);

/// The fold of a piece that begins at word `first_word` of the whole. Every piece but the last has a multiple
/// of 8 bytes. Folds of pieces that make up the whole are combined with XOR.
[[nodiscard]] uint64_t Hash64Fold(Bytes piece, uint64_t first_word);

/// The hash of `size` bytes from their combined fold.
[[nodiscard]] uint64_t Hash64Finish(uint64_t fold, uint64_t size);

/// Hashes bytes that come in pieces of any length, in order.
class Hash64Stream {
 public:
  void Update(Bytes bytes);
  [[nodiscard]] uint64_t Finish() const;  // of all bytes so far; Update may go on afterwards
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  uint64_t fold_ = 0;
  uint64_t size_ = 0;
  std::byte pending_[8] = {};  // the size_ % 8 bytes that do not fill a word yet
};

/// 16 lower-case hex digits, and back (either case); nothing when it is not exactly 16 hex digits.
[[nodiscard]] std::string Hash64Hex(uint64_t hash);
[[nodiscard]] std::optional<uint64_t> ParseHash64Hex(std::string_view hex);

}  // namespace cmforge::cmf
