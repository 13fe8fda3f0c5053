// room: mil
// A hostile weight file: every entry that is handed out lies inside the file, wherever it is asked for.
#include <cstdlib>

#include "mil/blob_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;  // NOLINT: a fuzz target
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = mil::BlobFile::FromBytes(bytes);
  if (!file) return 0;
  const auto check = [&](const mil::BlobEntry& entry) {
    const auto at = static_cast<uint64_t>(entry.data.data() - bytes.data());
    if (!entry.data.empty() && (at > size || entry.data.size() > size - at)) abort();
    const auto count = static_cast<int64_t>(entry.count());
    const auto tensor = file->Tensor(entry.offset, {entry.dtype, {count}});
    if (tensor && tensor->size() != entry.data.size()) abort();
  };
  if (const auto entries = file->Entries()) {
    for (const mil::BlobEntry& entry : *entries) check(entry);
  }
  for (uint64_t offset = 0; offset < size + 64; offset += 64) {
    if (const auto entry = file->Entry(offset)) check(*entry);
  }
  return 0;
}
