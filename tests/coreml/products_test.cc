// Products with compressed constants against the same program on decoded ones: every form, through every operation
// that multiplies, on every instruction set, bit for bit.
#include <random>

#include "base/half.h"
#include "coreml/tensors.h"
#include "mil/packed_bits.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;

/// A compressed [rows, cols] constant: its operation, and what it decodes to.
struct Compressed {
  std::string op;
  std::vector<std::pair<std::string, mil::Value>> parameters;
  std::vector<float> decoded;
};

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  float Half() { return RoundToF16(normal_(random_)); }
  std::vector<float> Halves(int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& v : out) v = Half();
    return out;
  }
  std::vector<uint8_t> Codes(int64_t count, int bits) {
    std::vector<uint8_t> out(static_cast<size_t>(count));
    for (uint8_t& code : out) code = static_cast<uint8_t>(random_() & ((1u << bits) - 1u));
    return out;
  }

  /// `groups`: tables along the rows and along the columns.
  Compressed Palette(int bits, DataType dtype, Shape shape, int64_t row_groups, int64_t col_groups) {
    const int64_t rows = shape[0], cols = shape[1], entries = int64_t{1} << bits;
    const std::vector<uint8_t> codes = Codes(rows * cols, bits);
    const std::vector<float> tables = Halves(row_groups * col_groups * entries);
    Compressed out{"constexpr_lut_to_dense", {}, {}};
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t group = i / cols / (rows / row_groups) * col_groups + i % cols / (cols / col_groups);
      out.decoded.push_back(tables[static_cast<size_t>(group * entries + codes[static_cast<size_t>(i)])]);
    }
    Shape lut(shape.size() + 2, 1);
    lut[0] = row_groups;
    lut[1] = col_groups;
    lut.end()[-2] = entries;
    out.parameters = {{"indices", mil::Raw({dtype, shape}, mil::PackBits(codes, bits))},
                      {"lut", mil::Floats(DataType::kFloat16, lut, tables)}};
    return out;
  }
  Compressed Scaled(DataType dtype, bool has_offset, Shape shape, int64_t row_groups, int64_t col_groups) {
    const int bits = mil::BitsOf(dtype);
    const int64_t rows = shape[0], cols = shape[1];
    const std::vector<uint8_t> codes = Codes(rows * cols, bits),
                               offsets = Codes(row_groups * col_groups, bits);
    const std::vector<float> scales = Halves(row_groups * col_groups);
    const auto number = [&](uint8_t code) {
      return static_cast<float>(mil::IsSigned(dtype) ? mil::SignExtend(code, bits)
                                                     : static_cast<int32_t>(code));
    };
    Compressed out{"constexpr_blockwise_shift_scale", {}, {}};
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto group =
          static_cast<size_t>(i / cols / (rows / row_groups) * col_groups + i % cols / (cols / col_groups));
      const float offset = has_offset ? number(offsets[group]) : 0.0f;
      out.decoded.push_back(RoundToF16(scales[group] * (number(codes[static_cast<size_t>(i)]) - offset)));
    }
    Shape grid(shape.size(), 1);
    grid[0] = row_groups;
    grid[1] = col_groups;
    out.parameters = {{"data", mil::Raw({dtype, shape}, mil::PackBits(codes, bits))},
                      {"scale", mil::Floats(DataType::kFloat16, grid, scales)}};
    if (has_offset)
      out.parameters.emplace_back("offset", mil::Raw({dtype, grid}, mil::PackBits(offsets, bits)));
    return out;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

enum class Through { kLinear, kConv, kMatmul, kMatmulTransposed };

/// y of one product of a weight [rows, cols] (matmul without transposition: [cols, rows] is the result's order).
std::vector<double> Run(Through through, const Compressed& weight, bool is_decoded, const Shape& shape,
                        const std::vector<double>& x, int64_t tokens, Isa isa, int threads) {
  mil::FunctionBuilder b;
  const bool is_conv = through == Through::kConv, is_plain = through == Through::kMatmul;
  const int64_t depth = is_plain ? shape[0] : shape[1];
  const mil::Var in =
      b.Input("x", {DataType::kFloat16, is_conv ? Shape{1, depth, 1, tokens} : Shape{tokens, depth}});
  mil::Args parameters;
  for (const auto& [name, value] : weight.parameters) parameters.emplace_back(name, value);
  const mil::Var w = is_decoded ? b.Const(mil::Floats(DataType::kFloat16, shape, weight.decoded), "w")
                                : b.Constexpr(weight.op, parameters, "w");
  mil::Var y;
  if (through == Through::kLinear) y = b.Op("linear", {{"x", in}, {"weight", w}});
  if (is_conv) y = b.Op("conv", {{"x", in}, {"weight", w}});
  if (is_plain) y = b.Op("matmul", {{"x", in}, {"y", w}});
  if (through == Through::kMatmulTransposed) y = b.Op("matmul", {{"x", in}, {"y", w}, {"transpose_y", true}});
  b.Output(y, "y");
  auto package = PackageOf(b);
  EXPECT_TRUE(package) << package.error().message;
  InterpreterOptions options;
  options.isa = isa;
  options.pool = std::make_shared<ThreadPool>(threads);
  const auto interpreter = Interpreter::Create(*std::move(package), options);
  EXPECT_TRUE(interpreter) << interpreter.error().message;
  auto runner = (*interpreter)->Plan("");
  EXPECT_TRUE(runner) << runner.error().message;
  SetInput(*runner, 0, x);
  const auto status = runner->Run(nullptr);
  EXPECT_TRUE(status) << status.error().message;
  return OutputOf(*runner, 0);
}

