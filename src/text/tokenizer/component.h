// Reading the fields of a component of tokenizer.json, with errors that name component and field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/pattern.h"

namespace cmforge {

/// One JSON object of the file, say the normalizer. Holds a reference: the Json must outlive it.
class Component {
 public:
  /// `part` as in messages, a string literal: "normalizer", "decoder". Fails: kCorrupt (not an object, no
  /// "type").
  static Result<Component> Of(const Json& json, std::string_view part);

  [[nodiscard]] std::string_view type() const { return type_; }
  [[nodiscard]] const Json& json() const { return *json_; }

  // Fails: kCorrupt naming the field, when it is not there (unless there is a default) or of another kind.
  Result<bool> Bool(std::string_view key) const;
  Result<bool> Bool(std::string_view key, bool otherwise) const;
  Result<std::string> String(std::string_view key) const;
  Result<uint64_t> Count(std::string_view key) const;      // 0 or more
  Result<uint32_t> Character(std::string_view key) const;  // exactly one code point
  Result<const Json*> Array(std::string_view key) const;
  /// {"String": s} or {"Regex": r}, compiled.
  Result<Pattern> PatternField(std::string_view key) const;
  /// The text of {"Regex": r}, "" for {"String": s}.
  [[nodiscard]] std::string_view RegexText(std::string_view key) const;

  [[nodiscard]] const Json* Find(std::string_view key) const;

  /// An error of this component: "normalizer Strip: " and the fact.
  [[nodiscard]] tl::unexpected<Error> Wrong(std::string_view fact) const;
  [[nodiscard]] std::string name() const { return fmt::format("{} {}", part_, type_.substr(0, 100)); }
  /// "normalizer X: unknown type".
  [[nodiscard]] tl::unexpected<Error> UnknownType() const;

 private:
  [[nodiscard]] tl::unexpected<Error> WrongField(std::string_view key, std::string_view wanted) const;

  const Json* json_ = nullptr;
  std::string_view part_;  // a literal
  std::string_view type_;  // in the Json
};

}  // namespace cmforge
