// Perplexity over a model whose probabilities are known in closed form.
#include "generate/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "generate/toy_model.h"

namespace cmforge {
namespace {

const double kRight = -5 + std::log(std::exp(5.0) + 9), kWrong = std::log(std::exp(5.0) + 9);  // 10 tokens

std::vector<TokenId> Counting(int n) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(i % 10);
  return tokens;
}

TEST(Perplexity, ScoresPositionsOfFullWindows) {
  const ToyModel model = CountingModel(10);
  const auto result = Perplexity(model, nullptr, Counting(25), {.context = 8});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->windows, 3);
  EXPECT_EQ(result->tokens, 21);
  EXPECT_NEAR(result->nll, kRight, 1e-6);
  EXPECT_NEAR(result->ppl, std::exp(kRight), 1e-6);
}

TEST(Perplexity, ScoresEachTokenOnceWithAStride) {
  const ToyModel model = CountingModel(10);
  std::vector<TokenId> tokens = Counting(20);
  tokens[13] = 7;  // two surprises: 7 after 2, and 4 after 7
  const auto result = Perplexity(model, nullptr, tokens, {.context = 8, .stride = 4});
  EXPECT_EQ(result->windows, 4);
  EXPECT_EQ(result->tokens, 7 + 3 * 4);
  EXPECT_NEAR(result->nll, (2 * kWrong + 17 * kRight) / 19, 1e-6);
}

TEST(Perplexity, DoesNotDependOnRowsAtOnce) {
  const ToyModel model = CountingModel(10);
  std::vector<TokenId> tokens = Counting(40);
  tokens[9] = 3;
  const double whole = Perplexity(model, nullptr, tokens, {.context = 16})->nll;
  for (const int64_t rows : {1, 7, 64}) {
    EXPECT_EQ(Perplexity(model, nullptr, tokens, {.context = 16, .rows_per_step = rows})->nll, whole);
  }
}

TEST(Perplexity, ComparesTwoModels) {
  const ToyModel model = CountingModel(10);
  const auto same = Perplexity(model, &model, Counting(20), {.context = 10});
  EXPECT_EQ(same->against->kl_mean, 0);
  EXPECT_EQ(same->against->top1_agreement, 1);
  EXPECT_EQ(same->against->ppl_ratio, 1);
  const ToyModel uniform{std::vector<std::vector<float>>(10, std::vector<float>(10))};
  const auto other = Perplexity(model, &uniform, Counting(20), {.context = 10});
  const double p = std::exp(-kRight), q = std::exp(-kWrong);
  EXPECT_NEAR(other->against->kl_mean, p * std::log(p * 10) + 9 * q * std::log(q * 10), 1e-6);
  EXPECT_NEAR(other->against->ppl, 10, 1e-5);
  EXPECT_EQ(other->against->top1_agreement, 0);  // uniform rows: argmax is token 0, which no window asks for
}

TEST(Perplexity, RefusesWhatCannotBeScored) {
  const ToyModel model = CountingModel(10);
  EXPECT_EQ(Perplexity(model, nullptr, Counting(1), {}).error().kind, ErrorKind::kUsage);
  EXPECT_EQ(Perplexity(model, nullptr, Counting(9), {.context = 4, .stride = 5}).error().kind,
            ErrorKind::kUsage);
  EXPECT_EQ(Perplexity(model, nullptr, Counting(5), {.context = 100})->tokens, 4);
}

}  // namespace
}  // namespace cmforge
