// The product of unpacked rows and tokens by AMX: one tile product makes a group's integer sums of 16 rows and 16
// tokens. They go through L1 to the vector unit, which converts them, multiplies both scales and adds: three operations
// for 16 sums of 32 products, where VNNI needs eleven.
//
// A tile product takes 16 cycles until the next can begin and 52 until its tile can be stored, so several are under
// way: one stream of them, through all tiles of the block, runs ahead of the vector unit.
#include "kernels/avx512/blocks.h"

namespace cmforge::avx512 {
namespace {

/// How integer sums become floats.
enum class Scaling {
  kByToken,              // the token's scale (the row's comes at the end)
  kByGroup,              // the token's and the row's
  kByGroupFromZeroPoint  // and the zero point first
};

// Tile registers: macros, since the compiler's intrinsics make part of an assembler line of their text. Sums: four,
// 3 to 6.
#define CMFORGE_ROWS_TILE 0
#define CMFORGE_TOKENS_TILE 1

// Products run ahead by three in registers and two in memory.
constexpr int64_t kInRegisters = 3, kAhead = kInRegisters + 2, kRing = 4;

/// Integer sums of one group, 16 rows and 16 tokens.
struct alignas(64) Products {
  int32_t at[kTileRows][kTileTokens];
};

/// The stream of tile products: by tile of tokens, tile of rows, group in the order of GroupOrder. Its phase, the number
/// of products begun modulo four, says which registers and which memory are next; callers know it when they are
/// compiled, so that nothing is decided between products.
template <bool kIsSigned>
class Stream {
 public:
  static constexpr int kFirstPhase = kAhead % kRing;

  Stream(const Block& block, const TokenGroup* x, int64_t token_tiles)
      : groups_(block.groups),
        row_tiles_((block.rows + kTileRows - 1) / kTileRows),
        tiles_left_(token_tiles * row_tiles_),
        groups_left_(groups_),
        first_codes_(block.codes),
        codes_(block.codes),
        x_(x) {
    static_assert(kAhead == 5);
    Issue<0>();
    Issue<1>();
    Issue<2>();
    Issue<3>();
    Issue<0>();
  }

  /// The next product; it stays until another one is taken.
  template <int kPhase>
  CMFORGE_INLINE const Products& Take() {
    Issue<kPhase>();
    return ring_[(kPhase + 2 * kRing - kAhead) % kRing];
  }

 private:
  /// Begins a product and stores the one that was begun three before.
  template <int kPhase>
  CMFORGE_INLINE void Issue() {
    _tile_loadd(CMFORGE_ROWS_TILE, codes_, kGroupSize);
    _tile_loadd(CMFORGE_TOKENS_TILE, x_->q, 64);
    int32_t* to = ring_[(kPhase + kRing - kInRegisters) % kRing].at[0];
#define CMFORGE_BEGIN_AND_STORE(sums, older)                    \
  _tile_zero(sums);                                             \
  if constexpr (kIsSigned) {                                    \
    _tile_dpbssd(sums, CMFORGE_ROWS_TILE, CMFORGE_TOKENS_TILE); \
  } else {                                                      \
    _tile_dpbusd(sums, CMFORGE_ROWS_TILE, CMFORGE_TOKENS_TILE); \
  }                                                             \
  _tile_stored(older, to, 64)
    if constexpr (kPhase == 0) {
      CMFORGE_BEGIN_AND_STORE(3, 4);
    } else if constexpr (kPhase == 1) {
      CMFORGE_BEGIN_AND_STORE(4, 5);
    } else if constexpr (kPhase == 2) {
      CMFORGE_BEGIN_AND_STORE(5, 6);
    } else {
      CMFORGE_BEGIN_AND_STORE(6, 3);
    }
#undef CMFORGE_BEGIN_AND_STORE
    codes_ += kTileGroupBytes;
    ++x_;
    if (--groups_left_ == 0) NextTile();
  }

  void NextTile() {
    groups_left_ = groups_;
    x_ -= groups_;             // the tokens meet all rows first
    if (--tiles_left_ <= 0) {  // past the end the last tile repeats, for nobody
      codes_ -= TileCodeBytes(groups_);
    } else if (++row_tile_ == row_tiles_) {
      row_tile_ = 0;
      codes_ = first_codes_;
      x_ += groups_;
    }
  }

  const int64_t groups_, row_tiles_;
  int64_t tiles_left_, groups_left_;  // the present ones included
  int64_t row_tile_ = 0;
  const uint8_t *first_codes_, *codes_;
  const TokenGroup* x_;
  Products ring_[kRing];
};

/// Bytes that are wanted later, asked for a little at a time.
class Prefetcher {
 public:
  Prefetcher(Ahead ahead, int64_t steps)
      : at_(ahead.at), end_(ahead.at + ahead.bytes), step_(ahead.bytes / steps + 1) {}
  CMFORGE_INLINE void Step() {
    wanted_ += step_;
    for (; wanted_ > 0 && at_ < end_; at_ += 64, wanted_ -= 64) PrefetchLine(at_);
  }

