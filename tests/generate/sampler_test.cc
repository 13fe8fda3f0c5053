// The sampler chain against draws recorded from the format's reference runtime, and its own rules.
#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/json.h"
#include "base/mapped_file.h"

namespace cmforge {
namespace {

Json Golden() {
  return ParseJson(ReadTextFile(CMFORGE_TEST_DATA "/generate/sampler_golden.json").value(),
                   "sampler_golden.json")
      .value();
}

TEST(SplitMix64, GivesTheRecordedStreams) {
  for (const Json& stream : Golden()["rng"]) {
    SplitMix64 integers(stream["seed"].get<uint64_t>()), floats(stream["seed"].get<uint64_t>());
    for (const Json& hex : stream["next_u64"])
      EXPECT_EQ(fmt::format("{:016x}", integers.Next()), hex.get<std::string>());
    for (const Json& value : stream["next_f32"]) EXPECT_EQ(floats.NextUniform(), value.get<float>());
  }
}

TEST(Sampler, DrawsWhatTheReferenceDraws) {
  const Json golden = Golden();
  const auto logits = golden["logits"].get<std::vector<float>>();
  for (const Json& c : golden["cases"]) {
    const Json& config = c["config"];
    SamplingOptions options;
    options.min_p = config["min_p"];
    options.presence_penalty = config["presence_penalty"];
    options.repetition_penalty = config["repetition_penalty"];
    options.seed = config["seed"];
    options.suppress = config["suppress_tokens"].get<std::vector<TokenId>>();
    options.temperature = config["temperature"];
    options.top_k = config["top_k"];
    options.top_p = config["top_p"];
    Sampler sampler(options);
    for (const Json& id : c["past"]) sampler.Observe(id);
    std::vector<TokenId> draws;
    for (size_t i = 0; i < c["draws"].size(); ++i) draws.push_back(sampler.Sample(logits));
    EXPECT_EQ(draws, c["draws"].get<std::vector<TokenId>>()) << config;
  }
}

TEST(Sampler, TiesGoToTheLowestId) {
  EXPECT_EQ(ArgMax(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(Sampler(SamplingOptions::Greedy()).Sample(std::vector<float>{1, 3, 3, 2}), 1);
  const auto top = TopLogits(std::vector<float>{1, 3, NAN, 3, 2}, 3);
  EXPECT_EQ(top, (std::vector<std::pair<TokenId, float>>{{1, 3}, {3, 3}, {4, 2}}));
}

TEST(Sampler, TheLargestIsFoundWhereverItLies) {
  // Around the ends of what is compared side by side, with as large ones behind it and NaN anywhere.
  for (const size_t size : {1u, 31u, 32u, 33u, 1023u, 1024u, 1025u, 2050u}) {
    for (size_t at = 0; at < size; at += size < 40 ? 1 : 29) {
      std::vector<float> logits(size, -2);
      for (size_t i = 0; i < size; i += 7) logits[i] = i % 2 == 0 ? NAN : -INFINITY;
      logits[at] = 3;
      if (at + 1 < size) logits.back() = 3;
      EXPECT_EQ(ArgMax(logits), static_cast<TokenId>(at)) << size;
    }
  }
  EXPECT_EQ(ArgMax({}), -1);
  EXPECT_EQ(ArgMax(std::vector<float>(1500, NAN)), 0);
  EXPECT_EQ(ArgMax(std::vector<float>(1500, -INFINITY)), 0);
}

std::set<TokenId> Reachable(SamplingOptions options, const std::vector<float>& logits) {
  std::set<TokenId> ids;
  Sampler sampler(std::move(options));
  for (int i = 0; i < 4000; ++i) ids.insert(sampler.Sample(logits));
  return ids;
}

TEST(Sampler, EachFilterKeepsWhatItShould) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  SamplingOptions off;
  off.temperature = 1, off.top_p = 1, off.top_k = 0, off.min_p = 0;
  EXPECT_EQ(Reachable(off, logits), (std::set<TokenId>{0, 1, 2, 3}));
  auto o = off;
  o.top_k = 2;
  EXPECT_EQ(Reachable(o, logits), (std::set<TokenId>{0, 1}));
  o.top_k = 1;
  EXPECT_EQ(Reachable(o, {2, 2, 1}), (std::set<TokenId>{0, 1})) << "ties with the k-th stay";
  o = off;
  o.top_p = 0.69;
  EXPECT_EQ(Reachable(o, logits), (std::set<TokenId>{0, 1}));
  o.top_p = 0.75;
  EXPECT_EQ(Reachable(o, logits), (std::set<TokenId>{0, 1, 2}));
  o = off;
  o.min_p = 0.6;
  EXPECT_EQ(Reachable(o, logits), (std::set<TokenId>{0, 1}));
  o = off;
  o.suppress = {0, 1, 2, 99, -1};
  EXPECT_EQ(Reachable(o, logits), (std::set<TokenId>{3}));
  o = off;
  o.typical_p = 0.25;  // entropy 1.28: the surprise of 0.3 (1.20) is nearest
  EXPECT_EQ(Reachable(o, logits), (std::set<TokenId>{1}));
}

TEST(Sampler, FrequenciesFollowTheProbabilities) {
  SamplingOptions o;
  o.temperature = 1, o.top_p = 1, o.top_k = 0, o.min_p = 0, o.seed = 5;
  Sampler sampler(o);
  const std::vector<float> logits = {std::log(0.5f), NAN, std::log(0.25f), std::log(0.25f)};
  std::vector<int> counts(4);
  for (int i = 0; i < 40000; ++i) counts[static_cast<size_t>(sampler.Sample(logits))]++;
  EXPECT_NEAR(counts[0], 20000, 400);
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(counts[2], 10000, 350);
}

TEST(Sampler, PenaltiesCountOccurrences) {
  SamplingOptions o = SamplingOptions::Greedy();
  o.frequency_penalty = 0.5;
  Sampler sampler(o);
  const std::vector<float> logits = {2.0f, 1.2f};
  EXPECT_EQ(sampler.Sample(logits), 0);
  sampler.Observe(0);
  EXPECT_EQ(sampler.Sample(logits), 0);  // 1.5 against 1.2
  sampler.Observe(0);
  EXPECT_EQ(sampler.Sample(logits), 1);  // 1.0 against 1.2
}

TEST(SamplingOptions, NamesTheFieldThatIsWrong) {
  SamplingOptions o;
  EXPECT_TRUE(o.Check());
  o.top_p = 0;
  EXPECT_NE(o.Check().error().message.find("top-p is 0"), std::string::npos);
  o = {};
  o.temperature = NAN;
  EXPECT_EQ(o.Check().error().kind, ErrorKind::kUsage);
}

TEST(SamplingOptions, TakeTheModelsRecommendation) {
  SamplingOptions o;
  RecommendedSampling r;
  r.temperature = 0.6, r.top_k = 20;
  o.Apply(r);
  EXPECT_EQ(o.temperature, 0.6);
  EXPECT_EQ(o.top_k, 20);
  EXPECT_EQ(o.top_p, 0.9);
  r.do_sample = false;
  o.Apply(r);
  EXPECT_EQ(o.temperature, 0);
}

TEST(LogProbability, IsLogSoftmax) {
  EXPECT_NEAR(LogProbability(std::vector<float>{0, 0, 0, 0}, 2), std::log(0.25), 1e-12);
  EXPECT_NEAR(LogProbability(std::vector<float>{1000, 0}, 0), 0, 1e-12);
}

}  // namespace
}  // namespace cmforge
