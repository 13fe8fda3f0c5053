// Operators that are not matrix products:
//   delta_rule/keys/values/tokens a call/isa         time a token and head
//   attention/cache/queries/positions/isa            heads of 128, one thread: GB/s of keys and values and their share of
//                                                    the read loop over the same memory, GFLOP/s
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <random>
#include <vector>

#include "base/bytes.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/read_loop.h"

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

/// Queries that all see all positions of a kv head, over caches that together exceed the processor's own.
void Attention(benchmark::State& state, const FloatKernels& kernels, KvType type, int64_t queries,
               int64_t positions) {
  constexpr int64_t kDim = 128, kCacheBytes = int64_t{128} << 20;
  const KvPageLayout layout(type, kDim, kDim);
  const int64_t head_pages = positions / kPagePositions;
  const int64_t heads = std::max<int64_t>(1, kCacheBytes / (head_pages * layout.bytes));
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(static_cast<size_t>(queries * kDim)), sums(q.size());
  for (float& value : q) value = normal(rng);
  std::vector<std::byte> memory(static_cast<size_t>(heads * head_pages * layout.bytes) + 64);
  auto* begin = reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<uintptr_t>(memory.data()), 64));
  std::vector<const std::byte*> pages;
  for (int64_t page = 0; page < heads * head_pages; ++page) {
    pages.push_back(begin + page * layout.bytes);
    for (int64_t slot = 0; slot < kPagePositions; ++slot)
      kernels.store_kv(layout, begin + page * layout.bytes, slot, 1, q.data(), 0, q.data(), 0);
  }
  std::vector<float> unpacked(static_cast<size_t>(UnpackedFloats(layout)) + 16);
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  double own = 0, read = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    benchmark::DoNotOptimize(ReadAll(std::span(begin, memory.size() - 64)));
    read += seconds_since(start);
    const auto middle = Clock::now();
    for (int64_t head = 0; head < heads; ++head) {
      std::vector<AttendQuery> all(static_cast<size_t>(queries));
      for (int64_t n = 0; n < queries; ++n) {
        all[static_cast<size_t>(n)] = {q.data() + n * kDim, 0, positions - 1, sums.data() + n * kDim, 0, 0};
        AttendBegin(all[static_cast<size_t>(n)], kDim);
      }
      AttendArgs args;
      args.layout = &layout;
      args.scale = 0.1f;
      args.queries = all.data();
      args.count = queries;
      args.pages = pages.data() + head * head_pages;
      args.end = positions;
      args.unpacked = reinterpret_cast<float*>(AlignUp(reinterpret_cast<uintptr_t>(unpacked.data()), 64));
      kernels.attend(args);
    }
    own += seconds_since(middle);
  }
  const auto runs = static_cast<double>(state.iterations() * heads);
  state.counters["GB/s"] = runs * static_cast<double>(head_pages * layout.bytes) / own / 1e9;
  state.counters["of_read"] = read / own;
  state.counters["GFLOP/s"] = runs * static_cast<double>(4 * kDim * queries * positions) / own / 1e9;
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
    for (const auto& [name, type] :
         {std::pair{"f32", KvType::kF32}, std::pair{"f16", KvType::kF16}, std::pair{"q8", KvType::kQ8}}) {
      for (const auto& [queries, positions] : {std::pair{1, 8192}, std::pair{2, 8192}, std::pair{4, 8192},
                                               std::pair{8, 8192}, std::pair{64, 512}}) {
        benchmark::RegisterBenchmark(
            fmt::format("attention/{}/{}/{}/{}", name, queries, positions, isa).c_str(),
            [=, type = type, queries = queries, positions = positions](benchmark::State& s) {
              const FloatKernels* kernels = FindFloatKernels(isa);
              if (kernels == nullptr) return s.SkipWithError("does not run here");
              Attention(s, *kernels, type, queries, positions);
            });
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace cmforge
