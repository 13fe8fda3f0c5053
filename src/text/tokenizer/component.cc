// Fields of components.
#include "text/tokenizer/component.h"

#include "text/tokenizer/utf8.h"

namespace cmforge {

Result<Component> Component::Of(const Json& json, std::string_view part) {
  Component component;
  component.json_ = &json;
  component.part_ = part;
  if (!json.is_object()) return Fail(ErrorKind::kCorrupt, fmt::format("{}: not an object", part));
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: without a 'type'", part));
  }
  component.type_ = type->get_ref<const std::string&>();
  return component;
}

const Json* Component::Find(std::string_view key) const {
  const auto found = json_->find(key);
  return found == json_->end() ? nullptr : &*found;
}

tl::unexpected<Error> Component::Wrong(std::string_view fact) const {
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}", name(), fact));
}

tl::unexpected<Error> Component::UnknownType() const {
  return Fail(ErrorKind::kUnsupported, fmt::format("{}: unknown type '{}'", part_, type_.substr(0, 100)));
}

tl::unexpected<Error> Component::WrongField(std::string_view key, std::string_view wanted) const {
  return Wrong(fmt::format("'{}' {}, {} expected", key, Find(key) ? "of another kind" : "missing", wanted));
}

Result<bool> Component::Bool(std::string_view key) const {
  const Json* value = Find(key);
  if (!value || !value->is_boolean()) return WrongField(key, "true or false");
  return value->get<bool>();
}

Result<bool> Component::Bool(std::string_view key, bool otherwise) const {
  const Json* value = Find(key);
  if (!value || value->is_null()) return otherwise;
  return Bool(key);
}

Result<std::string> Component::String(std::string_view key) const {
  const Json* value = Find(key);
  if (!value || !value->is_string()) return WrongField(key, "a string");
  return value->get<std::string>();
}

Result<uint64_t> Component::Count(std::string_view key) const {
  const Json* value = Find(key);
  if (!value || !value->is_number_unsigned()) return WrongField(key, "a number of 0 or more");
  return value->get<uint64_t>();
}

Result<uint32_t> Component::Character(std::string_view key) const {
  CMF_TRY(const std::string text, String(key));
  if (text.empty() || static_cast<size_t>(utf8::LengthOf(text[0])) != text.size()) {
    return WrongField(key, "one character");
  }
  return utf8::Decode(text.data());
}

Result<const Json*> Component::Array(std::string_view key) const {
  const Json* value = Find(key);
  if (!value || !value->is_array()) return WrongField(key, "a list");
  return value;
}

Result<Pattern> Component::PatternField(std::string_view key) const {
  const Json* value = Find(key);
  if (value && value->is_object() && value->size() == 1 && value->begin()->is_string()) {
    const auto text = value->begin()->get<std::string>();
    if (value->begin().key() == "String") return Pattern::Literal(text);
    if (value->begin().key() == "Regex") {
      auto pattern = Pattern::Compile(text);
      if (!pattern) return Fail(std::move(pattern.error()).In(name()));
      return pattern;
    }
  }
  return WrongField(key, "{\"String\": …} or {\"Regex\": …}");
}

std::string_view Component::RegexText(std::string_view key) const {
  const Json* value = Find(key);
  if (!value || !value->is_object()) return {};
  const auto regex = value->find("Regex");
  if (regex == value->end() || !regex->is_string()) return {};
  return regex->get_ref<const std::string&>();
}

}  // namespace cmforge
