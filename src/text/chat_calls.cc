// Reading tool calls out of text.
#include "text/chat_calls.h"

#include <algorithm>
#include <optional>

namespace cmforge {
namespace {

using State = CallScan::State;
constexpr size_t npos = std::string_view::npos;
constexpr std::string_view kBlanks = " \t\r\n";
constexpr int kMaxDepth = 64;  // of values inside of a call

size_t SkipBlanks(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kBlanks, at), text.size());
}

std::string_view Trim(std::string_view text) {
  const size_t begin = SkipBlanks(text, 0);
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);  // npos + 1 is 0
}

bool TakePrefix(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Whether `text`, cut short, may still begin with `mark`.
bool MayBecome(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

CallScan Bad(size_t size) { return {State::kBad, size, {}}; }

// The text of the member `key` of a well-formed JSON object, as written; empty when there is none.
std::string_view MemberText(std::string_view object, std::string_view key) {
  size_t at = object.find('{') + 1;
  while (true) {
    at = SkipBlanks(object, at);
    if (at >= object.size() || object[at] != '"') return {};
    const size_t name = JsonValueSize(object.substr(at));
    const std::string_view spelled = object.substr(at + 1, name - 2);
    at = SkipBlanks(object, at + name) + 1;  // behind the colon
    const size_t value = JsonValueSize(object.substr(at));
    if (spelled == key) return Trim(object.substr(at, value));
    at = SkipBlanks(object, at + value) + 1;  // behind the comma
  }
}

// {"name":…, "arguments"|"parameters": {…}, "id":…}
std::optional<ToolCall> CallFromJson(std::string_view text) {
  const Result<Json> parsed = ParseJson(text, "tool call");
  if (!parsed || !parsed->is_object()) return std::nullopt;
  Json object = *parsed;
  if (object.contains("function") && object["function"].is_object()) {
    return CallFromJson(MemberText(text, "function"));
  }
  if (!object.contains("name") || !object["name"].is_string()) return std::nullopt;
  ToolCall call;
  call.name = object["name"].get<std::string>();
  if (object.contains("id") && object["id"].is_string()) call.id = object["id"].get<std::string>();
  for (const char* key : {"arguments", "parameters"}) {
    if (!object.contains(key)) continue;
    const Json& value = object[key];
    if (value.is_object()) {
      call.arguments = MemberText(text, key);
      return call;
    }
    if (value.is_null()) break;
    // Some write the arguments as a string of JSON.
    if (!value.is_string()) return std::nullopt;
    const std::string& inner = value.get_ref<const std::string&>();
    const Result<Json> arguments = ParseJson(inner, "arguments");
    if (!arguments || !arguments->is_object()) return std::nullopt;
    call.arguments = Trim(inner);
    return call;
  }
  call.arguments = "{}";
  return call;
}

// JSON calls one after the other until `end`.
CallScan ScanJsonCalls(std::string_view text, std::string_view end, bool is_end) {
  CallScan scan;
  const auto whole_bad = [&] {
    const size_t close = text.find(end);
    if (close != npos) return Bad(close + end.size());
    return is_end ? Bad(text.size()) : CallScan{};
  };
  size_t at = SkipBlanks(text, 0);
  while (true) {
    const size_t size = JsonValueSize(text.substr(at));
    if (size == npos) return whole_bad();
    if (size == 0) return is_end ? Bad(text.size()) : CallScan{};
    std::optional<ToolCall> call = CallFromJson(text.substr(at, size));
    if (!call) return whole_bad();
    scan.calls.push_back(std::move(*call));
    at = SkipBlanks(text, at + size);
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(end) || (is_end && rest.empty())) {
      scan.state = State::kCalls;
      scan.size = std::min(at + end.size(), text.size());
      return scan;
    }
    if (!is_end && MayBecome(rest, end)) return {};
    if (!rest.starts_with('{')) return whole_bad();
  }
}

// The schema of a parameter, or null.
Json ParameterSchema(const Json& tools, std::string_view function, std::string_view parameter) {
  if (!tools.is_array()) return nullptr;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const Json& f = tool.contains("function") ? tool["function"] : tool;
    if (!f.is_object() || f.value("name", Json()) != function || !f.contains("parameters")) continue;
    const Json properties =
        f["parameters"].is_object() ? f["parameters"].value("properties", Json()) : Json();
    if (properties.is_object()) return properties.value(std::string(parameter), Json());
  }
  return nullptr;
}

