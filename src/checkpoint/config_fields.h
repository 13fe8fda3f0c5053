// Typed reads of the keys of one JSON object from a stranger's file. A value of the wrong kind or size is an
// error that names file and key; null counts as absent, then the family's defaults answer.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace cmforge {

/// No count in a real config comes near this; products of two of them still fit 64 bits.
inline constexpr int64_t kMaxConfigCount = int64_t{1} << 31;

class ConfigFields {
 public:
  /// `what` names file and object in messages; both objects must outlive this. `defaults` may be null.
  ConfigFields(std::string what, const Json& object, const Json* defaults = nullptr)
      : what_(std::move(what)), object_(&object), defaults_(defaults) {}

  [[nodiscard]] const std::string& what() const { return what_; }

  /// The value as written, null included; nullptr when the key is not there. No defaults.
  [[nodiscard]] const Json* Raw(std::string_view key) const;
  /// The value unless it is null, else the default's, else nullptr.
  [[nodiscard]] const Json* Find(std::string_view key) const;
  /// As Find, but an explicit null says "none" and hides the default.
  [[nodiscard]] const Json* FindUnlessNull(std::string_view key) const;

  Result<std::optional<int64_t>> Int(std::string_view key, int64_t low = 0,
                                     int64_t high = kMaxConfigCount) const;
  Result<std::optional<double>> Number(std::string_view key) const;
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::string>> Text(std::string_view key) const;

  Result<int64_t> NeededInt(std::string_view key, int64_t low = 1, int64_t high = kMaxConfigCount) const;
  Result<int64_t> IntOr(std::string_view key, int64_t fallback, int64_t low = 0) const;
  Result<double> NumberOr(std::string_view key, double fallback) const;
  Result<double> PositiveOr(std::string_view key, double fallback) const;
  Result<bool> BoolOr(std::string_view key, bool fallback) const;

  /// `value` is that of `key`.
  Result<int64_t> AsInt(std::string_view key, const Json& value, int64_t low,
                        int64_t high = kMaxConfigCount) const;
  Result<double> AsNumber(std::string_view key, const Json& value) const;

  [[nodiscard]] tl::unexpected<Error> Bad(std::string_view key, std::string_view message) const;
  [[nodiscard]] tl::unexpected<Error> Missing(std::string_view key) const;
  [[nodiscard]] tl::unexpected<Error> Unsupported(std::string_view key, std::string_view message) const;

 private:
  std::string what_;
  const Json* object_;
  const Json* defaults_;
};

}  // namespace cmforge