void CheckForm(const Compressed& weight, const Shape& shape) {
  for (const Through through :
       {Through::kLinear, Through::kConv, Through::kMatmul, Through::kMatmulTransposed}) {
    if ((through == Through::kConv) != (shape.size() == 4)) continue;
    const int64_t depth = through == Through::kMatmul ? shape[0] : shape[1];
    const int64_t width = through == Through::kMatmul ? shape[1] : shape[0];
    for (const int64_t tokens : {1, 9}) {
      Maker maker(17);
      const std::vector<float> halves = maker.Halves(tokens * depth);
      const std::vector<double> x(halves.begin(), halves.end());
      const auto wanted = Run(through, weight, true, shape, x, tokens, Isa::kReference, 1);
      // Of the first output, in f64: the order of the sum is the kernels', its value is not.
      double sum = 0, magnitude = 0;
      for (int64_t c = 0; c < depth; ++c) {
        const double w = weight.decoded[static_cast<size_t>(through == Through::kMatmul ? c * width : c)];
        const double product = w * x[static_cast<size_t>(through == Through::kConv ? c * tokens : c)];
        sum += product;
        magnitude += std::fabs(product);
      }
      EXPECT_NEAR(wanted[0], sum, 1e-3 * magnitude + 1e-6);
      for (const Isa isa : IsasThatRun()) {
        const int threads = isa == Isa::kReference ? 1 : 3;
        EXPECT_TRUE(Near(Run(through, weight, false, shape, x, tokens, isa, threads), wanted, 0))
            << IsaName(isa) << ", operation " << static_cast<int>(through) << ", " << tokens << " tokens";
      }
    }
  }
}

TEST(Products, OfPalettesAreThoseOfDecodedWeights) {
  constexpr std::pair<int, DataType> kWidths[] = {{1, DataType::kUInt1}, {2, DataType::kUInt2},
                                                  {3, DataType::kUInt3}, {4, DataType::kUInt4},
                                                  {6, DataType::kUInt6}, {8, DataType::kUInt8}};
  for (const auto& [bits, dtype] : kWidths) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{24, 96}, {40, 33}, {16, 200}}) {
      for (const auto& [row_groups, col_groups] :
           {std::pair<int64_t, int64_t>{1, 1}, {8, 1}, {rows, 1}, {2, 1}, {1, 1}}) {
        SCOPED_TRACE(
            fmt::format("{} bits, [{}, {}] in {} x {} groups", bits, rows, cols, row_groups, col_groups));
        for (const Shape& shape : {Shape{rows, cols}, Shape{rows, cols, 1, 1}})
          CheckForm(Maker(3).Palette(bits, dtype, shape, row_groups, col_groups), shape);
      }
    }
    // Tables along the columns: no form of the kernels, decoded a few rows at a time.
    CheckForm(Maker(4).Palette(bits, dtype, {12, 60}, 3, 5), {12, 60});
  }
}

TEST(Products, OfScaledIntegersAreThoseOfDecodedWeights) {
  for (const DataType dtype : {DataType::kInt8, DataType::kUInt8, DataType::kInt4, DataType::kUInt4}) {
    for (const bool has_offset : {false, true}) {
      for (const auto& [cols, col_groups] :
           {std::pair<int64_t, int64_t>{96, 1}, {96, 3}, {90, 5}, {64, 4}, {33, 1}, {512, 16}}) {
        SCOPED_TRACE(fmt::format("{}, offset {}, {} columns in {} groups", mil::BitsOf(dtype), has_offset,
                                 cols, col_groups));
        for (const Shape& shape : {Shape{18, cols}, Shape{18, cols, 1, 1}})
          CheckForm(Maker(5).Scaled(dtype, has_offset, shape, 6, col_groups), shape);
      }
    }
  }
}

}  // namespace
}  // namespace cmforge::coreml
