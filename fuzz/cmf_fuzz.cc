// room: cmf
// Opening, reading and verifying a .cmf file of any bytes: masks, index, skills and payload structure included.
#include <cstdint>

#include "cmf/file.h"
#include "cmf/verify.h"
#include "quant/encoding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;  // NOLINT
  static ThreadPool pool(1);
  const auto file = cmf::File::OpenBytes(std::as_bytes(std::span(data, size)), "fuzz.cmf");
  if (!file) return 0;
  for (const TensorInfo& tensor : file->tensors()) {
    const auto view = file->Read(tensor.name);
    if (!view || view->bytes.size() > (1u << 16)) continue;
    const auto rows = AsFloatRows(*view);
    if (!rows || rows->rows <= 0 || rows->cols <= 0 || rows->cols > (1 << 16)) continue;
    std::vector<float> row(static_cast<size_t>(rows->cols));
    rows->Read(0, 1, row.data());
    rows->Read(rows->rows - 1, rows->rows, row.data());
  }
  (void)cmf::Verify(*file, pool);
  return 0;
}
