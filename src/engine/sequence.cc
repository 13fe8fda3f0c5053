// Making, forking and rewinding sequences.
#include "engine/sequence.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace cmforge::engine {
namespace {

LayerState NewState(const Layer& layer, KvType kv, const std::shared_ptr<KvMemory>& memory) {
  LayerState state;
  if (const auto* attention = std::get_if<Attention>(&layer.mixer)) {
    if (!attention->shares_kv_of) {
      state.kv = KvCache(kv, attention->kv_heads, attention->head_dim, attention->window, memory);
    }
  } else if (const auto* net = std::get_if<DeltaNet>(&layer.mixer)) {
    state.conv.resize(static_cast<size_t>((net->kernel - 1) * net->channels()));
    state.delta.resize(
        static_cast<size_t>(net->value_heads * DeltaStateFloats(net->key_dim, net->value_dim)));
  } else if (const auto* conv = std::get_if<ShortConv>(&layer.mixer)) {
    state.conv.resize(static_cast<size_t>((conv->kernel - 1) * conv->out.rows()));
  }
  return state;
}

}  // namespace

EngineSequence::EngineSequence(std::shared_ptr<const SequenceModel> model, int64_t context_length, KvType kv,
                               std::vector<RopeFrequencies> ropes)
    : model_(std::move(model)), context_length_(context_length), kv_(kv), ropes_(std::move(ropes)) {
  ResetStates();
}

void EngineSequence::ResetStates() {
  const Network& network = *model_->network;
  const auto memory = std::make_shared<KvMemory>();
  states_.clear();
  for (int64_t visit = 0; visit < network.visits(); ++visit) {
    states_.push_back(NewState(network.LayerOfVisit(visit), kv_, memory));
  }
}

Result<std::unique_ptr<EngineSequence>> EngineSequence::Make(std::shared_ptr<const SequenceModel> model,
                                                             int64_t context_length, KvType kv) {
  const Network& network = *model->network;
  std::vector<RopeFrequencies> ropes;
  for (size_t i = 0; i < network.rope_configs.size(); ++i) {
    CMF_TRY(RopeFrequencies rope,
            RopeFrequencies::Make(network.rope_configs[i], network.rope_head_dims[i],
                                  network.config.max_position_embeddings, context_length));
    ropes.push_back(std::move(rope));
  }
  return std::make_unique<EngineSequence>(std::move(model), context_length, kv, std::move(ropes));
}

uint64_t EngineSequence::state_bytes() const {
  uint64_t bytes = 0;
  for (const auto& state : states_) {
    bytes += state.kv.bytes() + (state.conv.size() + state.delta.size()) * sizeof(float);
  }
  return bytes;
}

uint64_t EngineSequence::GrowthFor(int64_t tokens, int64_t chunk) const {
  uint64_t bytes = 0;
  for (const LayerState& state : states_) {
    if (state.kv.block_bytes() == 0) continue;
    int64_t pages = (position_ + tokens + kPagePositions - 1) / kPagePositions - state.kv.first_page();
    if (state.kv.window() > 0) pages = std::min(pages, (state.kv.window() + chunk) / kPagePositions + 3);
    bytes +=
        static_cast<uint64_t>(std::max<int64_t>(0, pages - state.kv.page_count()) * state.kv.block_bytes());
  }
  return bytes;
}

Result<std::unique_ptr<Sequence>> EngineSequence::Fork() const {
  auto fork = std::unique_ptr<EngineSequence>(new EngineSequence(*this));
  const auto memory = std::make_shared<KvMemory>();
  for (LayerState& state : fork->states_) state.kv.set_memory(memory);
  return std::unique_ptr<Sequence>(std::move(fork));
}

Result<void> EngineSequence::Rewind(int64_t position) {
  if (position < 0 || position > position_) {
    return Fail(ErrorKind::kUsage,
                fmt::format("rewind to position {}: the sequence is at {}", position, position_));
  }
  if (position == position_) return {};
  if (position == 0) {
    ResetStates();
    position_ = 0;
    gates_.clear();
    return {};
  }
  if (model_->network->has_recurrent_layers()) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("rewind from {} to {}: the model has recurrent layers, whose state cannot go back",
                    position_, position));
  }
  for (const auto& layer : states_) {
    if (!layer.kv.CanRewindTo(position)) {
      return Fail(
          ErrorKind::kUnsupported,
          fmt::format("rewind from {} to {}: a window of {} has dropped positions before {}", position_,
                      position, layer.kv.window(), layer.kv.first_page() * kPagePositions));
    }
  }
  for (auto& layer : states_) layer.kv.Truncate(position);
  position_ = position;
  return {};
}

}  // namespace cmforge::engine
