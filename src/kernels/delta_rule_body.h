// The gated delta rule in chunks of 64 tokens; included once by each instruction set's file.
//
// Token after token the rule reads and writes the whole state. Unrolled over a chunk that begins with state
// S0, it becomes products of small matrices: with g_i the product of the chunk's decays up to token i, and
// g_ij that of tokens j+1..i,
//
//   u_i   = beta_i (v_i - g_i k_i S0) - sum over j < i of beta_i g_ij (k_i . k_j) u_j
//   out_i = g_i q_i S0 + sum over j <= i of g_ij (q_i . k_j) u_j
//   S     = g_63 S0 + sum over j of g_63,j k_j^T u_j                (when the chunk is full)
//
// Row i needs only rows up to i, so a chunk may come in pieces: an unfinished one keeps its keys and u beside
// S0. Chunks are cut at multiples of 64 tokens from the start of the sequence, and every sum has a fixed
// order, so however a prompt was split, and whether tokens came together or one by one, the bits are the
// same: there is one form for prompts, drafts and single tokens.
//
// Measured with 128 keys x 128 values and AVX-512 on a shared Xeon, microseconds of one thread's time per
// token and head (build/release/bench/engine_bench): prompts 1.35, where the recurrence took 3.7; single
// tokens 3.8, where it took 3.6.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/elementwise_vec.h"

