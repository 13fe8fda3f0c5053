// The table of encodings: what each directory dtype means, in bytes. Every encoding is one file that fills
// in one `Encoding`; the container, the converter and the engine know encodings only through this table.
//
// Rows: a tensor of shape [r, a, b] has r rows of a*b elements; a vector is one column of rows of 1; a scalar
// is one row of one element; a tensor without elements has no rows. Encodings that group over the flattened
// tensor (q4_block) still decode by rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/tensor_source.h"

namespace cmforge {

/// What an encoder may be told. Encoders ignore what does not concern them.
struct EncodeOptions {
  double mean_bits = 4.25;         // vbit: budget per weight, 3..8
  double row_bias_bits = 0.0;      // vbit: added to every row's raw width (expert families, spec 3.2)
  double outlier_fraction = -1.0;  // q1s, q1t: share of weights kept verbatim; negative = the standard's own
  std::span<const float> column_mean_square;  // [cols] of the operator's input, or empty (q1t importance)
  bool error_diffusion = false;               // q1: the `q1p` decision rule
};

/// A row-major float tensor handed out in blocks, so that encoders never hold a whole f32 copy.
struct FloatRows {
  int64_t rows = 0, cols = 0;
  TensorView view;  // any decodable dtype

  /// Rows [begin, end) as f32 into `out`, (end - begin) * cols values. Any thread.
  void Read(int64_t begin, int64_t end, float* out) const;
};

struct Encoding {
  DType dtype;
  std::string_view name;  // as in the spec's table

  /// Why a tensor of this shape cannot be stored so ("columns 44 are not a multiple of 32"); empty = it can.
  std::string (*reason_against)(std::span<const int64_t> shape);

  /// Exact payload size, or nothing where it depends on the data (vbit, vbit_ro, q1s, q1t). A size that does
  /// not fit 64 bits is UINT64_MAX, which no file holds.
  std::optional<uint64_t> (*payload_size)(std::span<const int64_t> shape);

  /// Checks a payload from an untrusted file so that decoding cannot leave it: sizes, offsets, indices.
  /// Null where payload_size says all. Fails: kCorrupt, name "Bounds" or "Parse", without file and tensor
  /// name.
  Result<void> (*validate)(Bytes payload, std::span<const int64_t> shape);

  /// Encodes `source`. Bytes depend on nothing but the values and options (not on threads or machine).
  /// A tensor that has the dtype already is copied byte for byte where values would be (f32, f16, bf16, u8).
  /// Fails: kCorrupt for NaN or Inf values (count and first place),
  /// and for values beyond what the encoding can hold (f16 and f16 scales end at 65504), with the largest of them;
  /// kUsage as reason_against.
  Result<std::vector<std::byte>> (*encode)(const FloatRows& source, const EncodeOptions& options,
                                           ThreadPool& pool);

  /// Rows [begin, end) of a validated payload as f32; bits are defined by the spec.
  void (*decode_rows)(const TensorView& tensor, int64_t begin, int64_t end, float* out);
};

/// Every CMF dtype that this build reads and writes (q4_block, q8_row, ...; f32, f16, bf16 and u8 too).
[[nodiscard]] std::span<const Encoding* const> AllEncodings();

/// The entry, or nullptr for reserved and checkpoint-only dtypes.
[[nodiscard]] const Encoding* FindEncoding(DType dtype);

/// Rows and columns as defined at the top of this file.
struct RowShape {
  int64_t rows = 1, cols = 1;
};
[[nodiscard]] RowShape RowsOf(std::span<const int64_t> shape);

/// The whole check of a payload from an untrusted file: the dtype is readable, the shape is one it can have,
/// the size is exact, the inside is sound. After it, decoding any row stays inside `payload`.
/// Fails: kUnsupported with the dtype's name (f8, which needs scales; reserved ids); kCorrupt otherwise, with
/// neither file nor tensor named ("62 bytes stored, shape [32] of f16 needs 64").
Result<void> CheckPayload(DType dtype, std::span<const int64_t> shape, Bytes payload);

/// Wraps any decodable tensor (CMF encodings and checkpoint floats and integers). Fails: as CheckPayload.
Result<FloatRows> AsFloatRows(TensorView view);

/// The whole tensor as f32, row-major. Fails: as AsFloatRows.
Result<std::vector<float>> Dequantize(const TensorView& view);

}  // namespace cmforge
