// What the reference and every instruction set share of reading weights.
#include "kernels/unpack_body.h"
#include "quant/encoding.h"

namespace cmforge {

void UnpackRow(const WeightLayout& w, int64_t row, uint8_t* codes, float* scales) {
  UnpackOneRow(w, row, codes, scales);
}

float RowScale(const WeightLayout& w, int64_t row) { return HalfAt(w.scales + 2 * row); }

void DecodeRows(const WeightLayout& w, int64_t begin, int64_t end, float* out) {
  w.encoding->decode_rows(*w.view, begin, end, out);
}

}  // namespace cmforge
