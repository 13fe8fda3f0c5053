// Opens a model for running: any TensorSource and its ModelConfig become a LanguageModel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/profile.h"
#include "model/language_model.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge::engine {

struct ModelOptions {
  ComputeMode mode = ComputeMode::kFast;
  std::shared_ptr<ThreadPool> pool;  // shared with whoever else computes; required
  std::string isa;                   // "" or "auto": the best that runs here
  uint64_t identity = 0;             // hash of what was opened; binds snapshots
  uint64_t memory_limit = 0;  // bytes that a step's caches may fill up to (base/memory_limit.h); 0: any
  RunControl run;             // warnings while loading, and the wish to stop
  std::shared_ptr<Profile> profile;  // takes the time of every step, or none
};

/// Error::name of a tensor that a model needs and its source does not have: part of a model, not a wrong one.
inline constexpr std::string_view kMissingTensor = "MissingTensor";

class Model {
 public:
  /// Weights stay where the source has them and are read in place; norms, biases and other small vectors are
  /// decoded once. Operators are chosen by which tensors are present, never by the model's name.
  ///
  /// Fails: kCorrupt (a tensor missing or of another shape: its name, shape and the wanted one; a config that
  /// contradicts itself), kUnsupported (no norm_style, a tensor of an unknown kind, named), kUsage (no pool,
  /// an unknown instruction set), kCancelled.
  static Result<std::shared_ptr<LanguageModel>> Load(std::shared_ptr<const TensorSource> source,
                                                     ModelConfig config, ModelOptions options);
};

}  // namespace cmforge::engine
