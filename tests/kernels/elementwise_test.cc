// Float kernels: every instruction set against plain f64 arithmetic, and bit for bit against each other.
#include "kernels/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "gtest/gtest.h"

namespace cmforge {
namespace {

std::vector<float> Random(int64_t n, unsigned seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(static_cast<size_t>(n));
  for (auto& value : x) value = normal(rng);
  return x;
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b, std::string_view what) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * sizeof(float))) << what;
}

TEST(Elementwise, ActivationsAreWithinFloatRoundingOfTheirFormulas) {
  for (const auto* kernels : FloatKernelsThatRun()) {
    for (const int64_t n : {1, 3, 4, 7, 16, 33, 1000}) {
      const auto gate = Random(n, 1, 6), up = Random(n, 2);
      std::vector<float> out(static_cast<size_t>(n));
      const auto check = [&](auto formula, double tolerance, const char* what) {
        for (size_t i = 0; i < out.size(); ++i) {
          const double want = formula(static_cast<double>(gate[i]), static_cast<double>(up[i]));
          ASSERT_NEAR(out[i], want, tolerance * (1 + std::fabs(want)))
              << what << " " << kernels->isa << " at " << i;
        }
      };
      kernels->silu_mul(gate.data(), up.data(), n, out.data());
      check([](double g, double u) { return g / (1 + std::exp(-g)) * u; }, 5e-7, "silu_mul");
      kernels->gelu_mul(gate.data(), up.data(), n, out.data());
      check(
          [](double g, double u) {
            return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
          },
          5e-7, "gelu_mul");
      kernels->sigmoid_mul(gate.data(), up.data(), n, out.data());
      check([](double g, double u) { return g / (1 + std::exp(-u)); }, 5e-7, "sigmoid_mul");
      kernels->softcap(gate.data(), 5.0f, n, out.data());
      check([](double g, double) { return 5 * std::tanh(g / 5); }, 1e-6, "softcap");
      kernels->exp(gate.data(), n, out.data());
      check([](double g, double) { return std::exp(g); }, 3e-7, "exp");
      kernels->rms_norm(gate.data(), up.data(), 1e-6, n, out.data());
      double squares = 0;
      for (const float g : gate) squares += static_cast<double>(g) * g;
      const double rms = std::sqrt(squares / static_cast<double>(n) + 1e-6);
      check([=](double g, double u) { return g / rms * u; }, 5e-7, "rms_norm");
    }
  }
}

TEST(Elementwise, ExtremesStayFinite) {
  for (const auto* kernels : FloatKernelsThatRun()) {
    const std::vector<float> x = {-1e5f, -200, -88, -87, 0, 87, 88, 200, 1e5f, -0.0f};
    std::vector<float> out(x.size()), ones(x.size(), 1);
    kernels->silu_mul(x.data(), ones.data(), static_cast<int64_t>(x.size()), out.data());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(std::isfinite(out[i])) << kernels->isa << " " << x[i];
      EXPECT_NEAR(out[i], x[i] > 0 ? x[i] : 0, 1e-30) << kernels->isa << " " << x[i];
    }
    const std::vector<float> zero = {0};
    kernels->exp(zero.data(), 1, out.data());
    EXPECT_EQ(1.0f, out[0]);
    kernels->rms_norm(x.data(), nullptr, 1e-6, static_cast<int64_t>(x.size()), out.data());
    for (const float value : out) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Elementwise, EveryInstructionSetGivesEqualBits) {
  const auto tables = FloatKernelsThatRun();
  const auto* first = tables.front();
  for (const auto* kernels : tables) {
    for (const int64_t n : {1, 5, 16, 31, 100}) {
      const auto a = Random(n, 3, 4), b = Random(n, 4, 4);
      std::vector<float> want(a.size()), got(a.size());
      const auto same = [&](auto call, const char* what) {
        call(*first, want);
        call(*kernels, got);
        ExpectSameBits(want, got, what);
      };
      same([&](const FloatKernels& k, auto& out) { k.silu_mul(a.data(), b.data(), n, out.data()); },
           "silu_mul");
      same([&](const FloatKernels& k, auto& out) { k.gelu_mul(a.data(), b.data(), n, out.data()); },
           "gelu_mul");
      same([&](const FloatKernels& k, auto& out) { k.softcap(a.data(), 3, n, out.data()); }, "softcap");
      same([&](const FloatKernels& k, auto& out) { k.rms_norm(a.data(), b.data(), 1e-5, n, out.data()); },
           "rms");
      same([&](const FloatKernels& k, auto& out) { k.l2_norm(a.data(), 1e-6, 0.3f, n, out.data()); }, "l2");
      same(
          [&](const FloatKernels& k, auto& out) {
            std::copy(a.begin(), a.end(), out.begin());
            k.add_scaled(b.data(), 0.7f, n, out.data());
          },
          "add_scaled");
      if (n % 2 == 0) {
        same(
            [&](const FloatKernels& k, auto& out) {
              std::copy(a.begin(), a.end(), out.begin());
              k.rope(out.data(), b.data(), b.data() + n / 2, n / 2);
            },
            "rope");
      }
    }
  }
}

