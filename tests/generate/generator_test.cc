// The generation loop and stop strings over a model whose every answer is known.
#include "generate/generator.h"

#include <gtest/gtest.h>

#include <random>

#include "generate/stop_text.h"
#include "generate/toy_model.h"

namespace cmforge {
namespace {

using Ids = std::vector<TokenId>;

TEST(Generate, CountsUntilTheLimit) {
  const ToyModel model = CountingModel(10);
  const auto sequence = model.NewSequence({}).value();
  const auto result =
      Generate(model, *sequence, Ids{1, 2}, {.max_tokens = 4, .sampling = SamplingOptions::Greedy()});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->tokens, (Ids{3, 4, 5, 6}));
  EXPECT_EQ(result->finish, FinishReason::kLength);
  EXPECT_EQ(static_cast<ToySequence&>(*sequence).history, (Ids{1, 2, 3, 4, 5}))
      << "the last token is not consumed";
}

TEST(Generate, StopsAtAnyEndTokenUnlessToldNotTo) {
  const ToyModel model = CountingModel(10);
  GenerateOptions options{.max_tokens = 8, .sampling = SamplingOptions::Greedy(), .eos = {9, 6}};
  const auto result = Generate(model, *model.NewSequence({}).value(), Ids{3}, options);
  EXPECT_EQ(result->tokens, (Ids{4, 5}));
  EXPECT_EQ(result->finish, FinishReason::kStop);
  EXPECT_EQ(result->stop_token, 6);
  options.ignore_eos = true;
  EXPECT_EQ(Generate(model, *model.NewSequence({}).value(), Ids{3}, options)->tokens.size(), 8u);
}

TEST(Generate, SaysThatTheContextIsFull) {
  const ToyModel model = CountingModel(10);
  const auto sequence = model.NewSequence({.context_length = 5}).value();
  const auto result =
      Generate(model, *sequence, Ids{1, 2}, {.max_tokens = 50, .sampling = SamplingOptions::Greedy()});
  EXPECT_EQ(result->tokens, (Ids{3, 4, 5, 6}));
  EXPECT_TRUE(result->context_is_full);
  const auto too_long = Generate(model, *model.NewSequence({.context_length = 2}).value(), Ids{1, 2, 3}, {});
  EXPECT_EQ(too_long.error().kind, ErrorKind::kLimit);
  EXPECT_NE(too_long.error().message.find("3 tokens after 0 do not fit a context of 2"), std::string::npos);
}

TEST(Generate, ReportsLogProbabilities) {
  const ToyModel model = CountingModel(4);
  std::vector<TokenEvent> events;
  GenerateOptions options{.max_tokens = 2, .sampling = SamplingOptions::Greedy(), .logprobs = 2};
  ASSERT_TRUE(Generate(model, *model.NewSequence({}).value(), Ids{0}, options, [&](const TokenEvent& event) {
    events.push_back(event);
    return true;
  }));
  const double expected = 5 - std::log(std::exp(5.0) + 3);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NEAR(*events[0].log_probability, expected, 1e-9);
  ASSERT_EQ(events[0].top.size(), 2u);
  EXPECT_EQ(events[0].top[0].id, 1);
  EXPECT_EQ(events[0].top[1].id, 0);
}

TEST(Generate, StopsWhenAskedTo) {
  const ToyModel model = CountingModel(10);
  const auto stopped =
      Generate(model, *model.NewSequence({}).value(), Ids{1}, {.sampling = SamplingOptions::Greedy()},
               [](const TokenEvent& event) { return event.id != 4; });
  EXPECT_EQ(stopped->tokens, (Ids{2, 3, 4}));
  std::atomic<bool> cancelled{true};
  RunControl control;
  control.cancelled = &cancelled;
  EXPECT_EQ(Generate(model, *model.NewSequence({}).value(), Ids{1}, {}, {}, control)->finish,
            FinishReason::kCancelled);
  EXPECT_EQ(Generate(model, *model.NewSequence({}).value(), Ids{}, {}).error().kind, ErrorKind::kUsage);
}

// Every way of cutting the text into pieces must give the same visible text.
TEST(StopTextFilter, FindsStopsAcrossEveryCut) {
  const std::string text = "one two\n\nUser: three\n\nUs";
  for (const auto& [stops, expected] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{{{"\n\nUser:"}, "one two"},
                                                                     {{"three", "two\n\nU"}, "one "},
                                                                     {{"nothing"}, text},
                                                                     {{"", "s", "one"}, ""},
                                                                     {{"aab", "o\n\nUsx"}, text},
                                                                     {{"Uss"}, text}}) {
    std::mt19937 random(3);
    for (int trial = 0; trial < 200; ++trial) {
      StopTextFilter filter(stops);
      std::string shown;
      for (size_t at = 0; at < text.size();) {
        const size_t n = 1 + random() % (trial % 9 + 1);
        shown += filter.Push(std::string_view(text).substr(at, n));
        EXPECT_TRUE(expected.starts_with(shown)) << shown;
        at += n;
      }
      shown += filter.Finish();
      // With several stops in one piece the earliest wins, whatever the cuts, as long as they do not overlap.
      EXPECT_EQ(shown, expected);
    }
  }
}

}  // namespace
}  // namespace cmforge
