// A LanguageModel small enough to know every answer of: the next token depends on the last one alone. Logits
// of token b after a are table[a][b].
#pragma once

#include <cmath>
#include <vector>

#include "model/language_model.h"

namespace cmforge {

class ToySequence : public Sequence {
 public:
  explicit ToySequence(int64_t context) : context_(context) {}
  int64_t position() const override { return static_cast<int64_t>(history.size()); }
  int64_t context_length() const override { return context_; }
  uint64_t state_bytes() const override { return history.size() * sizeof(TokenId); }
  Result<std::unique_ptr<Sequence>> Fork() const override { return std::make_unique<ToySequence>(*this); }
  Result<void> Rewind(int64_t position) override {
    history.resize(static_cast<size_t>(position));
    return {};
  }
  Result<std::vector<std::byte>> Snapshot() const override { return std::vector<std::byte>(); }

  std::vector<TokenId> history;

 private:
  int64_t context_;
};

class ToyModel : public LanguageModel {
 public:
  explicit ToyModel(std::vector<std::vector<float>> table) : table_(std::move(table)) {
    config_.vocab_size = static_cast<int64_t>(table_.size());
    config_.max_position_embeddings = 64;
  }
  const ModelConfig& config() const override { return config_; }
  Result<std::unique_ptr<Sequence>> NewSequence(const SequenceOptions& options) const override {
    return std::make_unique<ToySequence>(options.context_length ? options.context_length : 64);
  }
  Result<StepResult> Step(const StepRequest& request) const override {
    StepResult result;
    result.vocab_size = config_.vocab_size;
    for (const StepItem& item : request.items) {
      ++steps;
      auto& sequence = static_cast<ToySequence&>(*item.sequence);
      result.first_row.push_back(static_cast<int64_t>(result.logits.size()) / result.vocab_size);
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        sequence.history.push_back(item.tokens[i]);
        if (item.logits == LogitRows::kAll ||
            (item.logits == LogitRows::kLast && i + 1 == item.tokens.size())) {
          const auto& row = table_[static_cast<size_t>(item.tokens[i])];
          result.logits.insert(result.logits.end(), row.begin(), row.end());
        }
      }
    }
    return result;
  }
  Result<std::unique_ptr<Sequence>> RestoreSequence(std::span<const std::byte>) const override {
    return Fail(ErrorKind::kUnsupported, "toy");
  }
  uint64_t identity() const override { return 1; }

  mutable int steps = 0;

 private:
  std::vector<std::vector<float>> table_;
  ModelConfig config_;
};

/// Token i is followed by i + 1 (mod n) with logit 5, by anything else with 0.
inline ToyModel CountingModel(int n) {
  std::vector<std::vector<float>> table(static_cast<size_t>(n), std::vector<float>(static_cast<size_t>(n)));
  for (int i = 0; i < n; ++i) table[static_cast<size_t>(i)][static_cast<size_t>((i + 1) % n)] = 5;
  return ToyModel(table);
}

}  // namespace cmforge