TEST(Elementwise, RoundingToHalvesIsThatOfTheConversion) {
  // Both sides of every boundary between neighbouring halves, subnormals, infinities and NaN.
  std::vector<float> values;
  for (uint32_t half = 0; half <= 0xFFFF; ++half) {
    const float value = F16ToF32(static_cast<uint16_t>(half));
    values.push_back(value);
    if (!std::isfinite(value)) continue;
    const float next = F16ToF32(static_cast<uint16_t>(half + 1));
    const float middle = std::isfinite(next) ? value + (next - value) / 2 : std::copysign(65520.0f, value);
    for (const float near : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, middle * 2)})
      values.push_back(near);
  }
  std::vector<float> want(values.size());
  for (size_t i = 0; i < values.size(); ++i) want[i] = RoundToF16(values[i]);
  for (const auto* kernels : FloatKernelsThatRun()) {
    std::vector<float> got = values;
    kernels->round_f16(got.data(), static_cast<int64_t>(got.size()));
    ExpectSameBits(want, got, std::string(kernels->isa).c_str());
  }
}

TEST(Elementwise, ConvolutionOfOneRowIsTheSumOverItsTaps) {
  for (const auto* kernels : FloatKernelsThatRun()) {
    for (const int64_t channels : {1, 7, 40}) {
      const int64_t taps = 4;
      const auto weights = Random(taps * channels, 5), data = Random(taps * channels, 6);
      std::vector<const float*> rows;
      for (int64_t j = 0; j < taps; ++j) rows.push_back(data.data() + j * channels);
      std::vector<float> out(static_cast<size_t>(channels), -7);
      kernels->conv_row(rows.data(), weights.data(), taps, channels, 0, channels / 2, out.data());
      kernels->conv_row(rows.data(), weights.data(), taps, channels, channels / 2, channels, out.data());
      for (int64_t c = 0; c < channels; ++c) {
        double want = 0;
        for (int64_t j = 0; j < taps; ++j) {
          const auto at = static_cast<size_t>(j * channels + c);
          want += static_cast<double>(weights[at]) * static_cast<double>(data[at]);
        }
        EXPECT_NEAR(want, out[static_cast<size_t>(c)], 1e-5) << kernels->isa;
      }
    }
  }
}

/// The rule as it is defined, token after token, in f64.
struct DeltaCase {
  int64_t tokens, key_dim, value_dim;
  std::vector<float> qk, v, decay, beta;

