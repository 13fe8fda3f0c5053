// State of a conversation: limits, windows, forks, rewinds, snapshots, cache types.
#include <cmath>
#include <cstring>
#include <random>

#include "engine/model_fixture.h"

namespace cmforge::engine {
namespace {

std::vector<TokenId> Tokens(int64_t count, unsigned seed = 1) {
  std::mt19937 rng(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (auto& token : tokens) token = static_cast<TokenId>(rng() % 131);
  return tokens;
}

TEST(Sequence, TheContextLimitIsAnErrorThatNamesBothNumbersAndMovesNothing) {
  const auto model = LoadFixture("llama");
  auto sequence = NewSequence(*model, {.context_length = 10});
  auto other = NewSequence(*model);
  EXPECT_EQ(sequence->context_length(), 10);
  EXPECT_EQ(other->context_length(), 512);
  StepOne(*model, *sequence, Tokens(8));
  const auto three = Tokens(3);
  const StepItem items[] = {{other.get(), three, LogitRows::kLast, nullptr},
                            {sequence.get(), three, LogitRows::kLast, nullptr}};
  const auto result = model->Step({.items = items, .observer = nullptr});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::kLimit);
  EXPECT_NE(result.error().message.find("10"), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find("8"), std::string::npos) << result.error().message;
  EXPECT_EQ(sequence->position(), 8);
  EXPECT_EQ(other->position(), 0);
  StepOne(*model, *sequence, Tokens(2));
  EXPECT_EQ(sequence->position(), 10);
  EXPECT_EQ(model->NewSequence({.context_length = 100000}).error().kind, ErrorKind::kLimit);
}

TEST(Sequence, BadBatchesAreRefused) {
  const auto model = LoadFixture("llama"), twin = LoadFixture("llama");
  auto sequence = NewSequence(*model);
  const auto step = [&](Sequence* s, std::vector<TokenId> tokens) {
    const StepItem item{s, tokens, LogitRows::kLast, nullptr};
    return model->Step({.items = std::span(&item, 1), .observer = nullptr});
  };
  EXPECT_EQ(step(sequence.get(), {}).error().kind, ErrorKind::kUsage);
  EXPECT_EQ(step(sequence.get(), {131}).error().kind, ErrorKind::kUsage);
  EXPECT_EQ(step(sequence.get(), {-1}).error().kind, ErrorKind::kUsage);
  EXPECT_EQ(step(nullptr, {1}).error().kind, ErrorKind::kUsage);
  auto stranger = NewSequence(*twin);
  EXPECT_EQ(step(stranger.get(), {1}).error().kind, ErrorKind::kUsage);
  const std::vector<TokenId> one = {1};
  const StepItem twice[] = {{sequence.get(), one, LogitRows::kLast, nullptr},
                            {sequence.get(), one, LogitRows::kLast, nullptr}};
  EXPECT_EQ(model->Step({.items = twice, .observer = nullptr}).error().kind, ErrorKind::kUsage);
  EXPECT_EQ(sequence->position(), 0);
  EXPECT_TRUE(model->Step({}));  // an empty batch does nothing
}

TEST(Sequence, ForksGoOnIndependently) {
  for (const char* family : {"llama", "qwen2_window", "qwen3_5", "gemma4"}) {
    const auto model = LoadFixture(family);
    auto first = NewSequence(*model);
    StepOne(*model, *first, Tokens(70));
    auto fork = first->Fork();
    ASSERT_TRUE(fork);
    EXPECT_EQ((*fork)->position(), 70);
    const auto a = StepOne(*model, *first, Tokens(20, 2)), b = StepOne(*model, **fork, Tokens(20, 3));
    // Each equals a conversation that was never forked.
    auto alone = NewSequence(*model);
    StepOne(*model, *alone, Tokens(70));
    EXPECT_EQ(b, StepOne(*model, *alone, Tokens(20, 3))) << family;
    EXPECT_NE(a, b) << family;
    auto again = NewSequence(*model);
    StepOne(*model, *again, Tokens(70));
    EXPECT_EQ(a, StepOne(*model, *again, Tokens(20, 2))) << family;
    first.reset();
    EXPECT_EQ(StepOne(*model, *alone, {5}), StepOne(*model, **fork, {5})) << family;
  }
}

TEST(Sequence, RewindingEqualsNeverHavingGoneOn) {
  for (const char* family : {"llama", "qwen3_moe", "gemma3"}) {
    const auto model = LoadFixture(family);
    auto sequence = NewSequence(*model);
    StepOne(*model, *sequence, Tokens(100));
    auto fork = sequence->Fork();
    const auto want = StepOne(*model, *sequence, Tokens(5, 9));
    StepOne(*model, **fork, Tokens(30, 4));
    ASSERT_TRUE((*fork)->Rewind(100)) << family;
    EXPECT_EQ(want, StepOne(*model, **fork, Tokens(5, 9))) << family;
    ASSERT_TRUE((*fork)->Rewind(0));
    EXPECT_EQ((*fork)->position(), 0);
    auto fresh = NewSequence(*model);
    EXPECT_EQ(StepOne(*model, *fresh, Tokens(3)), StepOne(*model, **fork, Tokens(3))) << family;
    EXPECT_EQ(sequence->Rewind(500).error().kind, ErrorKind::kUsage);
    EXPECT_EQ(sequence->Rewind(-1).error().kind, ErrorKind::kUsage);
  }
}

TEST(Sequence, WhatCannotBeRewoundSaysWhy) {
  const auto hybrid = LoadFixture("qwen3_5");
  auto sequence = NewSequence(*hybrid);
  StepOne(*hybrid, *sequence, Tokens(10));
  const auto recurrent = sequence->Rewind(9);
  ASSERT_FALSE(recurrent);
  EXPECT_EQ(recurrent.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(recurrent.error().message.find("recurrent"), std::string::npos);
  EXPECT_TRUE(sequence->Rewind(10));
  EXPECT_TRUE(sequence->Rewind(0));

  const auto windowed = LoadFixture("gemma3");
  auto other = NewSequence(*windowed);
  StepOne(*windowed, *other, Tokens(400));
  const auto window = other->Rewind(20);
  ASSERT_FALSE(window);
  EXPECT_EQ(window.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(window.error().message.find("window"), std::string::npos);
  EXPECT_EQ(other->position(), 400);
}

TEST(Sequence, WindowedCachesHoldTheWindowAndNotTheConversation) {
  const auto model = LoadFixture("laguna");
  auto sequence = NewSequence(*model);
  const int64_t page = 64;
  StepOne(*model, *sequence, Tokens(600));
  const auto at_600 = sequence->state_bytes();
  StepOne(*model, *sequence, Tokens(1200, 2));
  for (int i = 0; i < 8; ++i) StepOne(*model, *sequence, {7});
  const auto at_1808 = sequence->state_bytes();
  // Two of four layers are full: only they may grow. K and V of 2 heads x 16 floats.
  const uint64_t position_bytes = 2 * 2 * 16 * sizeof(float);
  EXPECT_LE(at_1808 - at_600, 2 * position_bytes * (1208 + page));
  EXPECT_GE(at_1808 - at_600, 2 * position_bytes * (1208 - page));
}

TEST(Sequence, CacheTypesAreCloseToExactAndF16TakesHalfTheMemory) {
  for (const char* family : {"llama", "gemma3", "laguna"}) {
    const auto model = LoadFixture(family);
    const auto tokens = Tokens(120);
    std::vector<std::vector<float>> logits;
    std::vector<uint64_t> bytes;
    for (const KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
      auto sequence = NewSequence(*model, {.context_length = 0, .kv = kv, .kv_is_explicit = true});
      logits.push_back(StepOne(*model, *sequence, tokens));
      bytes.push_back(sequence->state_bytes());
      auto pieces = NewSequence(*model, {.context_length = 0, .kv = kv, .kv_is_explicit = true});
      std::vector<float> last;
      for (const TokenId token : tokens) last = StepOne(*model, *pieces, {token});
      EXPECT_EQ(logits.back(), last) << family;
    }
    EXPECT_EQ(bytes[0], 2 * bytes[1]) << family;
    EXPECT_LT(bytes[2], bytes[1]) << family;
    double top = 0, f16 = 0, q8 = 0;
    for (size_t i = 0; i < logits[0].size(); ++i) {
      top = std::max(top, std::fabs(static_cast<double>(logits[0][i])));
      f16 = std::max(f16, std::fabs(static_cast<double>(logits[0][i] - logits[1][i])));
      q8 = std::max(q8, std::fabs(static_cast<double>(logits[0][i] - logits[2][i])));
    }
    EXPECT_GT(f16, 0) << family;
    EXPECT_LT(f16, 0.01 * top) << family;
    EXPECT_LT(q8, 0.1 * top) << family;
    // Exact mode keeps f32 unless told otherwise.
    auto sequence = NewSequence(*model, {.context_length = 0, .kv = KvType::kQ8});
    EXPECT_EQ(logits[0], StepOne(*model, *sequence, tokens)) << family;
  }
}

TEST(Snapshot, ARestoredSequenceGoesOnWithTheSameBits) {
  for (const char* family : {"llama", "qwen2_window", "qwen3_5", "qwen3_next", "gemma4", "laguna"}) {
    const auto model = LoadFixture(family), later = LoadFixture(family);
    for (const KvType kv : {KvType::kF32, KvType::kQ8}) {
      auto sequence = NewSequence(*model, {.context_length = 300, .kv = kv, .kv_is_explicit = true});
      StepOne(*model, *sequence, Tokens(150));
      const auto bytes = sequence->Snapshot();
      ASSERT_TRUE(bytes);
      auto restored = later->RestoreSequence(*bytes);
      ASSERT_TRUE(restored) << restored.error().message;
      EXPECT_EQ((*restored)->position(), 150);
      EXPECT_EQ((*restored)->context_length(), 300);
      EXPECT_EQ((*restored)->state_bytes(), sequence->state_bytes());
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(StepOne(*model, *sequence, {static_cast<TokenId>(i)}),
                  StepOne(*later, **restored, {static_cast<TokenId>(i)}))
            << family;
      }
    }
    auto empty = NewSequence(*model);
    auto restored = model->RestoreSequence(*empty->Snapshot());
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(StepOne(*model, *empty, Tokens(3)), StepOne(*model, **restored, Tokens(3)));
  }
}

TEST(Snapshot, OfAnotherModelIsRefusedNamingBothIdentities) {
  const auto model = LoadFixture("llama"), other = LoadFixture("llama", {.identity = 0xABCDEF});
  auto sequence = NewSequence(*model);
  StepOne(*model, *sequence, Tokens(5));
  const auto refused = other->RestoreSequence(*sequence->Snapshot());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUsage);
  EXPECT_NE(refused.error().message.find("000000000000002a"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("0000000000abcdef"), std::string::npos) << refused.error().message;
}

TEST(Snapshot, OfAnotherVersionIsRefusedNamingBoth) {
  const auto model = LoadFixture("qwen3_5");
  auto sequence = NewSequence(*model);
  StepOne(*model, *sequence, Tokens(5));
  auto bytes = *sequence->Snapshot();
  for (const unsigned char version : {1, 2, 99}) {
    bytes[8] = static_cast<std::byte>(version);  // behind the magic
    const auto refused = model->RestoreSequence(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
    EXPECT_NE(refused.error().message.find(fmt::format("version {}, this build reads 3", version)),
              std::string::npos)
        << refused.error().message;
  }
}

TEST(Snapshot, DamagedBytesAreRefusedOrHarmless) {
  const auto model = LoadFixture("qwen2_window");
  auto sequence = NewSequence(*model, {.context_length = 100, .kv = KvType::kQ8, .kv_is_explicit = true});
  StepOne(*model, *sequence, Tokens(40));
  const auto good = *sequence->Snapshot();
  for (size_t size = 0; size < good.size(); size += size < 400 ? 1 : 997) {
    EXPECT_FALSE(model->RestoreSequence(std::span(good).first(size))) << size;
  }
  std::mt19937 rng(5);
  for (size_t i = 0; i < good.size(); i += i < 400 ? 1 : 211) {
    auto bad = good;
    bad[i] ^= static_cast<std::byte>(1 + rng() % 255);
    const auto restored = model->RestoreSequence(bad);
    if (restored) {  // the context length may be another valid one
      EXPECT_EQ((*restored)->position(), 40);
      StepOne(*model, **restored, {1});
    }
  }
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(model->RestoreSequence(longer));
}

}  // namespace
}  // namespace cmforge::engine
