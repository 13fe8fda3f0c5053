// engine::Model: checks a step's batch, cuts it into chunks of rows, and runs each chunk through the layers.
#include "engine/model.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_set>

#include "base/memory_limit.h"
#include "engine/pass.h"
#include "model/logits_check.h"

namespace cmforge::engine {
namespace {

constexpr int64_t kChunkRows = 512;  // rows that go through the network together; bounds scratch memory

class EngineModel final : public LanguageModel, public std::enable_shared_from_this<EngineModel> {
 public:
  EngineModel(Network network, ModelOptions options, Isa isa, const FloatKernels& kernels)
      : network_(std::move(network)), options_(std::move(options)), isa_(isa), kernels_(kernels) {}

  [[nodiscard]] const ModelConfig& config() const override { return network_.config; }
  [[nodiscard]] uint64_t identity() const override { return options_.identity; }
  Result<std::unique_ptr<Sequence>> NewSequence(const SequenceOptions& options) const override;
  Result<std::unique_ptr<Sequence>> RestoreSequence(std::span<const std::byte> snapshot) const override;
  Result<StepResult> Step(const StepRequest& request) const override;

 private:
  [[nodiscard]] std::shared_ptr<const SequenceModel> ForSequences() const;
  Result<void> CheckItem(const StepItem& item, size_t index) const;
  Result<void> CheckActive(const ActiveSet& active) const;
  Result<void> CheckMemory(const StepRequest& request, uint64_t logit_bytes) const;
  void RunChunk(Pass& pass, std::span<const StepItem> items, float*& logits) const;
  void Embed(Pass& pass, float* x) const;
  void PreparePerLayerInputs(Pass& pass, const float* x) const;
  void WriteLogits(Pass& pass, std::span<const int64_t> rows, const float* x, float* logits) const;

  std::unique_ptr<Workspace> TakeWorkspace() const;
  void ReturnWorkspace(std::unique_ptr<Workspace> workspace) const;

