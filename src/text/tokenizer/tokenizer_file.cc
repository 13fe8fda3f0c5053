// Reading tokenizer.json. The bulk (vocabulary, merges, added tokens) goes through simdjson's on-demand
// parser, the small components through our JSON values.
#include "text/tokenizer/tokenizer_file.h"

#include <simdjson.h>

#include <set>

#include "base/json.h"
#include "text/tokenizer/model_reader.h"

namespace cmforge {

namespace {

using simdjson::ondemand::value;

tl::unexpected<Error> Wrong(std::string_view part, simdjson::error_code error) {
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}", part, simdjson::error_message(error)));
}

Result<AddedToken> ReadAddedToken(simdjson::ondemand::object object, size_t index) {
  AddedToken token;
  const auto wrong = [&](std::string_view field, simdjson::error_code error) {
    return Wrong(fmt::format("added_tokens: entry {}: {}", index, field), error);
  };
  unsigned seen = 0;
  for (auto field : object) {
    std::string_view key;
    if (const auto error = field.unescaped_key().get(key); error != simdjson::SUCCESS)
      return wrong("a key", error);
    value json;
    if (const auto error = field.value().get(json); error != simdjson::SUCCESS) return wrong(key, error);
    simdjson::error_code error = simdjson::SUCCESS;
    const auto flag = [&](bool& target, unsigned bit) {
      error = json.get_bool().get(target);
      seen |= 1u << bit;
    };
    if (key == "id") {
      uint64_t id = 0;  // not used, but must be a number
      error = json.get_uint64().get(id);
      seen |= 1u << 5;
    } else if (key == "content") {
      std::string_view content;
      error = json.get_string().get(content);
      token.content = content;
      seen |= 1u << 6;
    } else if (key == "single_word") {
      flag(token.single_word, 0);
    } else if (key == "lstrip") {
      flag(token.lstrip, 1);
    } else if (key == "rstrip") {
      flag(token.rstrip, 2);
    } else if (key == "normalized") {
      flag(token.normalized, 3);
    } else if (key == "special") {
      flag(token.special, 4);
    }
    if (error != simdjson::SUCCESS) return wrong(key, error);
  }
  constexpr std::string_view kFields[] = {"single_word", "lstrip", "rstrip", "normalized",
                                          "special",     "id",     "content"};
  for (unsigned bit = 0; bit < std::size(kFields); ++bit) {
    if ((seen >> bit & 1) == 0) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("added_tokens: entry {}: '{}' is missing", index, kFields[bit]));
    }
  }
  return token;
}

Result<std::vector<AddedToken>> ReadAddedTokens(value json) {
  std::vector<AddedToken> tokens;
  simdjson::ondemand::array array;
  if (const auto error = json.get_array().get(array); error != simdjson::SUCCESS)
    return Wrong("added_tokens", error);
  for (auto entry : array) {
    simdjson::ondemand::object object;
    if (const auto error = entry.get_object().get(object); error != simdjson::SUCCESS) {
      return Wrong("added_tokens", error);
    }
    CMF_TRY(AddedToken token, ReadAddedToken(object, tokens.size()));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Result<Json> ReadComponent(value json, std::string_view key) {
  std::string_view text;
  if (const auto error = simdjson::to_json_string(json).get(text); error != simdjson::SUCCESS)
    return Wrong(key, error);
  return ParseJson(text, key);
}

class Reader {
 public:
  Result<TokenizerFile> Read(std::string_view json) {
    const simdjson::padded_string padded(json);
    simdjson::ondemand::parser parser;
    simdjson::ondemand::document document;
    if (const auto error = parser.iterate(padded).get(document); error != simdjson::SUCCESS)
      return Wrong("json", error);
    simdjson::ondemand::object object;
    if (const auto error = document.get_object().get(object); error != simdjson::SUCCESS)
      return Wrong("json", error);
    for (auto field : object) {
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key); error != simdjson::SUCCESS)
        return Wrong("json", error);
      value part;
      if (const auto error = field.value().get(part); error != simdjson::SUCCESS) return Wrong(key, error);
      if (!seen_.insert(std::string(key)).second) {
        return Fail(ErrorKind::kCorrupt, fmt::format("json: key '{}' occurs twice", key.substr(0, 100)));
      }
      CMF_CHECK(ReadPart(key, part, json.size()));
    }
    if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
      return Fail(ErrorKind::kCorrupt, "json: something follows the document");
    }
    if (!file_.model) return Fail(ErrorKind::kCorrupt, "model: missing");
    CMF_CHECK(FillIn());
    return std::move(file_);
  }

 private:
  Result<void> ReadPart(std::string_view key, value json, size_t document_bytes) {
    if (key == "model") {
      simdjson::ondemand::object object;
      if (const auto error = json.get_object().get(object); error != simdjson::SUCCESS)
        return Wrong(key, error);
      CMF_TRY(file_.model, ReadModel(object, document_bytes));
      return {};
    }
    if (key == "added_tokens") {
      CMF_TRY(file_.added_tokens, ReadAddedTokens(json));
      return {};
    }
    CMF_TRY(const Json component, ReadComponent(json, key));
    if (key == "normalizer") {
      CMF_TRY(file_.normalizer, NormalizerChain::FromJson(component));
    } else if (key == "pre_tokenizer") {
      CMF_TRY(file_.pre_tokenizer, PreTokenizerChain::FromJson(component));
    } else if (key == "post_processor") {
      CMF_TRY(file_.post_processor, PostProcessor::FromJson(component));
    } else if (key == "decoder") {
      CMF_TRY(file_.decoder, TokenDecoder::FromJson(component));
    } else if (key == "truncation") {
      CMF_TRY(file_.truncation, Truncation::FromJson(component));
    } else if (key == "padding") {
      CMF_TRY(file_.padding, Padding::FromJson(component));
    } else if (key == "version") {
      if (component != "1.0") {
        return Fail(ErrorKind::kUnsupported,
                    fmt::format("version: {}, \"1.0\" expected", DumpJson(component).substr(0, 100)));
      }
    } else {
      return Fail(ErrorKind::kCorrupt, fmt::format("json: unknown key '{}'", key.substr(0, 100)));
    }
    return {};
  }

  /// Components that are not there are like `null`.
  Result<void> FillIn() {
    if (!seen_.contains("decoder")) {
      CMF_TRY(file_.decoder, TokenDecoder::FromJson(Json()));
    }
    return {};
  }

  TokenizerFile file_;
  std::set<std::string> seen_;
};

}  // namespace

Result<TokenizerFile> ReadTokenizerFile(std::string_view json) { return Reader().Read(json); }

}  // namespace cmforge
