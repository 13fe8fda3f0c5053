// Inside the matrix products: how a weight lies in memory, how activations lie, and the functions that one
// instruction set provides. Plain structs and pointers only, since files compiled for an instruction set
// include this.
//
// The arithmetic that every table reproduces bit for bit:
//   integer  for each group g of 32 columns: s_g = sum over the group of (code - zero_point) * q, an exact
//   integer;
//            a_p = fma(float(s_g), weight_scale_g * x_scale_g, a_p) for g = p, p + 16, ... ascending, p < 16
//                  (x_scale_g alone where the encoding has no group scales);
//            then a_p += a_{p+8} (p < 8), a_p += a_{p+4} (p < 4), a_p += a_{p+2} (p < 2), y = a_0 + a_1,
//            times the row's scale where the encoding has one.
//   float    columns rounded up to a multiple of 16 with zeros; a_p = fma(w_c, x_c, a_p) for c = p, p + 16,
//   ...,
//            then a_p += a_{p+8} (p < 8), a_p += a_{p+4} (p < 4), a_p += a_{p+2} (p < 2), y = a_0 + a_1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/isa.h"
#include "model/dtype.h"

namespace cmforge {

struct TensorView;
struct Encoding;

inline constexpr int64_t kGroupSize = 32;  // columns that share an activation scale
inline constexpr int64_t kPartials = 16;   // partial sums of a product
inline constexpr int64_t kGroupPad = 4;    // a quantized row has groups of zeros up to a multiple of this

inline constexpr int64_t kArrangeGrain = 16;

/// What the unsigned codes of an unpacked row are counted from.
enum class ZeroPoint : uint8_t { k8, k127, k128 };
inline constexpr int32_t kZeroPoints[3] = {8, 127, 128};

/// 32 activations x ~ q * scale. Kernels multiply unsigned codes, so each group carries what a zero point
/// subtracts: -zero_point * sum(q).
struct QuantizedGroup {
  int8_t q[kGroupSize];
  float scale;
  int32_t minus_zero[3];  // by ZeroPoint
};
static_assert(sizeof(QuantizedGroup) == 48);

/// One encoded matrix with its planes found. Points into the payload.
struct WeightLayout {
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0;
  int64_t groups = 0;       // ceil(cols / 32)
  bool is_integer = false;  // has an integer form: fast mode quantizes the activations
  bool has_group_scales = false;
  bool has_row_scales = false;  // q8_row, q8_2f
  ZeroPoint zero = ZeroPoint::k8;
  const std::byte* codes = nullptr;  // row 0
  int64_t code_stride = 0;           // bytes from row to row (not vbit)
  // f16: [rows] q8_row, q8_2f; [rows, groups] q4_block, vbit; (lo, step) [rows] q4tp, q2tp
  const std::byte* scales = nullptr;
  const std::byte* rungs = nullptr;  // q4tp, q2tp: 5-bit ladder codes, rung_stride bytes a row
  int64_t rung_stride = 0;
  const std::byte* columns = nullptr;    // q8_2f: f16 [cols]
  const std::byte* widths = nullptr;     // vbit, vbit_ro: u8 [rows]
  const std::byte* offsets32 = nullptr;  // vbit_ro: u32 [rows + 1] from `codes`; q1t: u32 row_ptr [rows + 1]
  const uint64_t* offsets64 = nullptr;  // vbit: from `codes`; q1s: first overlay entry of each row [rows + 1]
  const std::byte* overlay = nullptr;   // q1s: (u32 flat index, f16)[], q1t: (u16 column, f16)[]
  const std::byte* end = nullptr;       // of the payload: nothing at or after it may be read
  // A matrix seen through some of its groups, in place (KernelTable::live): their numbers, the last one repeated up to
  // a multiple of kPartials. `groups` and `cols` (whole sets of partial sums) count these alone, everything else is the
  // whole matrix's, which has `whole_groups`.
  const int32_t* live = nullptr;
  int64_t whole_groups = 0;
  const TensorView* view = nullptr;  // for decode_rows
  const Encoding* encoding = nullptr;
};

/// Where row r of a vbit matrix begins, in bytes from `codes`.
inline int64_t VbitRowOffset(const WeightLayout& w, int64_t row) {
  if (w.offsets64 != nullptr) return static_cast<int64_t>(w.offsets64[row]);
  uint32_t offset;
  std::memcpy(&offset, w.offsets32 + 4 * row, sizeof offset);
  return offset;
}

/// Tokens as kernels see them: the i-th is row index[i] (or i) of the planes.
struct TokenRows {
  const float* x = nullptr;  // [tokens, x_stride]
  int64_t x_stride = 0;
  const QuantizedGroup* groups = nullptr;  // [tokens, groups_stride], null for float products
  int64_t groups_stride = 0;               // a multiple of kGroupPad
  const int32_t* index = nullptr;
  int64_t count = 0;
  const std::byte* arranged = nullptr;  // what KernelTable::arrange made of these tokens, or null
  bool wants_prefetch = false;          // WantsPrefetch()
  bool has_tiles = false;               // Isa::kAmx was chosen

