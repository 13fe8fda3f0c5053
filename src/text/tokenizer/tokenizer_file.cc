// Reading tokenizer.json. The bulk (vocabulary, merges, added tokens) is read in one pass over the document,
// the small components through our JSON values.
#include "text/tokenizer/tokenizer_file.h"

#include <simdjson.h>

#include <set>

#include "base/json.h"
#include "text/tokenizer/json_cursor.h"
#include "text/tokenizer/model_reader.h"

namespace cmforge {

namespace {

Result<AddedToken> ReadAddedToken(JsonCursor& cursor) {
  AddedToken token;
  std::set<std::string> seen;
  CMF_CHECK(cursor.EnterObject());
  while (true) {
    std::string_view key;
    CMF_TRY(const bool more, cursor.NextKey(key));
    if (!more) break;
    seen.emplace(key);
    if (key == "id") {  // not used, but must be a number
      CMF_TRY([[maybe_unused]] const uint64_t id, cursor.Unsigned());
    } else if (key == "content") {
      CMF_TRY(token.content, cursor.String());
    } else if (key == "single_word") {
      CMF_TRY(token.single_word, cursor.Bool());
    } else if (key == "lstrip") {
      CMF_TRY(token.lstrip, cursor.Bool());
    } else if (key == "rstrip") {
      CMF_TRY(token.rstrip, cursor.Bool());
    } else if (key == "normalized") {
      CMF_TRY(token.normalized, cursor.Bool());
    } else if (key == "special") {
      CMF_TRY(token.special, cursor.Bool());
    } else {
      CMF_TRY([[maybe_unused]] const std::string_view skipped, cursor.Skip());
    }
  }
  for (const char* key : {"id", "content"}) {
    if (!seen.contains(key)) return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is missing", key));
  }
  // The reference library demands the flags too, but writers of .cmf files leave out those that are false.
  if (!seen.contains("normalized")) token.normalized = !token.special;
  return token;
}

Result<std::vector<AddedToken>> ReadAddedTokens(JsonCursor& cursor) {
  std::vector<AddedToken> tokens;
  CMF_CHECK(cursor.EnterArray());
  while (true) {
    CMF_TRY(const bool more, cursor.NextElement());
    if (!more) return tokens;
    auto token = ReadAddedToken(cursor);
    if (!token) return Fail(std::move(token.error()).In(fmt::format("entry {}", tokens.size())));
    tokens.push_back(std::move(*token));
  }
}

class Reader {
 public:
  Result<TokenizerFile> Read(std::string_view json) {
    if (!simdjson::validate_utf8(json.data(), json.size()))
      return Fail(ErrorKind::kCorrupt, "json: not UTF-8");
    JsonCursor cursor(json);
    if (auto done = ReadParts(cursor, json.size()); !done) return Fail(std::move(done.error()));
    if (!file_.model) return Fail(ErrorKind::kCorrupt, "model: missing");
    if (!seen_.contains("decoder")) {  // as if it were null
      CMF_TRY(file_.decoder, TokenDecoder::FromJson(Json()));
    }
    return std::move(file_);
  }

 private:
  Result<void> ReadParts(JsonCursor& cursor, size_t document_bytes) {
    if (auto done = cursor.EnterObject(); !done) return Fail(std::move(done.error()).In("json"));
    while (true) {
      std::string_view key;
      auto more = cursor.NextKey(key);
      if (!more) return Fail(std::move(more.error()).In("json"));
      if (!*more) break;
      const std::string name(key);
      if (!seen_.insert(name).second) {
        return Fail(ErrorKind::kCorrupt, fmt::format("json: key '{}' occurs twice", name.substr(0, 100)));
      }
      CMF_CHECK(ReadPart(name, cursor, document_bytes));
    }
    if (auto done = cursor.End(); !done) return Fail(std::move(done.error()).In("json"));
    return {};
  }

  Result<void> ReadPart(const std::string& key, JsonCursor& cursor, size_t document_bytes) {
    if (key == "model") {
      auto model = ReadModel(cursor, document_bytes);
      if (!model) return Fail(std::move(model.error()).In(key));
      file_.model = std::move(*model);
      return {};
    }
    if (key == "added_tokens") {
      auto tokens = ReadAddedTokens(cursor);
      if (!tokens) return Fail(std::move(tokens.error()).In(key));
      file_.added_tokens = std::move(*tokens);
      return {};
    }
    auto text = cursor.Skip();
    if (!text) return Fail(std::move(text.error()).In(key.substr(0, 100)));
    return ReadComponent(key, *text);
  }

  Result<void> ReadComponent(const std::string& key, std::string_view text) {
    CMF_TRY(const Json component, ParseJson(text, key.substr(0, 100)));
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

  TokenizerFile file_;
  std::set<std::string> seen_;
};

}  // namespace

Result<TokenizerFile> ReadTokenizerFile(std::string_view json) { return Reader().Read(json); }

}  // namespace cmforge
