// The products of stored.h, for every instruction set. A Vec16 holds the sixteen partial sums of one output, so
// nothing is reduced before the end of a row. Weights come in steps of 64 columns, four vectors at a time.
//
// Included by one file of each instruction set, after it has defined in its namespace
//   Vec16;  Vec16 Zero();  Vec16 Fma(Vec16 a, Vec16 b, Vec16 sum);  Vec16 LoadF32(const float*), LoadF16(const
//   std::byte*), Broadcast(float);  void StoreF32(float*, Vec16);  float Tree(Vec16);
//   Vec16 LoadIntegers<bits>(const std::byte*, bool is_signed): 16 integers of 4 or 8 bits as floats;
//   Vec16 Scale(Vec16 code, float offset, float scale): scale * (code - offset), rounded to f16;  float HalfToFloat(const std::byte*);
//   struct PaletteTable<bits>: Set(const std::byte* halves, const std::byte* scale) with a scale or null, and
//     Look(const std::byte* codes, use): use(i, 16 entries) for the codes 16 i to 16 i + 15 of 64, ascending; where
//     registers can hold a table, also Held Hold() and static Look(const Held&, codes, use);
//   void Prefetch(const void*);
//   void TileTrees(const Vec16 (&sums)[kTokens][kTileRows], float (&out)[kTokens][kTileRows]): the tree of each;
//   constexpr int kTileRows, kTileTokens: outputs whose partial sums stay in registers.
#pragma once

#include "kernels/stored.h"

#ifndef CMFORGE_INLINE
#define CMFORGE_INLINE inline __attribute__((always_inline))
#endif
#define CMFORGE_INLINE_LAMBDA __attribute__((always_inline))

namespace cmforge {
namespace {

constexpr int64_t kStep = 64;  // columns

// ---- rows as vectors. Begin(w, row, previous) finds a row; `previous` is the row before it, or null. MoveTo(copy) reads
// on from a copy of the row. Load(c, use) is use(i, v) for the four vectors from column c on: each is used before the next
// is there, for want of registers.

struct F32Row {
  static constexpr int64_t kStepBytes = 32 * kStep / 8;
  CMFORGE_INLINE void Begin(const StoredMatrix& w, int64_t row, const F32Row*) {
    at_ = w.data + 4 * row * w.cols;
  }
  CMFORGE_INLINE void MoveTo(const std::byte* copy) { at_ = copy; }
  template <class Use>
  CMFORGE_INLINE void Load(int64_t c, Use&& use) const {
    const float* from = reinterpret_cast<const float*>(at_) + c;
    for (int i = 0; i < 4; ++i) use(i, LoadF32(from + 16 * i));
  }

 private:
  const std::byte* at_;
};

struct F16Row {
  static constexpr int64_t kStepBytes = 16 * kStep / 8;
  CMFORGE_INLINE void Begin(const StoredMatrix& w, int64_t row, const F16Row*) {
    at_ = w.data + 2 * row * w.cols;
  }
  CMFORGE_INLINE void MoveTo(const std::byte* copy) { at_ = copy; }
  template <class Use>
  CMFORGE_INLINE void Load(int64_t c, Use&& use) const {
    for (int i = 0; i < 4; ++i) use(i, LoadF16(at_ + 2 * (c + 16 * i)));
  }

 private:
  const std::byte* at_;
};

template <int kBits>
class PaletteRow {
 public:
  static constexpr int64_t kStepBytes = kBits * kStep / 8;
  CMFORGE_INLINE void Begin(const StoredMatrix& w, int64_t row, const PaletteRow* previous) {
    codes_ = w.data + row * w.cols * kBits / 8;
    const std::byte* table = w.tables + 2 * (row / w.rows_per_table << kBits);
    const std::byte* scale = w.scales != nullptr ? w.scales + 2 * (row / w.rows_per_scale) : nullptr;
    if (previous != nullptr && previous->table_at_ == table && previous->scale_at_ == scale) {
      table_ = previous->table_;
    } else {
      if (table_ != &own_ || table_at_ != table || scale_at_ != scale) own_.Set(table, scale);
      table_ = &own_;
    }
    table_at_ = table;
    scale_at_ = scale;
  }
  CMFORGE_INLINE void MoveTo(const std::byte* copy) { codes_ = copy; }
  template <class Use>
  CMFORGE_INLINE void Load(int64_t c, Use&& use) const {
    table_->Look(codes_ + c * kBits / 8, use);
  }

