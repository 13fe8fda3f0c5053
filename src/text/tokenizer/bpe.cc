// Byte pair encoding.
#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

constexpr size_t kFew = 48;        // symbols; beyond, a heap beats a search
constexpr size_t kLongPiece = 24;  // bytes; from here on looking for cuts pays
constexpr size_t kCharacterTable = 0x10000;
constexpr size_t kJointBits = (size_t{1} << 14) + (size_t{1} << 20);

}  // namespace

void MergeTable::Resize(size_t slots) {
  std::vector<Slot> old(std::bit_ceil(std::max<size_t>(16, slots)));
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.rank == kNone) continue;
    size_t at = SlotFor(slot.key);
    while (slots_[at].rank != kNone) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

void MergeTable::Add(TokenId left, TokenId right, uint32_t rank, TokenId merged) {
  if (size_ * 4 >= slots_.size() * 3) Resize(slots_.size() * 2);
  const uint64_t key = KeyOf(left, right);
  size_t at = SlotFor(key);
  while (slots_[at].rank != kNone && slots_[at].key != key) at = (at + 1) & mask_;
  if (slots_[at].rank == kNone) ++size_;
  slots_[at] = {key, rank, merged};
}

Bpe::Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(std::move(options)) {
  is_affixed_ = !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  takes_bytes_ = !is_affixed_;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string spelled;
    byte_level::AppendSpelling(std::string(1, static_cast<char>(byte)), spelled);
    alphabet_ids_[byte] = vocabulary_.Find(spelled).value_or(-1);
    fallback_ids_[byte] = vocabulary_.Find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
    // A byte without a character of its own needs the ways of unknown characters.
    takes_bytes_ = takes_bytes_ && alphabet_ids_[byte] >= 0;
  }
  if (!options_.unk_token.empty()) unk_id_ = vocabulary_.Find(options_.unk_token).value_or(-1);
  if (!takes_bytes_) PrepareJoints();
}

void Bpe::PrepareJoints() {
  character_ids_.assign(kCharacterTable, -1);
  vocabulary_.ForEach([&](std::string_view token, TokenId id) {
    if (token.empty() || token.size() > 3 || static_cast<size_t>(utf8::LengthOf(token[0])) != token.size())
      return;
    character_ids_[utf8::Decode(token.data())] = id;
  });
  if (is_affixed_ || options_.ignore_merges) return;
  // Tokens that stand for unknown characters must stay out of merges: they are not what their text says.
  std::vector<TokenId> stand_ins(fallback_ids_.begin(), fallback_ids_.end());
  if (!options_.byte_fallback) stand_ins.clear();
  stand_ins.push_back(unk_id_);
  std::sort(stand_ins.begin(), stand_ins.end());
  std::vector<uint64_t> joints(kJointBits / 64, 0);
  bool are_sound = true;
  merges_.ForEach([&](TokenId left_id, TokenId right_id) {
    are_sound = are_sound && !std::binary_search(stand_ins.begin(), stand_ins.end(), left_id) &&
                !std::binary_search(stand_ins.begin(), stand_ins.end(), right_id);
    // Each merge adds one joint; those inside its parts come from the merges that made them.
    const std::string_view left = vocabulary_.TextOf(left_id), right = vocabulary_.TextOf(right_id);
    if (left.empty() || right.empty()) are_sound = false;
    if (!are_sound) return;
    const size_t bit =
        JointBit(utf8::Decode(utf8::Previous(left.data() + left.size())), utf8::Decode(right.data()));
    joints[bit >> 6] |= uint64_t{1} << (bit & 63);
  });
  if (!are_sound) return;
  joints_ = std::move(joints);
}

Result<void> Bpe::Tokenize(std::string_view piece, bool bytes, EncodeScratch& scratch,
                           std::vector<TokenId>& out) const {
  if (scratch.words.Get(piece, out)) return {};
  const size_t before = out.size();
  if (options_.ignore_merges) {
    std::string_view whole = piece;
    if (bytes) {
      scratch.text.clear();
      byte_level::AppendSpelling(piece, scratch.text);
      whole = scratch.text;
    }
    if (const auto id = vocabulary_.Find(whole)) {
      out.push_back(*id);
      scratch.words.Put(piece, out, before);
      return {};
    }
  }
  if (bytes || joints_.empty() || piece.size() < kLongPiece) {
    CMF_CHECK(TokenizeWord(piece, bytes, scratch, out));
    scratch.words.Put(piece, out, before);
    return {};
  }
  const auto part = [&](std::string_view word) -> Result<void> {
    if (scratch.words.Get(word, out)) return {};
    const size_t begins = out.size();
    CMF_CHECK(TokenizeWord(word, bytes, scratch, out));
    scratch.words.Put(word, out, begins);
    return {};
  };
  // Cut where no token can reach across, between two characters that are tokens themselves.
  const char* const end = piece.data() + piece.size();
  const char* begin = piece.data();
  const char* at = begin;
  uint32_t previous = 0;
  bool previous_is_known = false;
  while (at != end) {
    const char* here = at;
    const uint32_t c = utf8::Next(at);
    const bool is_known = CharacterId(c, {here, static_cast<size_t>(at - here)}) >= 0;
    if (is_known && previous_is_known && !MayJoin(previous, c)) {
      CMF_CHECK(part({begin, static_cast<size_t>(here - begin)}));
      begin = here;
    }
    previous = c;
    previous_is_known = is_known;
  }
  return part({begin, static_cast<size_t>(end - begin)});
}

