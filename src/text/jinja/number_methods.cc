// The methods of int and float.
#include <cmath>

#include "text/jinja/callables.h"
#include "text/jinja/iterate.h"
#include "text/jinja/numbers.h"

namespace cmforge::jinja {
namespace {

Result<Value> BitLength(Runtime&, const Bound& b) { return Value::Int(ToBigInt(b.self).bits()); }

Result<Value> Conjugate(Runtime&, const Bound& b) {
  return b.self.is(Kind::kBool) ? Value::Int(b.self.small_int()) : b.self;
}

Result<Value> IsInteger(Runtime&, const Bound& b) {
  return Value::Bool(std::isfinite(b.self.real) && b.self.real == std::trunc(b.self.real));
}

Result<Value> IntegerRatio(Runtime& rt, const Bound& b) {
  if (!b.self.is(Kind::kFloat)) {
    CMF_TRY(const Value whole, Conjugate(rt, b));
    return Pair(rt, whole, Value::Int(1));
  }
  if (!std::isfinite(b.self.real)) {
    return Fault(error_name::kRuntime, "ValueError: cannot convert NaN or infinity to integer ratio");
  }
  double numerator = b.self.real;
  int shift = 0;
  while (numerator != std::trunc(numerator)) {
    numerator *= 2;
    ++shift;
  }
  CMF_TRY(const Value denominator, Arithmetic(rt, Operator::kPower, Value::Int(2), Value::Int(shift)));
  return Pair(rt, rt.Integer(BigInt::FromDouble(numerator)), denominator);
}

constexpr MethodEntry kIntMethods[] = {
    {{"as_integer_ratio", "", IntegerRatio}},
    {{"bit_length", "", BitLength}},
    {{"conjugate", "", Conjugate}},
};

constexpr MethodEntry kFloatMethods[] = {
    {{"as_integer_ratio", "", IntegerRatio}},
    {{"conjugate", "", Conjugate}},
    {{"is_integer", "", IsInteger}},
};

}  // namespace

const MethodEntry* FindNumberMethod(Kind kind, std::string_view name) {
  return kind == Kind::kFloat ? FindSorted(kFloatMethods, name) : FindSorted(kIntMethods, name);
}

}  // namespace cmforge::jinja
