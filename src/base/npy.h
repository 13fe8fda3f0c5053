// NumPy's .npy files: one array each, little-endian, row-major. Read from untrusted bytes, written
// atomically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace cmforge {

enum class NpyType : uint8_t { kBool, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kF16, kF32, kF64 };

[[nodiscard]] size_t NpyTypeBytes(NpyType type);
[[nodiscard]] std::string_view NpyTypeName(NpyType type);  // "float16", as NumPy says

struct NpyArray {
  NpyType type = NpyType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  std::vector<std::byte> data;

  [[nodiscard]] int64_t count()
      const;  // elements; what the reader and the makers below guarantee to be there

  /// Elements as numbers; f64 and 64-bit integers lose what f32 cannot hold.
  [[nodiscard]] std::vector<float> ToFloats() const;
  /// Fails: kUsage for float arrays and numbers outside 32 bits (the first one named).
  Result<std::vector<int32_t>> ToInts() const;

  [[nodiscard]] static NpyArray FromFloats(std::vector<int64_t> shape, std::span<const float> values);
  [[nodiscard]] static NpyArray FromHalves(std::vector<int64_t> shape,
                                           std::span<const float> values);  // rounded to f16
  [[nodiscard]] static NpyArray FromInts(std::vector<int64_t> shape, std::span<const int32_t> values);
  [[nodiscard]] static NpyArray FromBools(std::vector<int64_t> shape, std::span<const int32_t> values);
};

/// Fails: kCorrupt (no magic, a header that is no such dictionary, a size that is not the shape's),
/// kUnsupported (another version, big-endian or structured types). Column-major arrays are put in row order.
Result<NpyArray> ParseNpy(Bytes bytes);
Result<NpyArray> ReadNpy(const std::filesystem::path& path);

[[nodiscard]] std::vector<std::byte> SerializeNpy(const NpyArray& array);
Result<void> WriteNpy(const std::filesystem::path& path, const NpyArray& array);

}  // namespace cmforge
