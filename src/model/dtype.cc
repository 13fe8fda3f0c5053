// Names and sizes of the storage types.
#include "model/dtype.h"

namespace cmforge {

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kQ8Row:
      return "q8_row";
    case DType::kQ4Block:
      return "q4_block";
    case DType::kMix84:
      return "mix8_4";
    case DType::kU8:
      return "u8";
    case DType::kQ4Col:
      return "q4_col";
    case DType::kVbit:
      return "vbit";
    case DType::kQ8TwoField:
      return "q8_2f";
    case DType::kVbitRo:
      return "vbit_ro";
    case DType::kQ4Tiled:
      return "q4_tiled";
    case DType::kQ1:
      return "q1";
    case DType::kQ1s:
      return "q1s";
    case DType::kQ1t:
      return "q1t";
    case DType::kQ4tp:
      return "q4tp";
    case DType::kQ2tp:
      return "q2tp";
    case DType::kF64:
      return "f64";
    case DType::kI64:
      return "i64";
    case DType::kI32:
      return "i32";
    case DType::kI16:
      return "i16";
    case DType::kI8:
      return "i8";
    case DType::kBool:
      return "bool";
    case DType::kF8E4M3:
      return "f8_e4m3";
    case DType::kF8E5M2:
      return "f8_e5m2";
    case DType::kU16:
      return "u16";
    case DType::kU32:
      return "u32";
    case DType::kU64:
      return "u64";
  }
  return "unknown";
}

int ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
    default:
      return 0;
  }
}

}  // namespace cmforge
