// Typed reading of JSON objects.
#include "cmf/json_fields.h"

#include <cmath>

namespace cmforge::cmf {
namespace {

// Integers may be written as 64.0 by some writers.
std::optional<int64_t> AsInteger(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::fabs(number) > 0x1p53 || number != std::floor(number)) return std::nullopt;  // also NaN
  return static_cast<int64_t>(number);
}

}  // namespace

JsonFields::JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) error_ = fmt::format("{}: not a JSON object", where_);
}

const Json* JsonFields::Find(std::string_view key) {
  const auto [name, is_new] = asked_.emplace(key);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(*name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void JsonFields::Error(std::string_view key, std::string_view fact) {
  if (error_.empty()) error_ = fmt::format("{}: key '{}': {}", where_, key, fact);
}

void JsonFields::Read(std::string_view key, std::string& field) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_string()) return Error(key, "must be text");
  field = value->get<std::string>();
}

void JsonFields::Read(std::string_view key, bool& field) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Error(key, "must be true or false");
  field = value->get<bool>();
}

void JsonFields::Read(std::string_view key, double& field) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_number() || !std::isfinite(value->get<double>())) return Error(key, "must be a number");
  field = value->get<double>();
}

void JsonFields::Read(std::string_view key, int64_t& field, int64_t min, int64_t max) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  const auto number = AsInteger(*value);
  if (!number || *number < min || *number > max)
    return Error(key, fmt::format("must be an integer from {} to {}", min, max));
  field = *number;
}

void JsonFields::Read(std::string_view key, std::vector<int64_t>& field) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_array()) return Error(key, "must be a list of integers");
  std::vector<int64_t> numbers;
  for (const Json& item : *value) {
    const auto number = AsInteger(item);
    if (!number || *number < 0 || *number > kMaxCount) return Error(key, "must be a list of integers");
    numbers.push_back(*number);
  }
  field = std::move(numbers);
}

void JsonFields::Read(std::string_view key, std::vector<double>& field) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_array()) return Error(key, "must be a list of numbers");
  std::vector<double> numbers;
  for (const Json& item : *value) {
    if (!item.is_number() || !std::isfinite(item.get<double>()))
      return Error(key, "must be a list of numbers");
    numbers.push_back(item.get<double>());
  }
  field = std::move(numbers);
}

void JsonFields::Require(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (!Present(key)) Error(key, "is missing");
  }
}

Json JsonFields::Rest() const {
  Json rest = Json::object();
  if (!object_.is_object()) return rest;
  for (const auto& [key, value] : object_.items()) {
    if (!asked_.contains(key)) rest[key] = value;
  }
  return rest;
}

Result<void> JsonFields::status() const {
  if (!error_.empty()) return Fail(ErrorKind::kCorrupt, error_, "Parse");
  return {};
}

}  // namespace cmforge::cmf
