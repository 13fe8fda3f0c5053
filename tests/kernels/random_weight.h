// Payloads of random codes and sensible scales in every encoding, built byte by byte (not by the encoders),
// so that kernels meet every code a file may hold.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "gtest/gtest.h"
#include "kernels/kernels.h"
#include "model/tensor_source.h"
#include "quant/encoding.h"

namespace cmforge {

using Payload = std::vector<std::byte>;

class WeightMaker {
 public:
  explicit WeightMaker(uint64_t seed) : rng_(seed) {}

  /// A payload of that dtype; the bytes end exactly where a heap block ends, so that sanitizers see an
  /// overrun.
  TensorView Make(DType dtype, int64_t rows, int64_t cols) {
    bytes_.clear();
    const int64_t n = rows * cols, tiles = n / 32;
    switch (dtype) {
      case DType::kF32:
        for (int64_t i = 0; i < n; ++i) Put(Normal());
        break;
      case DType::kF16:
        for (int64_t i = 0; i < n; ++i) Put(F32ToF16(Normal()));
        break;
      case DType::kBF16:
        for (int64_t i = 0; i < n; ++i) Put(F32ToBf16(Normal()));
        break;
      case DType::kQ8Row:
      case DType::kQ8TwoField:
        PutRandom(n);
        for (int64_t r = 0; r < rows; ++r) PutScale(0.01f);
        if (dtype == DType::kQ8TwoField) {
          for (int64_t c = 0; c < cols; ++c) PutScale(1.0f);
        }
        break;
      case DType::kQ4Block:
        PutRandom((n + 31) / 32 * 16);
        for (int64_t g = 0; g < (n + 31) / 32; ++g) PutScale(0.1f);
        break;
      case DType::kQ4Tiled:
        PutTiles(tiles, 16);
        break;
      case DType::kQ4tp:
      case DType::kQ2tp:
        PutRandom(tiles * (dtype == DType::kQ4tp ? 16 : 8));
        for (int64_t r = 0; r < rows; ++r) {
          Put(F32ToF16(-6.0f + Uniform()));
          Put(F32ToF16(0.1f * Uniform()));
        }
        PutRandom(rows * ((cols / 32 * 5 + 7) / 8));
        break;
      case DType::kVbit:
      case DType::kVbitRo:
        PutVbit(dtype, rows, cols);
        break;
      case DType::kQ1:
        PutTiles(tiles, 4);
        break;
      case DType::kQ1s: {
        PutTiles(tiles, 4);
        std::vector<uint32_t> places;
        for (int64_t i = 0; i < n; ++i) {
          if (Uniform() < 0.02f) places.push_back(static_cast<uint32_t>(i));
        }
        Put(static_cast<uint32_t>(places.size()));
        for (const uint32_t place : places) {
          Put(place);
          Put(F32ToF16(Normal()));
        }
        break;
      }
      case DType::kQ1t:
        PutTernary(rows, cols);
        break;
      default:
        ADD_FAILURE() << "no maker for dtype " << static_cast<int>(dtype);
    }
    auto owner = std::make_shared<Payload>(bytes_);
    owner->shrink_to_fit();
    TensorView view;
    view.dtype = dtype;
    view.shape = {rows, cols};
    view.bytes = *owner;
    view.owner = owner;
    return view;
  }

  std::vector<float> Floats(int64_t count, float scale = 1.0f) {
    std::vector<float> result(static_cast<size_t>(count));
    for (float& x : result) x = scale * Normal();
    return result;
  }

 private:
  float Normal() { return normal_(rng_); }
  float Uniform() { return std::uniform_real_distribution<float>(0, 1)(rng_); }
  template <class T>
  void Put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void PutScale(float around) { Put(F32ToF16(around * (0.5f + Uniform()))); }
  void PutRandom(int64_t count) {
    for (int64_t i = 0; i < count; ++i) bytes_.push_back(static_cast<std::byte>(rng_()));
  }
  void PutTiles(int64_t tiles, int64_t code_bytes) {
    for (int64_t i = 0; i < tiles; ++i) {
      PutScale(0.1f);
      PutRandom(code_bytes);
    }
  }
  void PutVbit(DType dtype, int64_t rows, int64_t cols) {
    static constexpr int kWidths[] = {3, 4, 5, 6, 8};
    std::vector<int> widths;
    for (int64_t r = 0; r < rows; ++r) {
      widths.push_back(kWidths[rng_() % 5]);
      bytes_.push_back(static_cast<std::byte>(widths.back()));
    }
    for (int64_t i = 0; i < rows * cols / 32; ++i) PutScale(0.1f);
    uint32_t offset = 0;
    if (dtype == DType::kVbitRo) Put(offset);
    for (const int width : widths) {
      offset += static_cast<uint32_t>((cols * width + 7) / 8);
      if (dtype == DType::kVbitRo) Put(offset);
    }
    PutRandom(offset);
  }
  void PutTernary(int64_t rows, int64_t cols) {
    std::vector<uint32_t> row_ptr = {0};
    std::vector<std::pair<uint16_t, uint16_t>> entries;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t g = 0; g < cols / 32; ++g) {
        PutScale(0.1f);
        int codes[35] = {};
        for (int k = 0; k < 32; ++k) {
          codes[k] = static_cast<int>(rng_() % 3);
          if (Uniform() < 0.02f) {
            codes[k] = 0;  // the format's rule for overlaid places
            entries.emplace_back(static_cast<uint16_t>(32 * g + k), F32ToF16(Normal()));
          }
        }
        for (int j = 0; j < 7; ++j) {
          const int* c = codes + 5 * j;
          Put(static_cast<uint8_t>(c[0] + 3 * c[1] + 9 * c[2] + 27 * c[3] + 81 * c[4]));
        }
      }
      row_ptr.push_back(static_cast<uint32_t>(entries.size()));
    }
    for (const uint32_t value : row_ptr) Put(value);
    for (const auto& [column, value] : entries) {
      Put(column);
      Put(value);
    }
  }

  std::mt19937_64 rng_;
  std::normal_distribution<float> normal_{0, 1};
  Payload bytes_;
};

/// Whether this build's quant reads the dtype, and the encoding takes this width.
inline bool IsStorable(DType dtype, int64_t rows, int64_t cols) {
  const Encoding* encoding = FindEncoding(dtype);
  return encoding != nullptr && encoding->reason_against(std::vector<int64_t>{rows, cols}).empty();
}

inline constexpr DType kMatrixTypes[] = {
    DType::kF32,  DType::kF16,        DType::kBF16,   DType::kQ8Row,   DType::kQ4Block,
    DType::kVbit, DType::kQ8TwoField, DType::kVbitRo, DType::kQ4Tiled, DType::kQ1,
    DType::kQ1s,  DType::kQ1t,        DType::kQ4tp,   DType::kQ2tp,
};

inline LinearWeight MakeWeight(TensorView view) {
  auto weight = LinearWeight::Make(std::move(view), "w");
  if (!weight) throw std::runtime_error(weight.error().message);
  return *std::move(weight);
}

/// y [tokens, rows] of one matrix.
inline std::vector<float> Multiply(KernelContext& context, const LinearWeight& weight,
                                   const std::vector<float>& x, int64_t tokens, ComputeMode mode) {
  std::vector<float> y(static_cast<size_t>(tokens * weight.rows()), NAN);
  Activations input;
  input.Set(x.data(), tokens, weight.cols());
  const MatMulJob job{&weight, &input, y.data(), weight.rows(), {}, {}};
  MatMul(context, std::span(&job, 1), mode);
  return y;
}

}  // namespace cmforge