  Network network_;
  ModelOptions options_;
  Isa isa_;
  const FloatKernels& kernels_;
  mutable std::mutex workspaces_mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> workspaces_;  // idle ones
};

std::unique_ptr<Workspace> EngineModel::TakeWorkspace() const {
  const std::lock_guard lock(workspaces_mutex_);
  if (workspaces_.empty()) return std::make_unique<Workspace>(*options_.pool, isa_);
  auto workspace = std::move(workspaces_.back());
  workspaces_.pop_back();
  return workspace;
}

void EngineModel::ReturnWorkspace(std::unique_ptr<Workspace> workspace) const {
  const std::lock_guard lock(workspaces_mutex_);
  workspaces_.push_back(std::move(workspace));
}

std::shared_ptr<const SequenceModel> EngineModel::ForSequences() const {
  auto model = std::make_shared<SequenceModel>();
  model->network = &network_;
  model->identity = options_.identity;
  model->keep_alive = shared_from_this();
  return model;
}

Result<std::unique_ptr<Sequence>> EngineModel::NewSequence(const SequenceOptions& options) const {
  const int64_t most = network_.config.max_position_embeddings;
  if (options.context_length < 0) {
    return Fail(ErrorKind::kUsage,
                fmt::format("context: {} tokens: give 1 or more, or 0 for the model's limit",
                            options.context_length));
  }
  if (options.context_length > most) {
    return Fail(ErrorKind::kLimit,
                fmt::format("context: {} tokens are above the model's limit of {}: give a smaller --context",
                            options.context_length, most));
  }
  const KvType kv =
      options_.mode == ComputeMode::kExact && !options.kv_is_explicit ? KvType::kF32 : options.kv;
  CMF_TRY(
      auto sequence,
      EngineSequence::Make(ForSequences(), options.context_length == 0 ? most : options.context_length, kv));
  return std::unique_ptr<Sequence>(std::move(sequence));
}

Result<std::unique_ptr<Sequence>> EngineModel::RestoreSequence(std::span<const std::byte> snapshot) const {
  return EngineSequence::Restore(ForSequences(), snapshot);
}

Result<void> EngineModel::CheckActive(const ActiveSet& active) const {
  const auto layers = static_cast<size_t>(network_.config.num_layers),
             visits = static_cast<size_t>(network_.visits());
  const auto check = [&](const std::vector<std::vector<uint8_t>>& rows, int64_t width,
                         const char* what) -> Result<void> {
    if (rows.empty()) return {};
    if (rows.size() != layers && rows.size() != visits) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("mask: {} rows of {} bits for {} layers", rows.size(), what, layers));
    }
    for (const auto& row : rows) {
      if (width < 1 || row.size() != static_cast<size_t>((width + 7) / 8)) {
        return Fail(ErrorKind::kUsage, fmt::format("mask: a row of {} bits has {} bytes for a width of {}",
                                                   what, row.size(), width));
      }
    }
    return {};
  };
  CMF_CHECK(check(active.ffn, active.ffn_width, "ffn"));
  CMF_CHECK(check(active.heads, active.head_count, "head"));
  CMF_CHECK(check(active.experts, active.expert_count, "expert"));
  // Gates are per physical layer, also where a looped model has a row of neurons for every visit (spec 5).
  if (!active.layer_gates.empty() && active.layer_gates.size() != (layers + 7) / 8) {
    return Fail(ErrorKind::kUsage, fmt::format("mask: {} bytes of layer gates for {} layers",
                                               active.layer_gates.size(), layers));
  }
  for (size_t i = 0; i < network_.layers.size(); ++i) {
    const Layer& layer = network_.layers[i];
    const auto fits = [&](const auto& rows, int64_t have, int64_t want, const char* what) -> Result<void> {
      if (rows.empty() || have >= want) return {};
      return Fail(ErrorKind::kUsage,
                  fmt::format("mask: layer {} has {} {}, the mask {}", i, want, what, have));
    };
    if (const auto* ffn = std::get_if<FeedForward>(&layer.ffn))
      CMF_CHECK(fits(active.ffn, active.ffn_width, ffn->width(), "neurons"));
    if (const auto* moe = std::get_if<Mixture>(&layer.ffn)) {
      CMF_CHECK(
          fits(active.experts, active.expert_count, static_cast<int64_t>(moe->experts.size()), "experts"));
    }
    if (const auto* attention = std::get_if<Attention>(&layer.mixer)) {
      CMF_CHECK(fits(active.heads, active.head_count, attention->heads, "heads"));
    }
  }
  return {};
}

Result<void> EngineModel::CheckItem(const StepItem& item, size_t index) const {
  auto* sequence = dynamic_cast<EngineSequence*>(item.sequence);
  if (sequence == nullptr || sequence->model().network != &network_) {
    return Fail(ErrorKind::kUsage,
                fmt::format("batch item {}: the sequence is of another model: make it with this one", index));
  }
  if (item.tokens.empty())
    return Fail(ErrorKind::kUsage, fmt::format("batch item {}: no tokens: give at least one", index));
  for (const TokenId token : item.tokens) {
    if (token < 0 || token >= network_.config.vocab_size) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("batch item {}: token {} is outside the vocabulary of {}: give ids as this "
                              "model's own tokenizer does",
                              index, token, network_.config.vocab_size));
    }
  }
  const auto count = static_cast<int64_t>(item.tokens.size());
  if (count > sequence->context_length() - sequence->position()) {
    return Fail(
        ErrorKind::kLimit,
        fmt::format(
            "batch item {}: {} tokens after {} do not fit a context of {}: give fewer, or begin a longer one",
            index, count, sequence->position(), sequence->context_length()));
  }
  if (item.active != nullptr) CMF_CHECK(CheckActive(*item.active));
  const auto& gates = item.active == nullptr ? std::vector<uint8_t>() : item.active->layer_gates;
  if (sequence->position() > 0 && gates != sequence->gates()) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("batch item {}: layers cannot be switched on or off within a sequence: start a new one",
                    index));
  }
  return {};
}

