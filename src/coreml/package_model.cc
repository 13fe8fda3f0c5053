// Steps and sequences over the parts of a package.
#include "coreml/package_model.h"

#include <algorithm>
#include <mutex>

#include "coreml/package_parts.h"
#include "coreml/package_snapshot.h"
#include "mil/sha256.h"
#include "model/logits_check.h"

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

/// What sequences and their model share.
struct Shared {
  PackageMeta meta;
  ModelConfig config;
  std::shared_ptr<const Backend> backend;
  std::unique_ptr<PackagePartsRunner> parts;
  uint64_t identity = 0;
  std::mutex turn;  // the parts have one set of buffers

  [[nodiscard]] bool can_rewind() const { return !meta.recurrent_state && !meta.local_cache_length; }
};

class PackageSequence : public Sequence {
 public:
  PackageSequence(std::shared_ptr<Shared> shared, std::unique_ptr<PartState> state, int64_t context)
      : shared_(std::move(shared)), state_(std::move(state)), context_(context) {}

  int64_t position() const override { return position_; }
  int64_t context_length() const override { return context_; }
  uint64_t state_bytes() const override {
    uint64_t bytes = 0;
    for (const Port& port : state_->ports())
      bytes += static_cast<uint64_t>(*ElementCount(port.type.shape)) * 4;
    return bytes;
  }

  Result<std::unique_ptr<Sequence>> Fork() const override {
    CMF_TRY(auto state, shared_->parts->NewState());
    std::vector<float> values;
    for (size_t i = 0; i < state_->ports().size(); ++i) {
      values.resize(static_cast<size_t>(*ElementCount(state_->ports()[i].type.shape)));
      CMF_CHECK(state_->Get(i, values));
      CMF_CHECK(state->Set(i, values));
    }
    auto copy = std::make_unique<PackageSequence>(shared_, std::move(state), context_);
    copy->position_ = position_;
    copy->is_torn_ = is_torn_;
    return copy;
  }

  Result<void> Rewind(int64_t position) override {
    if (position < 0 || position > position_) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("rewind to position {}: the sequence is at {}", position, position_));
    }
    if (position == position_) return {};
    if (position == 0) {
      CMF_TRY(state_, shared_->parts->NewState());
      is_torn_ = false;
    } else if (!shared_->can_rewind()) {
      return Fail(
          ErrorKind::kUnsupported,
          fmt::format("rewind from {} to {}: the package's states cannot go back: begin anew or restore "
                      "a snapshot",
                      position_, position));
    }
    position_ = position;
    return {};
  }

  Result<std::vector<std::byte>> Snapshot() const override {
    CMF_CHECK(CheckWhole());
    return WriteSnapshot({shared_->identity, position_, context_, shared_->backend->rounds_to_f16()},
                         *state_);
  }

  /// After a call that failed half way, a state that cannot be written again is of no use.
  Result<void> CheckWhole() const {
    if (!is_torn_) return {};
    return Fail(ErrorKind::kUsage,
                "the sequence's last step failed half way: begin anew or restore a snapshot");
  }

  /// Feeds tokens whose number was checked. Rows of logits are appended to `rows`.
  Result<void> Feed(std::span<const TokenId> tokens, LogitRows wanted, std::vector<float>& rows) {
    CMF_CHECK(CheckWhole());
    const int64_t before = position_;
    auto status = FeedAll(tokens, wanted, rows);
    if (!status) {
      is_torn_ = !shared_->can_rewind();
      position_ = before;
    }
    return status;
  }

  [[nodiscard]] const std::shared_ptr<Shared>& shared() const { return shared_; }
  [[nodiscard]] PartState& state() const { return *state_; }
  void set_position(int64_t position) { position_ = position; }

 private:
  Result<void> FeedAll(std::span<const TokenId> tokens, LogitRows wanted, std::vector<float>& rows) {
    PackagePartsRunner& parts = *shared_->parts;
    const int64_t batch = parts.shapes().batch;
    const bool gives_last = shared_->meta.prefill_last_token_output;
    const auto add_row = [&]() -> Result<void> {
      const size_t at = rows.size();
      rows.resize(at + static_cast<size_t>(parts.shapes().vocab));
      return parts.Logits(std::span(rows).subspan(at));
    };
    while (!tokens.empty()) {
      const auto left = static_cast<int64_t>(tokens.size());
      const bool wants_last_of_batch = wanted == LogitRows::kLast && left == batch;
      // A prefill that does not give its last token's state leaves that token to infer: rewound where that is
      // harmless, not taken where it would count twice.
      bool is_prefill = wanted != LogitRows::kAll && left >= batch && batch > 1;
      if (wants_last_of_batch && !gives_last && !shared_->can_rewind()) is_prefill = false;
      const int64_t n = is_prefill ? batch : 1;
      CMF_CHECK(parts.Run(tokens.first(static_cast<size_t>(n)), position_, *state_));
      if (is_prefill && wants_last_of_batch && !gives_last)
        CMF_CHECK(parts.Run(tokens.subspan(static_cast<size_t>(n - 1), 1), position_ + n - 1, *state_));
      position_ += n;
      tokens = tokens.subspan(static_cast<size_t>(n));
      if (wanted == LogitRows::kAll || (wanted == LogitRows::kLast && tokens.empty())) CMF_CHECK(add_row());
    }
    return {};
  }

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<PartState> state_;
  int64_t context_ = 0, position_ = 0;
  bool is_torn_ = false;
};

