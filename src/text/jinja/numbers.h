// Python's numbers: integers without limit, floats, and how they are written and read.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"

namespace cmforge::jinja {

enum class Operator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
[[nodiscard]] std::string_view OperatorSign(Operator op);

/// Exact, also between huge integers and floats.
[[nodiscard]] std::partial_ordering CompareNumbers(const Value& a, const Value& b);

/// a op b for numbers. Fails: division by zero, a power that is too large or complex.
Result<Value> Arithmetic(Runtime& rt, Operator op, const Value& a, const Value& b);
Result<Value> Negate(Runtime& rt, const Value& number);

[[nodiscard]] BigInt ToBigInt(const Value& integral);
/// Fails for integers out of range.
Result<double> ToDouble(const Value& number);
/// An integral value that fits, for counts and widths: others are a TypeError or OverflowError.
Result<int64_t> ToIndex(const Value& value);

/// repr(float): shortest digits that read back the same.
[[nodiscard]] std::string FloatText(double value);
/// Decimal digits of an integral value; bool as 0 or 1. Fails beyond 4300 digits, as Python does.
Result<std::string> IntegerText(const Value& value);

/// int(text, base) and float(text); nothing when Python would raise ValueError.
[[nodiscard]] std::optional<BigInt> ParseInteger(std::string_view text, int base = 10);
[[nodiscard]] std::optional<double> ParseFloat(std::string_view text);

/// round(value, digits), half to even on the exact binary value.
[[nodiscard]] double RoundTo(double value, int64_t digits);

}  // namespace cmforge::jinja
