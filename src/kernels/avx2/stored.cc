// Products of stored matrices with AVX2, FMA and F16C: codes of up to six bits are spread to bytes and looked up by
// vpshufb, codes of eight bits one by one, which is twice as fast as a gather on Zen 3.
#include "kernels/stored.h"

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/common.h"

namespace cmforge {
namespace {

struct Vec16 {
  __m256 low, high;
};

inline Vec16 Broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum) {
  return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
}
inline Vec16 LoadF32(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void StoreF32(float* p, Vec16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline float HalfToFloat(const std::byte* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, 2);
  return _cvtsh_ss(half);
}
inline Vec16 LoadF16(const std::byte* p) {
  const auto* h = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
inline float Tree(Vec16 v) { return avx2::Tree(v.low, v.high); }

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

template <int kBits>
inline Vec16 LoadIntegers(const std::byte* p, bool is_signed) {
  __m128i low, high;  // a byte each
  if constexpr (kBits == 8) {
    low = Load8(p);
    high = Load8(p + 8);
  } else {
    const __m128i bytes = Load8(p), mask = _mm_set1_epi8(15);
    __m128i codes =
        _mm_unpacklo_epi8(_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    if (is_signed) codes = _mm_sub_epi8(_mm_xor_si128(codes, _mm_set1_epi8(8)), _mm_set1_epi8(8));
    low = codes;
    high = _mm_srli_si128(codes, 8);
  }
  const auto widen = [&](__m128i codes) {
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(codes) : _mm256_cvtepu8_epi32(codes));
  };
  return {widen(low), widen(high)};
}
inline Vec16 Scale(Vec16 code, float offset, float scale) {
  const auto scaled = [&](__m256 v) {
    v = _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_sub_ps(v, _mm256_set1_ps(offset)));
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  };
  return {scaled(code.low), scaled(code.high)};
}

/// Thirty-two codes of fewer than eight bits, a byte each, in the order that interleaving planes twice, within lanes,
/// turns into ascending vectors of eight: 0-3, 8-11, 16-19, 24-27 in the low lane, the fours between in the high one.
template <int kBits>
CMFORGE_INLINE __m256i LoadCodes(const std::byte* p) {
  // Each code's bytes into 16 bits of their own, then to the top of them and back to the bottom; two codes of four bits
  // stay together. Both lanes see all the bytes of sixteen codes.
  struct alignas(32) Order {
    uint8_t first[32], second[32];
    uint16_t shifts[16];
  };
  constexpr int kLoaded = kBits == 1 ? 4 : kBits <= 3 ? 8 : 16, kSecond = kBits == 6 ? 8 : kBits == 3 ? 4 : 0;
  static constexpr Order kOrder = [] {
    Order order{};
    for (int i = 0; i < 32; ++i) {
      const int lane = i / 4 % 2, place = 16 * lane + 2 * (i / 8 % 2 * 4 + i % 4), shift = i * kBits % 8;
      const int at = i * kBits / 8 - (i < 16 ? 0 : kSecond);
      uint8_t* to = (i < 16 ? order.first : order.second) + place;
      to[0] = static_cast<uint8_t>(at);
      to[1] = static_cast<uint8_t>(shift + kBits > 8 ? at + 1 : at);
      order.shifts[place / 2] = static_cast<uint16_t>(1 << (16 - kBits - shift));
    }
    if (kBits == 4) {
      for (int byte = 0; byte < 16; ++byte) {
        const int lane = byte / 2 % 2, place = 16 * lane + 2 * (byte / 4 * 2 + byte % 2);
        order.first[place] = static_cast<uint8_t>(byte);
        order.first[place + 1] = 0x80;  // zero
      }
    }
    return order;
  }();
  const auto load = [](const std::byte* at) {
    if constexpr (kLoaded == 16) return _mm256_broadcastsi128_si256(Load16(at));
    if constexpr (kLoaded == 8) return _mm256_broadcastq_epi64(Load8(at));
    if constexpr (kLoaded == 4) return _mm256_set1_epi32(LoadAs<int32_t>(at));
  };
  if constexpr (kBits == 4) {
    const __m256i two = _mm256_shuffle_epi8(load(p), Load32(kOrder.first));
    return _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi16(two, 4)), _mm256_set1_epi8(15));
  } else {
    const auto spread = [&](const std::byte* at, const uint8_t* order) {
      const __m256i bytes = _mm256_shuffle_epi8(load(at), Load32(order));
      return _mm256_srli_epi16(_mm256_mullo_epi16(bytes, Load32(kOrder.shifts)), 16 - kBits);
    };
    return _mm256_packus_epi16(spread(p, kOrder.first), spread(p + kSecond, kOrder.second));
  }
}

/// Eight entries of a table of halves, times a scale where there is one.
CMFORGE_INLINE __m256 EightEntries(const std::byte* halves, const std::byte* scale) {
  const __m256 entries = _mm256_cvtph_ps(Load16(halves));
  if (scale == nullptr) return entries;
  const __m256 scaled = _mm256_mul_ps(entries, _mm256_set1_ps(HalfToFloat(scale)));
  return _mm256_cvtph_ps(_mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT));
}

