// Reading models. Vocabulary and merges are the bulk of a file, so they go from the parser straight into
// their tables; what the merges need to know may come after them, in which case they are read a second time.
#include "text/tokenizer/model_reader.h"

#include <limits>
#include <optional>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/word_models.h"

namespace cmforge {

namespace {

using simdjson::ondemand::json_type;
using simdjson::ondemand::value;

tl::unexpected<Error> Wrong(std::string fact) { return Fail(ErrorKind::kCorrupt, "model: " + fact); }
tl::unexpected<Error> Wrong(std::string_view field, simdjson::error_code error) {
  return Wrong(fmt::format("'{}': {}", field, simdjson::error_message(error)));
}

Result<TokenId> TokenIdFrom(simdjson::simdjson_result<value> json, std::string_view token) {
  uint64_t id = 0;
  if (json.get_uint64().get(id) != simdjson::SUCCESS || id > std::numeric_limits<TokenId>::max() - 1) {
    return Wrong(fmt::format("the id of token '{}' is no number of 0 to 2147483646", token.substr(0, 100)));
  }
  return static_cast<TokenId>(id);
}

class Reader {
 public:
  explicit Reader(size_t document_bytes) : document_bytes_(document_bytes) {}

  Result<std::unique_ptr<const TokenModel>> Read(simdjson::ondemand::object object) {
    CMF_CHECK(ReadFields(object, /*merges_only=*/false));
    if (has_merges_ && merges_need_another_look_) {
      simdjson::ondemand::object again;
      if (const auto error = object.reset().error(); error != simdjson::SUCCESS)
        return Wrong("merges", error);
      merges_.clear();
      CMF_CHECK(ReadFields(object, /*merges_only=*/true));
    }
    return Make();
  }

 private:
  Result<void> ReadFields(simdjson::ondemand::object& object, bool merges_only) {
    for (auto field : object) {
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key); error != simdjson::SUCCESS)
        return Wrong("a key", error);
      value json;
      if (const auto error = field.value().get(json); error != simdjson::SUCCESS) return Wrong(key, error);
      if (merges_only) {
        if (key == "merges") CMF_CHECK(ReadMerges(json));
      } else {
        CMF_CHECK(ReadField(key, json));
      }
    }
    return {};
  }

  Result<void> ReadField(std::string_view key, value json) {
    if (key == "vocab") return ReadVocabulary(json);
    if (key == "merges") {
      has_merges_ = true;
      if (!has_vocabulary_) {
        merges_need_another_look_ = true;
        return {};
      }
      return ReadMerges(json);
    }
    if (key == "type") return ReadString(key, json, type_);
    if (key == "unk_token") return ReadString(key, json, unk_token_);
    if (key == "continuing_subword_prefix") {
      CMF_CHECK(ReadString(key, json, prefix_));
      // Merges read so far took it for empty.
      if (has_merges_ && !prefix_.value_or("").empty()) merges_need_another_look_ = true;
      return {};
    }
    if (key == "end_of_word_suffix") return ReadString(key, json, suffix_);
    if (key == "fuse_unk") return ReadBool(key, json, fuse_unk_);
    if (key == "byte_fallback") return ReadBool(key, json, byte_fallback_);
    if (key == "ignore_merges") return ReadBool(key, json, ignore_merges_);
    if (key == "unk_id") return ReadCount(key, json, unk_id_);
    if (key == "max_input_chars_per_word") return ReadCount(key, json, max_characters_);
    return {};  // dropout is for training; what else there is does not concern us
  }

  static bool IsNull(value& json) {
    json_type type{};
    return json.type().get(type) == simdjson::SUCCESS && type == json_type::null;
  }

  static Result<void> ReadString(std::string_view key, value json, std::optional<std::string>& out) {
    if (IsNull(json)) return {};
    std::string_view text;
    if (const auto error = json.get_string().get(text); error != simdjson::SUCCESS) return Wrong(key, error);
    out = text;
    return {};
  }

  static Result<void> ReadBool(std::string_view key, value json, bool& out) {
    if (IsNull(json)) return {};
    if (const auto error = json.get_bool().get(out); error != simdjson::SUCCESS) return Wrong(key, error);
    return {};
  }

  static Result<void> ReadCount(std::string_view key, value json, std::optional<uint64_t>& out) {
    if (IsNull(json)) return {};
    uint64_t number = 0;
    if (const auto error = json.get_uint64().get(number); error != simdjson::SUCCESS)
      return Wrong(key, error);
    out = number;
    return {};
  }

  Result<void> ReadVocabulary(value json) {
    if (has_vocabulary_) return Wrong("'vocab' occurs twice");
    has_vocabulary_ = true;
    vocabulary_.Reserve(document_bytes_ / 64, document_bytes_ / 8);
    json_type type{};
    if (const auto error = json.type().get(type); error != simdjson::SUCCESS) return Wrong("vocab", error);
    CMF_CHECK(type == json_type::array ? ReadScored(json) : ReadNumbered(json));
    vocabulary_.Finish();
    return {};
  }

  // {"token": id, ...}
  Result<void> ReadNumbered(value json) {
    simdjson::ondemand::object object;
    if (const auto error = json.get_object().get(object); error != simdjson::SUCCESS)
      return Wrong("vocab", error);
    for (auto field : object) {
      std::string_view token;
      if (const auto error = field.unescaped_key().get(token); error != simdjson::SUCCESS)
        return Wrong("vocab", error);
      CMF_TRY(const TokenId id, TokenIdFrom(field.value(), token));
      CMF_CHECK(vocabulary_.Add(token, id));
    }
    return {};
  }

