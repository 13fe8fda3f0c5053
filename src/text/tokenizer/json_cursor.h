// Reads a large JSON document from front to back, handing out one value at a time. A tokenizer.json is
// megabytes of vocabulary that goes straight into tables; a parser that first copies and indexes the document
// touches several times its size in memory, and touching new memory is what takes the time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace cmforge {

/// The document must outlive the cursor and be UTF-8 (simdjson::validate_utf8). Errors are kCorrupt and name
/// the byte; after one, the cursor is not to be used any more.
///
///   CMF_CHECK(cursor.EnterObject());
///   while (true) {
///     CMF_TRY(const bool more, cursor.NextKey(key));
///     if (!more) break;
///     ... take exactly one value ...
///   }
class JsonCursor {
 public:
  enum class Kind : uint8_t { kObject, kArray, kString, kNumber, kLiteral, kNone };

  explicit JsonCursor(std::string_view document) : text_(document) {}

  /// What comes next; kNone at the end or at something that begins no value.
  [[nodiscard]] Kind Peek();

  Result<void> EnterObject();
  /// The next key of the object entered last, or false when it is over. `key` lives until the next string is
  /// read.
  Result<bool> NextKey(std::string_view& key);

  Result<void> EnterArray();
  /// True when another element follows in the array entered last.
  Result<bool> NextElement();

  /// Lives until the next string is read, if it had escapes; else as long as the document.
  Result<std::string_view> String();
  Result<uint64_t> Unsigned();  // no sign, fraction or exponent
  Result<double> Number();
  Result<bool> Bool();
  [[nodiscard]] bool TakeNull();

  /// Passes over one value of any kind and returns its text, which is checked only so far that brackets and
  /// strings close.
  Result<std::string_view> Skip();

  /// Fails when anything but white space follows.
  Result<void> End();

 private:
  void SkipBlanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  [[nodiscard]] tl::unexpected<Error> Wrong(std::string_view wanted) const;
  bool TakeByte(char c) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word);
  Result<std::string_view> StringWithEscapes(size_t begin);
  Result<uint32_t> FourHexDigits();

  std::string_view text_;
  size_t at_ = 0;
  bool is_first_ = false;  // an object or array was just entered
  std::string unescaped_;
};

}  // namespace cmforge
