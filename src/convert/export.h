// Any model as a Hugging Face folder: config.json, tokenizer files and safetensors. Before anything is written, the
// configuration is parsed back and compared, and the tensors are fitted to it, by the same code that opens folders: what
// is exported opens again as the same model, or nothing is exported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge {

/// Everything it points to must outlive the call.
struct ExportInput {
  const TensorSource* tensors = nullptr;  // plain names
  ModelConfig config;
  const ChatBundle* chat = nullptr;
  RecommendedSampling sampling;
  Bytes tokenizer_json;
  // Files to take over as they are, instead of writing our own of that name.
  std::vector<std::pair<std::string, Bytes>> verbatim;
};

struct ExportOptions {
  DType dtype = DType::kBF16;               // f32, f16 or bf16
  uint64_t max_file_bytes = 5'000'000'000;  // of a weight file; a tensor is never split
};

struct ExportReport {
  std::vector<std::filesystem::path> files;
  std::string model_type;
  int64_t tensors = 0;
  uint64_t bytes = 0;  // of weights
};

/// `folder` is made, or must be empty. All files are complete before the first appears; config.json appears last.
/// Fails: kUnsupported for a model that no known family's config.json describes (the keys are named) or whose tensors a
/// folder cannot hold; kUsage (a folder with something in it, values beyond f16); kIo, kCancelled.
Result<ExportReport> ExportToHf(const ExportInput& input, const ExportOptions& options,
                                const std::filesystem::path& folder, ThreadPool& pool,
                                const RunControl& run = {});

}  // namespace cmforge
