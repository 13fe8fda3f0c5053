// Chains that become one step give the bits of their operations one by one. An operation whose result is an output
// too stays a step of its own: that is the program without chains.
#include <optional>
#include <random>

#include "coreml/tensors.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;
using mil::Var;

constexpr double kHidden = -std::numeric_limits<double>::infinity();

std::vector<double> Numbers(std::mt19937& random, int64_t count) {
  std::normal_distribution<double> normal;
  std::vector<double> out(static_cast<size_t>(count));
  for (double& v : out) v = normal(random);
  return out;
}

struct Attention {
  int64_t kv_heads = 2, repeats = 2, tokens = 3, keys = 40, width = 16;
  bool has_scale = true;
  DataType dtype = DataType::kFloat16;
};

/// `is_open`: every result is an output. Inputs q, k, v, mask in this order.
Result<mil::Package> Program(const Attention& a, bool is_open) {
  mil::FunctionBuilder b;
  const int64_t heads = a.kv_heads * a.repeats;
  const Var q = b.Input("q", {a.dtype, {1, heads, a.tokens, a.width}});
  const Var k = b.Input("k", {a.dtype, {a.kv_heads, a.keys, a.width}});
  const Var v = b.Input("v", {a.dtype, {a.kv_heads, a.keys, a.width}});
  const Var mask = b.Input("mask", {a.dtype, {1, 1, a.tokens, a.keys}});
  const auto repeat = [&](const Var& x) {
    const Var tiled =
        b.Op("tile", {{"x", b.Op("expand_dims", {{"x", x}, {"axes", std::vector<int32_t>{1}}})},
                      {"reps", std::vector<int32_t>{1, static_cast<int32_t>(a.repeats), 1, 1}}});
    return b.Op("reshape",
                {{"x", tiled},
                 {"shape", std::vector<int32_t>{1, static_cast<int32_t>(heads), static_cast<int32_t>(a.keys),
                                                static_cast<int32_t>(a.width)}}});
  };
  std::vector<Var> all;
  all.push_back(b.Op("matmul", {{"x", q}, {"y", repeat(k)}, {"transpose_y", true}}));
  if (a.has_scale) all.push_back(b.Op("mul", {{"x", all.back()}, {"y", mil::Float(a.dtype, 0.25f)}}));
  all.push_back(b.Op("add", {{"x", all.back()}, {"y", mask}}));
  all.push_back(b.Op("softmax", {{"x", all.back()}, {"axis", -1}}));
  b.Output(b.Op("matmul", {{"x", all.back()}, {"y", repeat(v)}}), "y");
  for (size_t i = 0; is_open && i < all.size(); ++i) b.Output(all[i], fmt::format("between{}", i));
  return PackageOf(b);
}

Result<Runner> PlanOf(Result<mil::Package> package, Precision precision, int threads) {
  CMF_TRY(mil::Package opened, std::move(package));
  CMF_TRY(const auto interpreter,
          Interpreter::Create(std::move(opened), {precision, std::make_shared<ThreadPool>(threads)}));
  static std::vector<std::shared_ptr<const Interpreter>> kept;  // plans point into their interpreter
  kept.push_back(interpreter);
  return interpreter->Plan("");
}