 private:
  const std::byte *at_, *end_;
  int64_t step_, wanted_ = 0;
};

/// Adds the stream's next product to sums of 16 rows and tokens.
template <Scaling kScaling, int kPhase, class Stream>
CMFORGE_INLINE void AddGroup(Stream& stream, const float* scales, const TokenGroup& x,
                             __m512 (&acc)[kTileRows]) {
  const Products& products = stream.template Take<kPhase>();
  const __m512 x_scale = _mm512_load_ps(x.scale);
  const __m512i minus_zero = _mm512_load_si512(x.minus_zero);
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    __m512i sum = _mm512_load_si512(products.at[r]);
    if constexpr (kScaling == Scaling::kByGroupFromZeroPoint) sum = _mm512_add_epi32(sum, minus_zero);
    __m512 scale = x_scale;
    if constexpr (kScaling != Scaling::kByToken)
      scale = _mm512_mul_ps(_mm512_set1_ps(scales[kPartials * r]), x_scale);
    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, acc[r]);
  }
}

/// `phase`: the stream's, before and after.
template <Scaling kScaling, class Stream>
CMFORGE_INLINE void Tile(Stream& stream, const float* scales, const TokenGroup* x, int64_t groups,
                         Prefetcher& ahead, int& phase, Sums& sums) {
  for (int turn = 0; turn < kPartials; ++turn) {
    const int64_t p = kOrder[turn];
    __m512 acc[kTileRows];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) acc[r] = _mm512_setzero_ps();
    const float* scales_at = scales + ScaleOffset(p);
    int64_t left = (groups - p + kPartials - 1) / kPartials;
    const auto add = [&](auto at_phase) __attribute__((always_inline)) {
      AddGroup<kScaling, at_phase>(stream, scales_at, *x++, acc);
      scales_at += kUnitScales;
      phase = (at_phase + 1) % kRing;
      return --left == 0;
    };
    // Four products a round, beginning at any of them.
    if (left > 0) {
      switch (phase) {
        for (;;) {
          case 0:
            if (add(std::integral_constant<int, 0>())) break;
            [[fallthrough]];
          case 1:
            if (add(std::integral_constant<int, 1>())) break;
            [[fallthrough]];
          case 2:
            if (add(std::integral_constant<int, 2>())) break;
            [[fallthrough]];
          default:
            if (add(std::integral_constant<int, 3>())) break;
        }
      }
    }
    ahead.Step();
    int height = 0;
    for (; (turn >> height & 1) != 0; ++height) {
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) acc[r] = _mm512_add_ps(_mm512_load_ps(sums.at[height][r]), acc[r]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) _mm512_store_ps(sums.at[height][r], acc[r]);
  }
}

template <Scaling kScaling>
void AllTiles(const Block& block, const TokenGroup* x, int64_t tokens, float* out, int64_t out_stride) {
  constexpr bool kHasGroupScales = kScaling != Scaling::kByToken;
  const int64_t units = (block.groups + kPartials - 1) / kPartials;
  using StreamOf = Stream<kScaling != Scaling::kByGroupFromZeroPoint>;
  StreamOf stream(block, x, TokenTilesOf(tokens));
  int phase = StreamOf::kFirstPhase;
  const int64_t row_tiles = (block.rows + kTileRows - 1) / kTileRows;
  Prefetcher ahead(block.ahead, TokenTilesOf(tokens) * row_tiles * kPartials);
  for (int64_t t = 0; t < tokens; t += kTileTokens, x += block.groups) {
    for (int64_t begin = 0; begin < block.rows; begin += kTileRows) {
      const int64_t left = block.rows - begin;
      Sums sums;
      PrefetchTile(out + t * out_stride + begin, tokens - t, out_stride);
      Tile<kScaling>(stream,
                     kHasGroupScales ? block.scales + begin / kTileRows * units * kUnitScales : nullptr, x,
                     block.groups, ahead, phase, sums);
      StoreTile(sums.at[kTreeHeight], kHasGroupScales ? nullptr : block.row_scales + begin,
                left < kTileRows ? left : kTileRows, tokens - t, out + t * out_stride + begin, out_stride);
    }
  }
}

/// What LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

constexpr TileConfig kConfig = [] {
  TileConfig config;
  config.rows[CMFORGE_ROWS_TILE] = kTileRows;
  config.row_bytes[CMFORGE_ROWS_TILE] = kGroupSize;
  config.rows[CMFORGE_TOKENS_TILE] = kGroupSize / 4;
  config.row_bytes[CMFORGE_TOKENS_TILE] = 4 * kTileTokens;
  for (int sums = 3; sums <= 6; ++sums) {
    config.rows[sums] = kTileRows;
    config.row_bytes[sums] = 4 * kTileTokens;
  }
  return config;
}();

}  // namespace

void AmxBlockProduct(const Block& block, const TokenGroup* tiles, int64_t tokens, float* out,
                     int64_t out_stride) {
  _tile_loadconfig(&kConfig);
  if (block.scales == nullptr) {
    AllTiles<Scaling::kByToken>(block, tiles, tokens, out, out_stride);
  } else if (block.is_signed) {
    AllTiles<Scaling::kByGroup>(block, tiles, tokens, out, out_stride);
  } else {
    AllTiles<Scaling::kByGroupFromZeroPoint>(block, tiles, tokens, out, out_stride);
  }
  _tile_release();
}

}  // namespace cmforge::avx512