Result<void> Bpe::TokenizeWord(std::string_view word, bool bytes, EncodeScratch& scratch,
                               std::vector<TokenId>& out) const {
  CMF_CHECK(AddSymbols(word, bytes, scratch));
  if (scratch.symbols.size() <= kFew) {
    MergeFew(scratch.symbols, out);
  } else {
    MergeMany(scratch, out);
  }
  return {};
}

Result<void> Bpe::AddSymbols(std::string_view word, bool bytes, EncodeScratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](TokenId id) { symbols.push_back({id, 0, 0}); };
  if (bytes) {
    for (const char byte : word) add(alphabet_ids_[static_cast<uint8_t>(byte)]);
    return {};
  }
  bool has_unknown = false;  // an unknown token waits to be added, perhaps to be fused with more
  const char* at = word.data();
  const char* const end = at + word.size();
  std::string affixed;
  while (at != end) {
    const char* here = at;
    const uint32_t c = utf8::Next(at);
    std::string_view symbol(here, static_cast<size_t>(at - here));
    TokenId id = -1;
    if (is_affixed_) {
      affixed = here == word.data() ? "" : options_.continuing_subword_prefix;
      affixed += symbol;
      if (at == end) affixed += options_.end_of_word_suffix;
      symbol = affixed;
      id = vocabulary_.Find(symbol).value_or(-1);
    } else {
      id = CharacterId(c, symbol);
    }
    if (id >= 0) {
      if (has_unknown) add(unk_id_);
      has_unknown = false;
      add(id);
      continue;
    }
    if (options_.byte_fallback && std::all_of(symbol.begin(), symbol.end(), [&](char byte) {
          return fallback_ids_[static_cast<uint8_t>(byte)] >= 0;
        })) {
      for (const char byte : symbol) add(fallback_ids_[static_cast<uint8_t>(byte)]);
      continue;
    }
    if (options_.unk_token.empty()) continue;
    if (unk_id_ < 0) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("tokenizer: '{}' is unknown, and the unknown token '{}' is not in the "
                              "vocabulary",
                              symbol.substr(0, 100), options_.unk_token.substr(0, 100)));
    }
    if (has_unknown && !options_.fuse_unk) add(unk_id_);
    has_unknown = true;
  }
  if (has_unknown) add(unk_id_);
  return {};
}

// The pair to join is searched for each time: quadratic, but quick for what most words are.
void Bpe::MergeFew(std::vector<Symbol>& symbols, std::vector<TokenId>& out) const {
  size_t count = symbols.size();
  TokenId ids[kFew];
  MergeTable::Merge pairs[kFew];  // of i and i + 1
  for (size_t i = 0; i < count; ++i) ids[i] = symbols[i].id;
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.Find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == MergeTable::kNone) break;
    ids[best] = pairs[best].merged;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      pairs[i - 1] = pairs[i];
    }
    if (best > 0) pairs[best - 1] = merges_.Find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = merges_.Find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + count);
}

// n log n: candidates wait in a heap; one whose symbols have changed since is recognised when its turn comes,
// since joining its two symbols would no longer give what it promised.
void Bpe::MergeMany(EncodeScratch& scratch, std::vector<TokenId>& out) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto later = [](const EncodeScratch::Candidate& a, const EncodeScratch::Candidate& b) {
    return a.order > b.order;
  };
  const auto candidate = [&](int32_t left) -> bool {
    const Symbol& symbol = symbols[static_cast<size_t>(left)];
    if (symbol.next < 0) return false;
    const auto merge = merges_.Find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
    if (merge.rank == MergeTable::kNone) return false;
    heap.push_back({uint64_t{merge.rank} << 32 | static_cast<uint32_t>(left), merge.merged});
    return true;
  };
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i < count; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    const EncodeScratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    const auto left = static_cast<int32_t>(top.order & 0xFFFFFFFF);
    Symbol& symbol = symbols[static_cast<size_t>(left)];
    if (symbol.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(symbol.next)];
    const auto now = merges_.Find(symbol.id, right.id);
    if (now.rank == MergeTable::kNone || now.merged != top.merged) continue;
    symbol.id = top.merged;
    symbol.next = right.next;
    right.next = EncodeScratch::kGone;
    if (symbol.next >= 0) symbols[static_cast<size_t>(symbol.next)].previous = left;
    if (symbol.previous >= 0 && candidate(symbol.previous)) std::push_heap(heap.begin(), heap.end(), later);
    if (candidate(left)) std::push_heap(heap.begin(), heap.end(), later);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.next != EncodeScratch::kGone) out.push_back(symbol.id);
  }
}

}  // namespace cmforge