  // Rows with one table, which registers hold meanwhile.
  [[nodiscard]] CMFORGE_INLINE bool SharesTable(const PaletteRow& other) const {
    return table_ == other.table_;
  }
  [[nodiscard]] CMFORGE_INLINE auto Hold() const requires requires(const PaletteTable<kBits>& table) {
    table.Hold();
  }
  { return table_->Hold(); }
  template <class Held, class Use>
  CMFORGE_INLINE void Load(const Held& held, int64_t c, Use&& use) const {
    PaletteTable<kBits>::Look(held, codes_ + c * kBits / 8, use);
  }

 private:
  const std::byte *codes_ = nullptr, *table_at_ = nullptr, *scale_at_ = nullptr;
  const PaletteTable<kBits>* table_ = nullptr;
  PaletteTable<kBits> own_;
};

template <int kBits>
class ScaledRow {
 public:
  static constexpr int64_t kStepBytes = kBits * kStep / 8;
  CMFORGE_INLINE void Begin(const StoredMatrix& w, int64_t row, const ScaledRow*) {
    codes_ = w.data + row * w.cols * kBits / 8;
    const int64_t block = row / w.rows_per_scale * w.scales_per_row;
    scales_ = w.scales + 2 * block;
    offsets_ = w.offsets != nullptr ? w.offsets + block : nullptr;
    // One block a row: no division by its width, whatever that is.
    cols_ = w.scales_per_row == 1 ? int64_t{1} << 62 : w.cols_per_scale;
    next_ = -1;
    is_signed_ = w.is_signed;
  }
  CMFORGE_INLINE void MoveTo(const std::byte* copy) { codes_ = copy; }
  template <class Use>
  CMFORGE_INLINE void Load(int64_t c, Use&& use) {
    for (int i = 0; i < 4; ++i) {
      const int64_t at = c + 16 * i;
      if (at >= next_) {  // columns come in ascending order
        const int64_t block = next_ < 0 ? 0 : at / cols_;
        next_ = (block + 1) * cols_;
        scale_ = HalfToFloat(scales_ + 2 * block);
        offset_ = offsets_ != nullptr ? offsets_[block] : 0.0f;
      }
      use(i, Scale(LoadIntegers<kBits>(codes_ + at * kBits / 8, is_signed_), offset_, scale_));
    }
  }

