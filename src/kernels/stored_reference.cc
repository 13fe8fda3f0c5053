// Products of stored matrices by plain loops.
#include <cmath>

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/stored.h"

namespace cmforge {
namespace {

struct Vec16 {
  float at[16];
};

inline Vec16 Broadcast(float x) {
  Vec16 v;
  for (float& lane : v.at) lane = x;
  return v;
}
inline Vec16 Zero() { return Broadcast(0); }
inline Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum) {
  for (int i = 0; i < 16; ++i) sum.at[i] = std::fma(a.at[i], b.at[i], sum.at[i]);
  return sum;
}
inline Vec16 LoadF32(const float* p) {
  Vec16 v;
  __builtin_memcpy(v.at, p, 64);
  return v;
}
inline void StoreF32(float* p, Vec16 v) { __builtin_memcpy(p, v.at, 64); }
inline float HalfToFloat(const std::byte* p) { return F16ToF32(LoadLe<uint16_t>(p)); }
inline Vec16 LoadF16(const std::byte* p) {
  Vec16 v;
  for (int i = 0; i < 16; ++i) v.at[i] = HalfToFloat(p + 2 * i);
  return v;
}
inline float Tree(Vec16 v) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v.at[i] += v.at[i + width];
  }
  return v.at[0];
}

inline void Prefetch(const void*) {}

template <int kBits>
inline Vec16 LoadIntegers(const std::byte* p, bool is_signed) {
  Vec16 v;
  for (int i = 0; i < 16; ++i) {
    const auto byte = std::to_integer<int32_t>(p[i * kBits / 8]);
    const int32_t code = kBits == 8 ? byte : byte >> (4 * (i % 2)) & 15;
    constexpr int32_t kSign = 1 << (kBits - 1);
    v.at[i] = static_cast<float>(is_signed ? (code ^ kSign) - kSign : code);
  }
  return v;
}
inline Vec16 Scale(Vec16 code, float offset, float scale) {
  for (float& v : code.at) v = RoundToF16(scale * (v - offset));
  return code;
}

template <int kBits>
class PaletteTable {
 public:
  void Set(const std::byte* halves, const std::byte* scale) {
    for (int i = 0; i < 1 << kBits; ++i) {
      const float entry = HalfToFloat(halves + 2 * i);
      values_[i] = scale == nullptr ? entry : RoundToF16(HalfToFloat(scale) * entry);
    }
  }
  template <class Use>
  void Look(const std::byte* codes, Use&& use) const {
    Vec16 out[4];
    for (int k = 0; k < 64; k += 8) {  // eight codes fill whole bytes
      uint64_t word = 0;
      for (int b = 0; b < kBits; ++b) word |= std::to_integer<uint64_t>(codes[k / 8 * kBits + b]) << (8 * b);
      for (int i = 0; i < 8; ++i)
        out[k / 16].at[k % 16 + i] = values_[word >> (i * kBits) & ((1u << kBits) - 1u)];
    }
    for (int k = 0; k < 4; ++k) use(k, out[k]);
  }

 private:
  float values_[1 << kBits];
};

constexpr int kTileRows = 4, kTileTokens = 2;

template <int kTokens>
inline void TileTrees(const Vec16 (&sums)[kTokens][kTileRows], float (&out)[kTokens][kTileRows]) {
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kTileRows; ++r) out[t][r] = Tree(sums[t][r]);
  }
}

}  // namespace
}  // namespace cmforge

#include "kernels/stored_body.h"

namespace cmforge {

extern const StoredKernels kStoredReference;
const StoredKernels kStoredReference = StoredTable(Isa::kReference);

}  // namespace cmforge
