// Arithmetic, text forms and parsing of numbers.
#include "text/jinja/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/unicode.h"

namespace cmforge::jinja {
namespace {

constexpr size_t kMaxDigits = 4300;  // sys.get_int_max_str_digits()

tl::unexpected<Error> DivisionByZero(std::string_view what) {
  return RuntimeFault("ZeroDivisionError: {}", what);
}

tl::unexpected<Error> TooLarge() {
  return Fail(ErrorKind::kLimit, fmt::format("an integer needs more than {} bits", BigInt::kMaxBits),
              error_name::kLimitReached);
}

Result<Value> BigResult(Runtime& rt, BigInt value) {
  if (value.bits() > BigInt::kMaxBits) return TooLarge();
  if (!rt.Spend(value.bits() / 64)) return rt.LimitFault();
  return rt.Integer(std::move(value));
}

Result<Value> PowerOfIntegers(Runtime& rt, const Value& a, const Value& b) {
  const BigInt exponent = ToBigInt(b);
  if (exponent.is_negative()) {
    CMF_TRY(const double base, ToDouble(a));
    if (base == 0) return DivisionByZero("0.0 cannot be raised to a negative power");
    CMF_TRY(const double power, ToDouble(b));
    return Value::Float(std::pow(base, power));
  }
  BigInt base = ToBigInt(a);
  const bool is_unit = base.is_zero() || (base.bits() == 1);  // 0, 1, -1
  if (is_unit) {
    if (base.is_zero()) return Value::Int(exponent.is_zero() ? 1 : 0);
    BigInt remainder;
    BigInt::DivideFloor(exponent, BigInt(2), nullptr, &remainder);
    return Value::Int(base.is_negative() && !remainder.is_zero() ? -1 : 1);
  }
  if (!exponent.FitsInt64() || exponent.ToInt64() > BigInt::kMaxBits) return TooLarge();
  int64_t n = exponent.ToInt64();
  if ((base.bits() - 1) * n > BigInt::kMaxBits) return TooLarge();
  BigInt result(1);
  for (; n > 0; n >>= 1) {
    if (!rt.Spend(base.bits() * base.bits() / 4096 + 1)) return rt.LimitFault();
    if (n & 1) result = result * base;
    if (n > 1) base = base * base;
  }
  return BigResult(rt, std::move(result));
}

// a / b, rounded once.
Result<Value> Quotient(Runtime& rt, const BigInt& a, const BigInt& b) {
  constexpr int kExact = 53;
  if (b.is_zero()) return DivisionByZero("division by zero");
  if (a.bits() <= kExact && b.bits() <= kExact) return Value::Float(a.ToDouble() / b.ToDouble());
  // The quotient of the magnitudes with some 64 bits, and one more that is set when anything is left over.
  if (!rt.Spend(a.bits() / 64 * (b.bits() / 64) + 1)) return rt.LimitFault();
  const int64_t shift = kExact + 12 - a.bits() + b.bits();
  const BigInt scale = BigInt::PowerOfTwo(std::abs(shift));
  const BigInt x = a.is_negative() ? a.Negated() : a;
  const BigInt y = b.is_negative() ? b.Negated() : b;
  BigInt quotient;
  BigInt rest;
  BigInt::DivideFloor(shift > 0 ? x * scale : x, shift > 0 ? y : y * scale, &quotient, &rest);
  quotient = quotient * BigInt(2) + BigInt(rest.is_zero() ? 0 : 1);
  const double magnitude = std::ldexp(quotient.ToDouble(), static_cast<int>(-shift - 1));
  if (std::isinf(magnitude)) {
    return Fault(error_name::kRuntime, "OverflowError: integer division result too large for a float");
  }
  return Value::Float(a.is_negative() != b.is_negative() ? -magnitude : magnitude);
}

Result<Value> OnIntegers(Runtime& rt, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kPower) return PowerOfIntegers(rt, a, b);
  if (op == Operator::kDivide) return Quotient(rt, ToBigInt(a), ToBigInt(b));
  if (!a.is(Kind::kBigInt) && !b.is(Kind::kBigInt)) {
    const int64_t x = a.small_int();
    const int64_t y = b.small_int();
    int64_t r = 0;
    switch (op) {
      case Operator::kAdd:
        if (!__builtin_add_overflow(x, y, &r)) return Value::Int(r);
        break;
      case Operator::kSubtract:
        if (!__builtin_sub_overflow(x, y, &r)) return Value::Int(r);
        break;
      case Operator::kMultiply:
        if (!__builtin_mul_overflow(x, y, &r)) return Value::Int(r);
        break;
      default:  // floor division and modulo
        if (y == 0) return DivisionByZero("integer division or modulo by zero");
        if (x == std::numeric_limits<int64_t>::min() && y == -1) break;
        const int64_t rest = x % y;
        const bool is_below = rest != 0 && ((rest < 0) != (y < 0));
        if (op == Operator::kModulo) return Value::Int(is_below ? rest + y : rest);
        return Value::Int(x / y - (is_below ? 1 : 0));
    }
  }
  const BigInt x = ToBigInt(a);
  const BigInt y = ToBigInt(b);
  if (!rt.Spend(x.bits() / 64 * (y.bits() / 64) + 1)) return rt.LimitFault();
  switch (op) {
    case Operator::kAdd:
      return BigResult(rt, x + y);
    case Operator::kSubtract:
      return BigResult(rt, x - y);
    case Operator::kMultiply:
      return BigResult(rt, x * y);
    default: {
      if (y.is_zero()) return DivisionByZero("integer division or modulo by zero");
      BigInt quotient;
      BigInt remainder;
      BigInt::DivideFloor(x, y, &quotient, &remainder);
      return BigResult(rt, op == Operator::kModulo ? std::move(remainder) : std::move(quotient));
    }
  }
}

Result<Value> OnFloats(Operator op, double x, double y) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(x + y);
    case Operator::kSubtract:
      return Value::Float(x - y);
    case Operator::kMultiply:
      return Value::Float(x * y);
    case Operator::kDivide:
      if (y == 0) return DivisionByZero("float division by zero");
      return Value::Float(x / y);
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (y == 0) return DivisionByZero("float floor division by zero");
      double rest = std::fmod(x, y);
      double quotient = (x - rest) / y;
      if (rest != 0) {
        if ((y < 0) != (rest < 0)) {
          rest += y;
          quotient -= 1;
        }
      } else {
        rest = std::copysign(0.0, y);
      }
      if (op == Operator::kModulo) return Value::Float(rest);
      if (quotient == 0) return Value::Float(std::copysign(0.0, x / y));
      double floored = std::floor(quotient);
      if (quotient - floored > 0.5) floored += 1;
      return Value::Float(floored);
    }
    case Operator::kPower: {
      if (x == 0 && y < 0) return DivisionByZero("0.0 cannot be raised to a negative power");
      if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::trunc(y)) {
        return Fault(error_name::kRuntime,
                     "a negative number to a fractional power is complex: not supported");
      }
      const double r = std::pow(x, y);
      if (std::isinf(r) && std::isfinite(x) && std::isfinite(y)) {
        return Fault(error_name::kRuntime, "OverflowError: (34, 'Numerical result out of range')");
      }
      return Value::Float(r);
    }
  }
  return Value();
}

