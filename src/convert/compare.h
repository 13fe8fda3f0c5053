// What differs between two models, whatever they are stored in: their descriptions, their tensors by name and by
// payload, and what a .cmf file carries besides: tokenizer, chat, skills, masks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "cmf/file.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge {

/// One of the two; what is null or empty is not there. Everything must outlive the call.
struct ComparedModel {
  const TensorSource* tensors = nullptr;
  const ModelConfig* config = nullptr;
  const ChatBundle* chat = nullptr;
  const RecommendedSampling* sampling = nullptr;
  Bytes tokenizer_json;
  const cmf::File* file = nullptr;  // its recorded hashes are taken instead of reading the payloads
};

/// A named value that differs; JSON text, empty where one side has none.
struct ValueChange {
  std::string key, a, b;
};

struct TensorChange {
  TensorInfo a, b;
  uint64_t hash_a = 0, hash_b = 0;
  std::optional<double>
      relative_error;             // |b - a| / |a| over the decoded values, in float64; NaN where a is 0
  std::optional<double> max_abs;  // of b - a
};

/// What differs between two lists of named things.
struct NameChanges {
  int64_t same = 0;
  std::vector<std::string> changed, only_a, only_b;

  [[nodiscard]] bool empty() const { return changed.empty() && only_a.empty() && only_b.empty(); }
};

struct MaskChange {
  std::string name;
  int64_t neurons = 0, heads = 0, gates = 0,
          experts = 0;  // bits that differ; an absent area counts as all ones
  bool meta = false;    // sparsity, quality, description and the like
};

struct ModelDiff {
  std::vector<ValueChange> arch;
  int64_t same_tensors = 0;           // name, dtype, shape and payload
  std::vector<TensorChange> changed;  // of the same name, in the order of `a`
  std::vector<TensorChange> renamed;  // the same dtype, shape and payload under another name
  std::vector<TensorInfo> only_a, only_b;
  NameChanges skills;
  NameChanges masks;
  std::vector<MaskChange> mask_changes;  // of masks.changed
  std::vector<ValueChange> other;        // tokenizer, chat, sampling, default task

  [[nodiscard]] bool identical() const;
};

struct CompareOptions {
  bool values = false;  // decode changed tensors of equal shape and measure how far apart they are
};

/// What the arch blocks of the two would say differently.
[[nodiscard]] std::vector<ValueChange> CompareArch(const ModelConfig& a, const ModelConfig& b);

/// Fails: what reading the payloads gives; kCancelled.
Result<ModelDiff> CompareModels(const ComparedModel& a, const ComparedModel& b, const CompareOptions& options,
                                ThreadPool& pool, const RunControl& run = {});

}  // namespace cmforge
