// Exact logits and greedy ids against an independent float64 computation (expected.json of each checkpoint).
#include <cmath>

#include "engine/model_fixture.h"

namespace cmforge::engine {
namespace {

constexpr double kTolerance = 2e-4;  // of the largest |logit|

void ExpectLogits(const std::vector<double>& want, std::span<const float> got, const std::string& what) {
  ASSERT_EQ(want.size(), got.size()) << what;
  double top = 0, worst = 0;
  for (const double w : want) top = std::max(top, std::fabs(w));
  for (size_t i = 0; i < want.size(); ++i)
    worst = std::max(worst, std::fabs(want[i] - static_cast<double>(got[i])));
  EXPECT_LE(worst, kTolerance * top) << what << ": largest logit " << top;
}

void CheckAgainstExpected(const std::filesystem::path& folder) {
  const auto model = LoadFolder(folder);
  ASSERT_NE(model, nullptr) << folder;
  const Json expected = ReadJsonFile(folder / "expected.json");
  const int64_t vocab = model->config().vocab_size;
  for (size_t p = 0; p < expected["prompts"].size(); ++p) {
    const Json& prompt = expected["prompts"][p];
    const std::string what = folder.filename().string() + " prompt " + std::to_string(p);
    const auto tokens = prompt["tokens"].get<std::vector<TokenId>>();
    auto sequence = NewSequence(*model);
    const auto logits = StepOne(*model, *sequence, tokens, LogitRows::kAll);
    ASSERT_EQ(tokens.size() * static_cast<size_t>(vocab), logits.size()) << what;
    const auto last = Row(logits, static_cast<int64_t>(tokens.size()) - 1, vocab);
    ExpectLogits(prompt["last_logits"].get<std::vector<double>>(), last, what);

    double top = 0;
    for (const float logit : last) top = std::max(top, std::fabs(static_cast<double>(logit)));
    for (size_t i = 0; i < prompt["top10"].size(); ++i) {
      const int64_t row = prompt.contains("top10_positions") ? prompt["top10_positions"][i].get<int64_t>()
                                                             : static_cast<int64_t>(i);
      for (const Json& entry : prompt["top10"][i]) {
        const auto at = static_cast<size_t>(row * vocab + entry[0].get<int64_t>());
        EXPECT_NEAR(entry[1].get<double>(), static_cast<double>(logits[at]), kTolerance * top)
            << what << " row " << row;
      }
    }
    std::vector<float> row = last;
    for (const Json& step : prompt["greedy"]) {
      const TokenId id = ArgMax(row);
      ASSERT_EQ(step["id"].get<TokenId>(), id) << what << " at position " << sequence->position();
      row = StepOne(*model, *sequence, {id});
    }
  }
}

std::vector<std::filesystem::path> FoldersIn(const std::filesystem::path& parent) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(parent)) {
    if (std::filesystem::exists(entry.path() / "expected.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

TEST(Parity, ExactLogitsAndGreedyIdsMatchTheFloat64ComputationOfEveryFamily) {
  const auto folders = FoldersIn(FixtureFolder(""));
  ASSERT_GE(folders.size(), 10u);
  for (const auto& folder : folders) CheckAgainstExpected(folder);
}

TEST(Parity, LargerCheckpointsMatchToo) {
  if (!std::filesystem::exists(SharedFixtures())) GTEST_SKIP() << SharedFixtures() << " is not here";
  for (const auto& folder : FoldersIn(SharedFixtures())) CheckAgainstExpected(folder);
}

}  // namespace
}  // namespace cmforge::engine
