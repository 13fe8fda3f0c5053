// Writes a .safetensors file from any source: the layout of safetensors.h, wider elements first so that all are aligned.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/progress.h"
#include "model/tensor_source.h"

namespace cmforge {

/// Writes the named tensors into `file`, which is not committed. One tensor's bytes are held at a time.
/// `done` is called with the size of each payload after it was written.
/// Fails: kUsage for a dtype that safetensors does not know (an encoding), kIo, kCancelled, and as `source` reads.
Result<void> WriteSafetensors(const TensorSource& source, std::span<const std::string> names,
                              AtomicFile& file, const RunControl& run,
                              const std::function<void(uint64_t)>& done);

}  // namespace cmforge
