// What turns a piece of text into ids: BPE, Unigram, WordPiece or WordLevel.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word_cache.h"

namespace cmforge {

/// What one call of Encode needs for itself; kept for the next call, since the cache pays only when it is
/// warm.
struct EncodeScratch {
  PatternScratch pattern;
  WordCache words;
  std::string buffers[2];  // of the normalizers

  // Of BPE: a piece as a chain of symbols.
  struct Symbol {
    TokenId id;
    int32_t previous, next;  // indices; -1 at the ends; a symbol that was merged away has next kGone
  };
  static constexpr int32_t kGone = -2;
  struct Candidate {
    uint64_t order;  // rank << 32 | index of the left symbol: the least is merged first
    TokenId merged;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::string text;

  /// Frees what only a very long text needs.
  void ShrinkToHabit() {
    constexpr size_t kHabit = size_t{1} << 16;
    if (symbols.capacity() > kHabit) symbols = {};
    if (heap.capacity() > kHabit) heap = {};
    for (std::string& buffer : buffers) {
      if (buffer.capacity() > kHabit * 16) buffer = {};
    }
  }
};

/// Immutable: any thread may use it, each with a scratch of its own.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  /// Appends the ids of one piece (not empty). With `bytes` the piece holds raw bytes that stand for
  /// characters of the byte-level alphabet (only where TakesBytes()). Fails: kUsage (an unknown character and
  /// no unknown token to stand for it).
  virtual Result<void> Tokenize(std::string_view piece, bool bytes, EncodeScratch& scratch,
                                std::vector<TokenId>& out) const = 0;

  [[nodiscard]] virtual bool TakesBytes() const { return false; }
  [[nodiscard]] virtual const Vocabulary& vocabulary() const = 0;
  /// The id that stands for unknown text, or -1.
  [[nodiscard]] virtual TokenId unknown_id() const = 0;
};

}  // namespace cmforge
