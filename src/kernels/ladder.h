// The 32 scales of a q4tp or q2tp row: 2^lo, then iterated products with 2^step. Branch-free so that loops
// over rows vectorize, and without contraction so that every instruction set gives the same bits.
#pragma once

#include <cstdint>
#include <cstring>

namespace cmforge {
namespace {

/// 2^x in f32 for |x| <= 190 (beyond: clamped; NaN: the lower bound). Computed in f64 with an error below
/// 2^-44, so the result is the correctly rounded one for all but a vanishing share of arguments.
inline float Exp2(float x32) {
  double x = static_cast<double>(x32);
  x = x > -190.0 ? x : -190.0;
  x = x < 190.0 ? x : 190.0;
  constexpr double kShift = 0x1.8p52;  // puts the nearest integer in the low bits
  const double shifted = x + kShift;
  const double r = x - (shifted - kShift);  // exact, |r| <= 1/2
  // Taylor series of 2^r.
  double p = 7.0549116208011233e-9;
  p = p * r + 1.0178086009239699e-7;
  p = p * r + 1.3215486790144309e-6;
  p = p * r + 1.5252733804059840e-5;
  p = p * r + 1.5403530393381609e-4;
  p = p * r + 1.3333558146428443e-3;
  p = p * r + 9.6181291076284771e-3;
  p = p * r + 5.5504108664821579e-2;
  p = p * r + 2.4022650695910071e-1;
  p = p * r + 6.9314718055994531e-1;
  p = p * r + 1.0;
  int64_t n;
  std::memcpy(&n, &shifted, sizeof n);
  const int64_t exponent = (n + 1023) << 52;  // the shift's own bits leave at the top
  double power;
  std::memcpy(&power, &exponent, sizeof power);
  return static_cast<float>(p * power);
}

}  // namespace
}  // namespace cmforge