 private:
  const std::byte *codes_, *scales_;
  const float* offsets_;
  int64_t cols_, next_;
  float scale_ = 0, offset_ = 0;
  bool is_signed_;
};

// ---- one token

/// What lies behind the last whole step of a row, zeros up to a multiple of 16.
template <class Fn>
CMFORGE_INLINE void ForTail(const StoredMatrix& w, int64_t row, int64_t whole, const float* x, Fn&& fn) {
  alignas(64) float weights[kStep] = {}, values[kStep] = {};
  DecodeStored(w, row, whole, w.cols - whole, weights);
  __builtin_memcpy(values, x + whole, static_cast<size_t>(w.cols - whole) * 4);
  for (int64_t c = 0; whole + c < w.cols; c += 16) fn(LoadF32(weights + c), LoadF32(values + c));
}

// Rows that are read side by side, since the sum of one is a chain.
constexpr int kStreams = 4;
// Rows of at most so many bytes are copied: two groups of them fit in L1.
constexpr int64_t kMostCopied = 4096;
// Where copies come from is asked for this many bytes before.
constexpr int64_t kFarAhead = 4096;

/// Whole vectors: compilers copy in smaller ones.
template <int64_t kBytes>
CMFORGE_INLINE void CopyBytes(std::byte* to, const std::byte* from) {
  constexpr int64_t kVectors = kBytes / 64 * 64;
  for (int64_t i = 0; i < kVectors; i += 64)
    StoreF32(reinterpret_cast<float*>(to + i), LoadF32(reinterpret_cast<const float*>(from + i)));
  if constexpr (kVectors < kBytes) __builtin_memcpy(to + kVectors, from + kVectors, kBytes - kVectors);
}

/// The next bytes of a copy, and what is copied later is asked for.
template <int64_t kBytes>
CMFORGE_INLINE void CopyStep(std::byte*& to, const std::byte*& from) {
  for (int64_t line = 0; line < kBytes; line += 64) Prefetch(from + kFarAhead + line);
  CopyBytes<kBytes>(to, from);
  to += kBytes;
  from += kBytes;
}

template <class Row>
concept HoldsTables = requires(const Row& row) {
  row.Hold();
};

/// The whole steps of a group of rows. `fetch()` comes before each.
template <bool kHolds, class Row, class Fetch>
CMFORGE_INLINE void MultiplySteps(Row (&row)[kStreams], int64_t whole, const float* x, Fetch&& fetch,
                                  Vec16 (&out)[kStreams]) {
  Vec16 sums[kStreams];
#pragma GCC unroll 4
  for (int i = 0; i < kStreams; ++i) sums[i] = Zero();
  const auto steps = [&](auto&&... held) CMFORGE_INLINE_LAMBDA {
    for (int64_t c = 0; c < whole; c += kStep) {
      fetch();
#pragma GCC unroll 4
      for (int i = 0; i < kStreams; ++i) {
        Vec16 sum = sums[i];
        row[i].Load(held..., c, [&](int k, Vec16 weights) CMFORGE_INLINE_LAMBDA {
          sum = Fma(weights, LoadF32(x + c + 16 * k), sum);
        });
        sums[i] = sum;
      }
    }
  };
  if constexpr (kHolds) {
    steps(row[0].Hold());
  } else {
    steps();
  }
#pragma GCC unroll 4
  for (int i = 0; i < kStreams; ++i) out[i] = sums[i];
}

template <class Row>
void MultiplyOne(const StoredMatrix& w, int64_t begin, int64_t end, const float* x, float* out) {
  using Ahead = StoredMatrix::Ahead;
  const int64_t whole = w.cols / kStep * kStep, row_bytes = w.cols * w.bits / 8;
  constexpr int64_t kStepBytes = kStreams * Row::kStepBytes;
  const bool copies = w.ahead == Ahead::kCopied && row_bytes <= kMostCopied;
  alignas(64) std::byte copy[2][kStreams * kMostCopied];
  int side = 0;  // of `copy`, where this group is if it was copied
  bool is_copied = copies && end - begin >= kStreams;
  if (is_copied) {  // the first group, which nothing is multiplied meanwhile
    std::byte* to = copy[0];
    const std::byte *from = w.data + begin * row_bytes, *last = from + kStreams * row_bytes;
    while (last - from >= 256) CopyStep<256>(to, from);
    __builtin_memcpy(to, from, static_cast<size_t>(last - from));
  }
  Row row[kStreams];
  for (int64_t r = begin; r < end; r += kStreams) {
    const int64_t rows = end - r < kStreams ? end - r : kStreams;
#pragma GCC unroll 4
    for (int i = 0; i < kStreams; ++i) {
      row[i].Begin(w, r + (i < rows ? i : rows - 1), i > 0 ? &row[i - 1] : nullptr);
      if (is_copied) row[i].MoveTo(copy[side] + i * row_bytes);
    }
    const std::byte* next = w.data + (r + kStreams) * row_bytes;
    is_copied = copies && r + 2 * kStreams <= end;
    Vec16 sums[kStreams];
    const auto multiply = [&]<bool kHolds>() {
      if (is_copied) {
        side ^= 1;
        std::byte* to = copy[side];
        MultiplySteps<kHolds>(
            row, whole, x, [&]() CMFORGE_INLINE_LAMBDA { CopyStep<kStepBytes>(to, next); }, sums);
        const int64_t rest = (w.cols - whole) * w.bits / 8 * kStreams;
        if (rest > 0) __builtin_memcpy(to, next, static_cast<size_t>(rest));
      } else if (w.ahead != Ahead::kNothing) {
        const std::byte* at = next;
        MultiplySteps<kHolds>(
            row, whole, x,
            [&]() CMFORGE_INLINE_LAMBDA {
              for (int i = 0; i < kStreams; ++i) {
                for (int64_t line = 0; line < Row::kStepBytes; line += 64)
                  Prefetch(at + i * row_bytes + line);
              }
              at += Row::kStepBytes;
            },
            sums);
      } else {
        MultiplySteps<kHolds>(
            row, whole, x, [] {}, sums);
      }
    };
    if constexpr (HoldsTables<Row>) {
      bool shares = true;
      for (int i = 1; i < kStreams; ++i) shares = shares && row[i].SharesTable(row[0]);
      if (shares) {
        multiply.template operator()<true>();
      } else {
        multiply.template operator()<false>();
      }
    } else {
      multiply.template operator()<false>();
    }
    // Through memory, or a call that follows, even one that is rarely made, would keep the sums there before.
    alignas(64) float partials[kStreams][16];
#pragma GCC unroll 4
    for (int i = 0; i < kStreams; ++i) StoreF32(partials[i], sums[i]);
#pragma GCC unroll 1
    for (int64_t i = 0; i < rows; ++i) {
      Vec16 sum = LoadF32(partials[i]);
      if (whole < w.cols) ForTail(w, r + i, whole, x, [&](Vec16 a, Vec16 b) { sum = Fma(a, b, sum); });
      out[r - begin + i] = Tree(sum);
    }
  }
}

template <class Row>
void DecodeStoredRows(const StoredMatrix& w, int64_t begin, int64_t end, float* out, int64_t stride) {
  const int64_t whole = w.cols / kStep * kStep;
  Row rows[2];
  for (int64_t r = begin; r < end; ++r) {
    Row& row = rows[r & 1];
    row.Begin(w, r, r > begin ? &rows[(r & 1) ^ 1] : nullptr);
    float* to = out + (r - begin) * stride;
    for (int64_t c = 0; c < whole; c += kStep) {
      row.Load(c, [&](int k, Vec16 weights) { StoreF32(to + c + 16 * k, weights); });
    }
    if (whole < w.cols) DecodeStored(w, r, whole, w.cols - whole, to + whole);
  }
}

/// fn with the kind of row that the matrix has.
template <class Fn>
CMFORGE_INLINE void WithRow(const StoredMatrix& w, Fn&& fn) {
  using Form = StoredMatrix::Form;
  if (w.form == Form::kF32) return fn(F32Row());
  if (w.form == Form::kF16) return fn(F16Row());
  if (w.form == Form::kScaled) return w.bits == 4 ? fn(ScaledRow<4>()) : fn(ScaledRow<8>());
  switch (w.bits) {
    case 1:
      return fn(PaletteRow<1>());
    case 2:
      return fn(PaletteRow<2>());
    case 3:
      return fn(PaletteRow<3>());
    case 4:
      return fn(PaletteRow<4>());
    case 6:
      return fn(PaletteRow<6>());
    default:
      return fn(PaletteRow<8>());
  }
}

void MultiplyOneOf(const StoredMatrix& w, int64_t begin, int64_t end, const float* x, float* out) {
  WithRow(w, [&](auto row) { MultiplyOne<decltype(row)>(w, begin, end, x, out); });
}
void DecodeRowsOf(const StoredMatrix& w, int64_t begin, int64_t end, float* out, int64_t stride) {
  WithRow(w, [&](auto row) { DecodeStoredRows<decltype(row)>(w, begin, end, out, stride); });
}

// ---- many tokens

/// Columns [begin, end) of kTileRows rows and kTokens tokens; partial sums come from `partials` unless begin is 0, and
/// go there unless the row ends.
template <int kTokens>
CMFORGE_INLINE void Tile(const float* const* w, int64_t rows, const float* x, int64_t x_stride, int64_t begin,
                         int64_t end, int64_t cols, float* partials, float* out, int64_t row_stride,
                         int64_t token_stride) {
  // Constant indices throughout, or the sums would lie in memory.
  Vec16 sums[kTokens][kTileRows];
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      sums[t][r] = begin == 0 ? Zero() : LoadF32(partials + 16 * (t * kTileRows + r));
    }
  }
  int64_t c = begin;
  for (; c + 16 <= end; c += 16) {
    Vec16 weights[kTileRows];
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) weights[r] = LoadF32(w[r] + c);
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      const Vec16 value = LoadF32(x + t * x_stride + c);
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) sums[t][r] = Fma(weights[r], value, sums[t][r]);
    }
  }
  if (end < cols) {
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int r = 0; r < kTileRows; ++r) StoreF32(partials + 16 * (t * kTileRows + r), sums[t][r]);
    }
    return;
  }
  if (c < cols) {
    const auto bytes = static_cast<size_t>(cols - c) * 4;
    alignas(64) float weights[16] = {}, values[16] = {};
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      __builtin_memcpy(weights, w[r] + c, bytes);
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
        __builtin_memcpy(values, x + t * x_stride + c, bytes);
        sums[t][r] = Fma(LoadF32(weights), LoadF32(values), sums[t][r]);
      }
    }
  }
  alignas(64) float y[kTokens][kTileRows];
  TileTrees(sums, y);
  if (rows == kTileRows && row_stride == 1) {
    for (int t = 0; t < kTokens; ++t) __builtin_memcpy(out + t * token_stride, y[t], sizeof(y[t]));
  } else if (rows == kTileRows) {
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) out[r * row_stride + t * token_stride] = y[t][r];
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      for (int t = 0; t < kTokens; ++t) out[r * row_stride + t * token_stride] = y[t][r];
    }
  }
}

