// q8_2f (spec 3.2): int8 codes with two fields of scales, one value per row and one per column.
//   [int8 : rows * cols][f16 row scale : rows][f16 column field : cols]      w = (code * row) * column
// The column field is the root mean square of the column, the row scale absmax(w / column) / 127.
#include <cmath>

#include "quant/entries.h"
#include "quant/numeric.h"
#include "quant/row_blocks.h"

namespace cmforge {
namespace {

constexpr float kFloorOfField = 1e-12f;

/// The sums of squares are taken in f64 inside blocks of this many rows and then over the blocks in order,
/// whatever the number of threads: the field's bits depend on it.
constexpr int64_t kRowsPerSum = 256;

std::optional<uint64_t> Size(std::span<const int64_t> shape) {
  const auto rows = static_cast<uint64_t>(shape[0]), cols = static_cast<uint64_t>(shape[1]);
  return SaturatedAdd(SaturatedMul(rows, cols), SaturatedMul(SaturatedAdd(rows, cols), 2));
}

/// The root mean square of each column, as it is stored.
Result<std::vector<float>> ColumnField(const FloatRows& source, ThreadPool& pool) {
  const int64_t cols = source.cols;
  const int64_t blocks = (source.rows + kRowsPerSum - 1) / kRowsPerSum;
  const int64_t at_once = std::min<int64_t>(blocks, pool.threads());
  const auto width = static_cast<size_t>(cols);
  std::vector<std::vector<double>> sums(static_cast<size_t>(at_once), std::vector<double>(width));
  std::vector<std::vector<float>> buffers(static_cast<size_t>(at_once));
  std::vector<BadValues> bad(static_cast<size_t>(at_once));
  std::vector<double> total(width);
  for (int64_t first = 0; first < blocks; first += at_once) {
    const int64_t count = std::min(at_once, blocks - first);
    pool.Run(count, [&](int64_t task, int) {
      std::vector<double>& sum = sums[static_cast<size_t>(task)];
      std::vector<float>& buffer = buffers[static_cast<size_t>(task)];
      std::fill(sum.begin(), sum.end(), 0.0);
      const int64_t end = std::min(source.rows, (first + task + 1) * kRowsPerSum);
      const int64_t step = std::max<int64_t>(kBlockFloats / cols, 1);
      if (buffer.empty()) buffer.resize(static_cast<size_t>(std::min(step, kRowsPerSum) * cols));
      for (int64_t row = (first + task) * kRowsPerSum; row < end; row += step) {
        const int64_t rows = std::min(step, end - row);
        source.Read(row, row + rows, buffer.data());
        FindNonFinite(buffer.data(), rows * cols, row * cols, bad[static_cast<size_t>(task)]);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < cols; ++i) {
            const auto w = static_cast<double>(buffer[static_cast<size_t>(r * cols + i)]);
            sum[static_cast<size_t>(i)] += w * w;
          }
        }
      }
    });
    for (int64_t task = 0; task < count; ++task) {
      for (size_t i = 0; i < width; ++i) total[i] += sums[static_cast<size_t>(task)][i];
    }
  }
  BadValues all;
  for (const BadValues& one : bad) all.Merge(one);
  CMF_CHECK(ReportBadValues(all, kInF16, source));
  std::vector<float> field(width);
  for (size_t i = 0; i < width; ++i) {
    const auto rms = static_cast<float>(std::sqrt(total[i] / static_cast<double>(source.rows)));
    field[i] = CheckedScale(std::max(rms, kFloorOfField), static_cast<int64_t>(i), all);
  }
  CMF_CHECK(ReportBadValues(all, kInF16, source));
  return field;
}

Result<std::vector<std::byte>> Encode(const FloatRows& source, const EncodeOptions&, ThreadPool& pool) {
  CMF_CHECK(CheckReason(ReasonNot2d(source.view.shape)));
  const int64_t cols = source.cols;
  CMF_TRY(const std::vector<float> field, ColumnField(source, pool));
  std::vector<std::byte> payload(*Size(source.view.shape));
  std::byte* const scales = payload.data() + source.rows * cols;
  std::byte* const columns = scales + source.rows * 2;
  for (int64_t i = 0; i < cols; ++i) StoreLe(columns + 2 * i, F32ToF16(field[static_cast<size_t>(i)]));
  std::vector<std::vector<float>> scaled(static_cast<size_t>(pool.threads()),
                                         std::vector<float>(field.size()));
  CMF_CHECK(ForRowBlocks(source, 1, kInF16, pool, [&](const RowBlock& block) {
    float* const row_values = scaled[static_cast<size_t>(block.worker)].data();
    for (int64_t row = block.begin; row < block.end; ++row) {
      const float* w = block.values + (row - block.begin) * cols;
      for (int64_t i = 0; i < cols; ++i) row_values[i] = w[i] / field[static_cast<size_t>(i)];
      const float scale =
          CheckedScale(std::max(AbsMax(row_values, cols), kFloorOfField) / 127.0f, row * cols, *block.bad);
      auto* codes = reinterpret_cast<int8_t*>(payload.data() + row * cols);
      for (int64_t i = 0; i < cols; ++i)
        codes[i] = static_cast<int8_t>(Code(row_values[i] / scale, -127.0f, 127.0f));
      StoreLe(scales + 2 * row, F32ToF16(scale));
    }
  }));
  return payload;
}

void Decode(const TensorView& tensor, int64_t begin, int64_t end, float* out) {
  const RowShape shape = RowsOf(tensor.shape);
  const std::byte* const scales = tensor.bytes.data() + shape.rows * shape.cols;
  const std::byte* const columns = scales + shape.rows * 2;
  for (int64_t row = begin; row < end; ++row, out += shape.cols) {
    const float scale = F16ToF32(LoadLe<uint16_t>(scales + 2 * row));
    const auto* codes = reinterpret_cast<const int8_t*>(tensor.bytes.data() + row * shape.cols);
    for (int64_t i = 0; i < shape.cols; ++i) {
      out[i] = static_cast<float>(codes[i]) * scale * F16ToF32(LoadLe<uint16_t>(columns + 2 * i));
    }
  }
}

}  // namespace

const Encoding kQ8TwoFieldEncoding = {
    DType::kQ8TwoField, "q8_2f", ReasonNot2d, Size, nullptr, Encode, Decode};

}  // namespace cmforge
