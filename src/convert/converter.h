// Any TensorSource into a .cmf file: plan the encodings, then encode and write one tensor at a time. Peak
// memory is one encoded tensor beside the mapped source.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "convert/quant_plan.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge {

/// What is packaged. Everything it points to must outlive the call.
struct ConvertInput {
  const TensorSource* tensors = nullptr;
  ModelConfig config;
  std::optional<ChatBundle> chat;
  RecommendedSampling sampling;
  Bytes tokenizer_json;  // verbatim; empty: a file without tokenizer
  Json provenance;       // object
};

struct ConvertOptions {
  QuantPreset quant;
  std::vector<TensorQuantRule> tensor_quant;
  double mean_bits = 4.25;  // vbit
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
  uint64_t file_bytes = 0;
  int64_t weights = 0;
  double seconds = 0;  // of encoding and writing, without the final sync
};

/// Writes `target` atomically. Fails: kUsage (plan), kCorrupt (NaN or Inf weights where the encoding cannot
/// hold them, values beyond f16: tensor named), kIo, kCancelled; then no file appears and an old one stays.
Result<ConvertReport> ConvertToCmf(const ConvertInput& input, const ConvertOptions& options,
                                   const std::filesystem::path& target, ThreadPool& pool,
                                   const RunControl& control);

}  // namespace cmforge
