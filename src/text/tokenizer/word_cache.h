// A bounded cache of what the model made of a piece: text repeats its words. Direct-mapped, one word a slot,
// the newest wins.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "model/model_config.h"
#include "text/tokenizer/hash.h"

namespace cmforge {

/// One thread at a time. About 1 MiB.
class WordCache {
 public:
  WordCache() : seed_(HashSeed()), slots_(kSlots) {}

  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;

  /// Appends the ids of `word` and returns true when they are known.
  bool Get(std::string_view word, std::vector<TokenId>& out) {
    if (word.size() > kMaxBytes || word.empty()) return false;
    const Slot& slot = SlotOf(word);
    if (slot.size != word.size() || std::memcmp(slot.text, word.data(), word.size()) != 0) return false;
    out.insert(out.end(), slot.ids, slot.ids + slot.count);
    return true;
  }

  /// Remembers that `word` gives the ids from out[begin] on. Ignored when either is too long.
  void Put(std::string_view word, const std::vector<TokenId>& out, size_t begin) {
    const size_t count = out.size() - begin;
    if (word.size() > kMaxBytes || word.empty() || count > kMaxIds) return;
    Slot& slot = SlotOf(word);
    slot.size = static_cast<uint8_t>(word.size());
    slot.count = static_cast<uint8_t>(count);
    std::memcpy(slot.text, word.data(), word.size());
    if (count > 0) std::memcpy(slot.ids, out.data() + begin, count * sizeof(TokenId));
  }

 private:
  static constexpr size_t kSlots = size_t{1} << 14;

  struct alignas(64) Slot {
    TokenId ids[kMaxIds];
    uint8_t size = 0;  // 0: free
    uint8_t count = 0;
    char text[kMaxBytes];
  };
  static_assert(sizeof(Slot) == 64);

  Slot& SlotOf(std::string_view word) { return slots_[HashBytes(word, seed_) >> 50]; }

  uint64_t seed_;
  std::vector<Slot> slots_;
};

}  // namespace cmforge
