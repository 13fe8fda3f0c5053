// room: checkpoint
// A hostile safetensors file: parsing ends in an error or in tensors that lie inside the file and cover it.
#include <cstdlib>
#include <cstring>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = cmforge::ParseSafetensors(file, "fuzz");
  if (!header) return 0;
  uint64_t covered = 0;
  for (size_t i = 0; i < header->tensors.size(); ++i) {
    const cmforge::TensorInfo& info = header->tensors[i];
    const uint64_t offset = header->offsets[i];
    if (offset > size || info.nbytes > size - offset) abort();
    if (!cmforge::ElementCount(info.shape)) abort();
    covered += info.nbytes;
  }
  uint64_t length = 0;
  std::memcpy(&length, data, sizeof(length));
  if (covered != size - sizeof(length) - length) abort();
  return 0;
}