namespace cmforge {
namespace {

constexpr int64_t kDeltaGroup = 8;   // rows of a chunk computed together; groups begin at multiples of it
constexpr int64_t kDeltaBlock = 64;  // columns at once, at most

CMFORGE_INLINE int64_t Lesser(int64_t a, int64_t b) { return a < b ? a : b; }

/// out[r][c] = sum over n of a[r][n] b[n][c], added in the order of n, for kRows rows and kVecs vectors of
/// columns.
template <int kRows, int kVecs>
CMFORGE_INLINE void ProductBlock(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                                 int64_t depth, float* out, int64_t out_stride) {
  VecF sum[kRows][kVecs] = {};
  for (int64_t n = 0; n < depth; ++n) {
    VecF x[kVecs];
    for (int v = 0; v < kVecs; ++v) x[v] = Load(b + n * b_stride + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const VecF y = Set(a[r * a_stride + n]);
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Fma(y, x[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) Store(out + r * out_stride + v * kLanes, sum[r][v]);
  }
}

template <int kRows>
void ProductRows(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t depth,
                 int64_t columns, float* out, int64_t out_stride) {
  constexpr int kVecs = kRows <= 2 ? 4 : 2;  // few rows take more columns, to have enough sums under way
  int64_t c = 0;
  for (; c + kVecs * kLanes <= columns; c += kVecs * kLanes) {
    ProductBlock<kRows, kVecs>(a, a_stride, b + c, b_stride, depth, out + c, out_stride);
  }
  for (; c < columns; c += kLanes)
    ProductBlock<kRows, 1>(a, a_stride, b + c, b_stride, depth, out + c, out_stride);
}

/// `columns` is a multiple of 16. No element depends on how many rows or columns are computed together.
void Products(const float* a, int64_t a_stride, int64_t rows, const float* b, int64_t b_stride, int64_t depth,
              int64_t columns, float* out, int64_t out_stride) {
  while (rows > 0) {
    int64_t step = 1;
    if (kLanes != 8 && rows >= 8) {  // sixteen registers do not hold the sums of eight rows
      ProductRows<8>(a, a_stride, b, b_stride, depth, columns, out, out_stride);
      step = 8;
    } else if (rows >= 4) {
      ProductRows<4>(a, a_stride, b, b_stride, depth, columns, out, out_stride);
      step = 4;
    } else if (rows >= 2) {
      ProductRows<2>(a, a_stride, b, b_stride, depth, columns, out, out_stride);
      step = 2;
    } else {
      ProductRows<1>(a, a_stride, b, b_stride, depth, columns, out, out_stride);
    }
    a += step * a_stride;
    out += step * out_stride;
    rows -= step;
  }
}

/// Of the rows of a part: factors of u_j in u_i and in out_i, and g_i.
struct DeltaScratch {
  float seen[kDeltaChunk][kDeltaChunk], asked[kDeltaChunk][kDeltaChunk];  // [row - begin][j]
  float gain[kDeltaChunk];                                                // [row - begin]
};

/// One chunk's part that came together: rows [begin, end).
struct DeltaChunk {
  const DeltaRuleArgs& args;
  int64_t width, begin, end;
  const float *k, *q, *v;  // of row `begin`
  const float *decay, *beta;
  float* out;

  // The state, as DeltaStateFloats lays it out.
  float* matrix;   // [key_dim, width]
  float* updates;  // u: [chunk, width]
  float* keys;     // [key_dim, chunk]: columns are tokens
  float* ratios;   // g_ij of the newest i: [chunk]; behind it g_i

  DeltaScratch& work;

  /// Keys against keys and queries against keys, with their decays.
  void Weigh() {
    auto &seen = work.seen, &asked = work.asked;
    const int64_t rows = end - begin;
    float weights[kDeltaChunk][kDeltaChunk];
    for (int64_t i = begin; i < end; ++i) {
      const VecF d = Set(decay[(i - begin) * args.gate_stride]);
      if (i == 0) {
        for (int64_t j = 0; j < kDeltaChunk; ++j) ratios[j] = 0;
        ratios[kDeltaChunk] = 1;
      }
      for (int64_t j = 0; j < kDeltaChunk; j += kLanes) Store(ratios + j, Load(ratios + j) * d);
      ratios[i] = 1;
      ratios[kDeltaChunk] *= decay[(i - begin) * args.gate_stride];
      work.gain[i - begin] = ratios[kDeltaChunk];
      std::memcpy(weights[i - begin], ratios, sizeof(weights[0]));
      for (int64_t n = 0; n < args.key_dim; ++n)
        keys[n * kDeltaChunk + i] = k[(i - begin) * args.qk_stride + n];
    }
    const int64_t columns = (end + 15) / 16 * 16;
    if (rows == 1) {
      Products(k, q - k, 2, keys, kDeltaChunk, args.key_dim, columns, seen[0], asked[0] - seen[0]);
    } else {
      Products(k, args.qk_stride, rows, keys, kDeltaChunk, args.key_dim, columns, seen[0], kDeltaChunk);
      Products(q, args.qk_stride, rows, keys, kDeltaChunk, args.key_dim, columns, asked[0], kDeltaChunk);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const VecF b = Set(beta[r * args.gate_stride]);
      for (int64_t j = 0; j < columns; j += kLanes) {
        const VecF w = Load(weights[r] + j);
        Store(seen[r] + j, Load(seen[r] + j) * w * b);
        Store(asked[r] + j, Load(asked[r] + j) * w);
      }
    }
  }

  /// Rows [first, last) of one group, columns [c, c + columns).
  void Group(int64_t first, int64_t last, int64_t c, int64_t columns) {
    const int64_t rows = last - first, group = first / kDeltaGroup * kDeltaGroup, at = first - begin;
    auto &seen = work.seen, &asked = work.asked;
    const int64_t real =
        args.value_dim - c < columns ? args.value_dim - c : columns;  // the others are padding
    float key_s[kDeltaGroup][kDeltaBlock], query_s[kDeltaGroup][kDeltaBlock];
    float key_u[kDeltaGroup][kDeltaBlock], query_u[kDeltaGroup][kDeltaBlock];
    const float *row_k = k + at * args.qk_stride, *row_q = q + at * args.qk_stride;
    if (rows == 1) {
      Products(row_k, row_q - row_k, 2, matrix + c, width, args.key_dim, columns, key_s[0],
               query_s[0] - key_s[0]);
      Products(seen[at], asked[at] - seen[at], 2, updates + c, width, group, columns, key_u[0],
               query_u[0] - key_u[0]);
    } else {
      Products(row_k, args.qk_stride, rows, matrix + c, width, args.key_dim, columns, key_s[0], kDeltaBlock);
      Products(row_q, args.qk_stride, rows, matrix + c, width, args.key_dim, columns, query_s[0],
               kDeltaBlock);
      Products(seen[at], kDeltaChunk, rows, updates + c, width, group, columns, key_u[0], kDeltaBlock);
      Products(asked[at], kDeltaChunk, rows, updates + c, width, group, columns, query_u[0], kDeltaBlock);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = first + r;
      const VecF b = Set(beta[(at + r) * args.gate_stride]), g = Set(work.gain[at + r]);
      float value[kDeltaBlock] = {}, result[kDeltaBlock];
      std::memcpy(value, v + (at + r) * args.v_stride + c, static_cast<size_t>(real) * sizeof(float));
      for (int64_t x = 0; x < columns; x += kLanes) {
        const float* u = updates + c + x;
        VecF update = b * (Load(value + x) - g * Load(key_s[r] + x)) - Load(key_u[r] + x);
        VecF sum = Load(query_u[r] + x);
        for (int64_t j = group; j < row; ++j) {
          const VecF earlier = Load(u + j * width);
          update = Fma(-Set(seen[at + r][j]), earlier, update);
          sum = Fma(Set(asked[at + r][j]), earlier, sum);
        }
        Store(updates + row * width + c + x, update);
        sum = Fma(Set(asked[at + r][row]), update, sum);
        Store(result + x, Fma(g, Load(query_s[r] + x), sum));
      }
      std::memcpy(out + (at + r) * args.out_stride + c, result, static_cast<size_t>(real) * sizeof(float));
    }
  }

  /// The state behind a full chunk.
  void Close() {
    const VecF g = Set(ratios[kDeltaChunk]);
    for (int64_t c = 0; c < width; c += kDeltaBlock) {
      const int64_t columns = Lesser(kDeltaBlock, width - c);
      for (int64_t n = 0; n < args.key_dim; n += kDeltaGroup) {
        const int64_t rows = Lesser(kDeltaGroup, args.key_dim - n);
        float decayed[kDeltaGroup][kDeltaChunk], sum[kDeltaGroup][kDeltaBlock];
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < kDeltaChunk; j += kLanes) {
            Store(decayed[r] + j, Load(keys + (n + r) * kDeltaChunk + j) * Load(ratios + j));
          }
        }
        Products(decayed[0], kDeltaChunk, rows, updates + c, width, kDeltaChunk, columns, sum[0],
                 kDeltaBlock);
        for (int64_t r = 0; r < rows; ++r) {
          float* s = matrix + (n + r) * width + c;
          for (int64_t x = 0; x < columns; x += kLanes) Store(s + x, Fma(g, Load(s + x), Load(sum[r] + x)));
        }
      }
    }
  }
};

void DeltaRule(const DeltaRuleArgs& args) {
  const int64_t width = DeltaWidth(args.value_dim);
  DeltaScratch work;
  int64_t filled = args.filled;
  for (int64_t t = 0; t < args.tokens;) {
    const int64_t rows = Lesser(kDeltaChunk - filled, args.tokens - t);
    float* matrix = args.state;
    float* updates = matrix + args.key_dim * width;
    float* keys = updates + kDeltaChunk * width;
    DeltaChunk chunk{.args = args,
                     .width = width,
                     .begin = filled,
                     .end = filled + rows,
                     .k = args.k + t * args.qk_stride,
                     .q = args.q + t * args.qk_stride,
                     .v = args.v + t * args.v_stride,
                     .decay = args.decay + t * args.gate_stride,
                     .beta = args.beta + t * args.gate_stride,
                     .out = args.out + t * args.out_stride,
                     .matrix = matrix,
                     .updates = updates,
                     .keys = keys,
                     .ratios = keys + args.key_dim * kDeltaChunk,
                     .work = work};
    chunk.Weigh();
    // Many rows pass over a narrow block of the state, which then stays in the first cache.
    const int64_t block = rows <= 2 ? kDeltaBlock : kDeltaBlock / 2;
    for (int64_t c = 0; c < width; c += block) {
      for (int64_t first = filled; first < filled + rows;) {
        const int64_t last = Lesser(filled + rows, (first / kDeltaGroup + 1) * kDeltaGroup);
        chunk.Group(first, last, c, Lesser(block, width - c));
        first = last;
      }
    }
    filled += rows;
    t += rows;
    if (filled == kDeltaChunk) {
      chunk.Close();
      filled = 0;
    }
  }
}

}  // namespace
}  // namespace cmforge
