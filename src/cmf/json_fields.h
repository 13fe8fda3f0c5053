// Reads the members of one JSON object into typed fields: missing or null leaves the field as it is, a wrong
// type or a number out of range is remembered as the error, and what nobody asked for can be kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace cmforge::cmf {

class JsonFields {
 public:
  /// Dimensions in the directory have 32 bits; no count in a header needs more.
  static constexpr int64_t kMaxCount = 0xFFFFFFFF;

  /// `where` begins every message ("header: arch"). `object` must outlive this.
  JsonFields(const Json& object, std::string where);

  void Read(std::string_view key, std::string& field);
  void Read(std::string_view key, bool& field);
  void Read(std::string_view key, double& field);  // finite
  void Read(std::string_view key, int64_t& field, int64_t min = 0, int64_t max = kMaxCount);
  void Read(std::string_view key, std::vector<int64_t>& field);  // counts
  void Read(std::string_view key, std::vector<double>& field);

  template <class T, class... Range>
  void Read(std::string_view key, std::optional<T>& field, Range... range) {
    if (T value{}; Present(key)) {
      Read(key, value, range...);
      field = std::move(value);
    }
  }

  /// Remembers an error when the key is missing or null.
  void Require(std::initializer_list<std::string_view> keys);
  /// The raw member, or nullptr when missing or null.
  const Json* Find(std::string_view key);
  void Error(std::string_view key, std::string_view fact);

  /// Members whose key was never asked for, in their order.
  [[nodiscard]] Json Rest() const;
  /// Fails: kCorrupt "Parse" with the first error.
  [[nodiscard]] Result<void> status() const;

 private:
  bool Present(std::string_view key) { return Find(key) != nullptr; }

  const Json& object_;
  std::string where_;
  std::unordered_set<std::string> asked_;
  std::string error_;
};

}  // namespace cmforge::cmf
