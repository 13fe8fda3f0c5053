// The float kernels themselves; included once by each instruction set's file (elementwise_vec.h says how).
#pragma once

#include <cmath>

#include "kernels/attention_body.h"
#include "kernels/delta_rule_body.h"
#include "kernels/elementwise.h"
#include "kernels/elementwise_vec.h"
#include "kernels/kv_store_body.h"
#include "kernels/norm_body.h"

namespace cmforge {
namespace {

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  Map(gate, up, n, out, [](VecF g, VecF u) { return g * Sigmoid(g) * u; });
}
void GeluMul(const float* gate, const float* up, int64_t n, float* out) {
  Map(gate, up, n, out, [](VecF g, VecF u) { return GeluTanh(g) * u; });
}
void SiluRow(const float* x, int64_t n, float* out) {
  Map(x, n, out, [](VecF v) { return v * Sigmoid(v); });
}
void SigmoidMul(const float* x, const float* gate, int64_t n, float* out) {
  Map(x, gate, n, out, [](VecF v, VecF g) { return v * Sigmoid(g); });
}
void SigmoidRow(const float* x, int64_t n, float* out) {
  Map(x, n, out, [](VecF v) { return Sigmoid(v); });
}
void ExpRow(const float* x, int64_t n, float* out) {
  Map(x, n, out, [](VecF v) { return Exp(v); });
}
void SoftcapRow(const float* x, float cap, int64_t n, float* out) {
  Map(x, n, out, [=](VecF v) { return Set(cap) * Tanh(v / Set(cap)); });
}
void RoundF16Row(float* x, int64_t n) {
  Map(x, n, x, [](VecF v) { return RoundF16(v); });
}
void AddScaled(const float* x, float a, int64_t n, float* y) {
  Map(x, y, n, y, [=](VecF v, VecF w) { return Fma(v, Set(a), w); });
}

void Rope(float* x, const float* cosines, const float* sines, int64_t half) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const VecF a = Load(x + i), b = Load(x + half + i), c = Load(cosines + i), s = Load(sines + i);
    Store(x + i, Fma(a, c, -(b * s)));
    Store(x + half + i, Fma(b, c, a * s));
  }
  if (i < half) {
    float a[kLanes] = {}, b[kLanes] = {}, c[kLanes] = {}, s[kLanes] = {};
    const auto rest = static_cast<size_t>(half - i) * sizeof(float);
    std::memcpy(a, x + i, rest);
    std::memcpy(b, x + half + i, rest);
    std::memcpy(c, cosines + i, rest);
    std::memcpy(s, sines + i, rest);
    const VecF va = Load(a), vb = Load(b), vc = Load(c), vs = Load(s);
    Store(a, Fma(va, vc, -(vb * vs)));
    Store(b, Fma(vb, vc, va * vs));
    std::memcpy(x + i, a, rest);
    std::memcpy(x + half + i, b, rest);
  }
}

void ConvRow(const float* const* rows, const float* taps, int64_t kernel, int64_t channels, int64_t begin,
             int64_t end, float* out) {
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes) {
    VecF sum = {};
    for (int64_t j = 0; j < kernel; ++j) sum = Fma(Load(taps + j * channels + c), Load(rows[j] + c), sum);
    Store(out + c, sum);
  }
  if (c < end) {
    const auto rest = static_cast<size_t>(end - c) * sizeof(float);
    VecF sum = {};
    for (int64_t j = 0; j < kernel; ++j) {
      float tap[kLanes] = {}, x[kLanes] = {};
      std::memcpy(tap, taps + j * channels + c, rest);
      std::memcpy(x, rows[j] + c, rest);
      sum = Fma(Load(tap), Load(x), sum);
    }
    float result[kLanes];
    Store(result, sum);
    std::memcpy(out + c, result, rest);
  }
}

/// Constant, so that no code of an instruction set runs before it was asked for.
constexpr FloatKernels MakeTable(std::string_view isa, bool (*runs_here)()) {
  FloatKernels table{};
  table.isa = isa;
  table.runs_here = runs_here;
  table.rms_norm = RmsNorm;
  table.l2_norm = L2Norm;
  table.silu_mul = SiluMul;
  table.gelu_mul = GeluMul;
  table.silu = SiluRow;
  table.sigmoid_mul = SigmoidMul;
  table.sigmoid = SigmoidRow;
  table.exp = ExpRow;
  table.softcap = SoftcapRow;
  table.round_f16 = RoundF16Row;
  table.add_scaled = AddScaled;
  table.rope = Rope;
  table.conv_row = ConvRow;
  table.delta_rule = DeltaRule;
  table.store_kv = StoreKv;
  table.attend = Attend;
  return table;
}

}  // namespace
}  // namespace cmforge
