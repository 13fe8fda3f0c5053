// Reading models. Vocabulary and merges are the bulk of a file, so they go from the document straight into
// their tables; merges that come before what they depend on are skipped and read when all the rest is known.
#include "text/tokenizer/model_reader.h"

#include <limits>
#include <optional>
#include <set>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/word_models.h"

namespace cmforge {

namespace {

using Kind = JsonCursor::Kind;

tl::unexpected<Error> Wrong(std::string fact) { return Fail(ErrorKind::kCorrupt, std::move(fact)); }

/// Strings waiting to be looked up together. Their bytes lie in one buffer, since a cursor's strings don't
/// last.
class Batch {
 public:
  void Add(std::string_view text) {
    text_ += text;
    ends_.push_back(text_.size());
  }
  /// The last two strings joined, `cut` bytes of the second left out (it must have them).
  void AddJoined(size_t cut) {
    const size_t end = ends_.back(), middle = ends_[ends_.size() - 2];
    const size_t begin = ends_.size() > 2 ? ends_[ends_.size() - 3] : 0;
    text_.append(text_, begin, middle - begin);
    text_.append(text_, middle + cut, end - middle - cut);
    ends_.push_back(text_.size());
  }
  /// The string added last.
  [[nodiscard]] std::string_view back() const {
    const size_t begin = ends_.size() > 1 ? ends_[ends_.size() - 2] : 0;
    return std::string_view(text_).substr(begin);
  }
  [[nodiscard]] size_t size() const { return ends_.size(); }
  std::span<const std::string_view> Views() {
    views_.clear();
    size_t begin = 0;
    for (const size_t end : ends_) {
      views_.push_back(std::string_view(text_).substr(begin, end - begin));
      begin = end;
    }
    return views_;
  }
  void Clear() {
    text_.clear();
    ends_.clear();
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;
  std::vector<std::string_view> views_;
};

class Reader {
 public:
  explicit Reader(size_t document_bytes) : document_bytes_(document_bytes) {}

  Result<std::unique_ptr<const TokenModel>> Read(JsonCursor& cursor) {
    CMF_CHECK(cursor.EnterObject());
    std::set<std::string> seen;
    while (true) {
      std::string_view key;
      CMF_TRY(const bool more, cursor.NextKey(key));
      if (!more) break;
      const std::string name(key);
      if (!seen.insert(name).second) return Wrong(fmt::format("key '{}' occurs twice", name.substr(0, 100)));
      if (auto done = ReadField(name, cursor); !done) {
        return Fail(std::move(done.error()).In(fmt::format("'{}'", name.substr(0, 100))));
      }
    }
    if (!merges_text_.empty()) {
      JsonCursor merges(merges_text_);
      if (auto done = ReadMerges(merges); !done) return Fail(std::move(done.error()).In("'merges'"));
    }
    return Make();
  }

 private:
  Result<void> ReadField(std::string_view key, JsonCursor& cursor) {
    if (key == "vocab") return ReadVocabulary(cursor);
    if (key == "merges") {
      has_merges_ = true;
      // They need the vocabulary and the prefix. A file that has a prefix names it before or never.
      if (has_vocabulary_ && prefix_is_read_) return ReadMerges(cursor);
      CMF_TRY(merges_text_, cursor.Skip());
      return {};
    }
    if (key == "type") return ReadString(cursor, type_);
    if (key == "unk_token") return ReadString(cursor, unk_token_);
    if (key == "continuing_subword_prefix") {
      prefix_is_read_ = true;
      return ReadString(cursor, prefix_);
    }
    if (key == "end_of_word_suffix") return ReadString(cursor, suffix_);
    if (key == "fuse_unk") return ReadBool(cursor, fuse_unk_);
    if (key == "byte_fallback") return ReadBool(cursor, byte_fallback_);
    if (key == "ignore_merges") return ReadBool(cursor, ignore_merges_);
    if (key == "unk_id") return ReadCount(cursor, unk_id_);
    if (key == "max_input_chars_per_word") return ReadCount(cursor, max_characters_);
    // Dropout is for training; what else there is does not concern us.
    CMF_TRY([[maybe_unused]] const std::string_view skipped, cursor.Skip());
    return {};
  }

