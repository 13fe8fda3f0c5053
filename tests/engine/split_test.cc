// One answer, whatever the split: logits are equal bit for bit for every way to cut a prompt, every thread
// count and every company in the batch.
#include <cstring>
#include <random>

#include "engine/model_fixture.h"

namespace cmforge::engine {
namespace {

const char* const kFamilies[] = {"llama_rope3", "qwen2_window", "qwen3_yarn", "qwen3_moe", "qwen3_next",
                                 "qwen3_5",     "gemma3",       "gemma4",     "laguna"};

const std::pair<ComputeMode, std::optional<DType>> kModes[] = {{ComputeMode::kExact, std::nullopt},
                                                               {ComputeMode::kFast, DType::kQ8Row},
                                                               {ComputeMode::kFast, DType::kQ4Tiled}};

std::vector<TokenId> RandomTokens(int64_t count, int64_t vocab, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (auto& token : tokens) token = static_cast<TokenId>(rng() % static_cast<unsigned>(vocab));
  return tokens;
}

/// All logits of a prompt that is fed in pieces of `piece` tokens.
std::vector<float> InPieces(const LanguageModel& model, const std::vector<TokenId>& tokens, size_t piece,
                            const SequenceOptions& options = {}) {
  auto sequence = NewSequence(model, options);
  std::vector<float> all;
  for (size_t at = 0; at < tokens.size(); at += piece) {
    const std::vector<TokenId> part(
        tokens.begin() + static_cast<std::ptrdiff_t>(at),
        tokens.begin() + static_cast<std::ptrdiff_t>(std::min(tokens.size(), at + piece)));
    const auto logits = StepOne(model, *sequence, part, LogitRows::kAll);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

void ExpectSameBits(const std::vector<float>& want, const std::vector<float>& got, const std::string& what) {
  ASSERT_EQ(want.size(), got.size()) << what;
  ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * sizeof(float))) << what;
}

TEST(Split, PiecesAndThreadsChangeNoBitInExactAndInFastMode) {
  for (const char* family : kFamilies) {
    for (const auto& [mode, dtype] : kModes) {
      std::vector<float> want;
      for (const int threads : {1, 2, 5}) {
        const auto model = LoadFixture(family, {.mode = mode, .threads = threads, .dtype = dtype});
        ASSERT_NE(model, nullptr);
        const auto tokens = RandomTokens(130, model->config().vocab_size, 3);
        const bool is_one = threads == 1;
        for (const size_t piece :
             is_one ? std::vector<size_t>{130, 1, 7, 63, 64, 65} : std::vector<size_t>{130, 50}) {
          const auto got = InPieces(*model, tokens, piece);
          if (want.empty()) want = got;
          ExpectSameBits(want, got,
                         std::string(family) + " pieces of " + std::to_string(piece) + ", threads " +
                             std::to_string(threads));
        }
      }
    }
  }
}

TEST(Split, InstructionSetsGiveEqualBits) {
  for (const char* family : {"qwen3_5", "laguna"}) {
    std::vector<float> want;
    for (const auto isa : IsasThatRun()) {
      const auto model = LoadFixture(family, {.mode = ComputeMode::kFast,
                                              .threads = 1,
                                              .isa = std::string(IsaName(isa)),
                                              .dtype = DType::kQ4Tiled});
      const auto got = InPieces(*model, RandomTokens(40, model->config().vocab_size, 5), 40);
      if (want.empty()) want = got;
      ExpectSameBits(want, got, std::string(family) + " " + std::string(IsaName(isa)));
    }
  }
}

TEST(Split, CompanyInTheBatchChangesNoBit) {
  for (const char* family : kFamilies) {
    for (const auto& [mode, dtype] : kModes) {
      const auto model = LoadFixture(family, {.mode = mode, .dtype = dtype});
      ASSERT_NE(model, nullptr);
      const int64_t vocab = model->config().vocab_size;
      constexpr size_t kSequences = 5;
      std::vector<std::vector<TokenId>> prompts;
      std::vector<std::vector<float>> want;
      for (size_t s = 0; s < kSequences; ++s) {
        prompts.push_back(RandomTokens(static_cast<int64_t>(20 + 37 * s), vocab, static_cast<unsigned>(s)));
        want.push_back(InPieces(*model, prompts.back(), 1000));
      }
      std::mt19937 rng(11);
      std::vector<std::unique_ptr<Sequence>> sequences;
      std::vector<std::vector<float>> got(kSequences);
      for (size_t s = 0; s < kSequences; ++s) sequences.push_back(NewSequence(*model));
      for (;;) {
        std::vector<StepItem> items;
        std::vector<size_t> who;
        std::vector<size_t> order = {0, 1, 2, 3, 4};
        std::shuffle(order.begin(), order.end(), rng);
        for (const size_t s : order) {
          const auto at = static_cast<size_t>(sequences[s]->position());
          if (at == prompts[s].size() || rng() % 4 == 0) continue;
          const size_t count = std::min<size_t>(prompts[s].size() - at, rng() % 3 == 0 ? 1 : 1 + rng() % 150);
          StepItem item;
          item.sequence = sequences[s].get();
          item.tokens = std::span(prompts[s]).subspan(at, count);
          item.logits = LogitRows::kAll;
          items.push_back(item);
          who.push_back(s);
        }
        if (items.empty()) {
          bool is_done = true;
          for (size_t s = 0; s < kSequences; ++s) {
            is_done = is_done && static_cast<size_t>(sequences[s]->position()) == prompts[s].size();
          }
          if (is_done) break;
          continue;
        }
        const auto result = model->Step({.items = items, .observer = nullptr});
        ASSERT_TRUE(result) << result.error().message;
        for (size_t i = 0; i < items.size(); ++i) {
          const auto rows = static_cast<int64_t>(items[i].tokens.size());
          const float* first = result->logits.data() + result->first_row[i] * vocab;
          got[who[i]].insert(got[who[i]].end(), first, first + rows * vocab);
        }
      }
      for (size_t s = 0; s < kSequences; ++s)
        ExpectSameBits(want[s], got[s], std::string(family) + std::to_string(s));
    }
  }
}

TEST(Split, OnlyTheWantedRowsOfLogitsComeBack) {
  const auto model = LoadFixture("llama");
  const auto tokens = RandomTokens(9, model->config().vocab_size, 1);
  const auto all = InPieces(*model, tokens, 9);
  const int64_t vocab = model->config().vocab_size;
  auto a = NewSequence(*model), b = NewSequence(*model), c = NewSequence(*model);
  const StepItem items[] = {{a.get(), tokens, LogitRows::kLast, nullptr},
                            {b.get(), tokens, LogitRows::kNone, nullptr},
                            {c.get(), std::span(tokens).first(4), LogitRows::kAll, nullptr}};
  const auto result = model->Step({.items = items, .observer = nullptr});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->first_row, (std::vector<int64_t>{0, 1, 1}));
  ASSERT_EQ(result->logits.size(), static_cast<size_t>(5 * vocab));
  ExpectSameBits(Row(all, 8, vocab), Row(result->logits, 0, vocab), "last");
  for (int64_t row = 0; row < 4; ++row)
    ExpectSameBits(Row(all, row, vocab), Row(result->logits, 1 + row, vocab), "all");
  EXPECT_EQ(result->LastRow(0).data(), result->logits.data());
  EXPECT_EQ(result->LastRow(2).data(), result->logits.data() + 4 * vocab);
}

// Rows whose logits nobody wants leave the last layer early.
TEST(Split, RowsWithoutLogitsChangeNoBitOfTheOthersOrOfWhatFollows) {
  for (const char* family : kFamilies) {
    for (const auto& [mode, dtype] : kModes) {
      const auto model = LoadFixture(family, {.mode = mode, .dtype = dtype});
      ASSERT_NE(model, nullptr);
      const int64_t vocab = model->config().vocab_size;
      const auto tokens = RandomTokens(70, vocab, 5);
      const auto all = InPieces(*model, tokens, 1000);
      auto a = NewSequence(*model), b = NewSequence(*model), c = NewSequence(*model), d = NewSequence(*model);
      const std::span<const TokenId> first = std::span(tokens).first(67), few = std::span(tokens).first(3);
      const StepItem items[] = {{a.get(), first, LogitRows::kNone, nullptr},
                                {b.get(), first, LogitRows::kLast, nullptr},
                                {c.get(), few, LogitRows::kAll, nullptr},
                                {d.get(), first, LogitRows::kNone, nullptr}};
      const auto result = model->Step({.items = items, .observer = nullptr});
      ASSERT_TRUE(result);
      ASSERT_EQ(result->logits.size(), static_cast<size_t>(4 * vocab));
      ExpectSameBits(Row(all, 66, vocab), Row(result->logits, 0, vocab), std::string(family) + " last");
      for (int64_t row = 0; row < 3; ++row)
        ExpectSameBits(Row(all, row, vocab), Row(result->logits, 1 + row, vocab),
                       std::string(family) + " all");
      StepOne(*model, *d, {tokens[67]}, LogitRows::kNone);
      for (const size_t at : {67, 68, 69}) {
        const auto want = Row(all, static_cast<int64_t>(at), vocab);
        if (at != 67) ExpectSameBits(want, StepOne(*model, *d, {tokens[at]}, LogitRows::kLast), "d");
        ExpectSameBits(want, StepOne(*model, *a, {tokens[at]}, LogitRows::kLast), "a");
        ExpectSameBits(want, StepOne(*model, *b, {tokens[at]}, LogitRows::kLast), "b");
      }
    }
  }
}

}  // namespace
}  // namespace cmforge::engine
