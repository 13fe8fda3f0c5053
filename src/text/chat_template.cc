// Choosing and rendering chat templates.
#include "text/chat_template.h"

#include <algorithm>

namespace cmforge {
namespace {

// What models without a template get. A list of parts shows its texts.
constexpr std::string_view kChatMl =
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' ~ message.role ~ '\\n' }}"
    "{%- if message.content is string %}{{ message.content }}"
    "{%- elif message.content %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif -%}"
    "{{ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif "
    "-%}"
    "{%- endif -%}";

std::string_view TypeOf(const Json& json) { return json.type_name(); }

Result<ChatTemplateText> FromList(const Json& list, bool with_tools, std::string_view name) {
  const auto find = [&list](std::string_view wanted) -> const Json* {
    for (const Json& entry : list) {
      if (entry.is_object() && entry.value("name", Json()) == wanted) return &entry;
    }
    return nullptr;
  };
  std::string chosen(name);
  const Json* entry = nullptr;
  if (!name.empty()) {
    entry = find(name);
  } else {
    chosen = "tool_use";
    entry = with_tools ? find(chosen) : nullptr;
    if (entry == nullptr) {
      chosen = "default";
      entry = find(chosen);
    }
  }
  if (entry == nullptr) {
    std::string names;
    for (const Json& e : list) {
      if (e.is_object() && e.contains("name") && e["name"].is_string())
        names += " " + e["name"].get<std::string>();
    }
    return Fail(ErrorKind::kNotFound,
                fmt::format("tokenizer_config.json: chat_template '{}' is not among:{}", chosen, names));
  }
  const Json text = entry->value("template", Json());
  if (!text.is_string()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("tokenizer_config.json: chat_template '{}': its template is {}, not a string",
                            chosen, TypeOf(text)));
  }
  return ChatTemplateText{text.get<std::string>(),
                          fmt::format("tokenizer_config.json: chat_template '{}'", chosen)};
}

void CollectTokens(const Json& config, std::vector<std::pair<std::string, std::string>>* tokens) {
  if (!config.is_object()) return;
  for (auto it = config.begin(); it != config.end(); ++it) {
    if (!it.key().ends_with("_token")) continue;
    const Json& value = it.value();
    const Json& text = value.is_object() && value.contains("content") ? value["content"] : value;
    if (!text.is_string()) continue;
    const bool is_known =
        std::any_of(tokens->begin(), tokens->end(), [&](const auto& t) { return t.first == it.key(); });
    if (!is_known) tokens->emplace_back(it.key(), text.get<std::string>());
  }
}

void CollectStrings(const Json& json, std::vector<const Json*>* strings) {
  if (json.is_string()) strings->push_back(&json);
  if (json.is_structured()) {
    for (const Json& item : json) CollectStrings(item, strings);
  }
}

// The strings that came from outside the conversation's owner: whatever users and tools said.
std::vector<const Json*> ContentStrings(const Json& messages) {
  std::vector<const Json*> strings;
  for (const Json& message : messages) {
    if (!message.is_object() || !message.contains("content")) continue;
    const Json role = message.value("role", Json());
    const bool is_own = role == "system" || role == "developer" || role == "assistant" || role == "model";
    if (!is_own) CollectStrings(message["content"], &strings);
  }
  return strings;
}

}  // namespace

Result<std::optional<ChatTemplateText>> ChooseChatTemplate(std::optional<std::string_view> jinja_file,
                                                           const Json& tokenizer_config, bool with_tools,
                                                           std::string_view name) {
  if (jinja_file) return ChatTemplateText{std::string(*jinja_file), "chat_template.jinja"};
  if (!tokenizer_config.is_object() || !tokenizer_config.contains("chat_template")) return std::nullopt;
  const Json& value = tokenizer_config["chat_template"];
  if (value.is_null()) return std::nullopt;
  if (value.is_string())
    return ChatTemplateText{value.get<std::string>(), "tokenizer_config.json: chat_template"};
  if (value.is_array()) {
    CMF_TRY(ChatTemplateText text, FromList(value, with_tools, name));
    return text;
  }
  return Fail(
      ErrorKind::kCorrupt,
      fmt::format("tokenizer_config.json: chat_template is {}, not a string or a list", TypeOf(value)));
}

