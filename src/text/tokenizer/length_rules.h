// The truncation and padding that a file may hold: applied by the reference library, wanted by nobody who
// runs a language model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

/// Immutable.
class Truncation {
 public:
  /// nullopt for `null`. Fails: kCorrupt naming the field.
  static Result<std::optional<Truncation>> FromJson(const Json& json);

  /// Shortens one text or two, leaving room for `added` special tokens. Fails: kUsage (the strategy asks for
  /// a text that is missing or too short, or the stride is not smaller than the room).
  Result<void> Apply(std::vector<TokenId>& first, std::vector<TokenId>* second, uint64_t added) const;

 private:
  enum class Strategy : uint8_t { kLongestFirst, kOnlyFirst, kOnlySecond };

  Result<void> Cut(std::vector<TokenId>& ids, uint64_t length) const;

  uint64_t max_length_ = 0, stride_ = 0;
  Strategy strategy_ = Strategy::kLongestFirst;
  bool from_left_ = false;
};

/// Immutable.
class Padding {
 public:
  /// nullopt for `null`. Fails: kCorrupt naming the field, kLimit (a length above 2^24).
  static Result<std::optional<Padding>> FromJson(const Json& json);

  void Apply(std::vector<TokenId>& ids) const;

 private:
  uint64_t fixed_ = 0;  // 0: as long as the text
  uint64_t multiple_of_ = 0;
  TokenId id_ = 0;
  bool on_left_ = false;
};

}  // namespace cmforge
