// The mini-language of format(), shared by '{}'.format and numbers of '%'.
#include "text/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja/numbers.h"
#include "text/jinja/print.h"

namespace cmforge::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 24;
constexpr int64_t kMaxPrecision = 100'000;

struct Spec {
  std::string_view fill = " ";
  char align = 0;  // < > = ^
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = 0;  // , or _
  int64_t precision = -1;
  char type = 0;
  bool has_sign = false;
};

tl::unexpected<Error> BadSpec(std::string_view fact) { return RuntimeFault("ValueError: {}", fact); }

Result<int64_t> SpecNumber(std::string_view spec, size_t* at, int64_t most) {
  int64_t number = 0;
  while (*at < spec.size() && spec[*at] >= '0' && spec[*at] <= '9') {
    number = number * 10 + (spec[(*at)++] - '0');
    if (number > most) {
      return Fail(ErrorKind::kLimit, fmt::format("a format asks for more than {} characters", most),
                  error_name::kLimitReached);
    }
  }
  return number;
}

Result<Spec> ParseSpec(std::string_view text) {
  Spec s;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  if (!text.empty()) {
    const size_t first = CodePointSize(text, 0);
    if (first < text.size() && is_align(text[first])) {
      s.fill = text.substr(0, first);
      s.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      s.align = text[0];
      at = 1;
    }
  }
  const auto take = [&](char c) {
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  };
  for (const char sign : {'+', '-', ' '}) {
    if (!s.has_sign && take(sign)) {
      s.sign = sign;
      s.has_sign = true;
    }
  }
  s.alternate = take('#');
  if (take('0')) {
    s.zero = true;
    if (s.align == 0) s.fill = "0";
  }
  CMF_TRY(s.width, SpecNumber(text, &at, kMaxWidth));
  if (take(',')) {
    s.grouping = ',';
  } else if (take('_')) {
    s.grouping = '_';
  }
  if (take('.')) {
    const size_t digits = at;
    CMF_TRY(s.precision, SpecNumber(text, &at, kMaxPrecision));
    if (at == digits) return BadSpec("Format specifier missing precision");
  }
  if (at < text.size()) s.type = text[at++];
  if (at != text.size()) return BadSpec("Invalid format specifier");
  return s;
}

void Pad(const Spec& s, char default_align, const Str& text, uint64_t size, TextBuilder* out) {
  const uint64_t missing = static_cast<uint64_t>(s.width) > size ? static_cast<uint64_t>(s.width) - size : 0;
  const char align = s.align != 0 ? s.align : default_align;
  const uint64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  out->AppendRepeated(s.fill, left);
  out->Append(text);
  out->AppendRepeated(s.fill, missing - left);
}

std::string Grouped(std::string_view digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// Sign, prefix, digits with grouping and what follows them, padded. `digits` is what may be grouped.
void AppendNumber(const Spec& s, bool is_negative, std::string_view prefix, std::string digits,
                  std::string_view rest, size_t group, TextBuilder* out) {
  std::string sign;
  if (is_negative) {
    sign = "-";
  } else if (s.sign != '-') {
    sign = std::string(1, s.sign);
  }
  const bool pads_inside = s.align == '=' || (s.align == 0 && s.zero);
  const std::string plain = digits;
  if (s.grouping != 0) digits = Grouped(plain, s.grouping, group);
  const auto width = static_cast<size_t>(s.width);
  size_t fixed = sign.size() + prefix.size() + rest.size();
  if (pads_inside && s.fill == "0") {
    // Zeros are digits: they are grouped as well, and a separator never comes first.
    size_t zeros = plain.size();
    while (fixed + digits.size() < width) {
      const size_t missing = width - fixed - digits.size();
      zeros += s.grouping == 0 ? missing : std::max<size_t>(1, missing * group / (group + 1));
      const std::string padded = std::string(zeros - plain.size(), '0') + plain;
      digits = s.grouping == 0 ? padded : Grouped(padded, s.grouping, group);
    }
    out->Append(sign);
    out->Append(prefix);
    out->Append(digits);
    out->Append(rest);
    return;
  }
  const size_t size = fixed + digits.size();
  if (pads_inside) {
    out->Append(sign);
    out->Append(prefix);
    out->AppendRepeated(s.fill, width > size ? width - size : 0);
    out->Append(digits);
    out->Append(rest);
    return;
  }
  const std::string whole = sign + std::string(prefix) + digits + std::string(rest);
  Pad(s, '>', Str{whole.data(), whole.size()}, whole.size(), out);
}

Result<void> FormatFloat(double value, const Spec& s, TextBuilder* out) {
  char type = s.type == 'n' ? 'g' : s.type;
  if (std::string_view("eEfFgG%").find(type) == std::string_view::npos && type != 0) {
    return RuntimeFault("ValueError: Unknown format code '{}' for object of type 'float'", type);
  }
  const bool is_negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  std::string digits;
  std::string percent;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (type >= 'A' && type <= 'Z') digits = std::isnan(value) ? "NAN" : "INF";
    if (type == '%') percent = "%";
    AppendNumber(s, is_negative, "", digits, percent, 100, out);
    return {};
  }
  if (type == 0 && s.precision < 0) {
    digits = FloatText(magnitude);
  } else if (type == 0) {
    // As 'g', but the number keeps looking like a float.
    digits = FloatDigits(magnitude, 'g', std::max(1, static_cast<int>(s.precision)), s.alternate);
    const size_t e = digits.find('e');
    int exponent = 0;
    if (magnitude != 0) exponent = static_cast<int>(std::floor(std::log10(magnitude)));
    if (e == std::string::npos && digits.find('.') == std::string::npos) {
      if (exponent + 1 >= s.precision && magnitude != 0) {
        digits = FloatDigits(magnitude, 'e', std::max(0, static_cast<int>(s.precision) - 1), false);
      } else {
        digits += ".0";
      }
    }
  } else if (type == '%') {
    digits =
        FloatDigits(magnitude * 100, 'f', s.precision < 0 ? 6 : static_cast<int>(s.precision), s.alternate);
    percent = "%";
  } else {
    digits = FloatDigits(magnitude, type, s.precision < 0 ? 6 : static_cast<int>(s.precision), s.alternate);
  }
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  AppendNumber(s, is_negative, "", digits.substr(0, whole), digits.substr(whole) + percent, 3, out);
  return {};
}

