// Float kernels: every instruction set against plain f64 arithmetic, and bit for bit against each other.
#include "kernels/elementwise.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

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

TEST(DeltaRule, MatchesTheRecurrenceAndDoesNotDependOnHowColumnsOrTokensAreCut) {
  const int64_t tokens = 5;
  for (const auto& [key_dim, value_dim] :
       {std::pair<int64_t, int64_t>{16, 16}, {30, 45}, {128, 128}, {1, 3}}) {
    const auto q = Random(tokens * key_dim, 7, 0.2f), k = Random(tokens * key_dim, 8, 0.2f);
    const auto v = Random(tokens * value_dim, 9), start = Random(key_dim * value_dim, 10);
    const std::vector<float> decay = {0.9f, 0.5f, 0.99f, 0.1f, 1.0f}, beta = {0.3f, 0.9f, 0.5f, 0.0f, 1.0f};
    std::vector<double> state(start.begin(), start.end());
    std::vector<double> want;
    for (int64_t t = 0; t < tokens; ++t) {
      const auto key = [&](int64_t d) {
        return static_cast<double>(k[static_cast<size_t>(t * key_dim + d)]);
      };
      const auto query = [&](int64_t d) {
        return static_cast<double>(q[static_cast<size_t>(t * key_dim + d)]);
      };
      for (auto& s : state) s *= static_cast<double>(decay[static_cast<size_t>(t)]);
      for (int64_t c = 0; c < value_dim; ++c) {
        double seen = 0, out = 0;
        const auto at = [&](int64_t d) -> double& { return state[static_cast<size_t>(d * value_dim + c)]; };
        for (int64_t d = 0; d < key_dim; ++d) seen += at(d) * key(d);
        const double delta = static_cast<double>(beta[static_cast<size_t>(t)]) *
                             (static_cast<double>(v[static_cast<size_t>(t * value_dim + c)]) - seen);
        for (int64_t d = 0; d < key_dim; ++d) out += (at(d) += key(d) * delta) * query(d);
        want.push_back(out);
      }
    }
    std::vector<float> first;
    for (const auto* kernels : FloatKernelsThatRun()) {
      const auto run = [&](int64_t cut, int64_t piece) {
        std::vector<float> s = start, out(static_cast<size_t>(tokens * value_dim));
        DeltaRuleArgs args;
        args.key_dim = key_dim;
        args.value_dim = args.v_stride = args.out_stride = value_dim;
        args.qk_stride = key_dim;
        args.gate_stride = 1;
        args.state = s.data();
        for (int64_t t = 0; t < tokens; t += piece) {
          args.tokens = std::min(piece, tokens - t);
          args.q = q.data() + t * key_dim;
          args.k = k.data() + t * key_dim;
          args.v = v.data() + t * value_dim;
          args.decay = decay.data() + t;
          args.beta = beta.data() + t;
          args.out = out.data() + t * value_dim;
          args.begin = 0, args.end = cut;
          kernels->delta_rule(args);
          args.begin = cut, args.end = value_dim;
          kernels->delta_rule(args);
        }
        return out;
      };
      const auto got = run(value_dim, tokens);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(want[i], got[i], 2e-5) << kernels->isa << " " << i;
      ExpectSameBits(got, run(value_dim / 2, 1), "cut columns, one token a time");
      ExpectSameBits(got, run(value_dim / 3, 2), "cut columns, two tokens a time");
      if (first.empty()) first = got;
      ExpectSameBits(first, got, kernels->isa);
    }
  }
}

}  // namespace
}  // namespace cmforge
