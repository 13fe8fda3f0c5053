// WordPiece and WordLevel: models that look up words, in parts or as a whole.
#pragma once

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"

namespace cmforge {

/// Greedy: the longest token that begins the word, then the longest continuation ("##ing"), and so on. A word
/// that can't be matched to its end is one unknown token.
class WordPiece : public TokenModel {
 public:
  /// `max_characters` of a word; a longer one is unknown. Fails: kLimit (a token too long).
  static Result<std::unique_ptr<const WordPiece>> Make(Vocabulary vocabulary, const std::string& unk_token,
                                                       const std::string& continuing_subword_prefix,
                                                       uint64_t max_characters);

  Result<void> Tokenize(std::string_view piece, bool bytes, EncodeScratch& scratch,
                        std::vector<TokenId>& out) const override;
  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }
  [[nodiscard]] TokenId unknown_id() const override { return unk_id_; }

 private:
  WordPiece(Vocabulary vocabulary, ByteTrie trie)
      : vocabulary_(std::move(vocabulary)), trie_(std::move(trie)) {}

  Vocabulary vocabulary_;
  ByteTrie trie_;
  std::string unk_token_;
  TokenId unk_id_ = -1;
  uint32_t continuation_ = 0;  // the node after the prefix, or ByteTrie::kNone
  uint64_t max_characters_ = 0;
};

/// A piece is a token or unknown.
class WordLevel : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, std::string unk_token)
      : vocabulary_(std::move(vocabulary)), unk_token_(std::move(unk_token)) {}

  Result<void> Tokenize(std::string_view piece, bool bytes, EncodeScratch& scratch,
                        std::vector<TokenId>& out) const override;
  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }
  [[nodiscard]] TokenId unknown_id() const override { return vocabulary_.Find(unk_token_).value_or(-1); }

 private:
  Vocabulary vocabulary_;
  std::string unk_token_;
};

}  // namespace cmforge