// Text without white space around it and without underscores between digits; nothing when those are
// misplaced. Decimal digits of other scripts become ASCII.
std::optional<std::string> PlainNumber(std::string_view text) {
  std::string plain;
  bool after_digit = false;
  bool after_underscore = false;
  for (uint64_t i = 0; i < text.size();) {
    const char32_t c = DecodeUtf8(text, &i);
    if (c == '_') {
      if (!after_digit) return std::nullopt;
      after_digit = false;
      after_underscore = true;
      continue;
    }
    if (c < 0x80) {
      plain += static_cast<char>(c);
      after_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    } else if (IsSpace(c)) {
      plain += ' ';
      after_digit = false;
    } else {
      const int digit = DecimalValue(c);
      if (digit < 0) return std::nullopt;
      plain += static_cast<char>('0' + digit);
      after_digit = true;
    }
    if (after_underscore && !after_digit) return std::nullopt;
    after_underscore = false;
  }
  if (after_underscore) return std::nullopt;
  const auto is_blank = [](char c) { return IsSpace(static_cast<unsigned char>(c)); };
  const auto first = std::find_if_not(plain.begin(), plain.end(), is_blank);
  const auto last = std::find_if_not(plain.rbegin(), std::make_reverse_iterator(first), is_blank).base();
  return std::string(first, last);
}

}  // namespace

std::string_view OperatorSign(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "** or pow()";
  }
  return "?";
}

BigInt ToBigInt(const Value& integral) {
  return integral.is(Kind::kBigInt) ? *integral.big : BigInt(integral.small_int());
}

Result<double> ToDouble(const Value& number) {
  if (number.is(Kind::kFloat)) return number.real;
  if (!number.is(Kind::kBigInt)) return static_cast<double>(number.small_int());
  const double d = number.big->ToDouble();
  if (std::isinf(d)) return Fault(error_name::kRuntime, "OverflowError: int too large to convert to float");
  return d;
}

Result<int64_t> ToIndex(const Value& value) {
  if (value.is(Kind::kBigInt)) {
    return Fault(error_name::kRuntime, "OverflowError: Python int too large to convert to C ssize_t");
  }
  if (!value.is_integral()) {
    if (value.is_undefined()) return UndefinedFault(value);
    return RuntimeFault("TypeError: '{}' object cannot be interpreted as an integer", TypeName(value));
  }
  return value.small_int();
}

