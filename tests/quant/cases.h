// What the tests of encodings share: tensors made of f32 values, golden files, seeded random rows.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/json.h"
#include "quant/encoding.h"

namespace cmforge {

using ByteVector = std::vector<std::byte>;

/// A tensor that owns its bytes.
inline TensorView OwnedTensor(DType dtype, Shape shape, ByteVector bytes) {
  auto owner = std::make_shared<ByteVector>(std::move(bytes));
  const Bytes view(*owner);
  return {dtype, std::move(shape), view, std::move(owner)};
}

inline TensorView F32Tensor(Shape shape, const std::vector<float>& values) {
  const auto* at = reinterpret_cast<const std::byte*>(values.data());
  return OwnedTensor(DType::kF32, std::move(shape), ByteVector(at, at + values.size() * sizeof(float)));
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline Json ReadJsonFile(const std::string& path) {
  auto json = ParseJson(ReadText(path), path);
  if (!json) {
    ADD_FAILURE() << json.error().message;
    return {};
  }
  return *std::move(json);
}

inline ByteVector FromBase64(std::string_view text) {
  ByteVector out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    uint32_t digit;
    if (c >= 'A' && c <= 'Z')
      digit = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      digit = static_cast<uint32_t>(c - 'a') + 26;
    else if (c >= '0' && c <= '9')
      digit = static_cast<uint32_t>(c - '0') + 52;
    else if (c == '+')
      digit = 62;
    else if (c == '/')
      digit = 63;
    else
      break;
    bits = bits << 6 | digit;
    if ((count += 6) >= 8) out.push_back(static_cast<std::byte>(bits >> (count -= 8) & 0xFF));
  }
  return out;
}

inline std::vector<float> FloatsOf(Bytes bytes) {
  std::vector<float> values(bytes.size() / 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = LoadLe<float>(bytes.data() + 4 * i);
  return values;
}

inline std::vector<float> GaussianRows(int64_t rows, int64_t cols, uint32_t seed, float sigma = 0.05f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> gauss(0.0f, sigma);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (float& value : values) value = gauss(random);
  return values;
}

/// Encodes or fails the test.
inline ByteVector MustEncode(const Encoding& encoding, const TensorView& tensor,
                             const EncodeOptions& options = {}, int threads = 1) {
  ThreadPool pool(threads);
  auto rows = AsFloatRows(tensor);
  if (!rows) {
    ADD_FAILURE() << rows.error().message;
    return {};
  }
  auto bytes = encoding.encode(*rows, options, pool);
  if (!bytes) {
    ADD_FAILURE() << encoding.name << ": " << bytes.error().message;
    return {};
  }
  return *std::move(bytes);
}

inline std::vector<float> MustDequantize(const TensorView& tensor) {
  auto values = Dequantize(tensor);
  if (!values) {
    ADD_FAILURE() << values.error().message;
    return {};
  }
  return *std::move(values);
}

}  // namespace cmforge