// A value that was written without quotes. A schema decides; without one, what reads as JSON other than a
// string is that.
Json BareValue(std::string_view text, const Json& schema) {
  const Json type = schema.is_object() ? schema.value("type", Json()) : Json();
  if (type == "string") return std::string(text);
  Result<Json> json = ParseJson(text, "value");
  if (json && !json->is_string()) return std::move(*json);
  return std::string(text);
}

std::string_view WithoutNewlines(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// <function=NAME> <parameter=KEY>VALUE</parameter> … </function>, any number of them.
bool FunctionsFromTags(std::string_view text, const Json& tools, std::vector<ToolCall>* calls) {
  for (text = Trim(text); !text.empty(); text = Trim(text)) {
    if (!TakePrefix(&text, "<function=")) return false;
    const size_t name_end = text.find('>');
    if (name_end == npos) return false;
    ToolCall call;
    call.name = Trim(text.substr(0, name_end));
    text = Trim(text.substr(name_end + 1));
    if (call.name.empty()) return false;
    Json arguments = Json::object();
    while (TakePrefix(&text, "<parameter=")) {
      const size_t key_end = text.find('>');
      if (key_end == npos) return false;
      const std::string key(Trim(text.substr(0, key_end)));
      text.remove_prefix(key_end + 1);
      // Models forget the closing tag now and then: the next opening one closes too.
      size_t end = text.find("</parameter>");
      size_t skip = std::string_view("</parameter>").size();
      if (end == npos) {
        end = std::min({text.find("\n<parameter="), text.find("\n</function>"), text.size()});
        skip = 0;
      }
      arguments[key] =
          BareValue(WithoutNewlines(text.substr(0, end)), ParameterSchema(tools, call.name, key));
      text = Trim(text.substr(end + skip));
    }
    if (!TakePrefix(&text, "</function>") && !text.empty()) return false;
    call.arguments = DumpJson(arguments);
    calls->push_back(std::move(call));
  }
  return !calls->empty();
}

// NAME <arg_key>…</arg_key><arg_value>…</arg_value> …
bool CallFromArgKeys(std::string_view text, const Json& tools, std::vector<ToolCall>* calls) {
  ToolCall call;
  const size_t first = text.find("<arg_key>");
  call.name = Trim(text.substr(0, first));
  if (call.name.empty() || call.name.find_first_of("<>{} \n") != npos) return false;
  text = first == npos ? std::string_view() : text.substr(first);
  Json arguments = Json::object();
  const auto tagged = [&text](std::string_view open,
                              std::string_view close) -> std::optional<std::string_view> {
    text = text.substr(SkipBlanks(text, 0));
    if (!TakePrefix(&text, open)) return std::nullopt;
    const size_t end = text.find(close);
    if (end == npos) return std::nullopt;
    const std::string_view inside = text.substr(0, end);
    text.remove_prefix(end + close.size());
    return inside;
  };
  while (!Trim(text).empty()) {
    const auto key = tagged("<arg_key>", "</arg_key>");
    const auto value = key ? tagged("<arg_value>", "</arg_value>") : std::nullopt;
    if (!value) return false;
    const std::string name(Trim(*key));
    arguments[name] = BareValue(*value, ParameterSchema(tools, call.name, name));
  }
  call.arguments = DumpJson(arguments);
  calls->push_back(std::move(call));
  return true;
}

CallScan ScanTagged(std::string_view text, std::string_view end, bool is_end, const Json& tools) {
  const size_t begin = SkipBlanks(text, 0);
  if (begin < text.size() && text[begin] == '{') return ScanJsonCalls(text, end, is_end);
  const size_t close = text.find(end);
  if (close == npos && !is_end) return {};
  const std::string_view inside = text.substr(0, close);
  CallScan scan;
  scan.size = close == npos ? text.size() : close + end.size();
  const bool has_functions = Trim(inside).starts_with("<function=");
  const bool is_good = has_functions ? FunctionsFromTags(inside, tools, &scan.calls)
                                     : CallFromArgKeys(inside, tools, &scan.calls);
  scan.state = is_good ? State::kCalls : State::kBad;
  if (!is_good) scan.calls.clear();
  return scan;
}

// NAME>{…}</function>, the opening being taken already.
CallScan ScanFunctionTag(std::string_view text, bool is_end) {
  constexpr std::string_view kEnd = "</function>";
  const size_t name_end = text.find('>');
  constexpr size_t kLongestName = 200;
  if (std::min(name_end, text.size()) > kLongestName) return Bad(kLongestName);
  if (name_end == npos) return is_end ? Bad(text.size()) : CallScan{};
  const size_t size = JsonValueSize(text.substr(name_end + 1));
  if (size == npos) return Bad(name_end + 1);
  if (size == 0) return is_end ? Bad(text.size()) : CallScan{};
  const std::string_view arguments = Trim(text.substr(name_end + 1, size));
  size_t at = SkipBlanks(text, name_end + 1 + size);
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(kEnd)) {
    at += kEnd.size();
  } else if (!is_end && MayBecome(rest, kEnd)) {
    return {};
  }
  const Result<Json> json = ParseJson(arguments, "arguments");
  if (!json || !json->is_object()) return Bad(at);
  return {State::kCalls, at, {{"", std::string(Trim(text.substr(0, name_end))), std::string(arguments)}}};
}

