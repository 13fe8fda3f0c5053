// Products of stored matrices: every form, width and grouping against decoding number by number and multiplying, for
// odd sizes, on every instruction set, bit for bit.
#include "kernels/stored.h"

#include <cmath>
#include <cstring>
#include <random>

#include "base/half.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace cmforge {
namespace {

/// A matrix with the memory it points into, as tight as the form allows.
struct OwnedMatrix {
  StoredMatrix m;
  std::vector<std::byte> data, tables, scales;
  std::vector<float> offsets;
};

class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed) {}

  std::vector<float> Floats(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(count));
    for (float& v : out) v = normal(rng_);
    return out;
  }
  std::vector<std::byte> Halves(int64_t count) {
    std::vector<std::byte> out(static_cast<size_t>(2 * count));
    const std::vector<float> values = Floats(count);
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t half = F32ToF16(values[static_cast<size_t>(i)]);
      std::memcpy(out.data() + 2 * i, &half, 2);
    }
    return out;
  }
  std::vector<std::byte> Codes(int64_t count, int bits) {
    std::vector<std::byte> out(static_cast<size_t>((count * bits + 7) / 8));
    for (std::byte& b : out) b = static_cast<std::byte>(rng_());
    return out;
  }

  OwnedMatrix Dense(bool is_half, int64_t rows, int64_t cols) {
    OwnedMatrix o;
    o.m = {is_half ? StoredMatrix::Form::kF16 : StoredMatrix::Form::kF32, is_half ? 16 : 32};
    o.data = Halves(rows * cols);
    if (!is_half) {
      const std::vector<float> values = Floats(rows * cols);
      o.data.assign(reinterpret_cast<const std::byte*>(values.data()),
                    reinterpret_cast<const std::byte*>(values.data() + values.size()));
    }
    return Sized(std::move(o), rows, cols);
  }
  OwnedMatrix Palette(int bits, int64_t rows, int64_t cols, int64_t rows_per_table, int64_t rows_per_scale) {
    OwnedMatrix o;
    o.m = {StoredMatrix::Form::kPalette, bits};
    o.data = Codes(rows * cols, bits);
    o.tables = Halves(((rows + rows_per_table - 1) / rows_per_table) << bits);
    o.m.rows_per_table = rows_per_table;
    if (rows_per_scale > 0) {
      o.scales = Halves((rows + rows_per_scale - 1) / rows_per_scale);
      o.m.rows_per_scale = rows_per_scale;
    }
    return Sized(std::move(o), rows, cols);
  }
  OwnedMatrix Scaled(int bits, bool is_signed, bool has_offset, int64_t rows, int64_t cols,
                     int64_t rows_per_scale, int64_t cols_per_scale) {
    OwnedMatrix o;
    o.m = {StoredMatrix::Form::kScaled, bits, is_signed};
    o.data = Codes(rows * cols, bits);
    o.m.rows_per_scale = rows_per_scale;
    o.m.cols_per_scale = cols_per_scale;
    o.m.scales_per_row = (cols + cols_per_scale - 1) / cols_per_scale;
    const int64_t scales = (rows + rows_per_scale - 1) / rows_per_scale * o.m.scales_per_row;
    o.scales = Halves(scales);
    if (has_offset) o.offsets = Floats(scales);
    return Sized(std::move(o), rows, cols);
  }

 private:
  static OwnedMatrix Sized(OwnedMatrix o, int64_t rows, int64_t cols) {
    o.m.rows = rows;
    o.m.cols = cols;
    o.m.data = o.data.data();
    o.m.tables = o.tables.data();
    if (!o.scales.empty()) o.m.scales = o.scales.data();
    if (!o.offsets.empty()) o.m.offsets = o.offsets.data();
    return o;
  }
  std::mt19937_64 rng_;
};

/// The sum in the order that stored.h promises.
float Dot(const std::vector<float>& w, const float* x) {
  float partial[16] = {};
  for (size_t c = 0; c < w.size(); ++c) partial[c % 16] = std::fma(w[c], x[c], partial[c % 16]);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) partial[i] += partial[i + width];
  }
  return partial[0];
}

