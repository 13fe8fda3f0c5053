// An open-addressed table of token strings.
#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace cmforge {

void Vocabulary::Reserve(size_t tokens, size_t bytes) {
  text_.reserve(bytes);
  entries_.reserve(tokens);
  slots_.assign(std::bit_ceil(std::max<size_t>(16, tokens * 4 / 3)), Slot{});
}

void Vocabulary::Grow() {
  slots_.assign(std::max<size_t>(16, slots_.size() * 2), Slot{});
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const uint64_t hash = HashBytes(TextAt(entries_[i]), seed_);
    size_t at = hash & mask;
    // Of a token kept twice the newer one answers.
    while (slots_[at].index != 0 && TextAt(entries_[slots_[at].index - 1]) != TextAt(entries_[i]))
      at = (at + 1) & mask;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(i + 1)};
  }
}

Result<void> Vocabulary::AddHashed(std::string_view token, uint64_t hash, TokenId id, bool keep_both) {
  if (entries_.size() * 4 >= slots_.size() * 3) Grow();
  largest_id_ = std::max(largest_id_, id);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  for (; slots_[at].index != 0; at = (at + 1) & mask) {
    Entry& entry = entries_[slots_[at].index - 1];
    if (slots_[at].tag != tag || TextAt(entry) != token) continue;
    if (keep_both) break;
    entry.id = id;
    return {};
  }
  if (token.size() > std::numeric_limits<uint32_t>::max() - text_.size()) {
    return Fail(ErrorKind::kLimit, "vocabulary: more than 4 GiB of text");
  }
  entries_.push_back({static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(token.size()), id});
  text_ += token;
  slots_[at] = {tag, static_cast<uint32_t>(entries_.size())};
  return {};
}

void Vocabulary::Finish() {
  const size_t range = static_cast<size_t>(static_cast<int64_t>(largest_id_) + 1);
  if (range <= entries_.size() * 4 + 1024) {
    by_id_.assign(range, 0);
    for (size_t i = 0; i < entries_.size(); ++i)
      by_id_[static_cast<size_t>(entries_[i].id)] = static_cast<uint32_t>(i + 1);
    return;
  }
  sorted_.resize(entries_.size());
  for (size_t i = 0; i < sorted_.size(); ++i) sorted_[i] = static_cast<uint32_t>(i);
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [&](uint32_t a, uint32_t b) { return entries_[a].id < entries_[b].id; });
}

Result<void> Vocabulary::AddMany(std::span<const std::string_view> tokens, std::span<const TokenId> ids,
                                 bool keep_both) {
  uint64_t hashes[kMany];
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    hashes[i] = HashBytes(tokens[i], seed_);
    if (!slots_.empty()) __builtin_prefetch(&slots_[hashes[i] & mask], 1);
  }
  for (size_t i = 0; i < tokens.size(); ++i) CMF_CHECK(AddHashed(tokens[i], hashes[i], ids[i], keep_both));
  return {};
}

void Vocabulary::FindMany(std::span<const std::string_view> tokens, std::span<TokenId> ids) const {
  if (slots_.empty()) {
    std::fill(ids.begin(), ids.end(), -1);
    return;
  }
  uint64_t hashes[kMany];
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    hashes[i] = HashBytes(tokens[i], seed_);
    __builtin_prefetch(&slots_[hashes[i] & mask]);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Slot& slot = slots_[hashes[i] & mask];
    if (slot.index != 0) __builtin_prefetch(&entries_[slot.index - 1]);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Slot& slot = slots_[hashes[i] & mask];
    if (slot.index != 0) __builtin_prefetch(text_.data() + entries_[slot.index - 1].offset);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Entry* entry = FindHashed(tokens[i], hashes[i]);
    ids[i] = entry ? entry->id : -1;
  }
}

const Vocabulary::Entry* Vocabulary::FindHashed(std::string_view token, uint64_t hash) const {
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].index != 0; at = (at + 1) & mask) {
    const Entry& entry = entries_[slots_[at].index - 1];
    if (slots_[at].tag == tag && TextAt(entry) == token) return &entry;
  }
  return nullptr;
}

const Vocabulary::Entry* Vocabulary::EntryOf(TokenId id) const {
  if (id < 0) return nullptr;
  if (!by_id_.empty()) {
    const auto i = static_cast<size_t>(id);
    return i < by_id_.size() && by_id_[i] != 0 ? &entries_[by_id_[i] - 1] : nullptr;
  }
  const auto found = std::upper_bound(sorted_.begin(), sorted_.end(), id, [&](TokenId value, uint32_t index) {
    return value < entries_[index].id;
  });
  if (found == sorted_.begin() || entries_[*(found - 1)].id != id) return nullptr;
  return &entries_[*(found - 1)];
}

std::string_view Vocabulary::TextOf(TokenId id) const {
  const Entry* entry = EntryOf(id);
  return entry ? TextAt(*entry) : std::string_view();
}

}  // namespace cmforge
