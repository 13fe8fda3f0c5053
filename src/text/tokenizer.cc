// The tokenizer: added tokens, normalizer, pre-tokenizer, model and post-processor put together.
#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/stream_decoder.h"
#include "text/tokenizer/tokenizer_file.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;
constexpr size_t kKeptScratches = 16;

class FileTokenizer : public Tokenizer, public std::enable_shared_from_this<FileTokenizer> {
 public:
  static Result<std::shared_ptr<const Tokenizer>> Make(TokenizerFile file) {
    const auto tokenizer = std::make_shared<FileTokenizer>(std::move(file));
    CMF_CHECK(tokenizer->NumberAddedTokens());
    CMF_CHECK(tokenizer->PrepareMatchers());
    return tokenizer;
  }

  explicit FileTokenizer(TokenizerFile file) : file_(std::move(file)) {
    takes_bytes_ = file_.pre_tokenizer.ends_in_bytes() && file_.model->TakesBytes();
  }

  Result<std::vector<TokenId>> Encode(std::string_view text, const TokenizeOptions& options) const override {
    const Lease scratch(*this);
    std::vector<TokenId> ids;
    CMF_CHECK(AddIds(text, options, *scratch, ids));
    return PutTogether(std::move(ids), nullptr, options);
  }

  Result<std::vector<TokenId>> EncodePair(std::string_view first, std::string_view second,
                                          const TokenizeOptions& options) const override {
    const Lease scratch(*this);
    std::vector<TokenId> first_ids, second_ids;
    CMF_CHECK(AddIds(first, options, *scratch, first_ids));
    CMF_CHECK(AddIds(second, options, *scratch, second_ids));
    return PutTogether(std::move(first_ids), &second_ids, options);
  }

  [[nodiscard]] std::string Decode(std::span<const TokenId> ids, bool skip_special) const override {
    TokenDecoder::Run run(file_.decoder);
    std::string text;
    for (const TokenId id : ids) {
      if (const auto token = DecodableText(id, skip_special)) run.Push(*token, text);
    }
    text += run.Tail();
    return text;
  }

  [[nodiscard]] std::unique_ptr<StreamDecoder> NewStream(bool skip_special) const override {
    return NewStreamDecoder(file_.decoder, [self = shared_from_this(), skip_special](TokenId id) {
      return self->DecodableText(id, skip_special);
    });
  }

  [[nodiscard]] std::optional<TokenId> IdOf(std::string_view token) const override {
    const auto added = added_by_text_.Find(token);
    return added ? added : file_.model->vocabulary().Find(token);
  }

  [[nodiscard]] std::string_view TokenText(TokenId id) const override {
    const Added* added = FindAdded(id);
    return added ? std::string_view(added_tokens_[added->index].content)
                 : file_.model->vocabulary().TextOf(id);
  }

  [[nodiscard]] bool IsSpecial(TokenId id) const override {
    const Added* added = FindAdded(id);
    return added && added_tokens_[added->index].special;
  }

  [[nodiscard]] TokenId vocab_size() const override { return vocab_size_; }
  [[nodiscard]] std::span<const AddedToken> added_tokens() const override { return added_tokens_; }
  [[nodiscard]] std::span<const TokenId> prefix_ids() const override { return file_.post_processor.prefix(); }
  [[nodiscard]] std::span<const TokenId> suffix_ids() const override { return file_.post_processor.suffix(); }

 private:
  struct Added {
    size_t index;              // in added_tokens_
    std::string decoded_text;  // what a decoder sees: the normalized content where the token is so matched
  };

  /// A scratch of the pool for the time of one call.
  class Lease {
   public:
    explicit Lease(const FileTokenizer& owner) : owner_(owner) {
      {
        const std::lock_guard lock(owner_.pool_mutex_);
        if (!owner_.pool_.empty()) {
          scratch_ = std::move(owner_.pool_.back());
          owner_.pool_.pop_back();
        }
      }
      if (!scratch_) scratch_ = std::make_unique<EncodeScratch>();
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      scratch_->ShrinkToHabit();
      const std::lock_guard lock(owner_.pool_mutex_);
      if (owner_.pool_.size() < kKeptScratches) owner_.pool_.push_back(std::move(scratch_));
    }
    EncodeScratch& operator*() const { return *scratch_; }

