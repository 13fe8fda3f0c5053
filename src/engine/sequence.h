// One conversation's state: caches of attention layers, recurrent states, position.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv_cache.h"
#include "engine/network.h"
#include "model/language_model.h"

namespace cmforge::engine {

/// State of one visit of one layer; which parts are used depends on its operator.
struct LayerState {
  KvCache kv;                // attention that stores keys
  std::vector<float> conv;   // [kernel - 1, channels]: the newest inputs of the convolution, oldest first
  std::vector<float> delta;  // [value_heads, DeltaStateFloats]
  int64_t delta_filled = 0;  // tokens of the unfinished chunk in it
};

/// What a step and a snapshot need to know of the model; shared by all its sequences.
struct SequenceModel {
  const Network* network = nullptr;
  uint64_t identity = 0;
  std::shared_ptr<const void> keep_alive;
};

class EngineSequence final : public Sequence {
 public:
  EngineSequence(std::shared_ptr<const SequenceModel> model, int64_t context_length, KvType kv,
                 std::vector<RopeFrequencies> ropes);

  [[nodiscard]] int64_t position() const override { return position_; }
  [[nodiscard]] int64_t context_length() const override { return context_length_; }
  [[nodiscard]] uint64_t state_bytes() const override;
  Result<std::unique_ptr<Sequence>> Fork() const override;
  Result<void> Rewind(int64_t position) override;
  Result<std::vector<std::byte>> Snapshot() const override;

  /// Makes a sequence from Snapshot()'s bytes, which may be anybody's.
  static Result<std::unique_ptr<Sequence>> Restore(std::shared_ptr<const SequenceModel> model,
                                                   std::span<const std::byte> snapshot);

  /// Fails: kUnsupported / kCorrupt of RopeFrequencies::Make.
  static Result<std::unique_ptr<EngineSequence>> Make(std::shared_ptr<const SequenceModel> model,
                                                      int64_t context_length, KvType kv);

  // For the step.
  [[nodiscard]] const SequenceModel& model() const { return *model_; }
  [[nodiscard]] LayerState& state(int64_t visit) { return states_[static_cast<size_t>(visit)]; }
  [[nodiscard]] const LayerState& state(int64_t visit) const { return states_[static_cast<size_t>(visit)]; }
  [[nodiscard]] const RopeFrequencies& rope(int64_t index) const {
    return ropes_[static_cast<size_t>(index)];
  }
  /// Bytes that caches grow by at most when `tokens` more come, in chunks of `chunk`.
  [[nodiscard]] uint64_t GrowthFor(int64_t tokens, int64_t chunk) const;
  void Advance(int64_t tokens) { position_ += tokens; }
  /// Layer gates this sequence runs under, fixed by its first step ("" = all layers).
  [[nodiscard]] const std::vector<uint8_t>& gates() const { return gates_; }
  void set_gates(std::vector<uint8_t> gates) { gates_ = std::move(gates); }

 private:
  EngineSequence(const EngineSequence&) = default;
  void ResetStates();

  std::shared_ptr<const SequenceModel> model_;
  int64_t position_ = 0;
  int64_t context_length_ = 0;
  KvType kv_ = KvType::kF32;
  std::vector<RopeFrequencies> ropes_;  // as Network::rope_configs
  std::vector<LayerState> states_;      // [visits]
  std::vector<uint8_t> gates_;
};

}  // namespace cmforge::engine