class PackageModel : public LanguageModel {
 public:
  explicit PackageModel(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  const ModelConfig& config() const override { return shared_->config; }
  uint64_t identity() const override { return shared_->identity; }

  Result<std::unique_ptr<Sequence>> NewSequence(const SequenceOptions& options) const override {
    const int64_t limit = shared_->parts->shapes().context;
    const int64_t context = options.context_length > 0 ? options.context_length : limit;
    if (context > limit) {
      return Fail(
          ErrorKind::kLimit,
          fmt::format("context {}: the package was made for {}: convert it again with --context-length {}",
                      context, limit, context));
    }
    if (options.kv_is_explicit && options.kv != KvType::kF16) {
      return Fail(ErrorKind::kUnsupported,
                  "the states of a Core ML package are f16: leave --kv out, or give f16");
    }
    CMF_TRY(auto state, shared_->parts->NewState());
    return std::make_unique<PackageSequence>(shared_, std::move(state), context);
  }

  Result<StepResult> Step(const StepRequest& request) const override {
    CMF_CHECK(Check(request));
    const std::scoped_lock lock(shared_->turn);
    StepResult result;
    result.vocab_size = shared_->config.vocab_size;
    for (const StepItem& item : request.items) {
      result.first_row.push_back(static_cast<int64_t>(result.logits.size()) / result.vocab_size);
      CMF_CHECK(static_cast<PackageSequence*>(item.sequence)->Feed(item.tokens, item.logits, result.logits));
    }
    CMF_CHECK(CheckLogits(result.logits, shared_->meta.name));
    return result;
  }

  Result<std::unique_ptr<Sequence>> RestoreSequence(std::span<const std::byte> snapshot) const override {
    CMF_TRY(auto state, shared_->parts->NewState());
    CMF_TRY(const SnapshotInfo info,
            ReadSnapshot(snapshot, shared_->identity, shared_->parts->shapes().context, *state));
    auto sequence = std::make_unique<PackageSequence>(shared_, std::move(state), info.context);
    sequence->set_position(info.position);
    return sequence;
  }

 private:
  /// Everything that can be refused before a sequence moves.
  Result<void> Check(const StepRequest& request) const {
    if (request.observer) {
      return Fail(ErrorKind::kUnsupported,
                  "a Core ML package shows nothing of its inside: use the checkpoint for this");
    }
    for (const StepItem& item : request.items) {
      const auto* sequence = dynamic_cast<const PackageSequence*>(item.sequence);
      if (!sequence || sequence->shared() != shared_)
        return Fail(ErrorKind::kUsage, "step: a sequence of another model");
      if (item.active)
        return Fail(ErrorKind::kUnsupported, "a Core ML package has no masks: use the .cmf file for tasks");
      if (item.tokens.empty()) return Fail(ErrorKind::kUsage, "step: no tokens");
      for (const TokenId token : item.tokens) {
        if (token < 0 || token >= shared_->config.vocab_size) {
          return Fail(ErrorKind::kUsage, fmt::format("token {}: the vocabulary has {} tokens", token,
                                                     shared_->config.vocab_size));
        }
      }
      if (static_cast<int64_t>(item.tokens.size()) > sequence->context_length() - sequence->position()) {
        return Fail(ErrorKind::kLimit,
                    fmt::format("{} tokens after {} do not fit a context of {}", item.tokens.size(),
                                sequence->position(), sequence->context_length()));
      }
      CMF_CHECK(sequence->CheckWhole());
    }
    return {};
  }

  std::shared_ptr<Shared> shared_;
};

/// The weight file of a part in either form; an empty path when it has none.
fs::path WeightFileOf(const fs::path& part) {
  std::error_code error;
  for (const char* place : {"weights/weight.bin", "Data/com.apple.CoreML/weights/weight.bin"}) {
    if (fs::exists(part / place, error)) return part / place;
  }
  return {};
}

/// From the sizes of the weight files and blocks spread over them: reading all of what may be many gigabytes
/// would take longer than opening. The compiled form of a part has the same weights, so the same identity.
Result<uint64_t> IdentityOf(const fs::path& folder, const PackageMeta& meta, const PartShapes& shapes) {
  constexpr uint64_t kBlocks = 64, kBlockBytes = 64;
  CMF_TRY(const PackageParts parts, FindParts(folder, meta));
  mil::Sha256 hash;
  const auto add = [&](uint64_t number) { hash.Add(std::as_bytes(std::span(&number, 1))); };
  for (const int64_t n : {shapes.context, shapes.batch, shapes.vocab, shapes.hidden})
    add(static_cast<uint64_t>(n));
  std::vector<fs::path> all = {parts.embeddings, parts.lm_head};
  all.insert(all.end(), parts.chunks.begin(), parts.chunks.end());
  for (const fs::path& part : all) {
    const fs::path weights = WeightFileOf(part);
    if (weights.empty()) continue;
    CMF_TRY(const MappedFile file, MappedFile::Open(weights));
    const Bytes bytes = file.bytes();
    add(bytes.size());
    for (uint64_t i = 0; i < kBlocks; ++i) {
      const uint64_t at = bytes.size() / kBlocks * i;
      hash.Add(bytes.subspan(at, std::min(kBlockBytes, bytes.size() - at)));
    }
  }
  const mil::Sha256Digest digest = hash.Finish();
  return LoadLe<uint64_t>(reinterpret_cast<const std::byte*>(digest.data()));
}

}  // namespace