  [[nodiscard]] int64_t Row(int64_t i) const { return index != nullptr ? index[i] : i; }
};

/// out[i * out_stride + r] for every token i and r in [row_begin, row_end).
using ProductFn = void (*)(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x,
                           float* out, int64_t out_stride, std::byte* scratch);

/// One row of activations to int8, `groups` groups of which those past `cols` are zeros (scale 0).
/// A group with a NaN or an infinity has scale NaN and zeros; one below 2^-100 has scale 0 and zeros.
/// `columns` (q8_2f, f16 [cols]) multiplies x first, or is null.
using QuantizeFn = void (*)(const float* x, const std::byte* columns, int64_t cols, int64_t groups,
                            QuantizedGroup* out);

struct KernelTable {
  Isa isa;
  QuantizeFn quantize;
  ProductFn integer[kCmfDTypeCount];  // by dtype; null where the encoding has no integer form
  ProductFn exact;                    // any dtype
  /// The integer product that walks w.live in place, or null where live groups are copied together first
  /// (live_groups.h).
  ProductFn (*live)(const WeightLayout& w, int64_t tokens);
  /// Some products read few tokens in an order of their own, which is made once for all their tasks: its
  /// size, 0 when the product reads the groups, and the making into 64-byte aligned memory.
  int64_t (*arranged_bytes)(const WeightLayout& w, int64_t tokens);
  /// Ranges of tokens begin at multiples of kArrangeGrain.
  void (*arrange)(const WeightLayout& w, const TokenRows& x, int64_t begin, int64_t end, std::byte* out);
  /// Scratch that one task needs, and the number of rows that tasks are multiples of.
  int64_t (*scratch_bytes)(const WeightLayout& w, int64_t tokens, bool is_exact);
  int64_t (*row_grain)(const WeightLayout& w, int64_t tokens, bool is_exact);
};

extern const KernelTable kReferenceTable;
extern const KernelTable kAvx2Table;
extern const KernelTable kAvx512Table;
extern const KernelTable kNeonTable;
extern const KernelTable kNeonI8mmTable;

/// The table of a set that RunsHere().
[[nodiscard]] const KernelTable& TableOf(Isa isa);

/// Codes [groups * 32] (unsigned, counted from w.zero) and group scales [groups] of one row of an integer
/// encoding, by plain loops. Codes past `cols` and scales the encoding does not have are left alone.
void UnpackRow(const WeightLayout& w, int64_t row, uint8_t* codes, float* scales);

/// Row r's scale of q8_row and q8_2f.
[[nodiscard]] float RowScale(const WeightLayout& w, int64_t row);

/// Adds what the overlay of q1s and q1t changes: (value - base) * x of a row's i-th entry, rounded, into
/// partial sum i mod 16, then the float tree, whose result is added to y.
void AddOverlay(const WeightLayout& w, int64_t row_begin, int64_t row_end, const TokenRows& x, float* out,
                int64_t out_stride);

/// Rows [begin, end) as f32 (quant's decode_rows).
void DecodeRows(const WeightLayout& w, int64_t begin, int64_t end, float* out);

}  // namespace cmforge
