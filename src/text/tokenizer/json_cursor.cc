// The reader of large JSON documents.
#include "text/tokenizer/json_cursor.h"

#include <array>
#include <charconv>
#include <limits>

#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

// Bytes that a string can't hold as they are.
constexpr std::array<bool, 256> kEndsPlainText = [] {
  std::array<bool, 256> table{};
  for (size_t byte = 0; byte < 0x20; ++byte) table[byte] = true;
  table['"'] = table['\\'] = true;
  return table;
}();

}  // namespace

tl::unexpected<Error> JsonCursor::Wrong(std::string_view wanted) const {
  return Fail(ErrorKind::kCorrupt, fmt::format("byte {}: {} expected", at_, wanted), "Parse");
}

JsonCursor::Kind JsonCursor::Peek() {
  SkipBlanks();
  if (at_ >= text_.size()) return Kind::kNone;
  const char c = text_[at_];
  if (c == '{') return Kind::kObject;
  if (c == '[') return Kind::kArray;
  if (c == '"') return Kind::kString;
  if (c == '-' || (c >= '0' && c <= '9')) return Kind::kNumber;
  return c == 't' || c == 'f' || c == 'n' ? Kind::kLiteral : Kind::kNone;
}

Result<void> JsonCursor::EnterObject() {
  if (!TakeByte('{')) return Wrong("an object");
  is_first_ = true;
  return {};
}

Result<bool> JsonCursor::NextKey(std::string_view& key) {
  if (TakeByte('}')) {
    is_first_ = false;
    return false;
  }
  if (!is_first_ && !TakeByte(',')) return Wrong("',' or '}'");
  is_first_ = false;
  CMF_TRY(key, String());
  if (!TakeByte(':')) return Wrong("':'");
  return true;
}

Result<void> JsonCursor::EnterArray() {
  if (!TakeByte('[')) return Wrong("a list");
  is_first_ = true;
  return {};
}

Result<bool> JsonCursor::NextElement() {
  if (TakeByte(']')) {
    is_first_ = false;
    return false;
  }
  if (!is_first_ && !TakeByte(',')) return Wrong("',' or ']'");
  is_first_ = false;
  return true;
}

Result<std::string_view> JsonCursor::String() {
  if (!TakeByte('"')) return Wrong("a string");
  const size_t begin = at_;
  while (at_ < text_.size() && !kEndsPlainText[static_cast<uint8_t>(text_[at_])]) ++at_;
  if (at_ == text_.size()) return Wrong("the end of a string");
  if (text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  if (text_[at_] == '\\') return StringWithEscapes(begin);
  return Wrong("no control character in a string");
}

Result<std::string_view> JsonCursor::StringWithEscapes(size_t begin) {
  unescaped_ = text_.substr(begin, at_ - begin);
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return std::string_view(unescaped_);
    if (static_cast<uint8_t>(c) < 0x20) return Wrong("no control character in a string");
    if (c != '\\') {
      unescaped_.push_back(c);
      continue;
    }
    if (at_ == text_.size()) break;
    switch (text_[at_++]) {
      case '"':
        unescaped_.push_back('"');
        break;
      case '\\':
        unescaped_.push_back('\\');
        break;
      case '/':
        unescaped_.push_back('/');
        break;
      case 'b':
        unescaped_.push_back('\b');
        break;
      case 'f':
        unescaped_.push_back('\f');
        break;
      case 'n':
        unescaped_.push_back('\n');
        break;
      case 'r':
        unescaped_.push_back('\r');
        break;
      case 't':
        unescaped_.push_back('\t');
        break;
      case 'u': {
        CMF_TRY(uint32_t code, FourHexDigits());
        if (code >= 0xD800 && code <= 0xDFFF) {
          if (code > 0xDBFF || !TakeWord("\\u")) return Wrong("a pair of surrogates");
          CMF_TRY(const uint32_t low, FourHexDigits());
          if (low < 0xDC00 || low > 0xDFFF) return Wrong("a pair of surrogates");
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        utf8::Append(unescaped_, code);
        break;
      }
      default:
        --at_;
        return Wrong("a known escape");
    }
  }
  return Wrong("the end of a string");
}

Result<uint32_t> JsonCursor::FourHexDigits() {
  uint32_t code = 0;
  const char* const begin = text_.data() + at_;
  if (text_.size() - at_ < 4) return Wrong("four hexadecimal digits");
  const auto [end, error] = std::from_chars(begin, begin + 4, code, 16);
  if (error != std::errc() || end != begin + 4) return Wrong("four hexadecimal digits");
  at_ += 4;
  return code;
}

bool JsonCursor::TakeWord(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

Result<uint64_t> JsonCursor::Unsigned() {
  SkipBlanks();
  const size_t begin = at_;
  uint64_t value = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
    const auto digit = static_cast<uint64_t>(text_[at_] - '0');
    if (value > (std::numeric_limits<uint64_t>::max() - digit) / 10) return Wrong("a number of 64 bits");
    value = value * 10 + digit;
    ++at_;
  }
  const bool has_leading_zero = at_ > begin + 1 && text_[begin] == '0';
  const char next = at_ < text_.size() ? text_[at_] : '\0';
  if (at_ == begin || has_leading_zero || next == '.' || next == 'e' || next == 'E') {
    at_ = begin;
    return Wrong("a whole number of 0 or more");
  }
  return value;
}

Result<double> JsonCursor::Number() {
  if (Peek() != Kind::kNumber) return Wrong("a number");
  double value = 0;
  const char* const begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc()) return Wrong("a number");
  at_ += static_cast<size_t>(end - begin);
  return value;
}

Result<bool> JsonCursor::Bool() {
  SkipBlanks();
  if (TakeWord("true")) return true;
  if (TakeWord("false")) return false;
  return Wrong("true or false");
}

bool JsonCursor::TakeNull() {
  SkipBlanks();
  return TakeWord("null");
}

Result<std::string_view> JsonCursor::Skip() {
  const Kind kind = Peek();
  const size_t begin = at_;
  if (kind == Kind::kNone) return Wrong("a value");
  if (kind == Kind::kNumber || kind == Kind::kLiteral) {
    while (at_ < text_.size() && std::string_view(" \t\r\n,]}").find(text_[at_]) == std::string_view::npos)
      ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // Brackets are only counted: whoever reads the text finds those that don't match.
  size_t depth = 0;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
      if (at_ >= text_.size()) break;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
    ++at_;
    if (depth == 0) return text_.substr(begin, at_ - begin);
  }
  at_ = text_.size();
  return Wrong("the end of a value");
}

Result<void> JsonCursor::End() {
  SkipBlanks();
  if (at_ != text_.size()) return Wrong("the end of the document");
  return {};
}

}  // namespace cmforge
