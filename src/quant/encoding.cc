// The table of encodings and what reads through it.
#include "quant/encoding.h"

#include <array>

#include "quant/checkpoint_dtypes.h"
#include "quant/entries.h"
#include "quant/shapes.h"

namespace cmforge {
namespace {

constexpr std::array kEncodings = {
    // by id
    &kF32Encoding, &kF16Encoding,  &kBf16Encoding,       &kQ8RowEncoding,  &kQ4BlockEncoding,
    &kU8Encoding,  &kVbitEncoding, &kQ8TwoFieldEncoding, &kVbitRoEncoding, &kQ4TiledEncoding,
    &kQ1Encoding,  &kQ1sEncoding,  &kQ1tEncoding,        &kQ4tpEncoding,   &kQ2tpEncoding,
};

}  // namespace

std::span<const Encoding* const> AllEncodings() { return kEncodings; }

const Encoding* FindEncoding(DType dtype) {
  for (const Encoding* encoding : kEncodings) {
    if (encoding->dtype == dtype) return encoding;
  }
  return nullptr;
}

RowShape RowsOf(std::span<const int64_t> shape) {
  if (ElementCount(shape).value_or(0) == 0) return {0, 0};
  if (shape.empty()) return {};
  return {shape[0], *ElementCount(shape.subspan(1))};
}

Result<void> CheckPayload(DType dtype, std::span<const int64_t> shape, Bytes payload) {
  const Encoding* encoding = FindEncoding(dtype);
  const int64_t element_size = CheckpointElementSize(dtype);
  if (encoding == nullptr && element_size == 0) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("dtype {} ({}) cannot be read", static_cast<int>(dtype), DTypeName(dtype)));
  }
  const std::optional<int64_t> count = ElementCount(shape);
  if (!count) return Fail(ErrorKind::kCorrupt, fmt::format("shape {} overflows", ShapeText(shape)), "Bounds");
  std::optional<uint64_t> size;
  if (encoding != nullptr) {
    if (std::string reason = encoding->reason_against(shape); !reason.empty()) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{} cannot have this shape: {}", DTypeName(dtype), reason),
                  "Parse");
    }
    size = encoding->payload_size(shape);
  } else {
    size = ElementBytes(shape, static_cast<uint64_t>(element_size));
  }
  if (size && *size != payload.size()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} bytes stored, shape {} of {} needs {}", payload.size(), ShapeText(shape),
                            DTypeName(dtype), *size),
                "Bounds");
  }
  if (encoding != nullptr && encoding->validate != nullptr) CMF_CHECK(encoding->validate(payload, shape));
  return {};
}

Result<FloatRows> AsFloatRows(TensorView view) {
  CMF_CHECK(CheckPayload(view.dtype, view.shape, view.bytes));
  const RowShape shape = RowsOf(view.shape);
  return FloatRows{shape.rows, shape.cols, std::move(view)};
}

void FloatRows::Read(int64_t begin, int64_t end, float* out) const {
  if (begin >= end) return;
  if (const Encoding* encoding = FindEncoding(view.dtype)) {
    encoding->decode_rows(view, begin, end, out);
  } else {
    ReadCheckpointElements(view.dtype, view.bytes, begin * cols, end * cols, out);
  }
}

Result<std::vector<float>> Dequantize(const TensorView& view) {
  CMF_TRY(const FloatRows rows, AsFloatRows(view));
  std::vector<float> values(static_cast<size_t>(rows.rows * rows.cols));
  rows.Read(0, rows.rows, values.data());
  return values;
}

}  // namespace cmforge
