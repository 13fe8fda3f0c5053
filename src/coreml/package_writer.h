// Writes an ANEMLL package folder: embeddings, decoder chunks and head as Core ML models, meta.yaml, and the
// configuration and tokenizer files that runtimes look for.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "coreml/compression.h"
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
  Compression compression;
  std::string prefix;  // of file names; empty: the family's
  PackageForms forms = PackageForms::kBoth;
  std::string tool;  // "cmforge 1.2.3", for the models' metadata
  // Compressed weights grow in TARGET.part, which a process that dies leaves behind, and with `resume` an
  // interrupted one too. They are taken over by a run with `resume` whose identity is the same: what decides
  // the weights besides their form (the source's files, statistics, the version), as text.
  std::string identity;
  bool resume = false;
  std::function<Result<void>()>
      before_commit;  // a last look, at the source's files for example; may be empty
};

struct WrittenPart {
  std::string name;           // without extension
  uint64_t weight_bytes = 0;  // of its weight file
  std::vector<std::string> functions;
  std::string form = "fp16";  // of its matrices
  // Of those that were compressed: bits a number with tables, and the error, ||w - w'|| / ||w||, with errors
  // weighed as they were in fitting.
  double bits = 16, relative_error = 0;
};

struct PackageReport {
  std::string architecture;
  std::vector<WrittenPart> parts;
  std::vector<std::string> files;     // beside the parts
  int64_t resumed = 0;                // compressed weights that an earlier run had left
  std::vector<std::string> warnings;  // complete lines
};

/// The folder appears, or replaces an older package, only when it is complete. Memory: about one tensor of
/// the source. The same input gives the same bytes.
/// Fails: as PlanDecoder and ResolveMixed; kUsage (the target is no package folder and not empty, or holds
/// something that is no part of a package; a prefix that readers would misunderstand), kCorrupt and
/// kUnsupported (weights: tensor named), kIo, kCancelled.
Result<PackageReport> WritePackage(const PackageSource& source, const PackageOptions& options,
                                   const std::filesystem::path& target, ThreadPool& pool,
                                   const RunControl& control);

}  // namespace cmforge::coreml
