// 'pattern' % values.
#include <algorithm>
#include <cmath>

#include "text/jinja/callables.h"
#include "text/jinja/dict.h"
#include "text/jinja/format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"

namespace cmforge::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const Value& pattern, const Value& values)
      : rt_(rt), pattern_(*pattern.string), escapes_(pattern.special), values_(values), out_(rt) {
    if (values.is(Kind::kTuple)) {
      given_ = values.list->span();
    } else {
      given_ = {&values_, 1};
    }
  }

  Result<Value> Run() {
    const std::string_view text = pattern_.view();
    uint64_t at = 0;
    while (true) {
      const uint64_t percent = Find(text, "%", at);
      if (percent == std::string_view::npos) break;
      out_.Append(pattern_, at, percent);
      at = percent + 1;
      CMF_CHECK(Directive(&at));
    }
    out_.Append(pattern_, at, text.size());
    // What could be asked by key may hold more than was asked for.
    const bool is_mapping = values_.is(Kind::kDict) || values_.is(Kind::kList) || values_.is_undefined() ||
                            values_.is(Kind::kRange);
    if (next_ < given_.size() && !is_mapping) {
      return Fault(error_name::kRuntime, "TypeError: not all arguments converted during string formatting");
    }
    return out_.Finish(escapes_);
  }

 private:
  struct Flags {
    bool left = false, plus = false, blank = false, alternate = false, zero = false;
    int64_t width = 0;
    int64_t precision = -1;
  };

  static tl::unexpected<Error> Incomplete() {
    return Fault(error_name::kRuntime, "ValueError: incomplete format");
  }

  Result<Value> NextValue() {
    if (next_ >= given_.size()) {
      return Fault(error_name::kRuntime, "TypeError: not enough arguments for format string");
    }
    return given_[next_++];
  }

  Result<int64_t> Number(uint64_t* at) {
    const std::string_view text = pattern_.view();
    if (*at < text.size() && text[*at] == '*') {
      ++*at;
      CMF_TRY(const Value value, NextValue());
      if (!value.is(Kind::kInt)) return Fault(error_name::kRuntime, "TypeError: * wants int");
      if (std::abs(value.integer) > kMost) return TooWide();
      return value.integer;
    }
    int64_t number = 0;
    while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
      number = number * 10 + (text[(*at)++] - '0');
      if (number > kMost) return TooWide();
    }
    return number;
  }
  static constexpr int64_t kMost = 100'000;
  static tl::unexpected<Error> TooWide() {
    return Fail(ErrorKind::kLimit, fmt::format("a format asks for more than {} characters", kMost),
                error_name::kLimitReached);
  }

  Result<void> Directive(uint64_t* at) {
    const std::string_view text = pattern_.view();
    Value value;
    if (*at < text.size() && text[*at] == '(') {
      CMF_TRY(value, Keyed(at));
    }
    Flags f;
    for (; *at < text.size(); ++*at) {
      const char c = text[*at];
      if (c == '-') {
        f.left = true;
      } else if (c == '+') {
        f.plus = true;
      } else if (c == ' ') {
        f.blank = true;
      } else if (c == '#') {
        f.alternate = true;
      } else if (c == '0') {
        f.zero = true;
      } else {
        break;
      }
    }
    CMF_TRY(f.width, Number(at));
    if (f.width < 0) {
      f.left = true;
      f.width = -f.width;
    }
    if (*at < text.size() && text[*at] == '.') {
      ++*at;
      CMF_TRY(f.precision, Number(at));
      f.precision = std::max<int64_t>(f.precision, 0);
    }
    if (*at < text.size() && (text[*at] == 'l' || text[*at] == 'h' || text[*at] == 'L')) ++*at;
    if (*at >= text.size()) return Incomplete();
    const char type = text[(*at)++];
    if (type == '%') {
      out_.Append("%");
      return {};
    }
    if (value.is_missing()) {
      CMF_TRY(value, NextValue());
    }
    return Convert(type, f, value);
  }

  Result<Value> Keyed(uint64_t* at) {
    const std::string_view text = pattern_.view();
    if (!values_.is(Kind::kDict)) return Fault(error_name::kRuntime, "TypeError: format requires a mapping");
    const uint64_t begin = ++*at;
    int depth = 1;
    for (; *at < text.size(); ++*at) {
      if (text[*at] == '(') ++depth;
      if (text[*at] == ')' && --depth == 0) break;
    }
    if (*at >= text.size()) return Fault(error_name::kRuntime, "ValueError: incomplete format key");
    const std::string_view key = text.substr(begin, *at - begin);
    ++*at;
    const Value* found = FindText(*values_.dict, key);
    if (found == nullptr) return RuntimeFault("KeyError: '{}'", key);
    next_ = given_.size();
    return *found;
  }

  Result<void> Convert(char type, const Flags& f, const Value& value) {
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return ConvertText(type, f, value);
      case 'c':
        return ConvertCharacter(f, value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return ConvertInteger(type, f, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return ConvertFloat(type, f, value);
      default:
        return RuntimeFault("ValueError: unsupported format character '{}'", type);
    }
  }

  void AppendPadded(const Flags& f, const Str& text) {
    const uint64_t size = CountCodePoints(text.view());
    const uint64_t missing =
        static_cast<uint64_t>(f.width) > size ? static_cast<uint64_t>(f.width) - size : 0;
    if (!f.left) out_.AppendRepeated(" ", missing);
    out_.Append(text);
    if (f.left) out_.AppendRepeated(" ", missing);
  }

  Result<void> ConvertText(char type, const Flags& f, const Value& value) {
    TextBuilder text(rt_);
    if (type == 's') {
      CMF_CHECK(AppendText(rt_, value, &text));
    } else {
      CMF_CHECK(AppendRepr(rt_, value, &text));
    }
    CMF_TRY(Value shown, text.Finish());
    if (escapes_ && !value.is_markup()) {
      TextBuilder escaped(rt_);
      AppendEscaped(&escaped, *shown.string);
      CMF_TRY(shown, escaped.Finish());
    }
    const Str& all = *shown.string;
    const uint64_t end =
        f.precision < 0 ? all.size : SkipCodePoints(all.view(), static_cast<uint64_t>(f.precision));
    AppendPadded(f, Piece(rt_, all, 0, end));
    return {};
  }

  Result<void> ConvertCharacter(const Flags& f, const Value& value) {
    if (value.is_string() && CountCodePoints(value.text()) == 1) {
      AppendPadded(f, *value.string);
      return {};
    }
    if (!value.is_integral()) return Fault(error_name::kRuntime, "TypeError: %c requires int or char");
    CMF_TRY(const int64_t code, ToIndex(value));
    if (code < 0 || code > 0x10FFFF) {
      return Fault(error_name::kRuntime, "OverflowError: %c arg not in range(0x110000)");
    }
    std::string text;
    AppendUtf8(&text, static_cast<char32_t>(code));
    AppendPadded(f, Str{text.data(), text.size()});
    return {};
  }

  void AppendNumber(const Flags& f, bool is_negative, std::string_view prefix, const std::string& digits) {
    std::string head;
    if (is_negative) {
      head = "-";
    } else if (f.plus) {
      head = "+";
    } else if (f.blank) {
      head = " ";
    }
    head += prefix;
    const size_t size = head.size() + digits.size();
    const uint64_t missing =
        static_cast<uint64_t>(f.width) > size ? static_cast<uint64_t>(f.width) - size : 0;
    if (!f.left && !f.zero) out_.AppendRepeated(" ", missing);
    out_.Append(head);
    if (!f.left && f.zero) out_.AppendRepeated("0", missing);
    out_.Append(digits);
    if (f.left) out_.AppendRepeated(" ", missing);
  }

  Result<void> ConvertInteger(char type, const Flags& f, const Value& value) {
    const bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    if (value.is_undefined()) return UndefinedFault(value);
    if (!(value.is_integral() || (is_decimal && value.is(Kind::kFloat)))) {
      return RuntimeFault("TypeError: %{} format: {} is required, not {}", type,
                          is_decimal ? "a real number" : "an integer", TypeName(value));
    }
    if (value.is(Kind::kFloat) && !std::isfinite(value.real)) {
      return Fault(error_name::kRuntime, "ValueError: cannot convert float NaN or infinity to integer");
    }
    const BigInt big = value.is(Kind::kFloat) ? BigInt::FromDouble(value.real) : ToBigInt(value);
    if (!rt_.Spend(big.bits() / 16)) return rt_.LimitFault();
    const int base = is_decimal ? 10 : type == 'o' ? 8 : 16;
    std::string digits = (big.is_negative() ? big.Negated() : big).ToText(base);
    if (type == 'X') {
      std::transform(digits.begin(), digits.end(), digits.begin(),
                     [](char c) { return c >= 'a' ? static_cast<char>(c - 32) : c; });
    }
    if (f.precision > static_cast<int64_t>(digits.size())) {
      digits.insert(0, static_cast<size_t>(f.precision) - digits.size(), '0');
    }
    const std::string_view prefix = !f.alternate || is_decimal ? ""
                                    : type == 'o'              ? "0o"
                                    : type == 'x'              ? "0x"
                                                               : "0X";
    AppendNumber(f, big.is_negative(), prefix, digits);
    return {};
  }

  Result<void> ConvertFloat(char type, const Flags& f, const Value& value) {
    if (value.is_undefined()) return UndefinedFault(value);
    if (!value.is_number()) return RuntimeFault("TypeError: must be real number, not {}", TypeName(value));
    CMF_TRY(const double d, ToDouble(value));
    if (!std::isfinite(d)) {
      std::string name = std::isnan(d) ? "nan" : "inf";
      if (type < 'a') name = std::isnan(d) ? "NAN" : "INF";
      AppendNumber(f, d < 0, "", name);
      return {};
    }
    const int precision = f.precision < 0 ? 6 : static_cast<int>(f.precision);
    AppendNumber(f, std::signbit(d), "", FloatDigits(std::fabs(d), type, precision, f.alternate));
    return {};
  }

  Runtime& rt_;
  const Str& pattern_;
  const bool escapes_;
  const Value values_;
  std::span<const Value> given_;
  size_t next_ = 0;
  TextBuilder out_;
};

}  // namespace

Result<Value> PercentFormat(Runtime& rt, const Value& pattern, const Value& values) {
  if (!rt.Spend(static_cast<int64_t>(pattern.string->size / 16))) return rt.LimitFault();
  return PercentFormatter(rt, pattern, values).Run();
}

}  // namespace cmforge::jinja
