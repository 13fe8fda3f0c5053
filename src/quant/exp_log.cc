// log2 by the series of atanh, exp2 by Taylor's series, both on a reduced range where 1e-17 is soon reached.
#include "quant/exp_log.h"

#include <bit>
#include <cmath>
#include <limits>

namespace cmforge {

double Log2(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep0;
  constexpr double kSqrt2 = 0x1.6a09e667f3bcdp0;
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);  // [1, 2)
  if (mantissa > kSqrt2) {
    mantissa /= 2;
    ++exponent;
  }
  // ln(m) = 2 atanh(f) = 2 (f + f^3/3 + f^5/5 + ...), f = (m - 1) / (m + 1), |f| < 0.1716.
  const double f = (mantissa - 1) / (mantissa + 1);
  const double f2 = f * f;
  double sum = 0;
  for (int k = 25; k >= 3; k -= 2) sum = (sum + 1.0 / k) * f2;
  return static_cast<double>(exponent) + 2 * (f + f * sum) * kLog2E;
}

double Exp2(double x) {
  if (!(x <= 1023)) return x > 1023 ? std::numeric_limits<double>::infinity() : x;
  if (x < -1000) return 0;
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kShift = 0x1.8p52;
  const double whole = (x + kShift) - kShift;
  const double r = (x - whole) * kLn2;  // |r| < 0.35
  double sum = 0;
  for (int k = 15; k >= 1; --k) sum = (sum + 1) * r / k;
  const double scale = std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(whole) + 1023) << 52);
  return (1 + sum) * scale;
}

float LadderExp2(float x) {
  if (!(std::fabs(x) < 1024)) return static_cast<float>(Exp2(x));  // beyond every f32, or NaN
  // The cubic of least relative error on |r| <= 1/64 whose constant term is 1.
  constexpr double kC3 = 0x1.c6af84b912394p-5, kC2 = 0x1.ebfce50fac4f3p-3, kC1 = 0x1.62e42ff0c52d6p-1;
  constexpr double kShift = 0x1.8p52 / 32;  // the sum has no bits left below 1/32
  const double power = (x + kShift) - kShift;
  const double r = x - power;
  const double high = kC3 * r + kC2, low = kC1 * r + 1;
  return static_cast<float>((high * (r * r) + low) * Exp2(power));
}

}  // namespace cmforge
