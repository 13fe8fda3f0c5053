// The tensor directory (spec 3): names, dtypes, shapes, places and hashes of everything in the weight blob.
// It alone says what a file contains; there is no computable layout.
//
//   [count u64][pool_off u64][count x DirRecord][name bytes ...]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "model/tensor_source.h"

namespace cmforge::cmf {

inline constexpr int kMaxDims = 6;

/// As on disk.
struct DirRecord {
  Le<uint32_t> name_off;         // from the start of the name pool
  Le<uint16_t> name_len;         // bytes of UTF-8
  uint8_t dtype;                 // DType, ids 0..16
  uint8_t ndim;                  // 0..6
  Le<uint32_t> shape[kMaxDims];  // unused tail is written 0
  Le<uint64_t> off;              // from data_off; a multiple of 64
  Le<uint64_t> nbytes;
  Le<uint64_t> hash;  // hash64 of the nbytes bytes
};
static_assert(sizeof(DirRecord) == 56 && alignof(DirRecord) == 1);

struct DirectoryEntry {
  TensorInfo info;
  uint64_t offset = 0;  // from data_off
  uint64_t hash = 0;
};

/// Reads and validates a directory section; `data_size` is the length of the weight blob. Payload bytes are
/// not looked at, so opening touches no page of the blob.
/// Fails: "Parse" (a record or the pool leaves the section, a name is not UTF-8 or occurs twice, ndim > 6, an
/// unknown dtype - kind kUnsupported), "Bounds" (an offset that is not a multiple of 64, a tensor past the
/// end of the data, a shape product beyond 64 bits, nbytes other than dtype and shape need). Names the
/// tensor.
Result<std::vector<DirectoryEntry>> ReadDirectory(Bytes section, uint64_t data_size);

/// The section for `entries`, in that order, pool right behind the records.
/// Fails: kUsage when an entry does not fit the format (name longer than 65535 bytes or not UTF-8, more than
/// 6 dimensions, a dimension beyond 32 bits, a checkpoint-only dtype, a name twice); kLimit for a pool beyond
/// 4 GiB.
Result<std::vector<std::byte>> PackDirectory(std::span<const DirectoryEntry> entries);

/// Size PackDirectory needs for tensors of these names.
[[nodiscard]] uint64_t DirectorySize(std::span<const std::string> names);

}  // namespace cmforge::cmf
