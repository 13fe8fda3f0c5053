// Reading the number types of checkpoints.
#include "quant/checkpoint_dtypes.h"

namespace cmforge {
namespace {

template <class T>
void Read(Bytes bytes, int64_t begin, int64_t end, float* out) {
  const std::byte* at = bytes.data() + begin * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < end - begin; ++i) {
    out[i] = static_cast<float>(LoadLe<T>(at + i * static_cast<int64_t>(sizeof(T))));
  }
}

}  // namespace

int64_t CheckpointElementSize(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kI8:
    case DType::kBool:
      return 1;
    default:
      return 0;
  }
}

void ReadCheckpointElements(DType dtype, Bytes bytes, int64_t begin, int64_t end, float* out) {
  switch (dtype) {
    case DType::kF64:
      return Read<double>(bytes, begin, end, out);
    case DType::kI64:
      return Read<int64_t>(bytes, begin, end, out);
    case DType::kU64:
      return Read<uint64_t>(bytes, begin, end, out);
    case DType::kI32:
      return Read<int32_t>(bytes, begin, end, out);
    case DType::kU32:
      return Read<uint32_t>(bytes, begin, end, out);
    case DType::kI16:
      return Read<int16_t>(bytes, begin, end, out);
    case DType::kU16:
      return Read<uint16_t>(bytes, begin, end, out);
    case DType::kI8:
      return Read<int8_t>(bytes, begin, end, out);
    case DType::kBool:
      for (int64_t i = begin; i < end; ++i)
        out[i - begin] = bytes[static_cast<size_t>(i)] != std::byte{0} ? 1.0f : 0.0f;
      return;
    default:
      return;  // refused by CheckPayload
  }
}

}  // namespace cmforge