   private:
    const FileTokenizer& owner_;
    std::unique_ptr<EncodeScratch> scratch_;
  };

  // The ids written in the file are not trusted: what the model knows keeps the model's id, others follow.
  Result<void> NumberAddedTokens() {
    const Vocabulary& vocabulary = file_.model->vocabulary();
    const auto model_size = static_cast<int64_t>(vocabulary.size());
    int64_t next = model_size;
    int64_t largest = -1;
    for (AddedToken& token : file_.added_tokens) {
      if (token.content.empty()) continue;
      if (token.content.size() > AddedTokenMatcher::kMaxContentBytes) {
        return Fail(ErrorKind::kLimit,
                    fmt::format("added_tokens: a content of {} bytes, at most {}", token.content.size(),
                                AddedTokenMatcher::kMaxContentBytes));
      }
      if (const auto known = added_by_text_.Find(token.content)) {  // written twice: the later flags count
        token.id = *known;
        added_tokens_[added_by_id_.at(*known).index] = token;
        continue;
      }
      if (const auto known = vocabulary.Find(token.content)) {
        token.id = *known;
      } else {
        next = std::max(model_size, largest + 1);
        if (next >= std::numeric_limits<TokenId>::max())
          return Fail(ErrorKind::kLimit, "added_tokens: no ids left");
        token.id = static_cast<TokenId>(next);
      }
      largest = std::max<int64_t>(largest, token.id);
      CMF_CHECK(added_by_text_.Add(token.content, token.id));
      added_by_id_[token.id] = {added_tokens_.size(), token.content};
      added_tokens_.push_back(token);
    }
    vocab_size_ = std::max(vocabulary.largest_id(), static_cast<TokenId>(largest)) + 1;
    return {};
  }

  Result<void> PrepareMatchers() {
    EncodeScratch scratch;
    for (const AddedToken& token : added_tokens_) {
      if (IsMarkup(token) && file_.model->vocabulary().Has(token.id) &&
          token.id != file_.model->unknown_id()) {
        markup_in_vocabulary_.push_back(token.id);
      }
      if (!token.normalized) {
        raw_.Add(token.content, token);
        continue;
      }
      CMF_TRY(const Piece content,
              file_.normalizer.Apply(Piece{token.content, 0}, scratch.buffers, scratch.pattern));
      if (content.text.size() > AddedTokenMatcher::kMaxContentBytes) {
        return Fail(ErrorKind::kLimit,
                    fmt::format("added_tokens: a normalized content of {} bytes, at most {}",
                                content.text.size(), AddedTokenMatcher::kMaxContentBytes));
      }
      added_by_id_[token.id].decoded_text = content.text;
      if (!content.text.empty()) normalized_.Add(content.text, token);
    }
    raw_.Finish();
    normalized_.Finish();
    std::sort(markup_in_vocabulary_.begin(), markup_in_vocabulary_.end());
    return {};
  }

  [[nodiscard]] const Added* FindAdded(TokenId id) const {
    const auto found = added_by_id_.find(id);
    return found == added_by_id_.end() ? nullptr : &found->second;
  }

  /// What the decoder sees of an id; nothing for ids that are unknown or to be skipped.
  [[nodiscard]] std::optional<std::string_view> DecodableText(TokenId id, bool skip_special) const {
    if (const Added* added = FindAdded(id)) {
      if (skip_special && added_tokens_[added->index].special) return std::nullopt;
      return added->decoded_text;
    }
    if (!file_.model->vocabulary().Has(id)) return std::nullopt;
    return file_.model->vocabulary().TextOf(id);
  }

