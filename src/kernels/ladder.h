// The 32 scales of a q4tp or q2tp row in fast mode: 2^lo times powers of 2^step, the powers by repeated
// squaring so that a row's ladder is a few vector operations. They are within a few units in the last place
// of the iterated products that define the encoding (which exact mode uses). No contraction: every
// instruction set gives the same.
#pragma once

#include <cstdint>
#include <cstring>

namespace cmforge {
namespace {

// Taylor series of 2^r, highest power first.
constexpr int kExp2TermCount = 11;
constexpr double kExp2Terms[kExp2TermCount] = {7.0549116208011233e-9,
                                               1.0178086009239699e-7,
                                               1.3215486790144309e-6,
                                               1.5252733804059840e-5,
                                               1.5403530393381609e-4,
                                               1.3333558146428443e-3,
                                               9.6181291076284771e-3,
                                               5.5504108664821579e-2,
                                               2.4022650695910071e-1,
                                               6.9314718055994531e-1,
                                               1.0};

/// 2^x in f32 for |x| <= 190 (beyond: clamped; NaN: the lower bound). Computed in f64 with an error below
/// 2^-40, so the result is the correctly rounded one for all but a vanishing share of arguments.
inline float Exp2(float x32) {
  double x = static_cast<double>(x32);
  x = x > -190.0 ? x : -190.0;
  x = x < 190.0 ? x : 190.0;
  constexpr double kShift = 0x1.8p52;  // puts the nearest integer in the low bits
  const double shifted = x + kShift;
  const double r = x - (shifted - kShift);  // exact, |r| <= 1/2
  double p = kExp2Terms[0];
  for (int i = 1; i < kExp2TermCount; ++i) p = p * r + kExp2Terms[i];
  int64_t n;
  std::memcpy(&n, &shifted, sizeof n);
  const int64_t exponent = (n + 1023) << 52;  // the shift's own bits leave at the top
  double power;
  std::memcpy(&power, &exponent, sizeof power);
  return static_cast<float>(p * power);
}

/// scale[c] = first * ratio^c. q2tp: rung 0 is an exactly zero group, rung c is rung c - 1 of that ladder,
/// and its codes count halves.
inline void MakeLadder(float first, float ratio, bool is_q2, float* scale) {
  float power[5];
  power[0] = ratio;
  for (int i = 1; i < 5; ++i) power[i] = power[i - 1] * power[i - 1];
  float ladder[32];
  for (int c = 0; c < 32; ++c) {
    const auto factor = [&](int bit) { return (c >> bit & 1) != 0 ? power[bit] : 1.0f; };
    ladder[c] = first * ((factor(0) * factor(1)) * (factor(2) * factor(3))) * factor(4);
  }
  for (int c = 0; c < 32; ++c) scale[c] = !is_q2 ? ladder[c] : c == 0 ? 0.0f : 0.5f * ladder[c - 1];
}

}  // namespace
}  // namespace cmforge
