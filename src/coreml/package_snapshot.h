// A package sequence as bytes:
//
//   header (magic, version, element type, identity of the model, position, context, sizes, checksum)
//   then every state: elements u64, numbers as f16 or f32, in the order of the names
#pragma once

#include <vector>

#include "coreml/backend.h"

namespace cmforge::coreml {

struct SnapshotInfo {
  uint64_t identity = 0;
  int64_t position = 0, context = 0;
  bool is_f16 = false;  // the backend rounds, so nothing is lost
};

Result<std::vector<std::byte>> WriteSnapshot(const SnapshotInfo& info, const PartState& state);

/// Fills `state`. Fails: kCorrupt (not such a snapshot, cut or changed, sizes of another state), kUnsupported
/// (a newer version), kUsage (of another model: both identities named).
Result<SnapshotInfo> ReadSnapshot(Bytes snapshot, uint64_t identity, int64_t context_limit, PartState& state);

}  // namespace cmforge::coreml
