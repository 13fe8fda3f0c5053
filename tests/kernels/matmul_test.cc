// Matrix products on encoded weights: the reference against plain f64 arithmetic on decoded weights, every
// instruction set against the reference bit for bit, and one answer whatever the split.
#include <algorithm>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/elementwise.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "random_weight.h"

namespace cmforge {
namespace {

constexpr int64_t kWidths[] = {1, 31, 32, 33, 64, 96, 100, 128, 160, 512, 1056, 4096};

std::vector<float> Slice(const std::vector<float>& x, int64_t begin, int64_t count) {
  return {x.begin() + begin, x.begin() + begin + count};
}

testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], 4) != 0) {
      return testing::AssertionFailure()
             << "value " << i << " of " << a.size() << ": " << a[i] << " and " << b[i];
    }
  }
  return testing::AssertionSuccess();
}

// Every dtype and width that can be stored; fn(view).
template <class Fn>
void ForEveryMatrix(int64_t rows, Fn&& fn) {
  for (const DType dtype : kMatrixTypes) {
    for (const int64_t cols : kWidths) {
      if (!IsStorable(dtype, rows, cols)) continue;
      SCOPED_TRACE(fmt::format("{} [{}, {}]", DTypeName(dtype), rows, cols));
      fn(WeightMaker(static_cast<uint64_t>(cols)).Make(dtype, rows, cols));
    }
  }
}

TEST(MatMul, ReferenceIsCloseToTheSumInF64) {
  ThreadPool pool(1);
  KernelContext context(pool, Isa::kReference);
  ForEveryMatrix(5, [&](const TensorView& view) {
    const LinearWeight weight = MakeWeight(view);
    const int64_t rows = weight.rows(), cols = weight.cols();
    const std::vector<float> w = *Dequantize(view);
    const std::vector<float> x = WeightMaker(7).Floats(2 * cols);
    const std::vector<float> exact = Multiply(context, weight, x, 2, ComputeMode::kExact);
    const std::vector<float> fast = Multiply(context, weight, x, 2, ComputeMode::kFast);
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        double y = 0, magnitude = 0, squares = 0;
        for (int64_t c = 0; c < cols; ++c) {
          const double product = double{w[r * cols + c]} * x[t * cols + c];
          y += product;
          magnitude += std::fabs(product);
          squares += double{w[r * cols + c]} * w[r * cols + c];
        }
        EXPECT_NEAR(exact[t * rows + r], y, 1e-6 * magnitude);
        // Rounding to int8: a step is at most 4 sigma / 127, its error uniform; eight standard deviations.
        const double step = weight.layout().is_integer ? 4.0 / 127 : 0;
        const double columns =
            view.dtype == DType::kQ8TwoField ? 1.5 / 0.5 : 1;  // column fields spread the steps
        EXPECT_NEAR(fast[t * rows + r], y,
                    8 * columns * step / std::sqrt(12.0) * std::sqrt(squares) + 1e-6 * magnitude);
      }
    }
  });
}

TEST(MatMul, EveryInstructionSetGivesTheBitsOfTheReference) {
  ThreadPool pool(1);
  KernelContext reference(pool, Isa::kReference);
  for (const Isa isa : IsasThatRun()) {
    SCOPED_TRACE(IsaName(isa));
    KernelContext context(pool, isa);
    for (const int64_t rows : {1, 7, 37}) {
      ForEveryMatrix(rows, [&](const TensorView& view) {
        const LinearWeight weight = MakeWeight(view);
        for (const int64_t tokens : {1, 2, 3, 5, 8, 9, 13, 23}) {
          if (tokens > 2 && tokens * rows * weight.cols() > 400000) continue;
          SCOPED_TRACE(fmt::format("{} tokens", tokens));
          const std::vector<float> x =
              WeightMaker(static_cast<uint64_t>(tokens)).Floats(tokens * weight.cols());
          for (const ComputeMode mode : {ComputeMode::kFast, ComputeMode::kExact}) {
            EXPECT_TRUE(SameBits(Multiply(reference, weight, x, tokens, mode),
                                 Multiply(context, weight, x, tokens, mode)));
          }
        }
      });
    }
  }
}