// Asked only when caches grow, which is once in 64 positions.
Result<void> EngineModel::CheckMemory(const StepRequest& request, uint64_t logit_bytes) const {
  uint64_t growth = 0;
  for (const StepItem& item : request.items) {
    growth += static_cast<const EngineSequence*>(item.sequence)
                  ->GrowthFor(static_cast<int64_t>(item.tokens.size()), kChunkRows);
  }
  if (options_.memory_limit == 0 || growth == 0) return {};
  const uint64_t used = UsedMemory(), more = growth + logit_bytes;
  if (used + more <= options_.memory_limit) return {};
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  return Fail(
      ErrorKind::kLimit,
      fmt::format(
          "memory: the step needs {} MiB more, {} MiB of the {} MiB that this process may hold are in "
          "use: give a smaller --context, or --kv q8",
          (more + kMiB - 1) / kMiB, used / kMiB, options_.memory_limit / kMiB));
}

Result<StepResult> EngineModel::Step(const StepRequest& request) const {
  StepResult result;
  result.vocab_size = network_.head.rows();
  std::unordered_set<const Sequence*> seen;
  int64_t logit_rows = 0;
  for (size_t i = 0; i < request.items.size(); ++i) {
    const StepItem& item = request.items[i];
    CMF_CHECK(CheckItem(item, i));
    if (!seen.insert(item.sequence).second) {
      return Fail(
          ErrorKind::kUsage,
          fmt::format("batch item {}: its sequence is in the batch twice: give both items' tokens in one",
                      i));
    }
    result.first_row.push_back(logit_rows);
    logit_rows += item.logits == LogitRows::kAll    ? static_cast<int64_t>(item.tokens.size())
                  : item.logits == LogitRows::kLast ? 1
                                                    : 0;
  }
  CMF_CHECK(CheckMemory(request, static_cast<uint64_t>(logit_rows * result.vocab_size) * sizeof(float)));
  result.logits.resize(static_cast<size_t>(logit_rows * result.vocab_size));
  float* logits = result.logits.data();

  auto workspace = TakeWorkspace();
  Pass pass{network_, kernels_, options_.mode, *workspace, request.observer, {}, 0, options_.profile.get()};
  const ProfileScope scope(pass.profile, Operator::kOther);
  for (size_t i = 0; i < request.items.size(); ++i) {
    const StepItem& item = request.items[i];
    auto* sequence = static_cast<EngineSequence*>(item.sequence);
    if (sequence->position() == 0 && item.active != nullptr) sequence->set_gates(item.active->layer_gates);
    const auto count = static_cast<int64_t>(item.tokens.size());
    for (int64_t done = 0; done < count;) {
      RowSpan span;
      span.item = static_cast<int>(i);
      span.sequence = sequence;
      span.active = item.active;
      span.tokens = item.tokens.data() + done;
      span.row = pass.rows;
      span.count = std::min(count - done, kChunkRows - pass.rows);
      span.position = sequence->position();
      pass.spans.push_back(span);
      pass.rows += span.count;
      done += span.count;
      if (pass.rows == kChunkRows) RunChunk(pass, request.items, logits);
    }
  }
  if (pass.rows > 0) RunChunk(pass, request.items, logits);
  ReturnWorkspace(std::move(workspace));
  CMF_CHECK(CheckLogits(result.logits, network_.source->path()));
  return result;
}

void EngineModel::Embed(Pass& pass, float* x) const {
  const int64_t hidden = pass.hidden();
  const auto factor = static_cast<float>(network_.config.embed_multiplier);
  for (const RowSpan& span : pass.spans) {
    ForRange(pass, span.count, hidden * 4, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        float* to = x + (span.row + n) * hidden;
        network_.embedding.Read(span.tokens[n], span.tokens[n] + 1, to);
        if (factor == 1.0f) continue;
        for (int64_t i = 0; i < hidden; ++i) to[i] *= factor;
      }
    });
  }
}