TEST(Fusing, AttentionGivesTheBitsOfItsSteps) {
  std::mt19937 random(1);
  for (const int64_t repeats : {1, 2, 5}) {
    for (const int64_t tokens : {1, 3, 30}) {
      for (const bool has_scale : {true, false}) {
        for (const Precision precision : {Precision::kF16, Precision::kF32}) {
          Attention a;
          a.repeats = repeats;
          a.tokens = tokens;
          a.has_scale = has_scale;
          SCOPED_TRACE(fmt::format("{} repeats, {} tokens, scale {}", repeats, tokens, has_scale));
          const int64_t heads = a.kv_heads * repeats, cache = a.kv_heads * a.keys * a.width;
          std::vector<std::vector<double>> inputs = {
              Numbers(random, heads * tokens * a.width), Numbers(random, cache), Numbers(random, cache), {}};
          // Token 0 sees the first keys, others a window; token 2 nothing at all.
          for (int64_t t = 0; t < tokens; ++t) {
            for (int64_t i = 0; i < a.keys; ++i) {
              const bool sees = t == 2 ? false : t == 0 ? i < 7 : i > t % 20 && i < 25 + t % 10;
              inputs[3].push_back(sees ? 0 : kHidden);
            }
          }
          std::vector<double> wanted;
          for (const bool is_open : {true, false}) {
            for (const int threads : {1, 3}) {
              auto runner = PlanOf(Program(a, is_open), precision, threads);
              ASSERT_TRUE(runner) << runner.error().message;
              const auto steps = runner->StepHistogram();
              EXPECT_EQ(steps.count("attention"), is_open ? 0u : 1u);
              EXPECT_TRUE(is_open || steps.size() == 1u) << "something else is left";
              for (int i = 0; i < 4; ++i) SetInput(*runner, i, inputs[static_cast<size_t>(i)]);
              ASSERT_TRUE(runner->Run(nullptr));
              const auto got = OutputOf(*runner, runner->FindOutput("y"));
              if (wanted.empty()) wanted = got;
              EXPECT_TRUE(Near(got, wanted, 0)) << threads << " threads, open " << is_open;
            }
          }
        }
      }
    }
  }
}

TEST(Fusing, AttentionThatDoesNotFitIsLeftAlone) {
  // The mask has another value for every head's tokens: still a mask. A softmax over tokens is something else.
  mil::FunctionBuilder b;
  const Var q = b.Input("q", {DataType::kFloat16, {1, 2, 3, 8}});
  const Var k = b.Input("k", {DataType::kFloat16, {1, 2, 5, 8}});
  const Var mask = b.Input("mask", {DataType::kFloat16, {1, 2, 3, 5}});
  Var y = b.Op("matmul", {{"x", q}, {"y", k}, {"transpose_y", true}});
  y = b.Op("softmax", {{"x", b.Op("add", {{"x", mask}, {"y", y}})}, {"axis", 2}});
  b.Output(b.Op("matmul", {{"x", y}, {"y", k}}), "y");
  auto runner = PlanOf(PackageOf(b), Precision::kF16, 1);
  ASSERT_TRUE(runner) << runner.error().message;
  EXPECT_EQ(runner->StepHistogram().count("attention"), 0u);
}