/// Every row of the matrix, and a range from inside it, by every number of tokens.
void CheckAllProducts(const OwnedMatrix& o, uint64_t seed) {
  StoredMatrix m = o.m;
  const int64_t most = 13;
  Maker maker(seed);
  const int64_t x_stride = m.cols + 3;
  const std::vector<float> x = maker.Floats(most * x_stride), bias = maker.Floats(m.rows);
  std::vector<std::vector<float>> decoded;
  for (int64_t r = 0; r < m.rows; ++r) {
    decoded.emplace_back(static_cast<size_t>(m.cols));
    DecodeStored(m, r, 0, m.cols, decoded.back().data());
  }
  for (const Isa isa : IsasThatRun()) {
    const StoredKernels& kernels = StoredKernelsOf(isa);
    SCOPED_TRACE(IsaName(isa));
    std::vector<float> scratch(static_cast<size_t>(StoredScratchFloats(m.cols)));
    if (HasWholeSteps(m)) {
      std::vector<float> rows(static_cast<size_t>(m.rows * m.cols));
      kernels.decode(m, 0, m.rows, rows.data(), m.cols);
      for (int64_t r = 0; r < m.rows; ++r) {
        ASSERT_EQ(0, std::memcmp(rows.data() + r * m.cols, decoded[static_cast<size_t>(r)].data(),
                                 static_cast<size_t>(m.cols) * 4))
            << "row " << r;
      }
    }
    using Ahead = StoredMatrix::Ahead;
    for (const auto& [tokens, ahead] : {std::pair{1, Ahead::kNothing},
                                        {1, Ahead::kAsked},
                                        {1, Ahead::kCopied},
                                        {2, Ahead::kNothing},
                                        {3, Ahead::kNothing},
                                        {5, Ahead::kNothing},
                                        {6, Ahead::kNothing},
                                        {7, Ahead::kNothing},
                                        {13, Ahead::kNothing}}) {
      m.ahead = ahead;
      for (const int64_t begin : {int64_t{0}, m.rows / 3}) {
        const int64_t rows = m.rows - begin;
        std::vector<float> out(static_cast<size_t>(rows * tokens), 77.0f);
        MultiplyStored(kernels, m, begin, m.rows, x.data(), x_stride, tokens, bias.data(), out.data(), tokens,
                       1, scratch.data());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t t = 0; t < tokens; ++t) {
            const float wanted = Dot(decoded[static_cast<size_t>(begin + r)], x.data() + t * x_stride) +
                                 bias[static_cast<size_t>(begin + r)];
            ASSERT_EQ(wanted, out[static_cast<size_t>(r * tokens + t)])
                << "row " << begin + r << ", token " << t << " of " << tokens;
          }
        }
      }
    }
  }
}

constexpr int64_t kWidths[] = {1, 7, 15, 16, 24, 63, 64, 65, 128, 200, 1024, 1090, 2056};

TEST(StoredProduct, OfDenseMatricesIsTheSumInItsOrder) {
  for (const bool is_half : {false, true}) {
    for (const int64_t cols : kWidths) {
      SCOPED_TRACE(fmt::format("{} columns, {}", cols, is_half ? "f16" : "f32"));
      CheckAllProducts(Maker(1).Dense(is_half, 19, cols), 2);
    }
  }
}

TEST(StoredProduct, OfPalettesOfEveryWidthAndGroupingIsThatOfDecodedOnes) {
  for (const int bits : {1, 2, 3, 4, 6, 8}) {
    for (const int64_t cols : kWidths) {
      for (const int64_t rows_per_table : {1, 8, 24}) {
        SCOPED_TRACE(fmt::format("{} bits, {} columns, {} rows a table", bits, cols, rows_per_table));
        CheckAllProducts(Maker(3).Palette(bits, 24, cols, rows_per_table, 0), 4);
      }
    }
  }
}

TEST(StoredProduct, OfPalettesWithScalesOfRowsRoundsToHalves) {
  for (const int bits : {1, 2, 3, 4, 6, 8}) {
    for (const int64_t rows_per_scale : {1, 4, 10}) {
      SCOPED_TRACE(fmt::format("{} bits, {} rows a scale", bits, rows_per_scale));
      CheckAllProducts(Maker(5).Palette(bits, 10, 200, 5, rows_per_scale), 6);
    }
  }
}

TEST(StoredProduct, OfScaledIntegersIsThatOfDecodedOnes) {
  for (const int bits : {4, 8}) {
    for (const bool is_signed : {false, true}) {
      for (const bool has_offset : {false, true}) {
        for (const int64_t cols : {30, 33, 64, 96, 160, 1056}) {
          for (const int64_t cols_per_scale : {int64_t{16}, int64_t{32}, int64_t{24}, cols}) {
            if (cols % cols_per_scale != 0) continue;
            SCOPED_TRACE(fmt::format("{} bits, signed {}, offset {}, {} columns in blocks of {}", bits,
                                     is_signed, has_offset, cols, cols_per_scale));
            CheckAllProducts(Maker(7).Scaled(bits, is_signed, has_offset, 10, cols, 5, cols_per_scale), 8);
          }
        }
      }
    }
  }
}

TEST(StoredProduct, CombinesRowsOneAfterAnother) {
  for (const int64_t width : {1, 15, 64, 100, 128}) {
    for (const int64_t tokens : {1, 2, 3, 4, 7}) {
      const int64_t depth = 37, p_stride = 40, v_stride = width + 1;
      Maker maker(9);
      const std::vector<float> p = maker.Floats(tokens * p_stride), v = maker.Floats(depth * v_stride);
      for (const Isa isa : IsasThatRun()) {
        std::vector<float> out(static_cast<size_t>(tokens * width));
        StoredKernelsOf(isa).combine(p.data(), p_stride, tokens, v.data(), v_stride, depth, width, out.data(),
                                     width);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t n = 0; n < width; ++n) {
            float sum = 0;
            for (int64_t k = 0; k < depth; ++k) {
              sum = std::fma(p[static_cast<size_t>(t * p_stride + k)],
                             v[static_cast<size_t>(k * v_stride + n)], sum);
            }
            ASSERT_EQ(sum, out[static_cast<size_t>(t * width + n)])
                << IsaName(isa) << " " << width << " " << tokens;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cmforge
