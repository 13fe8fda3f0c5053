// Loads the checkpoints of tests/data/engine and what an independent float64 computation says about them.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "engine/model.h"
#include "gtest/gtest.h"
#include "kernels/isa.h"
#include "quant/encoding.h"

namespace cmforge::engine {

inline std::filesystem::path FixtureFolder(const std::string& name) {
  return std::filesystem::path(CMFORGE_TEST_DATA) / "engine" / name;
}

/// The larger checkpoints that are not part of the repository; may not exist.
inline std::filesystem::path SharedFixtures() { return CMFORGE_SOURCE_DIR "/../shared/fixtures/checkpoints"; }

/// A source in front of another that has some tensors in another form; the constructor of a derived class fills it.
class AlteredSource : public TensorSource {
 public:
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    for (const auto& info : tensors_) {
      if (info.name == name) return &info;
    }
    return nullptr;
  }
  Result<TensorView> Read(std::string_view name) const override {
    const auto view = views_.find(std::string(name));
    return view == views_.end() ? from_->Read(name) : Result<TensorView>(view->second);
  }
  [[nodiscard]] std::string_view path() const override { return from_->path(); }

 protected:
  explicit AlteredSource(std::shared_ptr<const TensorSource> from) : from_(std::move(from)) {}

  std::shared_ptr<const TensorSource> from_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, TensorView> views_;
};

/// A source whose matrices are stored in another encoding, where that encoding can hold them.
class QuantizedSource final : public AlteredSource {
 public:
  QuantizedSource(std::shared_ptr<const TensorSource> from, DType dtype) : AlteredSource(std::move(from)) {
    ThreadPool pool(1);
    for (const auto& info : from_->tensors()) {
      TensorInfo entry = info;
      const Encoding& encoding = *FindEncoding(dtype);
      const bool is_matrix =
          info.shape.size() == 2 && info.shape[0] >= 32 && !info.name.ends_with("mlp.gate.weight");
      if (is_matrix && encoding.reason_against(info.shape).empty()) {
        auto payload = encoding.encode(*AsFloatRows(*from_->Read(info.name)), {}, pool);
        if (!payload) ADD_FAILURE() << payload.error().message;
        auto bytes = std::make_shared<std::vector<std::byte>>(std::move(*payload));
        entry.dtype = dtype;
        entry.nbytes = bytes->size();
        views_[info.name] = {dtype, info.shape, *bytes, bytes};
      }
      tensors_.push_back(std::move(entry));
    }
  }
};

struct LoadOptions {
  ComputeMode mode = ComputeMode::kExact;
  int threads = 2;
  std::string isa;
  uint64_t identity = 42;
  std::optional<DType> dtype = {};  // matrices encoded so
};

inline std::shared_ptr<LanguageModel> LoadFolder(const std::filesystem::path& folder,
                                                 const LoadOptions& load = {}) {
  auto checkpoint = OpenCheckpoint(folder);
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().message;
    return nullptr;
  }
  ModelOptions options;
  options.mode = load.mode;
  options.pool = std::make_shared<ThreadPool>(load.threads);
  options.isa = load.isa;
  options.identity = load.identity;
  if (load.dtype) checkpoint->tensors = std::make_shared<QuantizedSource>(checkpoint->tensors, *load.dtype);
  auto model = Model::Load(checkpoint->tensors, checkpoint->config.model, options);
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }
  return *model;
}

inline std::shared_ptr<LanguageModel> LoadFixture(const std::string& name, const LoadOptions& load = {}) {
  return LoadFolder(FixtureFolder(name), load);
}

inline Json ReadJsonFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto json = ParseJson(text.str(), path.string());
  if (!json) {
    ADD_FAILURE() << json.error().message;
    return {};
  }
  return *json;
}

/// One sequence, one step; the rows of logits that were asked for.
inline std::vector<float> StepOne(const LanguageModel& model, Sequence& sequence,
                                  const std::vector<TokenId>& tokens, LogitRows rows = LogitRows::kLast,
                                  const ActiveSet* active = nullptr, StepObserver* observer = nullptr) {
  StepItem item;
  item.sequence = &sequence;
  item.tokens = tokens;
  item.logits = rows;
  item.active = active;
  StepRequest request;
  request.items = std::span(&item, 1);
  request.observer = observer;
  auto result = model.Step(request);
  if (!result) {
    ADD_FAILURE() << result.error().message;
    return {};
  }
  return std::move(result->logits);
}

inline std::unique_ptr<Sequence> NewSequence(const LanguageModel& model,
                                             const SequenceOptions& options = {}) {
  auto sequence = model.NewSequence(options);
  if (!sequence) {
    ADD_FAILURE() << sequence.error().message;
    return nullptr;
  }
  return std::move(*sequence);
}

/// The largest, ties to the lowest id.
inline TokenId ArgMax(std::span<const float> logits) {
  TokenId best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<TokenId>(i);
  }
  return best;
}

inline std::vector<float> Row(const std::vector<float>& logits, int64_t row, int64_t vocab) {
  return {logits.begin() + row * vocab, logits.begin() + (row + 1) * vocab};
}

}  // namespace cmforge::engine
