// Any TensorSource into a .cmf file: plan the encodings, then encode and write one tensor at a time. Peak
// memory is one encoded tensor beside the mapped source.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "cmf/header.h"
#include "cmf/masks.h"
#include "convert/quant_plan.h"
#include "convert/tensor_encoder.h"
#include "model/tensor_source.h"

namespace cmforge {

/// What is packaged. Everything it points to must outlive the call.
struct ConvertInput {
  const TensorSource* tensors = nullptr;
  cmf::Header header;                       // as the file shall have it; quant_type is filled in when empty
  const cmf::MaskCatalog* masks = nullptr;  // null: none
  bool sparse_index = false;                // of the masks
  Bytes tokenizer_json;                     // verbatim; empty: a file without tokenizer
};

struct ConvertOptions {
  QuantPreset quant;
  std::vector<TensorQuantRule> tensor_quant;
  EncoderSettings encoders;
  double shard_max_gb = 0;  // above 0: a set of shards (cmf/shards.h), the target is their prefix
  // What decides the bytes besides the plan, as text: the source's files, the flags. An interrupted conversion is taken
  // up only by one of the same identity. Empty: nothing to take up is ever left.
  std::string identity;
  bool resume =
      false;  // go on with what an earlier run has left, and leave what was done when this one is interrupted
  std::function<Result<void>()>
      before_commit;  // a last look, at the source's files for example; may be empty
};

struct ConvertReport {
  struct PerType {
    int64_t tensors = 0;
    int64_t weights = 0;
    uint64_t bytes = 0;
  };
  struct Fallback {
    std::string tensor, reason;
    DType wanted, used;
  };
  std::map<DType, PerType> types;
  std::vector<Fallback> fallbacks;
  int64_t changed = 0;  // tensors that were encoded, not copied
  int64_t resumed = 0;  // tensors that an earlier run had written
  std::vector<std::filesystem::path> files;
  uint64_t file_bytes = 0;
  int64_t weights = 0;
  double seconds = 0;  // of encoding and writing, without the final sync

  void Count(DType dtype, std::span<const int64_t> shape, uint64_t bytes);
};

/// Writes `target` atomically. With an identity, payloads grow in TARGET.part beside a manifest, which a process that dies
/// leaves behind, and with `resume` an interrupted one too. Fails: kUsage (plan), kCorrupt (NaN or Inf weights where the encoding cannot
/// hold them, values beyond f16: tensor named), kIo, kCancelled; then no file appears and an old one stays.
Result<ConvertReport> ConvertToCmf(const ConvertInput& input, const ConvertOptions& options,
                                   const std::filesystem::path& target, ThreadPool& pool,
                                   const RunControl& control);

/// Gives the tensors of a .cmf file (any shard of a set) the planned encodings where they lie: payloads go into the
/// slots of the old ones, offsets and the length of the file stay. Tensors whose new payload is longer than their slot
/// keep their encoding and are reported as fallbacks. `requant` goes into the header's provenance.
/// Killed at any moment, or interrupted, the file is valid and part of its tensors are done (cmf/slot_rewriter.h).
/// Fails: as ConvertToCmf, and kUsage when nothing that should change fits.
Result<ConvertReport> RequantInPlace(const std::filesystem::path& path, const ConvertOptions& options,
                                     const Json& requant, ThreadPool& pool, const RunControl& control);

}  // namespace cmforge
