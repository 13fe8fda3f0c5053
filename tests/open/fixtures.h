// Files with several specialists, and what the format's reference tools recorded of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/model_fixture.h"
#include "open/open_source.h"
#include "open/specialists.h"
#include "open/tasks.h"

namespace cmforge {

inline std::filesystem::path CmfFile(const std::string& name) {
  return std::filesystem::path(CMFORGE_TEST_DATA) / "cmf" / name;
}

inline std::shared_ptr<Specialists> OpenAll(const std::filesystem::path& path,
                                            ComputeMode mode = ComputeMode::kExact) {
  auto source = OpenSource(path);
  if (!source) {
    ADD_FAILURE() << source.error().message;
    return nullptr;
  }
  auto pool = std::make_shared<ThreadPool>(1);
  const ModelConfig config = *source->config;
  return std::make_shared<Specialists>(
      *source, [pool, mode, config](std::shared_ptr<const TensorSource> tensors, uint64_t identity) {
        engine::ModelOptions options;
        options.mode = mode;
        options.pool = pool;
        options.identity = identity;
        return engine::Model::Load(std::move(tensors), config, options);
      });
}

inline std::vector<float> LastLogits(const LanguageModel& model, const std::vector<TokenId>& ids,
                                     const ActiveSet* active = nullptr) {
  auto sequence = model.NewSequence({});
  EXPECT_TRUE(sequence);
  return engine::StepOne(model, **sequence, ids, LogitRows::kLast, active);
}

}  // namespace cmforge
