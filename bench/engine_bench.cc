// Operators that are not matrix products. Names: delta_rule/keys/values/tokens a call/isa; time a token and
// head.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/elementwise.h"

namespace cmforge {
namespace {

void DeltaRule(benchmark::State& state, const FloatKernels& kernels, int64_t keys, int64_t values,
               int64_t piece) {
  constexpr int64_t kHeads = 16, kTokens = 128;
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  const auto random = [&](int64_t n, float scale, float shift) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& value : x) value = uniform(rng) * scale + shift;
    return x;
  };
  const auto qk = random(kTokens * kHeads * keys * 2, 2 / std::sqrt(static_cast<float>(keys)), 0);
  const auto v = random(kTokens * kHeads * values, 1, 0), decay = random(kTokens * kHeads, 0.1f, 0.95f),
             beta = random(kTokens * kHeads, 1, 0.5f);
  const int64_t floats = DeltaStateFloats(keys, values);
  std::vector<float> states(static_cast<size_t>(kHeads * floats)), out(v.size());
  for (auto _ : state) {
    for (int64_t t = 0; t < kTokens; t += piece) {
      for (int64_t h = 0; h < kHeads; ++h) {
        DeltaRuleArgs args;
        args.tokens = piece;
        args.filled = t % kDeltaChunk;
        args.key_dim = keys;
        args.value_dim = values;
        args.q = qk.data() + (t * kHeads * 2 + h) * keys;
        args.k = args.q + kHeads * keys;
        args.qk_stride = kHeads * 2 * keys;
        args.v = v.data() + (t * kHeads + h) * values;
        args.v_stride = args.out_stride = kHeads * values;
        args.decay = decay.data() + t * kHeads + h;
        args.beta = beta.data() + t * kHeads + h;
        args.gate_stride = kHeads;
        args.state = states.data() + h * floats;
        args.out = out.data() + (t * kHeads + h) * values;
        kernels.delta_rule(args);
      }
    }
  }
  state.counters["per_token_head"] = benchmark::Counter(
      kTokens * kHeads, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const char* isa : {"avx2", "avx512", "neon"}) {
    for (const int64_t piece : {128, 64, 8, 1}) {
      benchmark::RegisterBenchmark(fmt::format("delta_rule/128/128/{}/{}", piece, isa).c_str(),
                                   [=](benchmark::State& s) {
                                     const FloatKernels* kernels = FindFloatKernels(isa);
                                     if (kernels == nullptr) return s.SkipWithError("does not run here");
                                     DeltaRule(s, *kernels, 128, 128, piece);
                                   });
    }
  }
  return true;
}();

}  // namespace
}  // namespace cmforge
