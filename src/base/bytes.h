// Reading numbers out of untrusted bytes: little-endian fields that may lie anywhere in a mapping,
// and arithmetic that reports overflow instead of wrapping.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace cmforge {

static_assert(std::endian::native == std::endian::little && sizeof(void*) == 8,
              "files are little-endian and mapped in place: a 64-bit little-endian host is needed");

using Bytes = std::span<const std::byte>;

template <class T>
[[nodiscard]] inline T LoadLe(const std::byte* at) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
inline void StoreLe(std::byte* at, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(at, &value, sizeof(T));
}

/// A little-endian integer of an on-disk struct; alignment 1, so the struct may start at any byte.
template <class T>
class Le {
 public:
  Le() = default;
  Le(T value) { StoreLe(bytes_, value); }           // NOLINT: reads as a plain integer
  operator T() const { return LoadLe<T>(bytes_); }  // NOLINT
 private:
  std::byte bytes_[sizeof(T)] = {};
};
static_assert(sizeof(Le<uint64_t>) == 8 && alignof(Le<uint64_t>) == 1);

[[nodiscard]] inline Bytes AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
[[nodiscard]] inline std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Product or sum of two sizes, or nothing when it does not fit.
[[nodiscard]] inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
[[nodiscard]] inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// `value` rounded up to a multiple of `unit` (a power of two). The caller knows it cannot overflow.
[[nodiscard]] constexpr uint64_t AlignUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) & ~(unit - 1);
}

/// A part of a file that is known to lie inside it.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t size = 0;

  [[nodiscard]] uint64_t end() const { return offset + size; }
  [[nodiscard]] Bytes Of(Bytes file) const { return file.subspan(offset, size); }

  /// Fails with kCorrupt (name "Bounds") when offset + size leaves `limit`; compares by subtraction.
  static Result<ByteRange> Checked(uint64_t offset, uint64_t size, uint64_t limit, std::string_view what);
};

/// True when `text` is well-formed UTF-8 (no surrogates, no overlong forms, nothing above U+10FFFF).
[[nodiscard]] bool IsUtf8(std::string_view text);

}  // namespace cmforge
