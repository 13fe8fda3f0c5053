// Finding the numbers of a layer in a state, and comparing them.
#include "coreml/state_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cmforge::coreml {
namespace {

/// Collects one part of one state, layer by layer.
class Part {
 public:
  Part(std::string state, std::string part) {
    result_.state = std::move(state), result_.part = std::move(part);
  }

  void Begin(int64_t layer) { layer_ = layer, largest_ = abs_ = 0; }
  void Add(double got, double want) {
    const double difference = std::fabs(got - want);
    if (!(difference <= abs_)) abs_ = difference;  // NaN stays
    largest_ = std::max(largest_, std::fabs(want));
  }
  void DoesNotFit() { abs_ = std::numeric_limits<double>::infinity(); }
  void End() {
    const double relative = abs_ == 0 ? 0 : abs_ / largest_;
    if (!(abs_ <= result_.max_abs)) result_.max_abs = abs_;
    if (result_.layers++ == 0 || !(relative <= result_.max_relative)) {
      result_.max_relative = relative;
      result_.worst_layer = layer_;
    }
  }
  [[nodiscard]] StateDifference result() const { return result_; }

 private:
  StateDifference result_;
  int64_t layer_ = 0;
  double abs_ = 0, largest_ = 0;
};

class Comparer {
 public:
  Comparer(const PackageMeta& meta, std::span<const LayerStates> layers, int64_t position)
      : meta_(meta), layers_(layers), position_(position) {}

  std::vector<StateDifference> Run(std::span<const NamedState> states) {
    for (const NamedState& state : states) {
      if (state.name.find("kv_cache") != state.name.npos && state.shape.size() == 4) {
        CompareCache(state);
      } else if (state.name.find("gdn_state") != state.name.npos && state.shape.size() == 3) {
        CompareMemory(state);
      } else if (state.name.find("conv_state") != state.name.npos && state.shape.size() == 3) {
        CompareHistory(state);
      }
    }
    return std::move(out_);
  }

 private:
  /// The layers whose rows a state holds, in their order: as meta.yaml lists them, else all that have such.
  template <class Fn>
  std::vector<int64_t> LayersOf(const NamedState& state, Fn has) const {
    for (const StateMeta& listed : meta_.states) {
      if (listed.name == state.name && !listed.layers.empty()) return listed.layers;
    }
    std::vector<int64_t> out;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (has(layers_[i])) out.push_back(static_cast<int64_t>(i));
    }
    return out;
  }
  [[nodiscard]] const LayerStates& Layer(int64_t index) const {
    static const LayerStates kNone;
    return index >= 0 && index < static_cast<int64_t>(layers_.size()) ? layers_[static_cast<size_t>(index)]
                                                                      : kNone;
  }

  /// The position in slot 0. A window that moves by blocks begins a whole number of blocks back; in the first form of
  /// that layout, whose length is window + batch, the last token is always in the last slot.
  [[nodiscard]] int64_t FirstSlot(const NamedState& state) const {
    const int64_t length = state.shape[2];
    if (!meta_.local_cache_length || length != *meta_.local_cache_length ||
        state.name.find("local") == state.name.npos)
      return 0;
    const int64_t batch = meta_.batch_size;
    if (meta_.local_attention_window && length == *meta_.local_attention_window + batch)
      return position_ - length;
    return ((position_ - 1) / batch + 1) * batch - length;
  }

  void CompareCache(const NamedState& state) {
    const auto of = LayersOf(state, [](const LayerStates& layer) { return !layer.keys.empty(); });
    const Shape& shape = state.shape;
    // Values lie behind all keys, or behind the keys of their slot.
    const bool is_by_slot =
        state.name.find("local") != state.name.npos || state.name.find("global") != state.name.npos;
    const int64_t heads = is_by_slot ? shape[1] / 2 : shape[1], length = shape[2], dim = shape[3];
    const auto count = static_cast<int64_t>(of.size());
    const int64_t base = FirstSlot(state);
    for (const bool is_key : {true, false}) {
      Part part(state.name, is_key ? "keys" : "values");
      for (int64_t i = 0; i < count; ++i) {
        const LayerStates& layer = Layer(of[static_cast<size_t>(i)]);
        part.Begin(of[static_cast<size_t>(i)]);
        const int64_t row = is_by_slot || is_key ? i : count + i,
                      first_head = is_by_slot && !is_key ? heads : 0;
        const std::vector<float>& numbers = is_key ? layer.keys : layer.values;
        const int64_t begin = std::max({layer.first_position, base, int64_t{0}}), end = position_;
        if (layer.heads != heads || layer.dim != dim || row >= shape[0] || end - base > length ||
            end > layer.first_position + layer.positions) {
          part.DoesNotFit();
        } else {
          for (int64_t p = begin; p < end; ++p) {
            for (int64_t h = 0; h < heads; ++h) {
              const float* got = &state.values[static_cast<size_t>(
                  ((row * shape[1] + first_head + h) * length + p - base) * dim)];
              const float* want =
                  &numbers[static_cast<size_t>(((p - layer.first_position) * heads + h) * dim)];
              for (int64_t d = 0; d < dim; ++d) part.Add(got[d], want[d]);
            }
          }
        }
        part.End();
      }
      out_.push_back(part.result());
    }
  }

  void CompareMemory(const NamedState& state) {
    const auto of = LayersOf(state, [](const LayerStates& layer) { return !layer.memory.empty(); });
    CompareRows(
        state, "memory", of,
        [&](const LayerStates& layer) { return layer.key_dim == state.shape[1] ? &layer.memory : nullptr; },
        std::sqrt(static_cast<double>(state.shape[1])));  // the package keeps sqrt(d_k) times it
  }

  void CompareHistory(const NamedState& state) {
    const auto of = LayersOf(state, [](const LayerStates& layer) { return !layer.history.empty(); });
    CompareRows(
        state, "history", of, [](const LayerStates& layer) { return &layer.history; }, 1);
  }

  /// Layers whose numbers lie behind each other.
  template <class Fn>
  void CompareRows(const NamedState& state, const char* name, const std::vector<int64_t>& of, Fn numbers,
                   double scale) {
    Part part(state.name, name);
    size_t at = 0;
    for (const int64_t index : of) {
      const std::vector<float>* want = numbers(Layer(index));
      part.Begin(index);
      if (!want || want->empty() || want->size() * of.size() != state.values.size()) {
        part.DoesNotFit();
      } else {
        for (const float w : *want) part.Add(state.values[at++], scale * w);
      }
      part.End();
    }
    out_.push_back(part.result());
  }

  const PackageMeta& meta_;
  const std::span<const LayerStates> layers_;
  const int64_t position_;
  std::vector<StateDifference> out_;
};

}  // namespace

std::vector<StateDifference> CompareStates(const PackageMeta& meta, std::span<const NamedState> states,
                                           std::span<const LayerStates> layers, int64_t position) {
  return Comparer(meta, layers, position).Run(states);
}

}  // namespace cmforge::coreml
