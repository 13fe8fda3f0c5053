// The Unigram model: of all ways to cut a piece into tokens, the one with the highest sum of scores.
#pragma once

#include <array>
#include <optional>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"

namespace cmforge {

class Unigram : public TokenModel {
 public:
  /// `scores` by id: log probabilities. Ids are 0, 1, 2, ... in the order of the file. Fails: kCorrupt (an
  /// unk_id outside the vocabulary, a score that is not finite), kLimit (a token too long).
  static Result<std::unique_ptr<const Unigram>> Make(Vocabulary vocabulary, std::vector<double> scores,
                                                     std::optional<uint64_t> unk_id, bool byte_fallback);

  Result<void> Tokenize(std::string_view piece, bool bytes, EncodeScratch& scratch,
                        std::vector<TokenId>& out) const override;
  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }
  [[nodiscard]] TokenId unknown_id() const override { return unk_id_; }

 private:
  Unigram(Vocabulary vocabulary, std::vector<double> scores, ByteTrie trie)
      : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), trie_(std::move(trie)) {}

  [[nodiscard]] Result<void> AddUnknown(std::string_view text, std::vector<TokenId>& out) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  ByteTrie trie_;
  TokenId unk_id_ = -1;
  double unk_score_ = 0;
  bool byte_fallback_ = false;
  std::array<TokenId, 256> fallback_ids_{};
};

}  // namespace cmforge