std::partial_ordering CompareNumbers(const Value& a, const Value& b) {
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) return a.real <=> b.real;
  if (!a.is(Kind::kFloat) && !b.is(Kind::kFloat)) {
    if (!a.is(Kind::kBigInt) && !b.is(Kind::kBigInt)) return a.small_int() <=> b.small_int();
    return ToBigInt(a).Compare(ToBigInt(b)) <=> 0;
  }
  if (a.is(Kind::kFloat)) return 0 <=> CompareNumbers(b, a);
  const double y = b.real;
  if (std::isnan(y)) return std::partial_ordering::unordered;
  if (std::isinf(y)) return y > 0 ? std::partial_ordering::less : std::partial_ordering::greater;
  const double whole = std::floor(y);
  const int order = ToBigInt(a).Compare(BigInt::FromDouble(whole));
  if (order != 0) return order <=> 0;
  return whole < y ? std::partial_ordering::less : std::partial_ordering::equivalent;
}

Result<Value> Arithmetic(Runtime& rt, Operator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return OnIntegers(rt, op, a, b);
  CMF_TRY(const double x, ToDouble(a));
  CMF_TRY(const double y, ToDouble(b));
  return OnFloats(op, x, y);
}

Result<Value> Negate(Runtime& rt, const Value& number) {
  if (number.is(Kind::kFloat)) return Value::Float(-number.real);
  return Arithmetic(rt, Operator::kSubtract, Value::Int(0), number);
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c != '.') digits += c;
  }
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

Result<std::string> IntegerText(const Value& value) {
  if (!value.is(Kind::kBigInt)) return std::to_string(value.small_int());
  std::string text = value.big->ToText();
  if (text.size() > kMaxDigits + (value.big->is_negative() ? 1 : 0)) {
    return Fault(error_name::kRuntime,
                 "ValueError: Exceeds the limit (4300 digits) for integer string conversion");
  }
  return text;
}

std::optional<BigInt> ParseInteger(std::string_view text, int base) {
  std::optional<std::string> plain = PlainNumber(text);
  if (!plain) return std::nullopt;
  std::string_view rest = *plain;
  bool is_negative = false;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    is_negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest.size() > 2 && rest[0] == '0') {
    const char letter = static_cast<char>(rest[1] | 0x20);
    const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      base = prefix;
      rest.remove_prefix(2);
    }
  }
  if (base == 0) {
    if (rest.size() > 1 && rest[0] == '0' && rest.find_first_not_of('0') != std::string_view::npos)
      return std::nullopt;
    base = 10;
  }
  if (rest.size() > kMaxDigits && base == 10) return std::nullopt;
  std::optional<BigInt> value = BigInt::Parse(rest, base);
  if (value && is_negative) return value->Negated();
  return value;
}

std::optional<double> ParseFloat(std::string_view text) {
  std::optional<std::string> plain = PlainNumber(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view rest = *plain;
  const bool is_negative = rest[0] == '-';
  if (rest[0] == '+' || rest[0] == '-') rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '+' || rest[0] == '-' || rest.back() == ')') return std::nullopt;
  double value = 0;
  const auto [end, error] =
      std::from_chars(rest.data(), rest.data() + rest.size(), value, std::chars_format::general);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // from_chars does not say which way: an exponent that is not negative overflowed.
    const size_t e = rest.find_first_of("eE");
    const bool is_tiny = e != std::string_view::npos ? rest[e + 1] == '-' : rest[0] == '0' || rest[0] == '.';
    value = is_tiny ? 0 : std::numeric_limits<double>::infinity();
  } else if (error != std::errc()) {
    return std::nullopt;
  }
  return is_negative ? -value : value;
}

double RoundTo(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  // Correctly rounded decimal digits, read back: what Python does.
  if (digits >= 0) {
    char buffer[1100];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed,
                                   static_cast<int>(digits))
                         .ptr;
    double rounded = value;
    std::from_chars(buffer, end, rounded);
    return rounded;
  }
  // Left of the point: count the digits of the whole number away in scientific form.
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return value;
  const int exponent = static_cast<int>(std::floor(std::log10(magnitude)));
  const int64_t kept = exponent + digits;
  if (kept < -1) return std::copysign(0.0, value);
  if (kept < 0) {
    // Between a tenth of the unit and the unit: half and above becomes one unit.
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::copysign(magnitude > unit / 2 ? unit : 0.0, value);
  }
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific,
                                 static_cast<int>(kept))
                       .ptr;
  double rounded = value;
  std::from_chars(buffer, end, rounded);
  return rounded;
}

}  // namespace cmforge::jinja