  DeltaCase(int64_t tokens_, int64_t key_dim_, int64_t value_dim_)
      : tokens(tokens_), key_dim(key_dim_), value_dim(value_dim_) {
    qk = Random(2 * tokens * key_dim, 7, 1);
    v = Random(tokens * value_dim, 9);
    decay = Random(tokens, 10, 1);
    beta = Random(tokens, 11, 1);
    for (int64_t row = 0; row < 2 * tokens; ++row) {  // as after the l2 norm
      double sum = 1e-6;
      for (int64_t d = 0; d < key_dim; ++d)
        sum += std::pow(static_cast<double>(qk[At(row * key_dim + d)]), 2);
      for (int64_t d = 0; d < key_dim; ++d) qk[At(row * key_dim + d)] /= static_cast<float>(std::sqrt(sum));
    }
    for (float& x : decay)
      x = std::fabs(x) < 0.1f ? 1e-20f : 1 - std::fabs(x) * 0.2f;  // some forget everything
    for (float& x : beta) x = std::min(1.0f, std::fabs(x));
  }
  static size_t At(int64_t i) { return static_cast<size_t>(i); }

  [[nodiscard]] std::vector<double> Oracle() const {
    std::vector<double> state(At(key_dim * value_dim)), want;
    for (int64_t t = 0; t < tokens; ++t) {
      const float *q = &qk[At(2 * t * key_dim)], *k = q + key_dim;
      for (double& s : state) s *= static_cast<double>(decay[At(t)]);
      for (int64_t c = 0; c < value_dim; ++c) {
        double seen = 0, out = 0;
        for (int64_t d = 0; d < key_dim; ++d)
          seen += state[At(d * value_dim + c)] * static_cast<double>(k[d]);
        const double delta =
            static_cast<double>(beta[At(t)]) * (static_cast<double>(v[At(t * value_dim + c)]) - seen);
        for (int64_t d = 0; d < key_dim; ++d) {
          out +=
              (state[At(d * value_dim + c)] += static_cast<double>(k[d]) * delta) * static_cast<double>(q[d]);
        }
        want.push_back(out);
      }
    }
    return want;
  }

  [[nodiscard]] std::vector<float> Run(const FloatKernels& kernels,
                                       const std::vector<int64_t>& pieces) const {
    std::vector<float> state(At(DeltaStateFloats(key_dim, value_dim))), out(At(tokens * value_dim), -7);
    DeltaRuleArgs args;
    args.key_dim = key_dim;
    args.value_dim = args.v_stride = args.out_stride = value_dim;
    args.qk_stride = 2 * key_dim;
    args.gate_stride = 1;
    args.state = state.data();
    size_t piece = 0;
    for (int64_t t = 0; t < tokens; t += args.tokens) {
      args.tokens = std::min(pieces[piece++ % pieces.size()], tokens - t);
      args.filled = t % kDeltaChunk;
      args.q = &qk[At(2 * t * key_dim)];
      args.k = args.q + key_dim;
      args.v = &v[At(t * value_dim)];
      args.decay = &decay[At(t)];
      args.beta = &beta[At(t)];
      args.out = &out[At(t * value_dim)];
      kernels.delta_rule(args);
    }
    return out;
  }
};

TEST(DeltaRule, MatchesTheRecurrenceWhateverTheSplitAndTheInstructionSet) {
  for (const auto& [tokens, key_dim, value_dim] : {std::array<int64_t, 3>{257, 8, 16},
                                                   {70, 30, 45},
                                                   {72, 128, 128},
                                                   {66, 1, 3},
                                                   {130, 6, 5},
                                                   {65, 9, 80}}) {
    const DeltaCase test(tokens, key_dim, value_dim);
    const auto want = test.Oracle();
    std::vector<float> first;
    for (const auto* kernels : FloatKernelsThatRun()) {
      const auto got = test.Run(*kernels, {tokens});
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(want[i], got[i], 2e-5) << kernels->isa << " " << i;
      const std::string what = fmt::format("{} {} x {}", kernels->isa, key_dim, value_dim);
      for (const std::vector<int64_t>& pieces : std::vector<std::vector<int64_t>>{
               {1}, {7}, {63}, {64}, {65}, {1, 2, 3, 5, 8, 13, 21}, {9, 1, 1, 70}, {60, 3, 1}}) {
        ExpectSameBits(got, test.Run(*kernels, pieces), what + " in pieces");
      }
      if (first.empty()) first = got;
      ExpectSameBits(first, got, what);
    }
  }
}

}  // namespace
}  // namespace cmforge
