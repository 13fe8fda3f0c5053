// Packages made from the engine's small checkpoints, for the tests of this room.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "checkpoint/checkpoint.h"
#include "coreml/package_model.h"
#include "coreml/package_writer.h"
#include "engine/model.h"

namespace cmforge::coreml {

inline std::filesystem::path FixtureFolder(const std::string& name) {
  if (name.starts_with("tiny")) return std::filesystem::path(CMFORGE_SOURCE_DIR) / "models" / name;
  return std::filesystem::path(CMFORGE_TEST_DATA) / "engine" / name;
}

/// An empty folder of the running test, removed when the program ends.
inline std::filesystem::path ScratchFolder() {
  struct Made {
    ~Made() {
      std::error_code ignored;
      for (const auto& folder : folders) std::filesystem::remove_all(folder, ignored);
    }
    std::vector<std::filesystem::path> folders;
  };
  static Made made;
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(info->test_suite_name()) + "." + info->name();
  for (char& c : name) c = c == '/' ? '_' : c;
  const auto folder = std::filesystem::path(testing::TempDir()) / (std::to_string(getpid()) + "." + name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  made.folders.push_back(folder);
  return folder;
}

inline Checkpoint OpenFixture(const std::string& name) {
  auto checkpoint = OpenCheckpoint(FixtureFolder(name));
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return checkpoint ? std::move(*checkpoint) : Checkpoint();
}

inline PackageSource SourceOf(const Checkpoint& checkpoint, const std::string& name) {
  PackageSource source;
  source.tensors = checkpoint.tensors.get();
  source.config = checkpoint.config.model;
  source.chat = checkpoint.config.chat;
  source.sampling = checkpoint.config.sampling;
  source.tokenizer_json = checkpoint.tokenizer_json();
  source.checkpoint = FixtureFolder(name);
  source.name = name;
  return source;
}

inline Result<PackageReport> WriteFixture(const std::string& name, const GraphOptions& graph,
                                          const std::filesystem::path& target,
                                          PackageForms forms = PackageForms::kPackage, int threads = 1) {
  const Checkpoint checkpoint = OpenFixture(name);
  PackageOptions options;
  options.graph = graph;
  options.forms = forms;
  options.tool = "a test";
  ThreadPool pool(threads);
  return WritePackage(SourceOf(checkpoint, name), options, target, pool, {});
}

inline std::shared_ptr<LanguageModel> LoadReference(const std::string& name) {
  const Checkpoint checkpoint = OpenFixture(name);
  engine::ModelOptions options;
  options.mode = ComputeMode::kExact;
  options.pool = std::make_shared<ThreadPool>(1);
  auto model = engine::Model::Load(checkpoint.tensors, checkpoint.config.model, options);
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : nullptr;
}

inline PackageMeta MetaOf(const std::filesystem::path& folder) {
  auto meta = ReadPackageMeta(folder);
  EXPECT_TRUE(meta) << meta.error().message;
  return meta ? *meta : PackageMeta();
}

inline Result<std::shared_ptr<LanguageModel>> LoadPackage(const std::filesystem::path& folder,
                                                          const PackageMeta& meta,
                                                          Precision precision = Precision::kF32) {
  InterpreterOptions options;
  options.precision = precision;
  return OpenPackageModel(folder, meta, {InterpreterBackend(options), {}});
}

inline std::vector<TokenId> SomeTokens(int64_t count, int64_t vocab, uint64_t seed = 1) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<TokenId>((seed >> 33) % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

/// Logits of the last of `tokens`, fed in one step.
inline std::vector<float> LastLogits(const LanguageModel& model, Sequence& sequence,
                                     std::span<const TokenId> tokens) {
  const StepItem item{&sequence, tokens, LogitRows::kLast, nullptr};
  auto step = model.Step({{&item, 1}, nullptr});
  EXPECT_TRUE(step) << step.error().message;
  return step ? step->logits : std::vector<float>();
}

inline std::unique_ptr<Sequence> NewSequence(const LanguageModel& model) {
  auto sequence = model.NewSequence();
  EXPECT_TRUE(sequence) << sequence.error().message;
  return sequence ? std::move(*sequence) : nullptr;
}

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace cmforge::coreml
