// Base-2 exponential and logarithm whose bits reach files (ladders, bit allocation): plain f64 arithmetic in
// a fixed order, so every compiler and machine gives the same.
#pragma once

#include <cstdint>

namespace cmforge {

/// log2(x) for a normal x > 0 with an error below 1e-15 of max(1, |log2 x|); exact for powers of two.
[[nodiscard]] double Log2(double x);

/// 2^x with a relative error below 1e-15; infinity above 1023, 0 below -1000, NaN for NaN; exact for whole x.
[[nodiscard]] double Exp2(double x);

/// 2^x as the ladders of q4tp and q2tp have it: the f32 of 2^(k/32) times a cubic in the rest of x, |rest| <= 1/64.
/// The cubic is off by up to 1e-10, so one result in a thousand is not the f32 nearest to 2^x; files that exist
/// were made with it, and a reader must give their bits.
[[nodiscard]] float LadderExp2(float x);

}  // namespace cmforge