/// A table as the upper three bytes of its entries as floats (the lowest of a half is zero), each byte in a plane of
/// its own: a vpshufb looks up 32 codes of four bits. Converting the halves that two planes hold would take longer.
template <int kBits>
class PaletteTable {
 public:
  CMFORGE_INLINE void Set(const std::byte* halves, const std::byte* scale) {
    alignas(16) std::byte repeated[32];
    if constexpr (kBits < 4) {
      for (int i = 0; i < 16; ++i) __builtin_memcpy(repeated + 2 * i, halves + 2 * (i % kEntries), 2);
      halves = repeated;
    }
    const __m256i bytes = _mm256_setr_epi8(1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, -1, -1, -1, -1,  //
                                           1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, -1, -1, -1, -1);
    for (int i = 0; i < kStored; i += 16) {
      const auto fours = [&](int at) {  // bytes 1, 2 and 3 of entries 0-3 and 4-7
        return _mm256_shuffle_epi8(_mm256_castps_si256(EightEntries(halves + 2 * at, scale)), bytes);
      };
      const __m256i a = fours(i), b = fours(i + 8);
      const __m128i a0 = _mm256_castsi256_si128(a), a1 = _mm256_extracti128_si256(a, 1);
      const __m128i b0 = _mm256_castsi256_si128(b), b1 = _mm256_extracti128_si256(b, 1);
      const __m128i low = _mm_unpacklo_epi32(a0, a1), next = _mm_unpacklo_epi32(b0, b1);
      Store(planes_[0] + i, _mm_unpacklo_epi64(low, next));
      Store(planes_[1] + i, _mm_unpackhi_epi64(low, next));
      Store(planes_[2] + i, _mm_unpacklo_epi64(_mm_unpackhi_epi32(a0, a1), _mm_unpackhi_epi32(b0, b1)));
    }
  }
  template <class Use>
  CMFORGE_INLINE void Look(const std::byte* at, Use&& use) const {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m256i codes = LoadCodes<kBits>(at + 4 * i * kBits), zero = _mm256_setzero_si256();
      const __m256i one = LookUp(planes_[0], codes), two = LookUp(planes_[1], codes),
                    three = LookUp(planes_[2], codes);
      const __m256i low0 = _mm256_unpacklo_epi8(zero, one), high0 = _mm256_unpacklo_epi8(two, three);
      const __m256i low1 = _mm256_unpackhi_epi8(zero, one), high1 = _mm256_unpackhi_epi8(two, three);
      use(2 * i, Vec16{_mm256_castsi256_ps(_mm256_unpacklo_epi16(low0, high0)),
                       _mm256_castsi256_ps(_mm256_unpackhi_epi16(low0, high0))});
      use(2 * i + 1, Vec16{_mm256_castsi256_ps(_mm256_unpacklo_epi16(low1, high1)),
                           _mm256_castsi256_ps(_mm256_unpackhi_epi16(low1, high1))});
    }
  }

 private:
  static constexpr int kEntries = 1 << kBits, kStored = kEntries < 16 ? 16 : kEntries;

  static CMFORGE_INLINE void Store(uint8_t* to, __m128i v) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), v);
  }
  static CMFORGE_INLINE __m256i LookUp(const uint8_t* plane, __m256i codes) {
    const auto look = [&](int part) {
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(Load16(plane + 16 * part)), codes);
    };
    if constexpr (kBits <= 4) {
      return look(0);
    } else {
      const __m256i bit4 = _mm256_slli_epi16(codes, 3),
                    bit5 = _mm256_slli_epi16(codes, 2);  // as bit 7 of each byte
      return _mm256_blendv_epi8(_mm256_blendv_epi8(look(0), look(1), bit4),
                                _mm256_blendv_epi8(look(2), look(3), bit4), bit5);
    }
  }

  alignas(16) uint8_t planes_[3][kStored];
};

/// Tables of 256 entries are read entry by entry.
template <>
class PaletteTable<8> {
 public:
  CMFORGE_INLINE void Set(const std::byte* halves, const std::byte* scale) {
    for (int i = 0; i < 256; i += 8) _mm256_store_ps(values_ + i, EightEntries(halves + 2 * i, scale));
  }
  template <class Use>
  CMFORGE_INLINE void Look(const std::byte* codes, Use&& use) const {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) use(k, Vec16{Eight(codes + 16 * k), Eight(codes + 16 * k + 8)});
  }

 private:
  CMFORGE_INLINE __m256 Eight(const std::byte* p) const {
    const auto codes = LoadAs<uint64_t>(p);
    return _mm256_set_m128(Four(static_cast<uint32_t>(codes >> 32)), Four(static_cast<uint32_t>(codes)));
  }
  /// One load of four codes: the loads of the entries are what limits this.
  CMFORGE_INLINE __m128 Four(uint32_t codes) const {
    __m128 entries = _mm_load_ss(values_ + (codes & 255));
    entries = _mm_insert_ps(entries, _mm_load_ss(values_ + (codes >> 8 & 255)), 0x10);
    entries = _mm_insert_ps(entries, _mm_load_ss(values_ + (codes >> 16 & 255)), 0x20);
    return _mm_insert_ps(entries, _mm_load_ss(values_ + (codes >> 24)), 0x30);
  }

  alignas(32) float values_[256];
};

// Two rows by three tokens are twelve accumulators of sixteen registers.
constexpr int kTileRows = 2, kTileTokens = 3;

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

extern const StoredKernels kStoredAvx2;
const StoredKernels kStoredAvx2 = StoredTable(Isa::kAvx2);

}  // namespace cmforge