void EngineModel::PreparePerLayerInputs(Pass& pass, const float* x) const {
  const int64_t width = network_.per_layer_width, layers = network_.config.num_layers,
                row_width = width * layers;
  float* inputs = pass.work.per_layer.Get(pass.rows * row_width);
  float* table = pass.work.per_layer_row.Get(pass.rows * row_width);
  pass.work.input.Set(x, pass.rows, pass.hidden());
  Multiply(pass, pass.work.input, {{&*network_.per_layer_projection, inputs}});
  const auto shrink = static_cast<float>(1.0 / std::sqrt(static_cast<double>(pass.hidden())));
  const auto grow = static_cast<float>(std::sqrt(static_cast<double>(width)));
  const auto half = static_cast<float>(1.0 / std::sqrt(2.0));
  for (const RowSpan& span : pass.spans) {
    ForRange(pass, span.count, row_width * 4, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        float *to = inputs + (span.row + n) * row_width, *from = table + (span.row + n) * row_width;
        network_.per_layer_table.Read(span.tokens[n], span.tokens[n] + 1, from);
        for (int64_t i = 0; i < row_width; ++i) to[i] *= shrink;
        for (int64_t l = 0; l < layers; ++l) {
          float* at = to + l * width;
          kernels_.rms_norm(at, network_.per_layer_norm.data(), network_.config.rms_norm_eps, width, at);
        }
        for (int64_t i = 0; i < row_width; ++i) to[i] = (to[i] + from[i] * grow) * half;
      }
    });
  }
}

void EngineModel::WriteLogits(Pass& pass, std::span<const int64_t> rows, const float* x,
                              float* logits) const {
  if (rows.empty()) return;
  const ProfileScope scope(pass.profile, Operator::kHead);
  const int64_t hidden = pass.hidden(), vocab = network_.head.rows();
  const auto count = static_cast<int64_t>(rows.size());
  float* normed = pass.work.final_rows.Get(count * hidden);
  for (int64_t i = 0; i < count; ++i) {
    kernels_.rms_norm(x + rows[static_cast<size_t>(i)] * hidden, network_.final_norm.data(),
                      network_.config.rms_norm_eps, hidden, normed + i * hidden);
  }
  pass.work.input.Set(normed, count, hidden);
  Multiply(pass, pass.work.input, {{&network_.head, logits}});
  const auto factor = static_cast<float>(network_.config.logit_multiplier);
  const auto cap = static_cast<float>(network_.config.final_logit_softcapping.value_or(0));
  if (factor == 1.0f && cap <= 0) return;
  ForRange(pass, count, vocab, [&](int64_t begin, int64_t end) {
    float* at = logits + begin * vocab;
    const int64_t n = (end - begin) * vocab;
    if (factor != 1.0f) {
      for (int64_t i = 0; i < n; ++i) at[i] *= factor;
    }
    if (cap > 0) kernels_.softcap(at, cap, n, at);
  });
}

/// Past the last mixer only the rows that logits are wanted of have a reader: they alone stay in the pass, as its rows
/// 0, 1 and so on.
void KeepRows(Pass& pass, std::vector<int64_t>& wanted, float* x) {
  const auto count = static_cast<int64_t>(wanted.size());
  if (count == pass.rows) return;
  const int64_t hidden = pass.hidden();
  std::vector<RowSpan> kept;
  auto span = pass.spans.begin();
  for (int64_t row = 0; row < count; ++row) {
    int64_t& from = wanted[static_cast<size_t>(row)];
    while (from >= span->row + span->count) ++span;
    if (kept.empty() || kept.back().item != span->item) {
      kept.push_back(*span);
      kept.back().row = row;
      kept.back().count = 0;
    }
    ++kept.back().count;
    if (from != row) std::copy_n(x + from * hidden, hidden, x + row * hidden);
    from = row;
  }
  pass.spans = std::move(kept);
  pass.rows = count;
}

