// The runtime contract: calls, contexts that end, states that go back and those that cannot.
#include "coreml/package_fixture.h"

namespace cmforge::coreml {
namespace {

struct Opened {
  std::shared_ptr<LanguageModel> model;
  PackageMeta meta;
};

Opened Open(const std::string& name, GraphOptions graph, void (*change)(PackageMeta&) = nullptr) {
  const auto folder = ScratchFolder() / "package";
  const auto report = WriteFixture(name, graph, folder);
  EXPECT_TRUE(report) << report.error().message;
  Opened out;
  out.meta = MetaOf(folder);
  if (change) change(out.meta);
  auto model = LoadPackage(folder, out.meta, Precision::kF16);
  EXPECT_TRUE(model) << model.error().message;
  if (model) out.model = *model;
  return out;
}

constexpr GraphOptions kSmall = {48, 8, 2, 4};

TEST(PackageModel, StepsOfAnySplitGiveTheSameLogits) {
  const Opened opened = Open("qwen3_yarn", kSmall);
  const auto tokens = SomeTokens(29, 131);
  const auto whole = NewSequence(*opened.model);
  const auto expected = LastLogits(*opened.model, *whole, tokens);
  for (const size_t cut : {1u, 7u, 8u, 13u, 28u}) {
    const auto sequence = NewSequence(*opened.model);
    (void)LastLogits(*opened.model, *sequence, std::span(tokens).first(cut));
    EXPECT_EQ(LastLogits(*opened.model, *sequence, std::span(tokens).subspan(cut)), expected) << cut;
  }
}

TEST(PackageModel, AContextThatIsFullTakesNothingMoreAndStaysAsItWas) {
  const Opened opened = Open("qwen3_yarn", kSmall);
  const auto sequence = NewSequence(*opened.model);
  const auto tokens = SomeTokens(48, 131);
  (void)LastLogits(*opened.model, *sequence, std::span(tokens).first(40));
  const StepItem item{sequence.get(), std::span(tokens).first(9), LogitRows::kLast, nullptr};
  const auto step = opened.model->Step({{&item, 1}, nullptr});
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().kind, ErrorKind::kLimit);
  EXPECT_EQ(sequence->position(), 40);
  (void)LastLogits(*opened.model, *sequence, std::span(tokens).subspan(40));  // to the last position
  EXPECT_EQ(sequence->position(), sequence->context_length());
  EXPECT_FALSE(opened.model->NewSequence({.context_length = 49}));
}

TEST(PackageModel, APlainPackageGoesBackAnywhere) {
  const Opened opened = Open("qwen3_yarn", kSmall);
  const auto tokens = SomeTokens(20, 131), others = SomeTokens(9, 131, 5);
  const auto straight = NewSequence(*opened.model);
  (void)LastLogits(*opened.model, *straight, std::span(tokens).first(11));
  const auto expected = LastLogits(*opened.model, *straight, others);
  const auto sequence = NewSequence(*opened.model);
  (void)LastLogits(*opened.model, *sequence, tokens);
  ASSERT_TRUE(sequence->Rewind(11));
  EXPECT_EQ(sequence->position(), 11);
  EXPECT_EQ(LastLogits(*opened.model, *sequence, others), expected);
}

class StatefulPackages : public testing::TestWithParam<const char*> {};

TEST_P(StatefulPackages, GoBackOnlyToTheBeginningOrASnapshot) {
  const Opened opened = Open(GetParam(), kSmall);
  const auto tokens = SomeTokens(20, 131), others = SomeTokens(9, 131, 5);
  const auto sequence = NewSequence(*opened.model);
  (void)LastLogits(*opened.model, *sequence, std::span(tokens).first(11));
  const auto snapshot = sequence->Snapshot();
  ASSERT_TRUE(snapshot) << snapshot.error().message;
  const auto expected = LastLogits(*opened.model, *sequence, others);
  const auto refused = sequence->Rewind(11);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(sequence->position(), 20);  // as it was

  const auto restored = opened.model->RestoreSequence(*snapshot);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ((*restored)->position(), 11);
  EXPECT_EQ(LastLogits(*opened.model, **restored, others), expected);

  ASSERT_TRUE(sequence->Rewind(0));
  (void)LastLogits(*opened.model, *sequence, std::span(tokens).first(11));
  EXPECT_EQ(LastLogits(*opened.model, *sequence, others), expected);
}

TEST_P(StatefulPackages, ForksGoTheirOwnWays) {
  const Opened opened = Open(GetParam(), kSmall);
  const auto tokens = SomeTokens(12, 131), others = SomeTokens(12, 131, 5);
  const auto sequence = NewSequence(*opened.model);
  (void)LastLogits(*opened.model, *sequence, tokens);
  const auto fork = sequence->Fork();
  ASSERT_TRUE(fork) << fork.error().message;
  const auto expected = LastLogits(*opened.model, *sequence, others);
  EXPECT_EQ(LastLogits(*opened.model, **fork, others), expected);
}

TEST_P(StatefulPackages, SnapshotsThatWereTouchedAreRefused) {
  const Opened opened = Open(GetParam(), kSmall);
  const auto sequence = NewSequence(*opened.model);
  (void)LastLogits(*opened.model, *sequence, SomeTokens(3, 131));
  const auto snapshot = sequence->Snapshot();
  ASSERT_TRUE(snapshot) << snapshot.error().message;
  for (const size_t at : {size_t{0}, size_t{9}, size_t{40}, size_t{70}, snapshot->size() - 1}) {
    auto bytes = *snapshot;
    bytes[at] ^= std::byte{1};
    EXPECT_FALSE(opened.model->RestoreSequence(bytes)) << at;
  }
  for (const size_t size : {size_t{0}, size_t{63}, size_t{64}, snapshot->size() - 1}) {
    EXPECT_FALSE(opened.model->RestoreSequence(std::span(*snapshot).first(size))) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StatefulPackages, testing::Values("qwen3_5", "qwen3_5_moe", "gemma4"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PackageModel, APrefillWithoutLastTokenIsFollowedByThatTokenAgain) {
  const auto tokens = SomeTokens(16, 131);
  const Opened ours = Open("qwen3_yarn", kSmall);
  const auto a = NewSequence(*ours.model);
  const auto expected = LastLogits(*ours.model, *a, tokens);
  const Opened stock =
      Open("qwen3_yarn", kSmall, [](PackageMeta& meta) { meta.prefill_last_token_output = false; });
  const auto b = NewSequence(*stock.model);
  EXPECT_EQ(LastLogits(*stock.model, *b, tokens), expected);
  EXPECT_EQ(b->position(), 16);
}

TEST(PackageModel, ARecurrentOneTakesThatTokenThroughInferOnce) {
  const Opened stock =
      Open("qwen3_5", kSmall, [](PackageMeta& meta) { meta.prefill_last_token_output = false; });
  const auto tokens = SomeTokens(16, 131);
  const auto batched = NewSequence(*stock.model);
  const auto logits = LastLogits(*stock.model, *batched, tokens);
  // The same calls by hand: one batch, then eight single tokens.
  std::vector<float> expected;
  const auto other = NewSequence(*stock.model);
  const StepItem first{other.get(), std::span(tokens).first(8), LogitRows::kNone, nullptr};
  ASSERT_TRUE(stock.model->Step({{&first, 1}, nullptr}));
  for (size_t i = 8; i < 16; ++i) expected = LastLogits(*stock.model, *other, {&tokens[i], 1});
  EXPECT_EQ(logits, expected);
}

TEST(PackageModel, RefusesWhatItDoesNotDo) {
  const Opened opened = Open("qwen3_yarn", kSmall);
  const Opened other = Open("qwen3_yarn", kSmall);
  const auto sequence = NewSequence(*opened.model), foreign = NewSequence(*other.model);
  const auto refuses = [&](StepItem item, ErrorKind kind) {
    const auto step = opened.model->Step({{&item, 1}, nullptr});
    ASSERT_FALSE(step);
    EXPECT_EQ(step.error().kind, kind) << step.error().message;
  };
  const TokenId good = 5, bad = 131, negative = -1;
  refuses({sequence.get(), {&bad, 1}, LogitRows::kLast, nullptr}, ErrorKind::kUsage);
  refuses({sequence.get(), {&negative, 1}, LogitRows::kLast, nullptr}, ErrorKind::kUsage);
  refuses({sequence.get(), {}, LogitRows::kLast, nullptr}, ErrorKind::kUsage);
  refuses({foreign.get(), {&good, 1}, LogitRows::kLast, nullptr}, ErrorKind::kUsage);
  const ActiveSet mask;
  refuses({sequence.get(), {&good, 1}, LogitRows::kLast, &mask}, ErrorKind::kUnsupported);
  EXPECT_EQ(sequence->position(), 0);
}

TEST(PackageModel, SaysWhichPartContradictsMetaYaml) {
  const auto folder = ScratchFolder() / "package";
  ASSERT_TRUE(WriteFixture("qwen3_yarn", kSmall, folder));
  const PackageMeta good = MetaOf(folder);
  const auto fails = [&](auto change, const char* what) {
    PackageMeta meta = good;
    change(meta);
    const auto model = LoadPackage(folder, meta);
    ASSERT_FALSE(model) << what;
    EXPECT_EQ(model.error().kind, ErrorKind::kCorrupt);
    EXPECT_NE(model.error().message.find(what), std::string::npos) << model.error().message;
  };
  fails([](PackageMeta& m) { m.batch_size = 4; }, "batch_size");
  fails([](PackageMeta& m) { m.context_length = 64; }, "context_length");
  fails([](PackageMeta& m) { m.vocab_size = 130; }, "vocab_size");
  fails([](PackageMeta& m) { m.hidden_size = 33; }, "hidden_size");
  fails([](PackageMeta& m) { m.lm_head_chunk_sizes[0] -= 1; }, "lm_head_chunk_sizes");
  fails([](PackageMeta& m) { m.split_lm_head = 3; }, "split_lm_head");
  fails([](PackageMeta& m) { m.split_lm_head = 5; }, "logits5");
}

}  // namespace
}  // namespace cmforge::coreml