// Sums of a group in 16 bits must not overflow: the largest codes of either sign against the largest activations.
TEST(MatMul, ExtremeCodesAndInputsGiveTheBitsOfTheReference) {
  ThreadPool pool(1);
  KernelContext reference(pool, Isa::kReference);
  constexpr int64_t kRows = 17, kCols = 608;
  for (const auto& [dtype, group_bytes, skipped] : {std::tuple{DType::kQ8Row, 32, 0},
                                                    {DType::kQ4Block, 16, 0},
                                                    {DType::kQ4tp, 16, 0},
                                                    {DType::kQ4Tiled, 18, 2},
                                                    {DType::kQ2tp, 8, 0}}) {
    TensorView view = WeightMaker(8).Make(dtype, kRows, kCols);
    for (const int byte : {0x00, 0xFF, 0x80, 0x7F}) {
      auto codes = std::make_shared<Payload>(view.bytes.begin(), view.bytes.end());
      for (int64_t g = 0; g < kRows * kCols / 32; ++g)
        std::fill_n(codes->begin() + g * group_bytes + skipped, group_bytes - skipped, std::byte(byte));
      view.bytes = *codes;
      view.owner = codes;
      const LinearWeight weight = MakeWeight(view);
      for (const int period : {1, 2, 4}) {  // signs of the activations: all alike, in turn, in pairs
        for (const int64_t tokens : {1, 3, 17}) {
          std::vector<float> x(static_cast<size_t>(tokens * kCols));
          for (size_t i = 0; i < x.size(); ++i)
            x[i] = period == 1 || i % static_cast<size_t>(period) < static_cast<size_t>(period) / 2 ? -1.0f
                                                                                                    : 1.0f;
          const std::vector<float> want = Multiply(reference, weight, x, tokens, ComputeMode::kFast);
          for (const Isa isa : IsasThatRun()) {
            KernelContext context(pool, isa);
            EXPECT_TRUE(SameBits(want, Multiply(context, weight, x, tokens, ComputeMode::kFast)))
                << DTypeName(dtype) << " " << IsaName(isa) << " codes " << byte << " period " << period;
          }
        }
      }
    }
  }
}

TEST(MatMul, OneAnswerWhateverTheTokensThreadsAndRowRanges) {
  ThreadPool one(1), three(3);
  constexpr int64_t kTokens = 65;
  for (const Isa isa : IsasThatRun()) {
    KernelContext alone(one, isa), together(three, isa);
    for (const DType dtype : kMatrixTypes) {
      const int64_t rows = isa == Isa::kReference ? 19 : 151, cols = isa == Isa::kReference ? 96 : 288;
      if (!IsStorable(dtype, rows, cols)) continue;
      SCOPED_TRACE(fmt::format("{} {}", IsaName(isa), DTypeName(dtype)));
      const LinearWeight weight = MakeWeight(WeightMaker(3).Make(dtype, rows, cols));
      const std::vector<float> x = WeightMaker(4).Floats(kTokens * cols);
      for (const ComputeMode mode : {ComputeMode::kFast, ComputeMode::kExact}) {
        const std::vector<float> all = Multiply(alone, weight, x, kTokens, mode);
        EXPECT_TRUE(SameBits(all, Multiply(together, weight, x, kTokens, mode))) << "threads";
        for (const int64_t step : {1, 2, 3, 4, 5, 6, 7, 8, 9, 64}) {
          std::vector<float> parts;
          for (int64_t t = 0; t < kTokens; t += step) {
            const int64_t count = std::min(step, kTokens - t);
            const std::vector<float> part =
                Multiply(together, weight, Slice(x, t * cols, count * cols), count, mode);
            parts.insert(parts.end(), part.begin(), part.end());
          }
          EXPECT_TRUE(SameBits(all, parts)) << "tokens by " << step;
        }
        for (const int64_t cut : {int64_t{1}, int64_t{6}, rows / 2, rows - 1}) {
          std::vector<float> y(all.size());
          Activations input;
          input.Set(x.data(), kTokens, cols);
          const MatMulJob jobs[] = {{&weight, &input, y.data(), rows, {}, {cut, rows}},
                                    {&weight, &input, y.data(), rows, {}, {0, cut}}};
          MatMul(together, jobs, mode);
          EXPECT_TRUE(SameBits(all, y)) << "rows cut at " << cut;
        }
      }
    }
  }
}

TEST(MatMul, AListOfTokensPicksRowsOfTheInput) {
  ThreadPool pool(2);
  for (const Isa isa : IsasThatRun()) {
    KernelContext context(pool, isa);
    for (const DType dtype : {DType::kF16, DType::kQ8Row, DType::kQ4Tiled, DType::kQ4Block}) {
      const LinearWeight weight = MakeWeight(WeightMaker(3).Make(dtype, 33, 160));
      const std::vector<float> x = WeightMaker(4).Floats(40 * 160);
      const std::vector<float> all = Multiply(context, weight, x, 40, ComputeMode::kFast);
      for (const size_t count : {1, 3, 20}) {
        std::vector<int32_t> tokens;
        for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * 17 % 40));
        std::vector<float> y(count * 35, -1.0f);
        Activations input;
        input.Set(x.data(), 40, 160);
        const MatMulJob job{&weight, &input, y.data(), 35, tokens, {}};
        MatMul(context, std::span(&job, 1), ComputeMode::kFast);
        for (size_t i = 0; i < count; ++i) {
          EXPECT_TRUE(SameBits(Slice(all, 33 * tokens[i], 33), Slice(y, static_cast<int64_t>(35 * i), 33)));
          EXPECT_EQ(y[35 * i + 33], -1.0f) << "written past the row";
        }
      }
    }
  }
}