CallScan ScanLlamaJson(std::string_view text, bool is_end) {
  CallScan scan;
  size_t at = 0;
  size_t first = text.size();  // what is content when there is no call
  while (true) {
    const size_t begin = SkipBlanks(text, at);
    if (begin < text.size() && text[begin] != '{') break;
    const size_t size = JsonValueSize(text.substr(begin));
    if (size == 0 && !is_end) return {};
    if (scan.calls.empty() && size != 0) first = begin + (size == npos ? 1 : size);
    if (size == 0 || size == npos) break;
    std::optional<ToolCall> call = CallFromJson(text.substr(begin, size));
    if (!call) break;
    scan.calls.push_back(std::move(*call));
    scan.state = State::kCalls;
    scan.size = begin + size;
    at = SkipBlanks(text, scan.size);
    if (at == text.size()) {
      if (!is_end) return {};  // a ; with a further call may follow
      break;
    }
    if (text[at] != ';') break;
    ++at;
  }
  if (scan.calls.empty()) return Bad(first);
  return scan;
}

// NAME.call(key="value", …)
CallScan ScanLlamaPython(std::string_view text, bool is_end) {
  const size_t begin = SkipBlanks(text, 0);
  if (begin < text.size() && text[begin] == '{') return ScanLlamaJson(text, is_end);
  if (!is_end) return {};
  const size_t call_at = text.find(".call(");
  if (call_at == npos || !Trim(text).ends_with(')')) return Bad(text.size());
  ToolCall call;
  call.name = Trim(text.substr(0, call_at));
  std::string_view rest = Trim(text.substr(call_at + 6));
  rest.remove_suffix(1);
  Json arguments = Json::object();
  for (rest = Trim(rest); !rest.empty(); rest = Trim(rest)) {
    const size_t equals = rest.find('=');
    if (equals == npos) return Bad(text.size());
    const std::string key(Trim(rest.substr(0, equals)));
    rest.remove_prefix(equals + 1);
    const size_t size = JsonValueSize(rest);
    if (size == 0 || size == npos) return Bad(text.size());
    const Result<Json> value = ParseJson(rest.substr(0, size), "value");
    if (!value) return Bad(text.size());
    arguments[key] = *value;
    rest = Trim(rest.substr(size));
    TakePrefix(&rest, ",");
  }
  call.arguments = DumpJson(arguments);
  return {State::kCalls, text.size(), {std::move(call)}};
}

// Gemma's own notation of values: {key:<|"|>text<|"|>,n:5,list:[…]}.
class GemmaReader {
 public:
  explicit GemmaReader(std::string_view text) : text_(text) {}
  std::optional<Json> Object(int depth = 0) {
    if (depth > kMaxDepth || !Take("{")) return std::nullopt;
    Json object = Json::object();
    if (Take("}")) return object;
    do {
      std::optional<std::string> key = Quoted();
      if (!key) {
        const size_t end = text_.find_first_of(":{}[],");
        if (end == npos || text_[end] != ':') return std::nullopt;
        key = std::string(Trim(text_.substr(0, end)));
        text_.remove_prefix(end);
      }
      if (!Take(":")) return std::nullopt;
      std::optional<Json> value = Any(depth + 1);
      if (!value) return std::nullopt;
      object[*key] = std::move(*value);
    } while (Take(","));
    if (!Take("}")) return std::nullopt;
    return object;
  }
  [[nodiscard]] std::string_view rest() const { return text_; }

