// Byte pair encoding: a piece starts as characters, and the pair of neighbours with the lowest rank is joined
// until none is left.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "text/tokenizer/model.h"

namespace cmforge {

struct BpeOptions {
  std::string unk_token;                  // empty: unknown characters vanish
  std::string continuing_subword_prefix;  // before every symbol but the first
  std::string end_of_word_suffix;         // behind the last symbol
  bool fuse_unk = false;                  // neighbouring unknowns are one
  bool byte_fallback = false;             // an unknown character becomes its bytes, <0xNN>, if all are there
  bool ignore_merges = false;             // a piece that is a token as a whole is taken as it is
};

/// What two tokens become. Filled once, then immutable.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;  // kNone: the two don't join
    TokenId merged;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  MergeTable() : seed_(HashSeed()) { Resize(16); }

  void Reserve(size_t merges) { Resize(merges * 4 / 3); }

  /// Of two merges of the same pair the later counts. `rank` below kNone.
  void Add(TokenId left, TokenId right, uint32_t rank, TokenId merged);

  /// Brings the place of a pair into the cache, for an Add or Find soon.
  void Prefetch(TokenId left, TokenId right) const {
    __builtin_prefetch(&slots_[SlotFor(KeyOf(left, right))], 1);
  }

  [[nodiscard]] Merge Find(TokenId left, TokenId right) const {
    const uint64_t key = KeyOf(left, right);
    for (size_t at = SlotFor(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return {slot.rank, slot.merged};
      if (slot.rank == kNone) return {kNone, 0};
    }
  }

  /// Calls f(left, right) for each pair, in no order.
  template <class F>
  void ForEach(const F& f) const {
    for (const Slot& slot : slots_) {
      if (slot.rank != kNone)
        f(static_cast<TokenId>(slot.key >> 32), static_cast<TokenId>(slot.key & 0xFFFFFFFF));
    }
  }

 private:
  struct Slot {
    uint64_t key = UINT64_MAX;
    uint32_t rank = kNone;
    TokenId merged = 0;
  };

  static uint64_t KeyOf(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  [[nodiscard]] size_t SlotFor(uint64_t key) const {
    return MixHash(key ^ seed_, 0x9E3779B97F4A7C15u) & mask_;
  }
  void Resize(size_t slots);

  uint64_t seed_;
  size_t mask_ = 0;
  size_t size_ = 0;
  std::vector<Slot> slots_;  // a power of two, at most three quarters full
};

class Bpe : public TokenModel {
 public:
  /// All ids of `merges` are of `vocabulary`.
  Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options);

  Result<void> Tokenize(std::string_view piece, bool bytes, EncodeScratch& scratch,
                        std::vector<TokenId>& out) const override;
  [[nodiscard]] bool TakesBytes() const override { return takes_bytes_; }
  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }
  [[nodiscard]] TokenId unknown_id() const override { return unk_id_; }

 private:
  using Symbol = EncodeScratch::Symbol;

  void PrepareJoints();
  [[nodiscard]] bool MayJoin(uint32_t left, uint32_t right) const {
    const size_t bit = JointBit(left, right);
    return (joints_[bit >> 6] >> (bit & 63) & 1) != 0;
  }
  [[nodiscard]] size_t JointBit(uint32_t left, uint32_t right) const {
    if (left < 128 && right < 128) return left << 7 | right;
    return (size_t{1} << 14) +
           (MixHash((uint64_t{left} << 32 | right) ^ HashSeed(), 0x9E3779B97F4A7C15u) >> 44);
  }
  [[nodiscard]] TokenId CharacterId(uint32_t c, std::string_view text) const {
    if (c < character_ids_.size()) return character_ids_[c];
    return vocabulary_.Find(text).value_or(-1);
  }

  Result<void> TokenizeWord(std::string_view word, bool bytes, EncodeScratch& scratch,
                            std::vector<TokenId>& out) const;
  Result<void> AddSymbols(std::string_view word, bool bytes, EncodeScratch& scratch) const;
  void MergeFew(std::vector<Symbol>& symbols, std::vector<TokenId>& out) const;
  void MergeMany(EncodeScratch& scratch, std::vector<TokenId>& out) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  TokenId unk_id_ = -1;
  bool takes_bytes_ = false;
  bool is_affixed_ = false;                  // a prefix or suffix is in use
  std::array<TokenId, 256> alphabet_ids_{};  // of the byte-level character of each byte
  std::array<TokenId, 256> fallback_ids_{};  // of <0xNN>
  std::vector<TokenId> character_ids_;       // by code point, the Basic Multilingual Plane
  // Which pairs of characters may end up inside one token: a filter (two different pairs may share a bit).
  // Where two known characters may not, a long piece is cut in two without changing the result. Empty: not in
  // use.
  std::vector<uint64_t> joints_;
};

}  // namespace cmforge