void EngineModel::RunChunk(Pass& pass, std::span<const StepItem> items, float*& logits) const {
  const int64_t hidden = pass.hidden(), layers = network_.config.num_layers;
  float* x = pass.work.stream.Get(pass.rows * hidden);
  const auto show = [&](int64_t layer) {
    if (pass.observer == nullptr) return;
    for (const RowSpan& span : pass.spans) {
      pass.observer->OnHidden(static_cast<int>(layer), span.item,
                              std::span(x + span.row * hidden, static_cast<size_t>(span.count * hidden)));
    }
  };
  {
    const ProfileScope scope(pass.profile, Operator::kEmbedding);
    Embed(pass, x);
    show(-1);
    PrepareAngles(pass);
    if (network_.per_layer_width > 0) PreparePerLayerInputs(pass, x);
  }
  std::vector<int64_t> wanted;
  for (const RowSpan& span : pass.spans) {
    const StepItem& item = items[static_cast<size_t>(span.item)];
    const bool is_end = span.tokens + span.count == item.tokens.data() + item.tokens.size();
    for (int64_t n = 0; n < span.count; ++n) {
      const bool is_last = is_end && n + 1 == span.count;
      if (item.logits == LogitRows::kAll || (item.logits == LogitRows::kLast && is_last))
        wanted.push_back(span.row + n);
    }
  }
  const std::vector<RowSpan> spans = pass.spans;
  for (int64_t visit = 0; visit < network_.visits(); ++visit) {
    const Layer& layer = network_.LayerOfVisit(visit);
    const bool ends_pass = (visit + 1) % layers == 0, is_last = visit + 1 == network_.visits();
    const bool is_on = RunMixer(pass, layer, visit, x);
    if (is_last && pass.observer == nullptr && !layer.per_layer) KeepRows(pass, wanted, x);
    if (is_on && pass.rows > 0) RunAfterMixer(pass, layer, visit, x);
    if (network_.config.loop_final_norm && ends_pass && !is_last) {
      // The norm between passes belongs to the last layer: where a mask's gate skips that layer, recorded runs of the
      // format's reference skip the norm with it.
      for (const RowSpan& span : pass.spans) {
        if (!span.is_on) continue;
        float* rows = x + span.row * pass.hidden();
        NormRows(pass, rows, network_.final_norm, span.count, rows);
      }
    }
    show(visit);
  }
  WriteLogits(pass, wanted, x, logits);
  logits += static_cast<int64_t>(wanted.size()) * network_.head.rows();
  for (const RowSpan& span : spans) {
    span.sequence->Advance(span.count);
    for (int64_t visit = 0; visit < network_.visits(); ++visit) {
      span.sequence->state(visit).kv.DropBefore(span.sequence->position());
    }
  }
  pass.spans.clear();
  pass.rows = 0;
}

}  // namespace

Result<std::shared_ptr<LanguageModel>> Model::Load(std::shared_ptr<const TensorSource> source,
                                                   ModelConfig config, ModelOptions options) {
  if (source == nullptr || options.pool == nullptr)
    return Fail(ErrorKind::kUsage, "engine: no tensor source or no thread pool");
  CMF_TRY(const Isa isa, ParseIsa(options.isa));
  const FloatKernels* kernels = FindFloatKernels(FloatIsaName(isa));
  if (kernels == nullptr) {
    return Fail(ErrorKind::kUnsupported, fmt::format("engine: no float kernels for '{}'", IsaName(isa)));
  }
  auto network = BuildNetwork(std::move(source), std::move(config), options.run);
  if (!network) {
    Error error = std::move(network).error();
    if (error.kind == ErrorKind::kCorrupt) error.message += ": fetch the model again, or convert it again";
    return Fail(std::move(error));
  }
  return std::shared_ptr<LanguageModel>(
      std::make_shared<EngineModel>(std::move(*network), std::move(options), isa, *kernels));
}

}  // namespace cmforge::engine
