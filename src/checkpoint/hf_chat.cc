// ReadChat and AddedTokens.
#include "checkpoint/hf_chat.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "checkpoint/messages.h"

namespace cmforge {
namespace {

const Json* Member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

class ChatReader {
 public:
  ChatReader(const HfConfigFiles& files, HfConfig& result) : files_(files), result_(result) {
    generation_ = ParseSide("generation_config.json", files.generation_config);
    tokenizer_ = ParseSide("tokenizer_config.json", files.tokenizer_config);
    special_ = ParseSide("special_tokens_map.json", files.special_tokens_map);
  }

  void ReadTemplate() {
    std::string& text = result_.chat.chat_template;
    if (files_.chat_template && files_.chat_template->find_first_not_of(" \t\r\n") != std::string::npos) {
      text = *files_.chat_template;
      return;
    }
    text = TemplateOf("tokenizer_config.json", tokenizer_);
    if (text.empty())
      text = TemplateOf("chat_template.json", ParseSide("chat_template.json", files_.chat_template_json));
  }

  void ReadIds(const Json& outer, const Json& text) {
    AddEos("generation_config.json", generation_);
    AddEos("config.json", outer);
    if (&text != &outer) AddEos("config.json: text_config", text);
    if (const auto id = IdOfToken("eos_token")) AddEosId(*id);
    result_.chat.bos_token_id = OneId("bos_token_id", "bos_token", outer, text);
    result_.chat.pad_token_id = OneId("pad_token_id", "pad_token", outer, text);
  }

  void ReadSampling() {
    RecommendedSampling& sampling = result_.sampling;
    if (const Json* value = Member(generation_, "do_sample"); value != nullptr) {
      if (value->is_boolean()) {
        sampling.do_sample = value->get<bool>();
      } else {
        Ignored("generation_config.json", "do_sample", *value);
      }
    }
    sampling.temperature = Setting("temperature", 0, 1e6);
    sampling.top_p = Setting("top_p", 0, 1);
    sampling.min_p = Setting("min_p", 0, 1);
    sampling.typical_p = Setting("typical_p", 0, 1);
    sampling.repetition_penalty = Setting("repetition_penalty", 1e-6, 1e6);
    if (const auto k = Setting("top_k", 0, std::numeric_limits<int32_t>::max()); k && *k == std::floor(*k)) {
      sampling.top_k = static_cast<int64_t>(*k);
    }
  }

 private:
  void Warn(std::string_view file, std::string_view message) {
    result_.warnings.push_back(
        fmt::format("{}{}{}: {}", files_.folder, files_.folder.empty() ? "" : "/", file, message));
  }
  void Ignored(std::string_view file, std::string_view key, const Json& value) {
    Warn(file, fmt::format("{}: {} makes no sense here: ignored", key, Shown(DumpJson(value).substr(0, 60))));
  }

  /// An empty object where the file is absent or broken.
  Json ParseSide(std::string_view name, const std::optional<std::string>& text) {
    if (!text) return Json::object();
    auto json = ParseJson(*text, name);
    if (json && json->is_object()) return std::move(*json);
    std::string reason = json ? "not an object" : json.error().message;
    if (!json) reason.erase(0, name.size() + 2);  // Warn names the file
    Warn(name, reason + ": ignored");
    return Json::object();
  }

  std::string TemplateOf(std::string_view file, const Json& config) {
    const Json* value = Member(config, "chat_template");
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    if (!value->is_array()) {
      Ignored(file, "chat_template", *value);
      return {};
    }
    // A list of named templates; the plain one serves.
    const Json* chosen = nullptr;
    for (const Json& entry : *value) {
      const Json* name = Member(entry, "name");
      const Json* body = Member(entry, "template");
      if (name == nullptr || body == nullptr || !body->is_string()) continue;
      if (chosen == nullptr || *name == "default") chosen = body;
    }
    return chosen != nullptr ? chosen->get<std::string>() : std::string();
  }

  std::optional<TokenId> AsId(std::string_view file, std::string_view key, const Json& value) {
    if (value.is_number_integer()) {
      const double number = value.get<double>();
      if (number >= 0 && number <= std::numeric_limits<TokenId>::max()) return value.get<TokenId>();
      if (number == -1) return std::nullopt;  // some writers' "none"
    }
    Ignored(file, key, value);
    return std::nullopt;
  }

  void AddEosId(TokenId id) {
    auto& ids = result_.chat.eos_token_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }

  void AddEos(std::string_view file, const Json& config) {
    const Json* value = Member(config, "eos_token_id");
    if (value == nullptr) return;
    const auto add = [&](const Json& one) {
      if (const auto id = AsId(file, "eos_token_id", one)) AddEosId(*id);
    };
    if (value->is_array()) {
      for (const Json& one : *value) add(one);
    } else {
      add(*value);
    }
  }