/// A block of columns of all rows meets a few tokens, whose values stay in L1 meanwhile.
void Panel(const float* w, int64_t w_stride, int64_t rows, int64_t cols, const float* x, int64_t x_stride,
           int64_t tokens, float* out, int64_t row_stride, int64_t token_stride, float* scratch) {
  constexpr int64_t kBlock = 1024;
  for (int64_t token = 0; token < tokens; token += kTileTokens) {
    const int64_t count = tokens - token < kTileTokens ? tokens - token : kTileTokens;
    for (int64_t begin = 0; begin < cols || begin == 0; begin += kBlock) {
      const int64_t end = cols - begin < kBlock ? cols : begin + kBlock;
      for (int64_t r = 0; r < rows; r += kTileRows) {
        const int64_t n = rows - r < kTileRows ? rows - r : kTileRows;
        const float* from[kTileRows];
        for (int64_t i = 0; i < kTileRows; ++i) from[i] = w + (r + (i < n ? i : n - 1)) * w_stride;
        const auto tile = [&]<int kTokens>() {
          Tile<kTokens>(from, n, x + token * x_stride, x_stride, begin, end, cols,
                        scratch + 16 * kTileTokens * r, out + r * row_stride + token * token_stride,
                        row_stride, token_stride);
        };
        static_assert(kTileTokens <= 6);
        switch (count) {
          case 1:
            tile.template operator()<1>();
            break;
          case 2:
            tile.template operator()<2>();
            break;
          case 3:
            tile.template operator()<3>();
            break;
          case 4:
            tile.template operator()<4>();
            break;
          case 5:
            tile.template operator()<5>();
            break;
          default:
            tile.template operator()<6>();
            break;
        }
      }
    }
  }
}

