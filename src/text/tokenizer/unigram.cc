// Unigram: Viterbi over the characters of a piece.
#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>

#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

constexpr double kUnknownPenalty = 10.0;

}  // namespace

Result<std::unique_ptr<const Unigram>> Unigram::Make(Vocabulary vocabulary, std::vector<double> scores,
                                                     std::optional<uint64_t> unk_id, bool byte_fallback) {
  if (unk_id && *unk_id >= scores.size()) {
    return Fail(ErrorKind::kCorrupt, fmt::format("unk_id {} in a vocabulary of {}", *unk_id, scores.size()));
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!std::isfinite(scores[i])) return Fail(ErrorKind::kCorrupt, fmt::format("score {} is not finite", i));
  }
  CMF_TRY(ByteTrie trie, ByteTrie::Of(vocabulary));
  std::unique_ptr<Unigram> model(new Unigram(std::move(vocabulary), std::move(scores), std::move(trie)));
  if (unk_id) model->unk_id_ = static_cast<TokenId>(*unk_id);
  const auto lowest = std::min_element(model->scores_.begin(), model->scores_.end());
  model->unk_score_ = (lowest == model->scores_.end() ? 0.0 : *lowest) - kUnknownPenalty;
  model->byte_fallback_ = byte_fallback;
  for (size_t byte = 0; byte < 256; ++byte) {
    model->fallback_ids_[byte] = model->vocabulary_.Find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  return model;
}

Result<void> Unigram::AddUnknown(std::string_view text, std::vector<TokenId>& out) const {
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char byte) {
        return fallback_ids_[static_cast<uint8_t>(byte)] >= 0;
      })) {
    for (const char byte : text) out.push_back(fallback_ids_[static_cast<uint8_t>(byte)]);
    return {};
  }
  if (unk_id_ < 0) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("tokenizer: '{}' is unknown and the model has no unknown token", text.substr(0, 64)));
  }
  out.push_back(unk_id_);
  return {};
}

Result<void> Unigram::Tokenize(std::string_view piece, bool, EncodeScratch& scratch,
                               std::vector<TokenId>& out) const {
  if (scratch.words.Get(piece, out)) return {};
  const size_t before = out.size();

  struct Best {
    double score = 0;        // of the best way from the front to here
    size_t from = SIZE_MAX;  // where its last token begins; SIZE_MAX: no way yet
    TokenId id = 0;
  };
  std::vector<Best> best(piece.size() + 1);
  const auto offer = [&](size_t to, double score, size_t from, TokenId id) {
    Best& target = best[to];
    // Of equal scores the first found stays: the token that begins earliest.
    if (target.from == SIZE_MAX || score > target.score) target = {score, from, id};
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t next = at + static_cast<size_t>(utf8::LengthOf(piece[at]));
    const double score = best[at].score;
    bool has_single = false;  // a token of just this character
    uint32_t node = 0;
    for (size_t end = at; end < piece.size();) {
      node = trie_.Child(node, static_cast<uint8_t>(piece[end]));
      if (node == ByteTrie::kNone) break;
      ++end;
      const TokenId id = trie_.TokenAt(node);
      if (id < 0) continue;
      offer(end, score + scores_[static_cast<size_t>(id)], at, id);
      if (end == next) has_single = true;
    }
    if (!has_single) offer(next, score + unk_score_, at, unk_id_);
    at = next;
  }

  // Backwards; neighbouring unknowns are one stretch of text, looked up once more as a whole.
  struct Part {
    size_t begin, end;
    bool is_unknown;
  };
  std::vector<Part> parts;
  for (size_t end = piece.size(); end > 0;) {
    const Best& node = best[end];
    const bool is_unknown = node.id == unk_id_;
    if (is_unknown && unk_id_ >= 0 && !parts.empty() && parts.back().is_unknown) {
      parts.back().begin = node.from;
    } else {
      parts.push_back({node.from, end, is_unknown});
    }
    end = node.from;
  }
  for (size_t i = parts.size(); i-- > 0;) {
    const std::string_view text = piece.substr(parts[i].begin, parts[i].end - parts[i].begin);
    if (const auto id = vocabulary_.Find(text)) {
      out.push_back(*id);
    } else {
      CMF_CHECK(AddUnknown(text, out));
    }
  }
  scratch.words.Put(piece, out, before);
  return {};
}

}  // namespace cmforge
