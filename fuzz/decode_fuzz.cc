// room: quant
// Payloads of every encoding: whatever passes CheckPayload must decode, by any cut of rows, without leaving
// its bytes, and the same whatever the cut. Input: [dtype][rows][columns, in groups of 8][payload ...]
#include <cstdlib>
#include <cstring>
#include <vector>

#include "quant/encoding.h"
#include "quant/relayout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;
  if (size < 3) return 0;
  const auto dtype = static_cast<DType>(data[0]);
  const Shape shape = {data[1], int64_t{data[2]} * 8};
  Bytes payload = std::as_bytes(std::span(data + 3, size - 3));
  if (const Encoding* encoding = FindEncoding(dtype);
      encoding != nullptr && encoding->reason_against(shape).empty()) {
    const auto wanted = encoding->payload_size(shape);
    if (wanted && *wanted < payload.size()) payload = payload.first(*wanted);
  }
  const std::vector<std::byte> exact(payload.begin(), payload.end());  // so that a sanitizer sees its end
  const auto rows = AsFloatRows(TensorView{dtype, shape, exact, nullptr});
  if (!rows) return 0;
  std::vector<float> whole(static_cast<size_t>(rows->rows * rows->cols)), parts(whole.size());
  rows->Read(0, rows->rows, whole.data());
  for (int64_t row = 0; row < rows->rows; row += 3) {
    rows->Read(row, std::min(row + 3, rows->rows), parts.data() + row * rows->cols);
  }
  if (!whole.empty() && std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)) != 0)
    std::abort();
  // The same numbers in another order are sound and the same numbers.
  for (const Encoding* other : AllEncodings()) {
    const auto moved = Relayout(rows->view, other->dtype);
    if (!moved) continue;
    const auto again = AsFloatRows(TensorView{other->dtype, shape, *moved, nullptr});
    if (!again) std::abort();
    again->Read(0, again->rows, parts.data());
    if (!whole.empty() && std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)) != 0)
      std::abort();
  }
  return 0;
}