  // [["token", score], ...]
  Result<void> ReadScored(value json) {
    is_scored_ = true;
    simdjson::ondemand::array array;
    if (const auto error = json.get_array().get(array); error != simdjson::SUCCESS)
      return Wrong("vocab", error);
    for (auto entry : array) {
      std::string_view token;
      double score = 0;
      size_t parts = 0;
      simdjson::ondemand::array pair;
      if (const auto error = entry.get_array().get(pair); error != simdjson::SUCCESS)
        return Wrong("vocab", error);
      for (auto part : pair) {
        const auto error = parts == 0 ? part.get_string().get(token) : part.get_double().get(score);
        if (error != simdjson::SUCCESS) return Wrong("vocab", error);
        ++parts;
      }
      if (parts != 2)
        return Wrong(fmt::format("'vocab': entry {} is no pair of token and score", scores_.size()));
      CMF_CHECK(vocabulary_.Add(token, static_cast<TokenId>(scores_.size()), /*keep_both=*/true));
      scores_.push_back(score);
    }
    return {};
  }

  // ["a b", ...] or [["a", "b"], ...]
  Result<void> ReadMerges(value json) {
    merges_.reserve(document_bytes_ / 64);
    simdjson::ondemand::array array;
    if (const auto error = json.get_array().get(array); error != simdjson::SUCCESS)
      return Wrong("merges", error);
    for (auto entry : array) {
      json_type type{};
      if (const auto error = entry.type().get(type); error != simdjson::SUCCESS)
        return Wrong("merges", error);
      std::string_view left, right;
      if (type == json_type::string) {
        std::string_view line;
        if (const auto error = entry.get_string().get(line); error != simdjson::SUCCESS)
          return Wrong("merges", error);
        if (line.starts_with("#version")) continue;
        const size_t blank = line.find(' ');
        if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
          return Wrong(fmt::format("merge {}: '{}' is not two tokens with a blank between", merges_.size(),
                                   line.substr(0, 100)));
        }
        left = line.substr(0, blank);
        right = line.substr(blank + 1);
      } else {
        simdjson::ondemand::array pair;
        if (const auto error = entry.get_array().get(pair); error != simdjson::SUCCESS)
          return Wrong("merges", error);
        size_t parts = 0;
        for (auto part : pair) {
          const auto error = part.get_string().get(parts == 0 ? left : right);
          if (error != simdjson::SUCCESS) return Wrong("merges", error);
          ++parts;
        }
        if (parts != 2) return Wrong(fmt::format("merge {}: {} parts instead of 2", merges_.size(), parts));
      }
      CMF_CHECK(AddMerge(left, right));
    }
    return {};
  }

  Result<void> AddMerge(std::string_view left, std::string_view right) {
    const size_t cut = prefix_.value_or("").size();
    if (right.size() < cut) {
      return Wrong(fmt::format("merge {}: '{}' is shorter than continuing_subword_prefix", merges_.size(),
                               right.substr(0, 100)));
    }
    joined_ = left;
    joined_ += right.substr(cut);
    BpeMerge merge{};
    for (const auto& [text, id] : {std::pair{left, &merge.left}, std::pair{right, &merge.right},
                                   std::pair{std::string_view(joined_), &merge.merged}}) {
      const auto found = vocabulary_.Find(text);
      if (!found) {
        return Wrong(fmt::format("merge {}: token '{}' is not in the vocabulary", merges_.size(),
                                 text.substr(0, 100)));
      }
      *id = *found;
    }
    if (merges_.size() >= MergeTable::kNone) return Fail(ErrorKind::kLimit, "model: too many merges");
    merges_.push_back(merge);
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
      return Fail(ErrorKind::kUnsupported, fmt::format("model: unknown type '{}'", type.substr(0, 100)));
    }
    if (is_scored_ != (type == "Unigram")) {
      return Wrong(fmt::format("'vocab' of {} is {} expected", type,
                               is_scored_ ? "a list, an object" : "an object, a list"));
    }
    if (type == "Unigram") {
      auto model = Unigram::Make(std::move(vocabulary_), std::move(scores_), unk_id_, byte_fallback_);
      if (!model) return Fail(std::move(model.error()).In("model: Unigram"));
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
      return std::make_unique<const Bpe>(std::move(vocabulary_), merges_, std::move(options));
    }
    if (!unk_token_) return Wrong(fmt::format("'unk_token' of {} is missing", type));
    if (type == "WordLevel") return std::make_unique<const WordLevel>(std::move(vocabulary_), *unk_token_);
    if (!prefix_ || !max_characters_) {
      return Wrong(fmt::format("'{}' of WordPiece is missing",
                               prefix_ ? "max_input_chars_per_word" : "continuing_subword_prefix"));
    }
    auto model = WordPiece::Make(std::move(vocabulary_), *unk_token_, *prefix_, *max_characters_);
    if (!model) return Fail(std::move(model.error()).In("model: WordPiece"));
    return std::move(*model);
  }

  size_t document_bytes_;
  std::optional<std::string> type_, unk_token_, prefix_, suffix_;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
  std::optional<uint64_t> unk_id_, max_characters_;
  Vocabulary vocabulary_;
  bool has_vocabulary_ = false;
  bool is_scored_ = false;
  std::vector<double> scores_;
  bool has_merges_ = false;
  bool merges_need_another_look_ = false;
  std::vector<BpeMerge> merges_;
  std::string joined_;
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> ReadModel(simdjson::ondemand::object object,
                                                    size_t document_bytes) {
  return Reader(document_bytes).Read(object);
}

}  // namespace cmforge
