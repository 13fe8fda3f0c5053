// Finds the planes of an encoded matrix (spec 3.2) and checks once what kernels then rely on.
#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

/// The layout and what it points into.
struct OwnedLayout : WeightLayout {
  TensorView tensor;
  std::vector<uint64_t> offsets;
};

// q4_block groups run over the flattened tensor; only whole groups a row line up with the activations'
// groups.
bool RowsAreWholeGroups(int64_t cols) { return cols % kGroupSize == 0; }

void LayOutVbit(const Bytes& bytes, OwnedLayout& w) {
  w.is_integer = w.has_group_scales = true;
  w.zero = ZeroPoint::k127;
  w.widths = bytes.data();
  w.scales = w.widths + w.rows;
  const std::byte* after_scales = w.scales + 2 * w.rows * w.groups;
  if (w.dtype == DType::kVbitRo) {
    w.offsets32 = after_scales;
    w.codes = after_scales + 4 * (w.rows + 1);
    return;
  }
  w.codes = after_scales;
  w.offsets.reserve(static_cast<size_t>(w.rows) + 1);
  uint64_t offset = 0;
  for (int64_t r = 0; r < w.rows; ++r) {
    w.offsets.push_back(offset);
    offset += (static_cast<uint64_t>(w.cols) * std::to_integer<uint64_t>(w.widths[r]) + 7) / 8;
  }
  w.offsets.push_back(offset);
  w.offsets64 = w.offsets.data();
}

void LayOutLadder(const Bytes& bytes, int64_t group_bytes, OwnedLayout& w) {
  w.is_integer = w.has_group_scales = true;
  w.codes = bytes.data();
  w.code_stride = w.groups * group_bytes;
  w.scales = w.codes + w.rows * w.code_stride;
  w.rungs = w.scales + 4 * w.rows;
  w.rung_stride = (w.groups * 5 + 7) / 8;
}

// Overlay entries are used by row, so they must ascend; a file where they do not is decoded row by row
// instead.
void LayOutQ1s(const Bytes& bytes, OwnedLayout& w) {
  const uint64_t base = static_cast<uint64_t>(w.rows * w.code_stride);
  const uint32_t count = LoadLe<uint32_t>(bytes.data() + base);
  w.overlay = bytes.data() + base + 4;
  w.offsets.reserve(static_cast<size_t>(w.rows) + 1);
  uint64_t entry = 0;
  int64_t last = -1;
  for (int64_t r = 0; r < w.rows; ++r) {
    w.offsets.push_back(entry);
    for (; entry < count; ++entry) {
      const auto flat = static_cast<int64_t>(LoadLe<uint32_t>(w.overlay + 6 * entry));
      if (flat <= last) {
        w.is_integer = false;
        return;
      }
      if (flat >= (r + 1) * w.cols) break;
      last = flat;
    }
  }
  w.offsets.push_back(entry);
  w.is_integer = entry == count;
  w.offsets64 = w.offsets.data();
}

void LayOut(const Bytes& bytes, OwnedLayout& w) {
  const std::byte* data = bytes.data();
  w.end = data + bytes.size();
  w.codes = data;
  switch (w.dtype) {
    case DType::kF32:
      w.code_stride = 4 * w.cols;
      break;
    case DType::kF16:
    case DType::kBF16:
      w.code_stride = 2 * w.cols;
      break;
    case DType::kQ8Row:
    case DType::kQ8TwoField:
      w.is_integer = w.has_row_scales = true;
      w.zero = ZeroPoint::k128;
      w.code_stride = w.cols;
      w.scales = data + w.rows * w.cols;
      if (w.dtype == DType::kQ8TwoField) w.columns = w.scales + 2 * w.rows;
      break;
    case DType::kQ4Block:
      if (!RowsAreWholeGroups(w.cols)) break;
      w.is_integer = w.has_group_scales = true;
      w.code_stride = w.groups * 16;
      w.scales = data + w.rows * w.code_stride;
      break;
    case DType::kQ4Tiled:
      w.is_integer = w.has_group_scales = true;
      w.code_stride = w.groups * 18;
      break;
    case DType::kQ4tp:
      LayOutLadder(bytes, 16, w);
      break;
    case DType::kQ2tp:
      LayOutLadder(bytes, 8, w);
      break;
    case DType::kVbit:
    case DType::kVbitRo:
      LayOutVbit(bytes, w);
      break;
    case DType::kQ1:
    case DType::kQ1s:
      w.is_integer = w.has_group_scales = true;
      w.code_stride = w.groups * 6;
      if (w.dtype == DType::kQ1s) LayOutQ1s(bytes, w);
      break;
    case DType::kQ1t:
      w.is_integer = w.has_group_scales = true;
      w.code_stride = w.groups * 9;
      w.offsets32 = data + w.rows * w.code_stride;
      w.overlay = w.offsets32 + 4 * (w.rows + 1);
      break;
    default:
      break;
  }
}

}  // namespace

int64_t LinearWeight::rows() const { return layout_->rows; }
int64_t LinearWeight::cols() const { return layout_->cols; }
DType LinearWeight::dtype() const { return layout_->dtype; }
const TensorView& LinearWeight::view() const { return *layout_->view; }

Result<LinearWeight> LinearWeight::Make(TensorView view, std::string_view name) {
  const Encoding* encoding = FindEncoding(view.dtype);
  if (encoding == nullptr || view.dtype == DType::kU8) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("tensor '{}': dtype {} is not one to multiply with: convert the model", name,
                            DTypeName(view.dtype)));
  }
  if (view.shape.size() != 2 || view.shape[0] <= 0 || view.shape[1] <= 0) {
    return Fail(ErrorKind::kUsage,
                fmt::format("tensor '{}': shape {} is not a matrix [out, in]", name, ShapeText(view.shape)));
  }
  if (auto status = CheckPayload(view.dtype, view.shape, view.bytes); !status) {
    return Fail(std::move(status.error()).In(fmt::format("tensor '{}'", name)));
  }
  auto layout = std::make_shared<OwnedLayout>();
  layout->tensor = std::move(view);
  layout->view = &layout->tensor;
  layout->encoding = encoding;
  layout->dtype = layout->tensor.dtype;
  layout->rows = layout->tensor.rows();
  layout->cols = layout->tensor.cols();
  layout->groups = (layout->cols + kGroupSize - 1) / kGroupSize;
  LayOut(layout->tensor.bytes, *layout);
  LinearWeight weight;
  weight.layout_ = std::move(layout);
  return weight;
}

}  // namespace cmforge