std::vector<std::pair<std::string, std::string>> SpecialTokenVariables(const Json& tokenizer_config,
                                                                       const Json& special_tokens_map) {
  std::vector<std::pair<std::string, std::string>> tokens;
  CollectTokens(tokenizer_config, &tokens);
  CollectTokens(special_tokens_map, &tokens);
  return tokens;
}

Result<ChatRequest> ParseChatRequest(const Json& json) {
  ChatRequest request;
  if (json.is_array()) {
    request.messages = json;
    return request;
  }
  if (!json.is_object() || !json.contains("messages")) {
    return Fail(ErrorKind::kUsage, "messages: missing: give a list of messages or an object with 'messages'");
  }
  for (auto it = json.begin(); it != json.end(); ++it) {
    const std::string& key = it.key();
    const Json& value = it.value();
    if (key == "messages") {
      if (!value.is_array())
        return Fail(ErrorKind::kUsage, fmt::format("messages: {}, not a list", TypeOf(value)));
      request.messages = value;
    } else if (key == "tools" || key == "documents") {
      if (!value.is_array() && !value.is_null()) {
        return Fail(ErrorKind::kUsage, fmt::format("{}: {}, not a list", key, TypeOf(value)));
      }
      (key == "tools" ? request.tools : request.documents) = value;
    } else if (key == "add_generation_prompt") {
      if (!value.is_boolean()) {
        return Fail(ErrorKind::kUsage,
                    fmt::format("add_generation_prompt: {}, not true or false", TypeOf(value)));
      }
      request.add_generation_prompt = value.get<bool>();
    } else {
      request.variables[key] = value;
    }
  }
  return request;
}

Result<ChatTemplate> ChatTemplate::Parse(const ChatTemplateText& text, Tokens special_tokens) {
  CMF_TRY(jinja::Template parsed, jinja::Template::Parse(text.source, text.origin));
  return ChatTemplate(std::move(parsed), text, std::move(special_tokens));
}

ChatTemplate ChatTemplate::ChatMl() {
  ChatTemplate chat(jinja::Template::Parse(kChatMl, "ChatML").value(), {std::string(kChatMl), "ChatML"}, {});
  chat.is_fallback_ = true;
  return chat;
}

Json ChatTemplate::Context(const ChatRequest& request) const {
  Json context = Json::object();
  for (const auto& [name, token] : tokens_) context[name] = token;
  context["messages"] = request.messages;
  context["tools"] = request.tools;
  context["documents"] = request.documents;
  context["add_generation_prompt"] = request.add_generation_prompt;
  for (auto it = request.variables.begin(); it != request.variables.end(); ++it)
    context[it.key()] = it.value();
  return context;
}

Result<std::string> ChatTemplate::Render(const ChatRequest& request) const {
  return parsed_.Render(Context(request), {.now = request.now});
}

Result<std::vector<ChatSegment>> ChatTemplate::RenderSegments(const ChatRequest& request) const {
  const Json context = Context(request);
  CMF_TRY(const jinja::Rendering rendering,
          parsed_.RenderTraced(context, {.now = request.now, .traced = ContentStrings(context["messages"])}));
  std::vector<ChatSegment> segments;
  const std::string_view text = rendering.text;
  uint64_t at = 0;
  for (const jinja::Rendering::Range& range : rendering.traced) {
    if (range.begin > at) segments.push_back({std::string(text.substr(at, range.begin - at)), false});
    segments.push_back({std::string(text.substr(range.begin, range.end - range.begin)), true});
    at = range.end;
  }
  if (at < text.size()) segments.push_back({std::string(text.substr(at)), false});
  return segments;
}

}  // namespace cmforge