  static Result<void> ReadString(JsonCursor& cursor, std::optional<std::string>& out) {
    if (cursor.TakeNull()) return {};
    CMF_TRY(out, cursor.String());
    return {};
  }
  static Result<void> ReadBool(JsonCursor& cursor, bool& out) {
    if (cursor.TakeNull()) return {};
    CMF_TRY(out, cursor.Bool());
    return {};
  }
  static Result<void> ReadCount(JsonCursor& cursor, std::optional<uint64_t>& out) {
    if (cursor.TakeNull()) return {};
    CMF_TRY(out, cursor.Unsigned());
    return {};
  }

  Result<void> ReadVocabulary(JsonCursor& cursor) {
    has_vocabulary_ = true;
    vocabulary_.Reserve(document_bytes_ / 64, document_bytes_ / 8);
    CMF_CHECK(cursor.Peek() == Kind::kArray ? ReadScored(cursor) : ReadNumbered(cursor));
    CMF_CHECK(AddTokens());
    vocabulary_.Finish();
    return {};
  }

  // {"token": id, ...}
  Result<void> ReadNumbered(JsonCursor& cursor) {
    CMF_CHECK(cursor.EnterObject());
    while (true) {
      std::string_view token;
      CMF_TRY(const bool more, cursor.NextKey(token));
      if (!more) return {};
      batch_.Add(token);
      const auto id = cursor.Unsigned();
      if (!id || *id >= std::numeric_limits<TokenId>::max()) {
        return Wrong(fmt::format("the id of token '{}' is no number of 0 to 2147483646",
                                 batch_.back().substr(0, 100)));
      }
      batch_ids_.push_back(static_cast<TokenId>(*id));
      if (batch_.size() == Vocabulary::kMany) CMF_CHECK(AddTokens());
    }
  }

  // [["token", score], ...]
  Result<void> ReadScored(JsonCursor& cursor) {
    is_scored_ = true;
    CMF_CHECK(cursor.EnterArray());
    while (true) {
      CMF_TRY(const bool more, cursor.NextElement());
      if (!more) return {};
      CMF_CHECK(cursor.EnterArray());
      CMF_TRY(const bool has_token, cursor.NextElement());
      if (!has_token) return Wrong(fmt::format("entry {} is no pair of token and score", scores_.size()));
      CMF_TRY(const std::string_view token, cursor.String());
      batch_.Add(token);
      CMF_TRY(const bool has_score, cursor.NextElement());
      if (!has_score) return Wrong(fmt::format("entry {} is no pair of token and score", scores_.size()));
      CMF_TRY(const double score, cursor.Number());
      CMF_TRY(const bool has_more, cursor.NextElement());
      if (has_more) return Wrong(fmt::format("entry {} is no pair of token and score", scores_.size()));
      batch_ids_.push_back(static_cast<TokenId>(scores_.size()));
      scores_.push_back(score);
      if (batch_.size() == Vocabulary::kMany) CMF_CHECK(AddTokens());
    }
  }

  Result<void> AddTokens() {
    CMF_CHECK(vocabulary_.AddMany(batch_.Views(), batch_ids_, /*keep_both=*/is_scored_));
    batch_.Clear();
    batch_ids_.clear();
    return {};
  }

  // ["a b", ...] or [["a", "b"], ...]
  Result<void> ReadMerges(JsonCursor& cursor) {
    merges_.Reserve(vocabulary_.size());
    const size_t cut = prefix_.value_or("").size();
    CMF_CHECK(cursor.EnterArray());
    while (true) {
      CMF_TRY(const bool more, cursor.NextElement());
      if (!more) break;
      if (cursor.Peek() == Kind::kString) {
        CMF_TRY(const std::string_view line, cursor.String());
        if (line.starts_with("#version")) continue;
        const size_t blank = line.find(' ');
        if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
          return Wrong(fmt::format("merge {}: '{}' is not two tokens with a blank between", merge_count_,
                                   line.substr(0, 100)));
        }
        batch_.Add(line.substr(0, blank));
        batch_.Add(line.substr(blank + 1));
      } else {
        CMF_CHECK(ReadPair(cursor));
      }
      if (batch_.back().size() < cut) {
        return Wrong(fmt::format("merge {}: '{}' is shorter than continuing_subword_prefix", merge_count_,
                                 batch_.back().substr(0, 100)));
      }
      batch_.AddJoined(cut);
      if (++merge_count_ == MergeTable::kNone) return Fail(ErrorKind::kLimit, "too many merges");
      if (batch_.size() == Vocabulary::kMany) CMF_CHECK(AddMerges());
    }
    return AddMerges();
  }

