// The gated delta rule, token after token; included once by each instruction set's file.
//
// The columns of the state do not talk to each other, so a block of columns (8 KiB for 128 keys) stays in the
// first cache while all tokens of a batch pass over it. That is why prefill uses this form too: it costs
// about as many operations as the chunked form, and every split of a prompt gives the same bits.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/elementwise_vec.h"

namespace cmforge {
namespace {

/// kVecs vectors of columns starting at column c.
template <int kVecs>
CMFORGE_INLINE void DeltaColumns(const DeltaRuleArgs& args, int64_t c) {
  const int64_t stride = args.value_dim;
  for (int64_t t = 0; t < args.tokens; ++t) {
    const float* k = args.k + t * args.qk_stride;
    const float* q = args.q + t * args.qk_stride;
    const VecF decay = Set(args.decay[t * args.gate_stride]);
    const VecF beta = Set(args.beta[t * args.gate_stride]);
    // Four interleaved partial sums over the keys shorten the chains of additions.
    VecF seen[4][kVecs] = {};
    for (int64_t d = 0; d < args.key_dim; d += 4) {
      for (int j = 0; j < 4 && d + j < args.key_dim; ++j) {
        const VecF key = Set(k[d + j]);
        for (int i = 0; i < kVecs; ++i) {
          seen[j][i] = Fma(key, Load(args.state + (d + j) * stride + c + i * kLanes) * decay, seen[j][i]);
        }
      }
    }
    VecF delta[kVecs], out[4][kVecs] = {};
    for (int i = 0; i < kVecs; ++i) {
      const VecF sum = (seen[0][i] + seen[1][i]) + (seen[2][i] + seen[3][i]);
      delta[i] = beta * (Load(args.v + t * args.v_stride + c + i * kLanes) - sum);
    }
    for (int64_t d = 0; d < args.key_dim; d += 4) {
      for (int j = 0; j < 4 && d + j < args.key_dim; ++j) {
        const VecF key = Set(k[d + j]), query = Set(q[d + j]);
        for (int i = 0; i < kVecs; ++i) {
          float* at = args.state + (d + j) * stride + c + i * kLanes;
          const VecF s = Fma(key, delta[i], Load(at) * decay);
          Store(at, s);
          out[j][i] = Fma(query, s, out[j][i]);
        }
      }
    }
    for (int i = 0; i < kVecs; ++i) {
      Store(args.out + t * args.out_stride + c + i * kLanes,
            (out[0][i] + out[1][i]) + (out[2][i] + out[3][i]));
    }
  }
}

/// The last columns that do not fill a vector: the same operations on padded copies.
void DeltaTail(const DeltaRuleArgs& args, int64_t c) {
  const int64_t width = args.end - c;
  constexpr int64_t kMaxKeyDim = 512;
  float state[kMaxKeyDim * kLanes] = {};
  const auto bytes = static_cast<size_t>(width) * sizeof(float);
  for (int64_t d = 0; d < args.key_dim; ++d) {
    std::memcpy(state + d * kLanes, args.state + d * args.value_dim + c, bytes);
  }
  for (int64_t t = 0; t < args.tokens; ++t) {
    float v[kLanes] = {}, out[kLanes] = {};
    std::memcpy(v, args.v + t * args.v_stride + c, bytes);
    DeltaRuleArgs one = args;
    one.tokens = 1;
    one.value_dim = kLanes;
    one.q = args.q + t * args.qk_stride;
    one.k = args.k + t * args.qk_stride;
    one.decay = args.decay + t * args.gate_stride;
    one.beta = args.beta + t * args.gate_stride;
    one.v = v;
    one.state = state;
    one.out = out;
    DeltaColumns<1>(one, 0);
    std::memcpy(args.out + t * args.out_stride + c, out, bytes);
  }
  for (int64_t d = 0; d < args.key_dim; ++d) {
    std::memcpy(args.state + d * args.value_dim + c, state + d * kLanes, bytes);
  }
}

void DeltaRule(const DeltaRuleArgs& args) {
  constexpr int kBlock = kLanes == 4 ? 4 : 2;
  int64_t c = args.begin;
  for (; c + kBlock * kLanes <= args.end; c += kBlock * kLanes) DeltaColumns<kBlock>(args, c);
  for (; c + kLanes <= args.end; c += kLanes) DeltaColumns<1>(args, c);
  if (c < args.end) DeltaTail(args, c);
}

}  // namespace
}  // namespace cmforge
