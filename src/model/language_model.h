// Running a model, whatever it was packaged as. A LanguageModel is immutable and shared; a Sequence is one
// conversation's state and belongs to one thread at a time. One call does all: a ragged batch of tokens goes
// in, the wanted rows of logits come out. Prefill, decode, verification of drafts and continuous batching are
// that same call.
//
// One answer, whatever the split: a row's result does not depend on which other rows, how many threads or
// which chunks it was computed with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

enum class KvType : uint8_t { kF32, kF16, kQ8 };

enum class ComputeMode : uint8_t {
  kFast,   // activations quantized to int8 where weights are; the default
  kExact,  // f32 activations and state, plain kernels: the parity mode
};

struct SequenceOptions {
  int64_t context_length = 0;  // 0: the model's own limit
  KvType kv = KvType::kF16;    // ignored (kF32) under ComputeMode::kExact unless `kv_is_explicit`
  bool kv_is_explicit = false;
};

class Sequence {
 public:
  virtual ~Sequence() = default;

  [[nodiscard]] virtual int64_t position() const = 0;        // tokens consumed so far
  [[nodiscard]] virtual int64_t context_length() const = 0;  // the limit step() enforces
  [[nodiscard]] virtual uint64_t state_bytes() const = 0;    // memory held by caches and states

  /// An independent copy; both go on from here.
  virtual Result<std::unique_ptr<Sequence>> Fork() const = 0;

  /// Forgets everything after the first `position` tokens. Fails with kUnsupported where the state cannot be
  /// rewound (recurrent layers, a window that has already dropped those positions).
  virtual Result<void> Rewind(int64_t position) = 0;

  /// The whole state as bytes, bound to the model it came from; LanguageModel::RestoreSequence reads it.
  virtual Result<std::vector<std::byte>> Snapshot() const = 0;
};

/// Which parts of the weights take part (a task mask). Row-major, one row a layer; empty = everything.
struct ActiveSet {
  int64_t ffn_width = 0, head_count = 0, expert_count = 0;  // bits per row
  std::vector<std::vector<uint8_t>> ffn;                    // [layers][ceil(ffn_width / 8)], LSB first
  std::vector<std::vector<uint8_t>> heads;                  // [layers][ceil(head_count / 8)]
  std::vector<std::vector<uint8_t>> experts;                // [layers][ceil(expert_count / 8)], or empty
  std::vector<uint8_t> layer_gates;                         // [ceil(layers / 8)]
};

/// Sees what flows through a step; every span is valid only during the call. Called on the stepping thread.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// Residual stream after layer `layer` (-1: the embedding), rows x hidden, for item `item` of the batch.
  virtual void OnHidden(int /*layer*/, int /*item*/, std::span<const float> /*rows*/) {}
  /// Input of the linear operator with that weight name, rows x columns over the whole batch.
  virtual void OnLinearInput(std::string_view /*weight*/, std::span<const float> /*rows*/,
                             int64_t /*columns*/) {}
  /// Experts chosen for one row of item `item` in MoE layer `layer`, with their weights.
  virtual void OnRoute(int /*layer*/, int /*item*/, std::span<const int32_t> /*experts*/,
                       std::span<const float> /*weights*/) {}
  [[nodiscard]] virtual bool wants_linear_inputs() const { return false; }
};

enum class LogitRows : uint8_t { kNone, kLast, kAll };

struct StepItem {
  Sequence* sequence = nullptr;     // made by the same model; at most once in a batch
  std::span<const TokenId> tokens;  // at least one, each in [0, vocab)
  LogitRows logits = LogitRows::kLast;
  const ActiveSet* active = nullptr;  // the task mask of this sequence, or none
};

struct StepRequest {
  std::span<const StepItem> items;
  StepObserver* observer = nullptr;
};

/// Logits of the wanted rows, in batch order: [rows, vocab].
struct StepResult {
  int64_t vocab_size = 0;
  std::vector<float> logits;
  std::vector<int64_t> first_row;  // per item: its first row in `logits`

  [[nodiscard]] std::span<const float> Row(int64_t row) const {
    return std::span(logits).subspan(static_cast<size_t>(row * vocab_size), static_cast<size_t>(vocab_size));
  }
  /// The last (or only) wanted row of an item.
  [[nodiscard]] std::span<const float> LastRow(size_t item) const {
    const int64_t end =
        item + 1 < first_row.size() ? first_row[item + 1] : static_cast<int64_t>(logits.size()) / vocab_size;
    return Row(end - 1);
  }
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  [[nodiscard]] virtual const ModelConfig& config() const = 0;

  virtual Result<std::unique_ptr<Sequence>> NewSequence(const SequenceOptions& options = {}) const = 0;

  /// Fails: kUsage (a token outside the vocabulary, an empty item), kLimit (a sequence would pass its context length:
  /// both numbers named), kUnsupported: no sequence has moved then. kCorrupt: logits_check.h.
  virtual Result<StepResult> Step(const StepRequest& request) const = 0;

  /// Fails: kCorrupt (not a snapshot), kUsage (of another model: both identities named).
  virtual Result<std::unique_ptr<Sequence>> RestoreSequence(std::span<const std::byte> snapshot) const = 0;

  /// Binds snapshots to a model: a hash of what it was opened from.
  [[nodiscard]] virtual uint64_t identity() const = 0;
};

}  // namespace cmforge