Result<std::shared_ptr<LanguageModel>> OpenPackageModel(const fs::path& folder, const PackageMeta& meta,
                                                        PackageModelOptions options) {
  auto shared = std::make_shared<Shared>();
  shared->meta = meta;
  shared->backend = std::move(options.backend);
  CMF_TRY(shared->parts, PackagePartsRunner::Open(folder, meta, *shared->backend));
  const PartShapes& shapes = shared->parts->shapes();
  shared->config = std::move(options.config);
  shared->config.vocab_size = shapes.vocab;
  shared->config.hidden_size = shapes.hidden;
  shared->config.max_position_embeddings = shapes.context;
  CMF_TRY(shared->identity, IdentityOf(folder, meta, shapes));
  return std::shared_ptr<LanguageModel>(std::make_shared<PackageModel>(std::move(shared)));
}

Result<uint64_t> PackageWeightBytes(const fs::path& folder, const PackageMeta& meta) {
  CMF_TRY(const PackageParts parts, FindParts(folder, meta));
  std::vector<fs::path> read = parts.chunks;
  read.push_back(parts.lm_head);
  uint64_t bytes = 0;
  for (const fs::path& part : read) {
    std::error_code error;
    const auto size = fs::file_size(WeightFileOf(part), error);
    if (!error) bytes += size;
  }
  return bytes;
}

Result<std::vector<NamedState>> StatesOf(const Sequence& sequence) {
  const auto* package = dynamic_cast<const PackageSequence*>(&sequence);
  if (!package) return Fail(ErrorKind::kUsage, "states: not a sequence of a Core ML package");
  std::vector<NamedState> all;
  const PartState& state = package->state();
  for (size_t i = 0; i < state.ports().size(); ++i) {
    const Port& port = state.ports()[i];
    all.push_back({port.name, port.type.shape, {}});
    all.back().values.resize(static_cast<size_t>(*ElementCount(port.type.shape)));
    CMF_CHECK(state.Get(i, all.back().values));
  }
  return all;
}

}  // namespace cmforge::coreml