  std::optional<TokenId> OneId(std::string_view key, std::string_view token, const Json& outer,
                               const Json& text) {
    const std::pair<std::string_view, const Json*> places[] = {{"config.json", &outer},
                                                               {"config.json: text_config", &text},
                                                               {"generation_config.json", &generation_}};
    for (const auto& [file, config] : places) {
      if (config == &outer && file != places[0].first) continue;  // no text_config: already asked
      const Json* value = Member(*config, key);
      if (value == nullptr) continue;
      if (const auto id = AsId(file, key, *value)) return id;
    }
    return IdOfToken(token);
  }

  /// The id of the token that tokenizer_config or special_tokens_map give this role.
  std::optional<TokenId> IdOfToken(std::string_view role) {
    for (const Json* config : {&tokenizer_, &special_}) {
      const Json* value = Member(*config, role);
      if (value != nullptr && value->is_object()) value = Member(*value, "content");
      if (value == nullptr || !value->is_string()) continue;
      const auto token = value->get<std::string>();
      if (const auto id = IdOf(token)) return id;
      if (!files_.tokenizer_json.empty()) {
        Warn("tokenizer_config.json",
             fmt::format("{} '{}' is not an added token: ignored", role, Shown(token)));
      }
      return std::nullopt;
    }
    return std::nullopt;
  }

  std::optional<TokenId> IdOf(const std::string& token) {
    if (!has_added_) {
      has_added_ = true;
      added_ = AddedTokens(files_.tokenizer_json);
      if (const Json* decoder = Member(tokenizer_, "added_tokens_decoder"); decoder && decoder->is_object()) {
        for (const auto& [key, entry] : decoder->items()) {
          TokenId id = 0;
          const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
          const Json* content = Member(entry, "content");
          if (error != std::errc() || end != key.data() + key.size() || id < 0) continue;
          if (content != nullptr && content->is_string())
            added_.emplace_back(content->get<std::string>(), id);
        }
      }
    }
    for (const auto& [content, id] : added_) {
      if (content == token) return id;
    }
    return std::nullopt;
  }

  std::optional<double> Setting(std::string_view key, double low, double high) {
    const Json* value = Member(generation_, key);
    if (value == nullptr) return std::nullopt;
    if (value->is_number() && value->get<double>() >= low && value->get<double>() <= high)
      return value->get<double>();
    Ignored("generation_config.json", key, *value);
    return std::nullopt;
  }

  const HfConfigFiles& files_;
  HfConfig& result_;
  Json generation_, tokenizer_, special_;
  bool has_added_ = false;
  std::vector<std::pair<std::string, TokenId>> added_;
};

/// The array behind the top-level key "added_tokens", or nothing. Walks strings and brackets only, and stops
/// there: the vocabulary of megabytes usually comes later.
std::string_view AddedTokensArray(std::string_view text) {
  constexpr std::string_view kKey = "\"added_tokens\"";
  int depth = 0;
  size_t begin = 0;  // of the array, once found
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const size_t start = i;
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
      if (depth != 1 || i >= text.size() || text.substr(start, i + 1 - start) != kKey) continue;
      const size_t colon = text.find_first_not_of(" \t\r\n", i + 1);
      if (colon == text.npos || text[colon] != ':') continue;
      const size_t open = text.find_first_not_of(" \t\r\n", colon + 1);
      if (open == text.npos || text[open] != '[') return {};
      begin = open;
      i = open;
      depth = 2;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
      if (begin != 0 && depth == 1) return text.substr(begin, i + 1 - begin);
      if (depth < 1) return {};
    }
  }
  return {};
}

}  // namespace

std::vector<std::pair<std::string, TokenId>> AddedTokens(std::string_view tokenizer_json) {
  std::vector<std::pair<std::string, TokenId>> tokens;
  const std::string_view text = AddedTokensArray(tokenizer_json);
  if (text.empty()) return tokens;
  const auto array = ParseJson(text, "added_tokens");
  if (!array || !array->is_array()) return tokens;
  for (const Json& entry : *array) {
    const Json* content = Member(entry, "content");
    const Json* id = Member(entry, "id");
    if (content == nullptr || !content->is_string() || id == nullptr || !id->is_number_integer()) continue;
    const double number = id->get<double>();
    if (number < 0 || number > std::numeric_limits<TokenId>::max()) continue;
    tokens.emplace_back(content->get<std::string>(), id->get<TokenId>());
  }
  return tokens;
}

void ReadChat(const HfConfigFiles& files, const Json& outer, const Json& text, HfConfig& result) {
  ChatReader reader(files, result);
  reader.ReadTemplate();
  reader.ReadIds(outer, text);
  reader.ReadSampling();
}

}  // namespace cmforge