  Result<void> ReadPair(JsonCursor& cursor) {
    CMF_CHECK(cursor.EnterArray());
    for (int part = 0; part < 2; ++part) {
      CMF_TRY(const bool has_part, cursor.NextElement());
      if (!has_part) return Wrong(fmt::format("merge {}: not a list of two tokens", merge_count_));
      CMF_TRY(const std::string_view token, cursor.String());
      batch_.Add(token);
    }
    CMF_TRY(const bool has_more, cursor.NextElement());
    if (has_more) return Wrong(fmt::format("merge {}: not a list of two tokens", merge_count_));
    return {};
  }

  // The batch holds left, right and joined token of each merge.
  Result<void> AddMerges() {
    static_assert(Vocabulary::kMany % 3 == 0);
    const auto tokens = batch_.Views();
    batch_ids_.resize(tokens.size());
    vocabulary_.FindMany(tokens, batch_ids_);
    const size_t first = merge_count_ - tokens.size() / 3;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (batch_ids_[i] < 0) {
        return Wrong(fmt::format("merge {}: token '{}' is not in the vocabulary", first + i / 3,
                                 tokens[i].substr(0, 100)));
      }
    }
    for (size_t i = 0; i < tokens.size(); i += 3) merges_.Prefetch(batch_ids_[i], batch_ids_[i + 1]);
    for (size_t i = 0; i < tokens.size(); i += 3) {
      merges_.Add(batch_ids_[i], batch_ids_[i + 1], static_cast<uint32_t>(first + i / 3), batch_ids_[i + 2]);
    }
    batch_.Clear();
    batch_ids_.clear();
    return {};
  }

  Result<std::unique_ptr<const TokenModel>> Make() {
    if (!has_vocabulary_) return Wrong("'vocab' is missing");
    // Old files do not name the type.
    const std::string type = type_             ? *type_
                             : has_merges_     ? "BPE"
                             : is_scored_      ? "Unigram"
                             : max_characters_ ? "WordPiece"
                                               : "WordLevel";
    if (type != "BPE" && type != "Unigram" && type != "WordPiece" && type != "WordLevel") {
      return Fail(ErrorKind::kUnsupported, fmt::format("unknown type '{}'", type.substr(0, 100)));
    }
    if (is_scored_ != (type == "Unigram")) {
      return Wrong(fmt::format("'vocab' of {} is {} expected", type,
                               is_scored_ ? "a list, an object" : "an object, a list"));
    }
    if (type == "Unigram") {
      auto model = Unigram::Make(std::move(vocabulary_), std::move(scores_), unk_id_, byte_fallback_);
      if (!model) return Fail(std::move(model.error()).In("Unigram"));
      return std::move(*model);
    }
    if (type == "BPE") {
      if (!has_merges_) return Wrong("'merges' is missing");
      BpeOptions options;
      options.unk_token = unk_token_.value_or("");
      options.continuing_subword_prefix = prefix_.value_or("");
      options.end_of_word_suffix = suffix_.value_or("");
      options.fuse_unk = fuse_unk_;
      options.byte_fallback = byte_fallback_;
      options.ignore_merges = ignore_merges_;
      return std::make_unique<const Bpe>(std::move(vocabulary_), std::move(merges_), std::move(options));
    }
    if (!unk_token_) return Wrong(fmt::format("'unk_token' of {} is missing", type));
    if (type == "WordLevel") return std::make_unique<const WordLevel>(std::move(vocabulary_), *unk_token_);
    if (!prefix_ || !max_characters_) {
      return Wrong(fmt::format("'{}' of WordPiece is missing",
                               prefix_ ? "max_input_chars_per_word" : "continuing_subword_prefix"));
    }
    auto model = WordPiece::Make(std::move(vocabulary_), *unk_token_, *prefix_, *max_characters_);
    if (!model) return Fail(std::move(model.error()).In("WordPiece"));
    return std::move(*model);
  }

  size_t document_bytes_;
  std::optional<std::string> type_, unk_token_, prefix_, suffix_;
  bool prefix_is_read_ = false;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
  std::optional<uint64_t> unk_id_, max_characters_;
  Vocabulary vocabulary_;
  bool has_vocabulary_ = false;
  bool is_scored_ = false;
  std::vector<double> scores_;
  bool has_merges_ = false;
  std::string_view merges_text_;  // of merges that wait for the rest
  MergeTable merges_;
  size_t merge_count_ = 0;
  Batch batch_;
  std::vector<TokenId> batch_ids_;
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> ReadModel(JsonCursor& cursor, size_t document_bytes) {
  return Reader(document_bytes).Read(cursor);
}

}  // namespace cmforge
