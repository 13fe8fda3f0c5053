// WordPiece and WordLevel.
#include "text/tokenizer/word_models.h"

#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

tl::unexpected<Error> NoUnknown(std::string_view unk_token) {
  return Fail(ErrorKind::kUsage,
              fmt::format("tokenizer: an unknown word, and the unknown token '{}' is not in the "
                          "vocabulary",
                          unk_token.substr(0, 100)));
}

}  // namespace

Result<std::unique_ptr<const WordPiece>> WordPiece::Make(Vocabulary vocabulary, const std::string& unk_token,
                                                         const std::string& continuing_subword_prefix,
                                                         uint64_t max_characters) {
  CMF_TRY(ByteTrie trie, ByteTrie::Of(vocabulary));
  std::unique_ptr<WordPiece> model(new WordPiece(std::move(vocabulary), std::move(trie)));
  model->unk_token_ = unk_token;
  model->unk_id_ = model->vocabulary_.Find(unk_token).value_or(-1);
  model->continuation_ = model->trie_.Walk(0, continuing_subword_prefix);
  model->max_characters_ = max_characters;
  return model;
}

Result<void> WordPiece::Tokenize(std::string_view piece, bool, EncodeScratch& scratch,
                                 std::vector<TokenId>& out) const {
  if (scratch.words.Get(piece, out)) return {};
  const size_t before = out.size();
  bool is_known = utf8::CountCodePoints(piece) <= max_characters_;
  for (size_t at = 0; is_known && at < piece.size();) {
    uint32_t node = at == 0 ? 0 : continuation_;
    size_t matched = 0;
    TokenId id = -1;
    for (size_t end = at; end < piece.size() && node != ByteTrie::kNone;) {
      node = trie_.Child(node, static_cast<uint8_t>(piece[end]));
      if (node == ByteTrie::kNone) break;
      ++end;
      if (trie_.TokenAt(node) < 0) continue;
      id = trie_.TokenAt(node);
      matched = end - at;
    }
    is_known = matched > 0;
    if (is_known) out.push_back(id);
    at += matched;
  }
  if (!is_known) {
    out.resize(before);
    if (unk_id_ < 0) return NoUnknown(unk_token_);
    out.push_back(unk_id_);
  }
  scratch.words.Put(piece, out, before);
  return {};
}

Result<void> WordLevel::Tokenize(std::string_view piece, bool, EncodeScratch&,
                                 std::vector<TokenId>& out) const {
  auto id = vocabulary_.Find(piece);
  if (!id) id = vocabulary_.Find(unk_token_);
  if (!id) return NoUnknown(unk_token_);
  out.push_back(*id);
  return {};
}

}  // namespace cmforge
