// The Precompiled normalizer: SentencePiece's character map, a trie of byte strings with their replacements.
#pragma once

#include <vector>

#include "text/tokenizer/normalizers.h"

namespace cmforge {

class Precompiled : public Normalizer {
 public:
  /// `text` is base64 of: [bytes of the trie u32][trie: u32 units of a double array][replacements,
  /// 0-terminated]. Fails: kCorrupt (not base64, sizes that do not fit, replacements that are not UTF-8).
  static Result<Precompiled> FromBase64(std::string_view text);

  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch& scratch) const override;

 private:
  /// The replacement of the shortest key that `text` begins with; nullptr data when there is none.
  [[nodiscard]] std::string_view Find(std::string_view text) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;  // ends with 0
};

}  // namespace cmforge
