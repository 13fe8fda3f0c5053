// Integers beyond 64 bits: sign and magnitude, schoolbook arithmetic. Bounded by kMaxBits, since nothing in a
// prompt needs more and products of huge numbers are how a template could burn time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cmforge::jinja {

class BigInt {
 public:
  static constexpr int64_t kMaxBits = 1 << 16;

  BigInt() = default;
  BigInt(int64_t value);  // NOLINT: an int64 is one
  static BigInt FromUnsigned(uint64_t value);
  static BigInt PowerOfTwo(int64_t exponent);
  /// Truncates; `value` is finite.
  static BigInt FromDouble(double value);
  /// Digits of base 2..36, no sign, no separators; nothing when a digit is not one or there are too many.
  static std::optional<BigInt> Parse(std::string_view digits, int base);

  [[nodiscard]] bool is_negative() const { return negative_; }
  [[nodiscard]] bool is_zero() const { return limbs_.empty(); }
  [[nodiscard]] int64_t bits() const;
  [[nodiscard]] uint64_t size_bytes() const { return limbs_.size() * sizeof(uint32_t); }
  [[nodiscard]] bool FitsInt64() const;
  [[nodiscard]] int64_t ToInt64() const;  // when it fits
  /// Rounded to nearest, half to even; infinite when out of range.
  [[nodiscard]] double ToDouble() const;
  [[nodiscard]] std::string ToText(int base = 10) const;

  [[nodiscard]] int Compare(const BigInt& other) const;
  [[nodiscard]] BigInt Negated() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b) { return a + b.Negated(); }
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  /// Quotient rounded down and the remainder with the sign of `b`, as Python's // and %; b is not zero.
  static void DivideFloor(const BigInt& a, const BigInt& b, BigInt* quotient, BigInt* remainder);

 private:
  using Limbs = std::vector<uint32_t>;  // least significant first, no leading zeros
  static int CompareMagnitude(const Limbs& a, const Limbs& b);
  static Limbs AddMagnitude(const Limbs& a, const Limbs& b);
  static Limbs SubtractMagnitude(const Limbs& a, const Limbs& b);  // a >= b
  static void DivideMagnitude(const Limbs& a, const Limbs& b, Limbs* quotient, Limbs* remainder);
  static uint32_t DivideBySmall(Limbs* a, uint32_t divisor);  // returns the remainder
  static void Trim(Limbs* limbs);

  bool negative_ = false;
  Limbs limbs_;
};

}  // namespace cmforge::jinja
