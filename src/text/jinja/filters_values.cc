// Filters of single values.
#include <algorithm>
#include <cmath>

#include "text/jinja/attributes.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

namespace cmforge::jinja::filters {

Result<Value> Abs(Runtime& rt, const Bound& b) {
  const Value& value = b[0];
  if (value.is(Kind::kFloat)) return Value::Float(std::fabs(value.real));
  if (!value.is_integral())
    return RuntimeFault("TypeError: bad operand type for abs(): '{}'", TypeName(value));
  if (value.is(Kind::kBool)) return Value::Int(value.small_int());
  const bool is_negative = value.is(Kind::kBigInt) ? value.big->is_negative() : value.integer < 0;
  return is_negative ? Negate(rt, value) : value;
}

Result<Value> Attr(Runtime& rt, const Bound& b) {
  CMF_TRY(const Str* const name, AsString(b[1], "attribute name"));
  if (b[0].is_undefined()) return UndefinedFault(b[0]);
  CMF_TRY(const Value own, OwnAttribute(rt, b[0], name->view()));
  if (own.is_missing() && !name->view().starts_with("__")) return rt.NoAttribute(b[0], name->view());
  return GetAttribute(rt, b[0], name->view());
}

Result<Value> Default(Runtime& rt, const Bound& b) {
  if (!b[0].is_undefined() && !(Flag(b, 2) && !IsTrue(b[0]))) return b[0];
  return b.has(1) ? b[1] : rt.View(std::string_view());
}

namespace {

// int(float), which is exact.
Result<Value> Truncated(Runtime& rt, double value) {
  if (std::isnan(value)) return RuntimeFault("ValueError: cannot convert float NaN to integer");
  if (std::isinf(value)) return RuntimeFault("OverflowError: cannot convert float infinity to integer");
  return rt.Integer(BigInt::FromDouble(value));
}

}  // namespace

Result<Value> Int(Runtime& rt, const Bound& b) {
  const Value& value = b[0];
  const Value fallback = b.has(1) ? b[1] : Value::Int(0);
  if (value.is_undefined()) return UndefinedFault(value);
  if (value.is_integral()) return value.is(Kind::kBool) ? Value::Int(value.small_int()) : value;
  if (value.is(Kind::kFloat)) return std::isnan(value.real) ? fallback : Truncated(rt, value.real);
  if (!value.is_string()) return fallback;
  int64_t base = 10;
  if (b.has(2)) {
    CMF_TRY(base, ToIndex(b[2]));
  }
  if (!rt.Spend(static_cast<int64_t>(value.string->size))) return rt.LimitFault();
  if (base == 0 || (base >= 2 && base <= 36)) {
    const std::optional<BigInt> number = ParseInteger(value.text(), static_cast<int>(base));
    if (number) return rt.Integer(*number);
  }
  const std::optional<double> real = ParseFloat(value.text());
  if (!real || std::isnan(*real)) return fallback;
  return Truncated(rt, *real);
}

Result<Value> Float(Runtime& rt, const Bound& b) {
  const Value& value = b[0];
  if (value.is_undefined()) return UndefinedFault(value);
  if (value.is_number()) {
    CMF_TRY(const double real, ToDouble(value));
    return Value::Float(real);
  }
  if (value.is_string()) {
    if (!rt.Spend(static_cast<int64_t>(value.string->size))) return rt.LimitFault();
    const std::optional<double> real = ParseFloat(value.text());
    if (real) return Value::Float(*real);
  }
  return b.has(1) ? b[1] : Value::Float(0);
}

Result<Value> Round(Runtime& rt, const Bound& b) {
  const Value& value = b[0];
  std::string_view method = "common";
  if (b.has(2)) {
    if (!b[2].is_string()) return Fault(error_name::kTemplate, "method must be common, ceil or floor");
    method = b[2].text();
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return Fault(error_name::kTemplate, "method must be common, ceil or floor");
  }
  Value precision = b.has(1) ? b[1] : Value::Int(0);
  if (method != "common") {
    // func(value * 10**precision) / 10**precision
    if (!value.is_number() || !precision.is_number()) {
      return RuntimeFault("TypeError: must be real number, not {}",
                          TypeName(value.is_number() ? precision : value));
    }
    CMF_TRY(const Value scale, Arithmetic(rt, Operator::kPower, Value::Int(10), precision));
    CMF_TRY(const Value scaled, Arithmetic(rt, Operator::kMultiply, value, scale));
    Value whole = scaled;
    if (scaled.is(Kind::kFloat)) {
      CMF_TRY(whole, Truncated(rt, method == "ceil" ? std::ceil(scaled.real) : std::floor(scaled.real)));
    }
    return Arithmetic(rt, Operator::kDivide, whole, scale);
  }
  if (!value.is_number()) {
    return RuntimeFault("TypeError: type {} doesn't define __round__ method", TypeName(value));
  }
  CMF_TRY(const int64_t digits, ToIndex(precision));
  if (value.is(Kind::kFloat)) return Value::Float(RoundTo(value.real, digits));
  if (digits >= 0) return value.is(Kind::kBool) ? Value::Int(value.small_int()) : value;
  // Integers round to a multiple of a power of ten, half to even.
  CMF_TRY(const Value unit,
          Arithmetic(rt, Operator::kPower, Value::Int(10), Value::Int(-std::max<int64_t>(digits, -30000))));
  CMF_TRY(const Value rest, Arithmetic(rt, Operator::kModulo, value, unit));
  CMF_TRY(const Value low, Arithmetic(rt, Operator::kSubtract, value, rest));
  CMF_TRY(const Value twice, Arithmetic(rt, Operator::kMultiply, rest, Value::Int(2)));
  CMF_TRY(const Value count, Arithmetic(rt, Operator::kFloorDivide, low, unit));
  CMF_TRY(const Value odd, Arithmetic(rt, Operator::kModulo, count, Value::Int(2)));
  const std::partial_ordering order = CompareNumbers(twice, unit);
  if (order < 0 || (order == 0 && !IsTrue(odd))) return low;
  return Arithmetic(rt, Operator::kAdd, low, unit);
}

Result<Value> FileSizeFormat(Runtime& rt, const Bound& b) {
  Bound as_float;
  as_float.values[0] = b[0];
  as_float.values[1] = Value::None();
  CMF_TRY(const Value number, Float(rt, as_float));
  if (!number.is(Kind::kFloat)) {
    return RuntimeFault("ValueError: could not convert to a number of bytes: '{}'", TypeName(b[0]));
  }
  const bool is_binary = Flag(b, 1);
  const double base = is_binary ? 1024 : 1000;
  const double bytes = number.real;
  if (bytes == 1) return rt.View("1 Byte");
  if (bytes < base) {
    CMF_TRY(const Value whole, Truncated(rt, bytes));
    CMF_TRY(const std::string digits, IntegerText(whole));
    return rt.Text(digits + " Bytes");
  }
  static constexpr std::string_view kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr std::string_view kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  double unit = base;
  for (size_t i = 0; i < std::size(kDecimal); ++i) {
    unit *= base;
    if (bytes >= unit && i + 1 < std::size(kDecimal)) continue;
    TextBuilder out(rt);
    CMF_CHECK(AppendFormatted(rt, Value::Float(base * bytes / unit), ".1f", &out));
    out.Append(" ");
    out.Append(is_binary ? kBinary[i] : kDecimal[i]);
    return out.Finish();
  }
  return Value();
}

Result<Value> ToJson(Runtime& rt, const Bound& b) {
  JsonStyle style;
  style.ensure_ascii = Flag(b, 1);
  style.sort_keys = Flag(b, 4);
  std::string blanks;
  if (b.has(2) && !b[2].is_none()) {
    style.has_indent = true;
    style.item_separator = ",";
    if (b[2].is_string()) {
      style.indent = b[2].text();
    } else {
      CMF_TRY(const int64_t width, ToIndex(b[2]));
      CMF_CHECK(rt.Reserve(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
      blanks.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
      style.indent = blanks;
    }
  }
  if (b.has(3) && !b[3].is_none()) {
    if (!b[3].is_sequence() || b[3].list->size != 2) {
      return Fault(error_name::kRuntime, "ValueError: separators of tojson are two strings");
    }
    CMF_TRY(const Str* const item, AsString(b[3].list->items[0], "separator"));
    CMF_TRY(const Str* const key, AsString(b[3].list->items[1], "separator"));
    style.item_separator = item->view();
    style.key_separator = key->view();
  }
  TextBuilder out(rt);
  CMF_CHECK(AppendJson(rt, b[0], style, &out));
  return out.Finish();
}

}  // namespace cmforge::jinja::filters