  Result<void> AddIds(std::string_view text, const TokenizeOptions& options, EncodeScratch& scratch,
                      std::vector<TokenId>& ids) const {
    if (text.size() > kMaxTextBytes) {
      return Fail(ErrorKind::kLimit,
                  fmt::format("tokenizer: a text of {} bytes, at most {}", text.size(), kMaxTextBytes));
    }
    if (const size_t valid = utf8::ValidPrefix(text); valid != text.size()) {
      return Fail(ErrorKind::kUsage, fmt::format("tokenizer: the text is not UTF-8 at byte {}", valid));
    }
    ids.reserve(text.size() / 4 + 8);
    const bool allow = options.allow_special_in_text;
    return raw_.Split(text, allow, [&](const AddedTokenMatcher::Part& part) -> Result<void> {
      if (part.id >= 0) {
        ids.push_back(part.id);
        return {};
      }
      Piece segment{text.substr(part.begin, part.end - part.begin), 0};
      if (part.begin == 0) segment.from_start = static_cast<size_t>(utf8::LengthOf(text[0]));
      CMF_TRY(segment, file_.normalizer.Apply(segment, scratch.buffers, scratch.pattern));
      return normalized_.Split(
          segment.text, allow, [&](const AddedTokenMatcher::Part& inner) -> Result<void> {
            if (inner.id >= 0) {
              ids.push_back(inner.id);
              return {};
            }
            return file_.pre_tokenizer.Run(segment.Sub(inner.begin, inner.end), scratch.pattern,
                                           !takes_bytes_, [&](const Piece& piece) -> Result<void> {
                                             return AddPiece(piece.text, allow, scratch, ids);
                                           });
          });
    });
  }

  Result<void> AddPiece(std::string_view piece, bool allow_special, EncodeScratch& scratch,
                        std::vector<TokenId>& ids) const {
    const size_t before = ids.size();
    CMF_CHECK(file_.model->Tokenize(piece, takes_bytes_, scratch, ids));
    if (allow_special || markup_in_vocabulary_.empty()) return {};
    // The model itself may know the spelling of a special token. Then the piece is taken a character at a
    // time.
    const bool is_clean =
        std::none_of(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), [&](TokenId id) {
          return std::binary_search(markup_in_vocabulary_.begin(), markup_in_vocabulary_.end(), id);
        });
    if (is_clean) return {};
    ids.resize(before);
    for (size_t at = 0; at < piece.size();) {
      const auto length = static_cast<size_t>(utf8::LengthOf(piece[at]));
      CMF_CHECK(file_.model->Tokenize(piece.substr(at, length), takes_bytes_, scratch, ids));
      at += length;
    }
    return {};
  }

  Result<std::vector<TokenId>> PutTogether(std::vector<TokenId> first, std::vector<TokenId>* second,
                                           const TokenizeOptions& options) const {
    if (options.apply_truncation_and_padding && file_.truncation) {
      const size_t added = options.add_special ? file_.post_processor.AddedCount(second != nullptr) : 0;
      CMF_CHECK(file_.truncation->Apply(first, second, added));
    }
    std::vector<TokenId> ids = file_.post_processor.Apply(first, second, options.add_special);
    if (options.apply_truncation_and_padding && file_.padding) file_.padding->Apply(ids);
    return ids;
  }

  TokenizerFile file_;
  bool takes_bytes_ = false;
  TokenId vocab_size_ = 0;
  std::vector<AddedToken> added_tokens_;
  Vocabulary added_by_text_;
  std::unordered_map<TokenId, Added> added_by_id_;
  AddedTokenMatcher raw_, normalized_;
  std::vector<TokenId> markup_in_vocabulary_;  // ascending: special ids that the model could give by itself

  mutable std::mutex pool_mutex_;
  mutable std::vector<std::unique_ptr<EncodeScratch>> pool_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view json, std::string_view what) {
  auto file = ReadTokenizerFile(json);
  if (!file) return Fail(std::move(file.error()).In(what));
  auto tokenizer = FileTokenizer::Make(std::move(*file));
  if (!tokenizer) return Fail(std::move(tokenizer.error()).In(what));
  return tokenizer;
}

}  // namespace cmforge
