// Typed reads of config keys.
#include "checkpoint/config_fields.h"

#include <cmath>

#include "checkpoint/messages.h"

namespace cmforge {
namespace {

constexpr std::string_view kRemedy = "correct it, or fetch the file again";

/// A value in a message: short, on one line.
std::string ShortValue(const Json& value) { return Shown(DumpJson(value).substr(0, 60)); }

const Json* Lookup(const Json* object, std::string_view key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

}  // namespace

const Json* ConfigFields::Raw(std::string_view key) const { return Lookup(object_, key); }

const Json* ConfigFields::Find(std::string_view key) const {
  const Json* value = Raw(key);
  return value != nullptr && !value->is_null() ? value : Lookup(defaults_, key);
}

const Json* ConfigFields::FindUnlessNull(std::string_view key) const {
  const Json* value = Raw(key);
  if (value == nullptr) return Lookup(defaults_, key);
  return value->is_null() ? nullptr : value;
}

tl::unexpected<Error> ConfigFields::Bad(std::string_view key, std::string_view message) const {
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}: {}: {}", what_, Shown(key), message, kRemedy));
}
tl::unexpected<Error> ConfigFields::Missing(std::string_view key) const {
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: key '{}' is missing: {}", what_, key, kRemedy));
}
tl::unexpected<Error> ConfigFields::Unsupported(std::string_view key, std::string_view message) const {
  return Fail(ErrorKind::kUnsupported,
              fmt::format("{}: {}: {}: correct it, or take another model", what_, Shown(key), message));
}

Result<int64_t> ConfigFields::AsInt(std::string_view key, const Json& value, int64_t low,
                                    int64_t high) const {
  // 4096.0 is a whole number too: some writers make every number a float.
  double number = 0;
  if (value.is_number()) number = value.get<double>();
  if (!value.is_number() || number != std::floor(number)) {
    return Bad(key, fmt::format("{} is not a whole number", ShortValue(value)));
  }
  if (number < static_cast<double>(low) || number > static_cast<double>(high)) {
    return Bad(key, fmt::format("{} is not between {} and {}", ShortValue(value), low, high));
  }
  return static_cast<int64_t>(number);
}

Result<double> ConfigFields::AsNumber(std::string_view key, const Json& value) const {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    return Bad(key, fmt::format("{} is not a number", ShortValue(value)));
  }
  return value.get<double>();
}

Result<std::optional<int64_t>> ConfigFields::Int(std::string_view key, int64_t low, int64_t high) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  CMF_TRY(const int64_t number, AsInt(key, *value, low, high));
  return number;
}

Result<std::optional<double>> ConfigFields::Number(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  CMF_TRY(const double number, AsNumber(key, *value));
  return number;
}

Result<std::optional<bool>> ConfigFields::Bool(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return Bad(key, fmt::format("{} is not true or false", ShortValue(*value)));
  return value->get<bool>();
}

Result<std::optional<std::string>> ConfigFields::Text(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Bad(key, fmt::format("{} is not a string", ShortValue(*value)));
  return value->get<std::string>();
}

Result<int64_t> ConfigFields::NeededInt(std::string_view key, int64_t low, int64_t high) const {
  CMF_TRY(const auto value, Int(key, low, high));
  if (!value) return Missing(key);
  return *value;
}

Result<int64_t> ConfigFields::IntOr(std::string_view key, int64_t fallback, int64_t low) const {
  CMF_TRY(const auto value, Int(key, low));
  return value.value_or(fallback);
}

Result<double> ConfigFields::NumberOr(std::string_view key, double fallback) const {
  CMF_TRY(const auto value, Number(key));
  return value.value_or(fallback);
}

Result<double> ConfigFields::PositiveOr(std::string_view key, double fallback) const {
  CMF_TRY(const double value, NumberOr(key, fallback));
  if (!(value > 0)) return Bad(key, fmt::format("{} is not above 0", value));
  return value;
}

Result<bool> ConfigFields::BoolOr(std::string_view key, bool fallback) const {
  CMF_TRY(const auto value, Bool(key));
  return value.value_or(fallback);
}

}  // namespace cmforge