Result<void> FormatInteger(Runtime& rt, const Value& value, const Spec& s, TextBuilder* out) {
  if (s.type != 0 && std::string_view("eEfFgG%").find(s.type) != std::string_view::npos) {
    CMF_TRY(const double d, ToDouble(value));
    return FormatFloat(d, s, out);
  }
  if (s.precision >= 0) return BadSpec("Precision not allowed in integer format specifier");
  if (s.type == 'c') {
    if (s.has_sign) return BadSpec("Sign not allowed with integer format specifier 'c'");
    CMF_TRY(const int64_t code, ToIndex(value));
    if (code < 0 || code > 0x10FFFF) return RuntimeFault("OverflowError: %c arg not in range(0x110000)");
    std::string text;
    AppendUtf8(&text, static_cast<char32_t>(code));
    Pad(s, '<', Str{text.data(), text.size()}, 1, out);
    return {};
  }
  int base = 10;
  std::string_view prefix;
  switch (s.type) {
    case 0:
    case 'd':
    case 'n':
      break;
    case 'b':
      base = 2;
      prefix = "0b";
      break;
    case 'o':
      base = 8;
      prefix = "0o";
      break;
    case 'x':
      base = 16;
      prefix = "0x";
      break;
    case 'X':
      base = 16;
      prefix = "0X";
      break;
    default:
      return RuntimeFault("ValueError: Unknown format code '{}' for object of type 'int'", s.type);
  }
  if (base != 10 && s.grouping == ',') return BadSpec("Cannot specify ',' with this type");
  const BigInt big = ToBigInt(value);
  if (!rt.Spend(big.bits() / 16)) return rt.LimitFault();
  std::string digits = (big.is_negative() ? big.Negated() : big).ToText(base);
  if (s.type == 'X')
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  AppendNumber(s, big.is_negative(), s.alternate ? prefix : "", std::move(digits), "", base == 10 ? 3 : 4,
               out);
  return {};
}

Result<void> FormatString(Runtime& rt, const Str& text, const Spec& s, TextBuilder* out) {
  if (s.type != 0 && s.type != 's') {
    return RuntimeFault("ValueError: Unknown format code '{}' for object of type 'str'", s.type);
  }
  if (s.has_sign || s.alternate || s.align == '=' || s.grouping != 0) {
    return BadSpec("Sign, '#', '=' and ',' are not allowed in a string format specifier");
  }
  Str shown = text;
  if (s.precision >= 0) {
    shown = Piece(rt, text, 0, SkipCodePoints(text.view(), static_cast<uint64_t>(s.precision)));
  }
  if (!rt.Spend(static_cast<int64_t>(shown.size / 64))) return rt.LimitFault();
  Pad(s, '<', shown, CountCodePoints(shown.view()), out);
  return {};
}

}  // namespace

std::string FloatDigits(double magnitude, char style, int precision, bool alternate) {
  const char lower = static_cast<char>(style | 0x20);
  std::string digits(static_cast<size_t>(precision) + 340, '\0');
  const auto write = [&](std::chars_format format, int p) {
    digits.resize(static_cast<size_t>(p) + 340);
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), magnitude, format, p).ptr;
    digits.resize(static_cast<size_t>(end - digits.data()));
  };
  if (lower == 'f') {
    write(std::chars_format::fixed, precision);
  } else if (lower == 'e') {
    write(std::chars_format::scientific, precision);
  } else if (!alternate) {
    write(std::chars_format::general, std::max(precision, 1));
  } else {
    // General form with its zeros kept.
    const int p = std::max(precision, 1);
    write(std::chars_format::scientific, p - 1);
    int exponent = 0;
    const size_t e = digits.find('e');
    std::from_chars(digits.data() + e + (digits[e + 1] == '+' ? 2 : 1), digits.data() + digits.size(),
                    exponent);
    if (exponent >= -4 && exponent < p) write(std::chars_format::fixed, p - 1 - exponent);
  }
  if (alternate && digits.find('.') == std::string::npos) {
    const size_t e = std::min(digits.find('e'), digits.size());
    digits.insert(e, ".");
  }
  if (style != lower) std::replace(digits.begin(), digits.end(), 'e', 'E');
  return digits;
}

Result<void> AppendFormatted(Runtime& rt, const Value& value, std::string_view spec, TextBuilder* out) {
  if (spec.empty()) return AppendText(rt, value, out);
  if (value.is_string()) {
    CMF_TRY(const Spec s, ParseSpec(spec));
    return FormatString(rt, *value.string, s, out);
  }
  if (!value.is_number()) {
    return RuntimeFault("TypeError: unsupported format string passed to {}.__format__", TypeName(value));
  }
  CMF_TRY(const Spec s, ParseSpec(spec));
  CMF_CHECK(rt.Reserve(static_cast<uint64_t>(s.width)));
  if (value.is(Kind::kFloat)) return FormatFloat(value.real, s, out);
  return FormatInteger(rt, value, s, out);
}

}  // namespace cmforge::jinja