TEST(MatMul, MatricesOfOneRegionShareTheirInput) {
  ThreadPool pool(3);
  for (const Isa isa : IsasThatRun()) {
    KernelContext context(pool, isa);
    for (const int64_t tokens : {1, 40}) {
      const std::vector<float> x = WeightMaker(4).Floats(tokens * 128);
      std::vector<LinearWeight> weights;
      for (const DType dtype : kMatrixTypes) {
        for (const int64_t rows : {3, 200}) {
          if (IsStorable(dtype, rows, 128))
            weights.push_back(MakeWeight(WeightMaker(3).Make(dtype, rows, 128)));
        }
      }
      Activations input;
      for (int round = 0; round < 2; ++round) {  // a reused object gives what a new one gives
        input.Set(x.data(), tokens, 128);
        std::vector<std::vector<float>> outs;
        std::vector<MatMulJob> jobs;
        for (const LinearWeight& weight : weights) {
          outs.emplace_back(static_cast<size_t>(tokens * weight.rows()));
          jobs.push_back({&weight, &input, outs.back().data(), weight.rows(), {}, {}});
        }
        MatMul(context, jobs, ComputeMode::kFast);
        for (size_t i = 0; i < weights.size(); ++i) {
          EXPECT_TRUE(SameBits(outs[i], Multiply(context, weights[i], x, tokens, ComputeMode::kFast)))
              << DTypeName(weights[i].dtype());
        }
      }
    }
  }
}

TEST(MatMulInto, JoinedResultsAreThoseOfProductsOneAfterAnother) {
  ThreadPool one(1), three(3);
  const auto join = [](int64_t begin, int64_t n, float* const* results) {
    for (int64_t i = 0; i < n; ++i)
      results[0][i] = results[0][i] * results[1][i] + static_cast<float>(begin + i);
  };
  constexpr int64_t kCols = 96, kRows = 5;
  for (const Isa isa : IsasThatRun()) {
    KernelContext alone(one, isa), together(three, isa);
    for (const DType dtype : kMatrixTypes) {
      for (const auto& [width, tokens] :
           {std::pair{int64_t{416}, int64_t{3}}, {416, 40}, {1500, 9}, {33, 20}}) {
        if (!IsStorable(dtype, width, kCols) || !IsStorable(dtype, kRows, width)) continue;
        SCOPED_TRACE(fmt::format("{} {} width {} tokens {}", IsaName(isa), DTypeName(dtype), width, tokens));
        const LinearWeight first = MakeWeight(WeightMaker(3).Make(dtype, width, kCols));
        const LinearWeight second = MakeWeight(WeightMaker(4).Make(DType::kQ8Row, width, kCols));
        const LinearWeight next = MakeWeight(WeightMaker(5).Make(dtype, kRows, width));
        const std::vector<float> x = WeightMaker(6).Floats(tokens * kCols);
        for (const ComputeMode mode : {ComputeMode::kFast, ComputeMode::kExact}) {
          std::vector<float> joined = Multiply(alone, first, x, tokens, mode);
          std::vector<float> other = Multiply(alone, second, x, tokens, mode);
          for (int64_t t = 0; t < tokens; ++t) {
            float* const results[] = {joined.data() + t * width, other.data() + t * width};
            join(0, width, results);
          }
          const std::vector<float> want = Multiply(alone, next, joined, tokens, mode);
          for (KernelContext* context : {&alone, &together}) {
            Activations input, into;
            input.Set(x.data(), tokens, kCols);
            std::vector<MatMulJob> jobs(2);
            jobs[0].weight = &first;
            jobs[1].weight = &second;
            jobs[0].input = jobs[1].input = &input;
            std::vector<float> floats(joined.size(), NAN), y(want.size());
            const MatMulJob job{&next, &into, y.data(), kRows, {}, {}};
            for (int round = 0; round < 2; ++round) {
              MatMulInto(*context, jobs, mode, join, &next, floats.data(), into);
              MatMul(*context, std::span(&job, 1), mode);
              EXPECT_TRUE(SameBits(want, y)) << context->pool().threads() << " threads";
            }
            MatMulInto(*context, jobs, mode, join, nullptr, floats.data(), into);
            EXPECT_TRUE(SameBits(joined, floats)) << "floats";
          }
        }
      }
    }
  }
}

