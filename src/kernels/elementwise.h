// The float kernels of a forward pass that are not matrix products: norms, activations, rotary embedding,
// attention over cached keys, the gated delta rule. One table per instruction set, filled from one body of
// code (elementwise_body.h and its neighbours), so the tables differ only in vector width.
//
// Every result has a fixed order of operations per row, with fused multiply-adds: it does not depend on
// vector width, on how many rows are computed together, or on threads. All tables give equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/attention.h"

namespace cmforge {

struct FloatKernels {
  std::string_view isa;  // "reference", "avx2", "avx512", "neon"
  bool (*runs_here)();   // asks the CPU, not the compiler

  /// y = x / sqrt(mean(x^2) + eps) * weight; `weight` null: without weight. The mean is taken in f64. x may
  /// be y.
  void (*rms_norm)(const float* x, const float* weight, double eps, int64_t n, float* y);
  /// y = x / sqrt(sum(x^2) + eps) * scale.  x may be y.
  void (*l2_norm)(const float* x, double eps, float scale, int64_t n, float* y);

  /// out = silu(gate) * up. Any argument may alias another.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  /// out = gelu_tanh(gate) * up.
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*silu)(const float* x, int64_t n, float* out);
  /// out = x * sigmoid(gate).
  void (*sigmoid_mul)(const float* x, const float* gate, int64_t n, float* out);
  void (*sigmoid)(const float* x, int64_t n, float* out);
  void (*exp)(const float* x, int64_t n, float* out);
  /// out = cap * tanh(x / cap).
  void (*softcap)(const float* x, float cap, int64_t n, float* out);
  /// Each x to the nearest f16 (F32ToF16), as f32.
  void (*round_f16)(float* x, int64_t n);
  /// y += a * x.
  void (*add_scaled)(const float* x, float a, int64_t n, float* y);

  /// Rotates pairs (i, i + half), i < half, of one head in place: a cos - b sin, b cos + a sin.
  void (*rope)(float* x, const float* cosines, const float* sines, int64_t half);

  /// Depthwise causal convolution of one row: out[c] = sum over j of taps[j * channels + c] * rows[j][c],
  /// j < kernel, rows[kernel - 1] the newest; only channels [begin, end).
  void (*conv_row)(const float* const* rows, const float* taps, int64_t kernel, int64_t channels,
                   int64_t begin, int64_t end, float* out);

  /// One head of the gated delta rule over `tokens` tokens; see DeltaRuleArgs.
  void (*delta_rule)(const struct DeltaRuleArgs& args);

  /// Stores `count` positions of one head in its page, from slot (= position % 64) on; q8 rounds to nearest with
  /// absmax / 127 per group. Whole tiles of 16 positions take the least time. Strides: floats between positions.
  void (*store_kv)(const KvPageLayout& layout, std::byte* page, int64_t slot, int64_t count,
                   const float* keys, int64_t key_stride, const float* values, int64_t value_stride);
  /// Queries against one head's cached keys and values; see AttendArgs.
  void (*attend)(const AttendArgs& args);
};

/// For each token: S *= decay; d = beta (v - S^T k); S += k d^T; out = S^T q. Computed in chunks of 64 tokens that
/// begin at multiples of 64 tokens since the state was zero (delta_rule_body.h).
struct DeltaRuleArgs {
  int64_t tokens = 0, key_dim = 0, value_dim = 0;
  int64_t filled = 0;        // tokens of an unfinished chunk in `state`: all tokens so far modulo kDeltaChunk
  const float* q = nullptr;  // token t at q + t * qk_stride, [key_dim]
  const float* k = nullptr;  // the same; q and k lie in one array
  int64_t qk_stride = 0;
  const float* v = nullptr;  // token t at v + t * v_stride, [value_dim]
  int64_t v_stride = 0;
  const float* decay = nullptr;  // token t at decay[t * gate_stride]
  const float* beta = nullptr;
  int64_t gate_stride = 0;
  float* state = nullptr;  // DeltaStateFloats of them, at first all 0; advanced
  float* out = nullptr;    // token t at out + t * out_stride, [value_dim]
  int64_t out_stride = 0;
};

inline constexpr int64_t kDeltaChunk = 64;
/// Columns of the state: value_dim padded to whole vectors of the widest instruction set.
[[nodiscard]] constexpr int64_t DeltaWidth(int64_t value_dim) { return (value_dim + 15) / 16 * 16; }
/// Floats of one head's state: S [key_dim, width], and of the unfinished chunk the updates [64, width], the keys
/// [key_dim, 64] and the decays.
[[nodiscard]] constexpr int64_t DeltaStateFloats(int64_t key_dim, int64_t value_dim) {
  return (key_dim + kDeltaChunk) * DeltaWidth(value_dim) + (key_dim + 1) * kDeltaChunk + 16;
}

/// The table of that name; empty = the best that runs here (the environment is the caller's business).
/// Null when no table of that name runs on this machine.
[[nodiscard]] const FloatKernels* FindFloatKernels(std::string_view isa);
/// Every table that runs here, "reference" first.
[[nodiscard]] std::span<const FloatKernels* const> FloatKernelsThatRun();

}  // namespace cmforge
