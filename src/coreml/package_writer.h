// Writes an ANEMLL package folder: embeddings, decoder chunks and head as Core ML models, meta.yaml, and the
// configuration and tokenizer files that runtimes look for. Weights are fp16.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "coreml/graphs/decoder_plan.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge::coreml {

/// What is packaged. Everything it points to must outlive the call.
struct PackageSource {
  const TensorSource* tensors = nullptr;
  ModelConfig config;
  std::optional<ChatBundle> chat;
  RecommendedSampling sampling;
  std::string_view tokenizer_json;  // empty: none
  std::filesystem::path
      checkpoint;    // folder whose configuration files are copied; empty: made from the above
  std::string name;  // "Qwen3-0.6B", for meta.yaml
};

enum class PackageForms : uint8_t { kPackage, kCompiled, kBoth };

struct PackageOptions {
  GraphOptions graph;
  std::string prefix;  // of file names; empty: the family's
  PackageForms forms = PackageForms::kBoth;
  std::string tool;  // "cmforge 1.2.3", for the models' metadata
};

struct WrittenPart {
  std::string name;           // without extension
  uint64_t weight_bytes = 0;  // of its weight file
  std::vector<std::string> functions;
};

struct PackageReport {
  std::string architecture;
  std::vector<WrittenPart> parts;
  std::vector<std::string> files;     // beside the parts
  std::vector<std::string> warnings;  // complete lines
};

/// The folder appears, or replaces an older package, only when it is complete. Memory: one tensor of the
/// source and a few megabytes. The same input gives the same bytes.
/// Fails: as PlanDecoder; kUsage (the target is no package folder and not empty, or holds something that is no
/// part of a package; a prefix that readers would misunderstand), kCorrupt and kUnsupported (weights: tensor named), kIo, kCancelled.
Result<PackageReport> WritePackage(const PackageSource& source, const PackageOptions& options,
                                   const std::filesystem::path& target, ThreadPool& pool,
                                   const RunControl& control);

}  // namespace cmforge::coreml