TEST(MatMul, ExactCasesAreExact) {
  ThreadPool pool(1);
  for (const Isa isa : IsasThatRun()) {
    KernelContext context(pool, isa);
    for (const DType dtype : kMatrixTypes) {
      constexpr int64_t kRows = 9, kCols = 192;
      if (!IsStorable(dtype, kRows, kCols)) continue;
      SCOPED_TRACE(fmt::format("{} {}", IsaName(isa), DTypeName(dtype)));
      const TensorView view = WeightMaker(5).Make(dtype, kRows, kCols);
      const LinearWeight weight = MakeWeight(view);
      const std::vector<float> w = *Dequantize(view);
      for (const ComputeMode mode : {ComputeMode::kFast, ComputeMode::kExact}) {
        for (const float y : Multiply(context, weight, std::vector<float>(kCols), 1, mode))
          EXPECT_EQ(y, 0.0f);
        // One-hot inputs of a power of two: the weight itself, up to the roundings of scale products.
        for (const int64_t c : {0, 1, 30, 31, 32, 77, 191}) {
          for (const float power : {1.0f, 0x1p-20f, 0x1p17f}) {
            std::vector<float> x(kCols);
            x[static_cast<size_t>(c)] = power;
            const std::vector<float> y = Multiply(context, weight, x, 1, mode);
            for (int64_t r = 0; r < kRows; ++r) {
              const float want = w[r * kCols + c] * power;
              if (mode == ComputeMode::kExact) {
                EXPECT_EQ(y[r], want);
              } else {
                EXPECT_NEAR(y[r], want, 4e-6 * std::fabs(want)) << "row " << r << " column " << c;
              }
            }
          }
        }
      }
    }
  }
}

TEST(MatMul, LargeInputsStayFiniteAndNonFiniteOnesShow) {
  ThreadPool pool(1);
  for (const Isa isa : IsasThatRun()) {
    KernelContext context(pool, isa);
    for (const DType dtype : kMatrixTypes) {
      if (!IsStorable(dtype, 6, 128)) continue;
      SCOPED_TRACE(fmt::format("{} {}", IsaName(isa), DTypeName(dtype)));
      const LinearWeight weight = MakeWeight(WeightMaker(5).Make(dtype, 6, 128));
      for (const ComputeMode mode : {ComputeMode::kFast, ComputeMode::kExact}) {
        std::vector<float> x = WeightMaker(6).Floats(16 * 128, 1e5f);
        for (const float y : Multiply(context, weight, x, 16, mode)) EXPECT_TRUE(std::isfinite(y));
        x[5 * 128 + 77] = NAN;
        x[9 * 128 + 3] = INFINITY;
        const std::vector<float> y = Multiply(context, weight, x, 16, mode);
        for (int64_t t = 0; t < 16; ++t) {
          for (int64_t r = 0; r < 6; ++r) {
            const bool is_spoilt =
                t == 5 || (t == 9 && (mode == ComputeMode::kFast || y[t * 6 + r] != y[t * 6 + r]));
            if (t != 9) {
              EXPECT_EQ(std::isfinite(y[t * 6 + r]), !is_spoilt) << "token " << t;
            }
          }
        }
      }
    }
  }
}

TEST(LinearWeight, RefusesWhatIsNoMatrix) {
  const std::vector<std::byte> bytes(64);
  const auto make = [&](DType dtype, Shape shape) {
    return LinearWeight::Make({dtype, std::move(shape), bytes, nullptr}, "up");
  };
  EXPECT_EQ(make(DType::kF32, {16}).error().kind, ErrorKind::kUsage);
  EXPECT_EQ(make(DType::kF32, {0, 16}).error().kind, ErrorKind::kUsage);
  EXPECT_EQ(make(DType::kU8, {4, 16}).error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(make(DType::kMix84, {4, 16}).error().kind, ErrorKind::kUnsupported);
  const auto short_one = make(DType::kF32, {4, 16});
  EXPECT_EQ(short_one.error().kind, ErrorKind::kCorrupt);
  EXPECT_NE(short_one.error().message.find("'up'"), std::string::npos) << short_one.error().message;
  EXPECT_TRUE(make(DType::kF32, {1, 16}).has_value());
}

TEST(Isa, NamesAreReadBackAndUnknownOnesRefused) {
  for (const Isa isa : IsasThatRun()) {
    EXPECT_EQ(*ParseIsa(IsaName(isa)), isa);
    EXPECT_NE(FindFloatKernels(FloatIsaName(isa)), nullptr) << IsaName(isa);
  }
  EXPECT_EQ(*ParseIsa(""), BestIsa());
  EXPECT_EQ(ParseIsa("sse9").error().kind, ErrorKind::kUsage);
  for (int i = 0; i < kIsaCount; ++i) {
    const auto isa = static_cast<Isa>(i);
    if (!RunsHere(isa)) {
      EXPECT_EQ(ParseIsa(IsaName(isa)).error().kind, ErrorKind::kUnsupported);
    }
  }
}

}  // namespace
}  // namespace cmforge