/// Random trees over inputs of the result's shape, of its last axes, and of one element.
TEST(Fusing, ElementwiseChainsGiveTheBitsOfTheirSteps) {
  int64_t chains = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    for (const Precision precision : {Precision::kF16, Precision::kF32}) {
      std::vector<double> wanted;
      for (const bool is_open : {true, false}) {
        std::mt19937 random(seed);
        mil::FunctionBuilder b;
        const Shape shapes[] = {{1, 3, 5, 70}, {5, 70}, {70}, {1}, {1, 3, 5, 70}, {3, 1, 70}};
        std::vector<Var> values;
        std::vector<std::vector<double>> inputs;
        for (const Shape& shape : shapes) {
          const std::string name = fmt::format("x{}", values.size());
          values.push_back(b.Input(name, {DataType::kFloat16, shape}));
          inputs.push_back(Numbers(random, *ElementCount(shape)));
        }
        std::vector<Var> made;
        const int ops = 2 + static_cast<int>(random() % 12);
        for (int i = 0; i < ops; ++i) {
          const char* const kBinary[] = {"add", "sub", "mul", "real_div", "maximum", "minimum"};
          const char* const kUnary[] = {"tanh", "sigmoid", "exp", "abs", "square", "silu"};
          const Var x = i > 0 && random() % 4 != 0 ? made.back() : values[random() % values.size()];
          if (i > 0 && random() % 3 == 0) {
            made.push_back(b.Op(kUnary[random() % 6], {{"x", x}}));
          } else if (random() % 4 == 0) {
            made.push_back(b.Op("mul", {{"x", mil::Float(DataType::kFloat16, -0.5f)}, {"y", x}}));
          } else {
            made.push_back(b.Op(kBinary[random() % 6], {{"x", x}, {"y", values[random() % values.size()]}}));
          }
          values.push_back(made.back());
        }
        b.Output(made.back(), "y");
        for (size_t i = 0; is_open && i + 1 < made.size(); ++i)
          b.Output(made[i], fmt::format("between{}", i));
        auto runner = PlanOf(PackageOf(b), precision, 1 + static_cast<int>(seed % 3));
        ASSERT_TRUE(runner) << "seed " << seed << ": " << runner.error().message;
        const auto steps = runner->StepHistogram();
        EXPECT_TRUE(!is_open || steps.count("elementwise chain") == 0) << "seed " << seed;
        if (!is_open) chains += static_cast<int64_t>(steps.count("elementwise chain"));
        for (size_t i = 0; i < inputs.size(); ++i) SetInput(*runner, static_cast<int>(i), inputs[i]);
        ASSERT_TRUE(runner->Run(nullptr));
        const auto got = OutputOf(*runner, runner->FindOutput("y"));
        if (is_open) wanted = got;
        EXPECT_TRUE(Near(got, wanted, 0)) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(chains, 150);
}

/// Convolutions of one input, some of it through a view, with other steps in between whose buffers would lie where
/// results that are made early are: each result is that of a program with this convolution alone.
TEST(Fusing, ConvolutionsOfOneInputGiveTheBitsOfEachAlone) {
  constexpr int64_t kChannels = 48, kConvs = 11;
  for (const int64_t positions : {1, 3, 20}) {
    for (const Precision precision : {Precision::kF16, Precision::kF32}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} positions, {} threads", positions, threads));
        const auto run = [&](std::optional<int64_t> only, const std::vector<double>& x) {
          std::mt19937 random(7);
          mil::FunctionBuilder b;
          const Var in = b.Input("x", {DataType::kFloat16, {1, kChannels, 1, positions}});
          Var between = in;
          for (int64_t i = 0; i < kConvs; ++i) {
            const int64_t rows = 16 + 24 * (i % 4);
            std::vector<float> weights, biases;
            for (const double w : Numbers(random, rows * kChannels)) weights.push_back(static_cast<float>(w));
            for (const double w : Numbers(random, rows)) biases.push_back(static_cast<float>(w));
            if (only && *only != i) continue;
            const Var from =
                i % 3 == 1
                    ? b.Op("reshape", {{"x", in},
                                       {"shape", std::vector<int32_t>{1, static_cast<int32_t>(kChannels), 1,
                                                                      static_cast<int32_t>(positions)}}})
                    : in;
            const Var w = b.Const(mil::Floats(DataType::kFloat16, {rows, kChannels, 1, 1}, weights), "w");
            mil::Args operands{{"x", from}, {"weight", w}};
            if (i % 2 == 0)
              operands.emplace_back("bias", b.Const(mil::Floats(DataType::kFloat16, {rows}, biases), "b"));
            const Var y = b.Op("conv", operands);
            if (!only) between = b.Op("softmax", {{"x", between}, {"axis", 1}});
            b.Output(
                b.Op("reduce_sum", {{"x", b.Op("concat", {{"values", std::vector<Var>{y, y}}, {"axis", 1}})},
                                    {"axes", std::vector<int32_t>{2}},
                                    {"keep_dims", true}}),
                fmt::format("y{}", i));
          }
          if (!only) b.Output(between, "between");
          auto runner = PlanOf(PackageOf(b), precision, threads);
          EXPECT_TRUE(runner) << runner.error().message;
          EXPECT_EQ(runner->StepHistogram()["convolutions of one input"],
                    only ? 0 : 2);  // of eight and of three
          SetInput(*runner, 0, x);
          EXPECT_TRUE(runner->Run(nullptr));
          std::vector<std::vector<double>> got;
          for (int64_t i = 0; i < kConvs; ++i) {
            if (!only || *only == i)
              got.push_back(OutputOf(*runner, runner->FindOutput(fmt::format("y{}", i))));
          }
          return got;
        };
        std::mt19937 random(11);
        const std::vector<double> x = Numbers(random, kChannels * positions);
        const auto together = run(std::nullopt, x);
        for (int64_t i = 0; i < kConvs; ++i) {
          EXPECT_TRUE(Near(together[static_cast<size_t>(i)], run(i, x)[0], 0)) << "convolution " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cmforge::coreml