 private:
  bool Take(std::string_view sign) {
    text_.remove_prefix(SkipBlanks(text_, 0));
    return TakePrefix(&text_, sign);
  }
  std::optional<std::string> Quoted() {
    constexpr std::string_view kQuote = "<|\"|>";
    if (!Take(kQuote)) return std::nullopt;
    const size_t end = text_.find(kQuote);
    if (end == npos) return std::nullopt;
    std::string inside(text_.substr(0, end));
    text_.remove_prefix(end + kQuote.size());
    return inside;
  }
  std::optional<Json> Any(int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    text_.remove_prefix(SkipBlanks(text_, 0));
    if (std::optional<std::string> text = Quoted()) return Json(std::move(*text));
    if (text_.starts_with('{')) return Object(depth);
    if (Take("[")) {
      Json list = Json::array();
      if (Take("]")) return list;
      do {
        std::optional<Json> item = Any(depth + 1);
        if (!item) return std::nullopt;
        list.push_back(std::move(*item));
      } while (Take(","));
      if (!Take("]")) return std::nullopt;
      return list;
    }
    const size_t end = std::min(text_.find_first_of(",}]"), text_.size());
    const std::string_view word = Trim(text_.substr(0, end));
    if (word.empty()) return std::nullopt;
    text_.remove_prefix(end);
    if (word == "None" || word == "null") return Json(nullptr);
    return BareValue(word, nullptr);
  }

  std::string_view text_;
};

CallScan ScanGemma(std::string_view text, bool is_end) {
  constexpr std::string_view kEnd = "<tool_call|>";
  const size_t close = text.find(kEnd);
  if (close == npos && !is_end) return {};
  const size_t size = close == npos ? text.size() : close + kEnd.size();
  std::string_view inside = Trim(text.substr(0, close));
  const size_t brace = inside.find('{');
  if (!TakePrefix(&inside, "call:") || brace == npos) return Bad(size);
  ToolCall call;
  call.name = Trim(inside.substr(0, inside.find('{')));
  GemmaReader reader(inside.substr(inside.find('{')));
  const std::optional<Json> arguments = reader.Object();
  if (call.name.empty() || !arguments || !Trim(reader.rest()).empty()) return Bad(size);
  call.arguments = DumpJson(*arguments);
  return {State::kCalls, size, {std::move(call)}};
}

CallScan ScanMistral(std::string_view text, bool is_end) {
  const size_t begin = SkipBlanks(text, 0);
  if (begin == text.size()) return is_end ? Bad(text.size()) : CallScan{};
  if (text[begin] == '[') {
    const size_t size = JsonValueSize(text);
    if (size == npos) return Bad(begin + 1);
    if (size == 0) return is_end ? Bad(text.size()) : CallScan{};
    CallScan scan{State::kCalls, size, {}};
    size_t at = begin + 1;
    while (true) {
      at = SkipBlanks(text, at);
      if (text[at] == ']') break;
      if (text[at] == ',') {
        ++at;
        continue;
      }
      const size_t item = JsonValueSize(text.substr(at));
      std::optional<ToolCall> call = CallFromJson(text.substr(at, item));
      if (!call) return Bad(size);
      scan.calls.push_back(std::move(*call));
      at += item;
    }
    return scan.calls.empty() ? Bad(size) : scan;
  }
  // NAME[CALL_ID]id[ARGS]{…}, the id being optional, or NAME{…}
  const size_t brace = text.find('{');
  if (brace == npos) return is_end ? Bad(text.size()) : CallScan{};
  std::string_view head = text.substr(begin, brace - begin);
  const size_t size = JsonValueSize(text.substr(brace));
  if (size == npos) return Bad(brace);
  if (size == 0) return is_end ? Bad(text.size()) : CallScan{};
  ToolCall call;
  head = Trim(head);
  if (head.ends_with("[ARGS]")) head.remove_suffix(6);
  const size_t id = head.find("[CALL_ID]");
  if (id != npos) {
    call.id = Trim(head.substr(id + 9));
    head = head.substr(0, id);
  }
  call.name = Trim(head);
  call.arguments = Trim(text.substr(brace, size));
  const Result<Json> json = ParseJson(call.arguments, "arguments");
  if (call.name.empty() || call.name.find_first_of(kBlanks) != npos || !json) return Bad(brace + size);
  return {State::kCalls, brace + size, {std::move(call)}};
}