// ---- sums of rows

template <int kTokens>
CMFORGE_INLINE void CombineTile(const float* p, int64_t p_stride, const float* v, int64_t v_stride,
                                int64_t depth, int64_t width, float* out, int64_t out_stride) {
  constexpr int kVectors = kTileRows;
  int64_t n = 0;
  for (; n + 16 * kVectors <= width; n += 16 * kVectors) {
    Vec16 sums[kTokens][kVectors];
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kVectors; ++i) sums[t][i] = Zero();
    }
    for (int64_t k = 0; k < depth; ++k) {
      Vec16 values[kVectors];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) values[i] = LoadF32(v + k * v_stride + n + 16 * i);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const Vec16 weight = Broadcast(p[t * p_stride + k]);
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) sums[t][i] = Fma(weight, values[i], sums[t][i]);
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kVectors; ++i) StoreF32(out + t * out_stride + n + 16 * i, sums[t][i]);
    }
  }
  for (; n < width; ++n) {
    for (int t = 0; t < kTokens; ++t) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum = __builtin_fmaf(p[t * p_stride + k], v[k * v_stride + n], sum);
      out[t * out_stride + n] = sum;
    }
  }
}

void Combine(const float* p, int64_t p_stride, int64_t tokens, const float* v, int64_t v_stride,
             int64_t depth, int64_t width, float* out, int64_t out_stride) {
  int64_t t = 0;
  for (; t + 4 <= tokens; t += 4) {
    CombineTile<4>(p + t * p_stride, p_stride, v, v_stride, depth, width, out + t * out_stride, out_stride);
  }
  for (; t + 2 <= tokens; t += 2) {
    CombineTile<2>(p + t * p_stride, p_stride, v, v_stride, depth, width, out + t * out_stride, out_stride);
  }
  for (; t < tokens; ++t) {
    CombineTile<1>(p + t * p_stride, p_stride, v, v_stride, depth, width, out + t * out_stride, out_stride);
  }
}

constexpr StoredKernels StoredTable(Isa isa) { return {isa, DecodeRowsOf, MultiplyOneOf, Panel, Combine}; }

}  // namespace
}  // namespace cmforge
