// Several models and several stepping threads in one process: nobody sees the others.
#include <thread>

#include "engine/model_fixture.h"

namespace cmforge::engine {
namespace {

std::vector<TokenId> Tokens(int64_t count, TokenId seed) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>((i * 37 + seed * 11) % 120));
  return tokens;
}

/// Greedy text after a prompt, with the last logits behind it.
std::vector<float> Talk(const LanguageModel& model, TokenId seed) {
  const auto sequence = NewSequence(model);
  std::vector<float> all, logits = StepOne(model, *sequence, Tokens(70, seed));
  for (int i = 0; i < 12; ++i) {
    all.insert(all.end(), logits.begin(), logits.end());
    logits = StepOne(model, *sequence, {ArgMax(logits)});
  }
  return all;
}

TEST(Process, TwoModelsSideBySideAnswerAsEachAlone) {
  const auto first = LoadFixture("qwen3_5", {.identity = 1}),
             second = LoadFixture("qwen3_moe", {.identity = 2});
  const auto want_first = Talk(*first, 1), want_second = Talk(*second, 2);
  // Step by step in turns.
  const auto a = NewSequence(*first), b = NewSequence(*second);
  auto la = StepOne(*first, *a, Tokens(70, 1)), lb = StepOne(*second, *b, Tokens(70, 2));
  std::vector<float> got_first, got_second;
  for (int i = 0; i < 12; ++i) {
    got_first.insert(got_first.end(), la.begin(), la.end());
    got_second.insert(got_second.end(), lb.begin(), lb.end());
    la = StepOne(*first, *a, {ArgMax(la)});
    lb = StepOne(*second, *b, {ArgMax(lb)});
  }
  EXPECT_EQ(got_first, want_first);
  EXPECT_EQ(got_second, want_second);
  EXPECT_EQ(second->RestoreSequence(*a->Snapshot()).error().kind, ErrorKind::kUsage);
}

TEST(Process, AStepThatWouldPassTheMemoryLimitIsRefusedBeforeAnythingMoves) {
  auto checkpoint = OpenCheckpoint(FixtureFolder("llama"));
  ASSERT_TRUE(checkpoint);
  ModelOptions options;
  options.pool = std::make_shared<ThreadPool>(1);
  for (const bool fits : {false, true}) {
    options.memory_limit = fits ? uint64_t{1} << 50 : uint64_t{1} << 12;  // the program alone holds more
    const auto model = Model::Load(checkpoint->tensors, checkpoint->config.model, options);
    ASSERT_TRUE(model);
    const auto sequence = NewSequence(**model);
    const auto tokens = Tokens(100, 1);
    const StepItem item{sequence.get(), tokens, LogitRows::kLast, nullptr};
    const auto result = (*model)->Step({.items = std::span(&item, 1), .observer = nullptr});
    EXPECT_EQ(result.has_value(), fits);
    EXPECT_EQ(sequence->position(), fits ? 100 : 0);
    if (result) continue;
    EXPECT_EQ(result.error().kind, ErrorKind::kLimit);
    EXPECT_NE(result.error().message.find("of the 0 MiB"), std::string::npos) << result.error().message;
  }
}

TEST(Process, ThreadsThatShareAModelOrAPoolDoNotDisturbEachOther) {
  const auto pool = std::make_shared<ThreadPool>(2);
  std::vector<std::shared_ptr<LanguageModel>> models;
  for (const char* family : {"qwen3_5", "gemma3"}) {
    auto checkpoint = OpenCheckpoint(FixtureFolder(family));
    ASSERT_TRUE(checkpoint);
    ModelOptions options;
    options.mode = ComputeMode::kExact;
    options.pool = pool;
    auto model = Model::Load(checkpoint->tensors, checkpoint->config.model, options);
    ASSERT_TRUE(model) << model.error().message;
    models.push_back(*model);
  }
  std::vector<std::vector<float>> want, got(4);
  for (size_t i = 0; i < got.size(); ++i) want.push_back(Talk(*models[i % 2], static_cast<TokenId>(i)));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&, i] { got[i] = Talk(*models[i % 2], static_cast<TokenId>(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace cmforge::engine