CallScan ScanDeepSeek(std::string_view text, bool is_end) {
  constexpr std::string_view kEnd = "<｜tool▁call▁end｜>";
  constexpr std::string_view kSep = "<｜tool▁sep｜>";
  const size_t close = text.find(kEnd);
  if (close == npos && !is_end) return {};
  const size_t size = close == npos ? text.size() : close + kEnd.size();
  const std::string_view inside = text.substr(0, close);
  const size_t sep = inside.find(kSep);
  if (sep == npos) return Bad(size);
  std::string_view name = Trim(inside.substr(0, sep));
  std::string_view arguments = Trim(inside.substr(sep + kSep.size()));
  // The older form: function<sep>NAME\n```json\n{…}\n```
  const size_t fence = arguments.find("```json");
  if (fence != npos) {
    name = Trim(arguments.substr(0, fence));
    arguments = Trim(arguments.substr(fence + 7));
    if (arguments.ends_with("```")) arguments = Trim(arguments.substr(0, arguments.size() - 3));
  }
  const Result<Json> json = ParseJson(arguments, "arguments");
  if (name.empty() || !json || !json->is_object()) return Bad(size);
  return {State::kCalls, size, {{"", std::string(name), std::string(arguments)}}};
}

// <｜DSML｜invoke name="N"> <｜DSML｜parameter name="K" string="true">V</｜DSML｜parameter> …
// </｜DSML｜invoke> …
CallScan ScanDsml(std::string_view text, bool is_end) {
  constexpr std::string_view kEnd = "</｜DSML｜function_calls>";
  const size_t close = text.find(kEnd);
  if (close == npos && !is_end) return {};
  CallScan scan{State::kCalls, close == npos ? text.size() : close + kEnd.size(), {}};
  std::string_view rest = Trim(text.substr(0, close));
  const auto quoted = [&rest](std::string_view before) -> std::optional<std::string> {
    if (!TakePrefix(&rest, before)) return std::nullopt;
    const size_t end = rest.find('"');
    if (end == npos) return std::nullopt;
    std::string inside(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    return inside;
  };
  while (!rest.empty()) {
    ToolCall call;
    const std::optional<std::string> name = quoted("<｜DSML｜invoke name=\"");
    if (!name || !TakePrefix(&rest, ">")) return Bad(scan.size);
    call.name = *name;
    Json arguments = Json::object();
    for (rest = Trim(rest); !rest.empty() && !TakePrefix(&rest, "</｜DSML｜invoke>"); rest = Trim(rest)) {
      const std::optional<std::string> key = quoted("<｜DSML｜parameter name=\"");
      const std::optional<std::string> is_string = quoted(" string=\"");
      const size_t end = rest.find("</｜DSML｜parameter>");
      if (!key || !is_string || end == npos || !TakePrefix(&rest, ">")) return Bad(scan.size);
      const std::string_view value = rest.substr(0, end - 1);
      Result<Json> json = ParseJson(value, "value");
      arguments[*key] = *is_string == "true" || !json ? Json(std::string(value)) : std::move(*json);
      rest.remove_prefix(value.size() + std::string_view("</｜DSML｜parameter>").size());
    }
    call.arguments = DumpJson(arguments);
    scan.calls.push_back(std::move(call));
    rest = Trim(rest);
  }
  return scan.calls.empty() ? Bad(scan.size) : scan;
}

}  // namespace

size_t JsonValueSize(std::string_view text) {
  const size_t begin = SkipBlanks(text, 0);
  if (begin == text.size()) return 0;
  const char first = text[begin];
  if (first != '{' && first != '[' && first != '"') {
    // A number or a word: up to what ends it, which has to be seen.
    const size_t end = text.find_first_of(" \t\r\n,:;}])", begin);
    return end == begin ? npos : end == npos ? text.size() : end;
  }
  int depth = 0;
  bool in_string = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth < 0) return npos;
    } else if (c == '<' || c == '(') {
      return npos;  // nothing JSON has outside of strings
    }
    if (!in_string && depth == 0) return i + 1;
  }
  return 0;
}

CallScan ScanCall(CallSyntax syntax, std::string_view text, bool is_end, const Json& tools) {
  switch (syntax) {
    case CallSyntax::kTagged:
      return ScanTagged(text, "</tool_call>", is_end, tools);
    case CallSyntax::kSeedTagged:
      return ScanTagged(text, "</seed:tool_call>", is_end, tools);
    case CallSyntax::kFunctionTag:
      return ScanFunctionTag(text, is_end);
    case CallSyntax::kLlamaJson:
      return ScanLlamaJson(text, is_end);
    case CallSyntax::kLlamaPython:
      return ScanLlamaPython(text, is_end);
    case CallSyntax::kGemma:
      return ScanGemma(text, is_end);
    case CallSyntax::kMistral:
      return ScanMistral(text, is_end);
    case CallSyntax::kDeepSeek:
      return ScanDeepSeek(text, is_end);
    case CallSyntax::kDeepSeekDsml:
      return ScanDsml(text, is_end);
  }
  return {};
}

}  // namespace cmforge
