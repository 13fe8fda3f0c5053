// The vocabulary of a model: token strings and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"
#include "text/tokenizer/hash.h"

namespace cmforge {

/// Filled once, then immutable: any thread may read it.
class Vocabulary {
 public:
  Vocabulary() : seed_(HashSeed()) {}

  /// Makes room for about so many tokens of so many bytes together.
  void Reserve(size_t tokens, size_t bytes);

  /// A token that is there already gets the new id; with `keep_both` its old id still means it too (and
  /// counts for the size). Fails: kLimit (more than 4 GiB of text).
  Result<void> Add(std::string_view token, TokenId id, bool keep_both = false) {
    return AddHashed(token, HashBytes(token, seed_), id, keep_both);
  }

  /// Adds or finds many at once, which is several times as fast: the tables are larger than the caches, and
  /// the waits for memory overlap. An id of FindMany is -1 where there is no such token.
  Result<void> AddMany(std::span<const std::string_view> tokens, std::span<const TokenId> ids,
                       bool keep_both);
  void FindMany(std::span<const std::string_view> tokens, std::span<TokenId> ids) const;
  static constexpr size_t kMany = 48;  // at most so many at once

  /// To be called once after the last Add: builds the way from ids to tokens.
  void Finish();

  [[nodiscard]] std::optional<TokenId> Find(std::string_view token) const {
    const Entry* entry = FindEntry(token);
    return entry ? std::optional(entry->id) : std::nullopt;
  }

  /// "" for an id that no token has.
  [[nodiscard]] std::string_view TextOf(TokenId id) const;
  [[nodiscard]] bool Has(TokenId id) const { return EntryOf(id) != nullptr; }

  [[nodiscard]] size_t size() const { return entries_.size(); }
  [[nodiscard]] TokenId largest_id() const { return largest_id_; }  // -1 when empty

  /// Calls f(text, id) for each token, in the order of the file.
  template <class F>
  void ForEach(const F& f) const {
    for (const Entry& entry : entries_) f(TextAt(entry), entry.id);
  }

 private:
  struct Entry {
    uint32_t offset, length;  // in text_
    TokenId id;
  };
  struct Slot {
    uint32_t tag;    // upper half of the hash
    uint32_t index;  // of the entry, plus 1; 0 is free
  };

  [[nodiscard]] std::string_view TextAt(const Entry& e) const {
    return std::string_view(text_).substr(e.offset, e.length);
  }
  Result<void> AddHashed(std::string_view token, uint64_t hash, TokenId id, bool keep_both);
  [[nodiscard]] const Entry* FindEntry(std::string_view token) const {
    return slots_.empty() ? nullptr : FindHashed(token, HashBytes(token, seed_));
  }
  [[nodiscard]] const Entry* FindHashed(std::string_view token, uint64_t hash) const;
  [[nodiscard]] const Entry* EntryOf(TokenId id) const;
  void Grow();

  uint64_t seed_;
  std::string text_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // a power of two, at most three quarters full
  TokenId largest_id_ = -1;
  // By id, the index of the entry plus 1; or, when ids are far from dense, empty and `sorted_` is searched.
  std::vector<uint32_t> by_id_;
  std::vector<uint32_t> sorted_;  // indices of entries by ascending id
};

}  // namespace cmforge
