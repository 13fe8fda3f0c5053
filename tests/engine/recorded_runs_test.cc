// Files written by the format's reference tools, run without a mask and under each recorded task: loops with
// a row of neurons per visit, heads, layer gates, experts, short convolutions, fused projections. With all
// fixtures at hand every file of them is run; the ones copied here always.
#include <algorithm>
#include <cmath>
#include <functional>

#include "cmf/file.h"
#include "engine/model_fixture.h"

namespace cmforge::engine {
namespace {

/// The reference sums in another order: 1e-3 absolute and relative.
bool IsClose(double want, double got) { return std::fabs(want - got) <= 1e-3 + 1e-3 * std::fabs(want); }

void CheckRun(const LanguageModel& model, const cmf::File& file, const Json& run, const std::string& what) {
  const ActiveSet* active = nullptr;
  if (run.contains("task")) {
    const auto* mask = file.masks().Find(run["task"].get<std::string>());
    ASSERT_NE(mask, nullptr) << what;
    active = &mask->bits;
  }
  const auto sequence = NewSequence(model);
  auto logits = StepOne(model, *sequence, run["ids"].get<std::vector<TokenId>>(), LogitRows::kLast, active);
  const auto want = run["logits_last"].get<std::vector<double>>();
  ASSERT_EQ(want.size(), logits.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(IsClose(want[i], logits[i])) << what << " logit " << i << ": " << want[i] << " " << logits[i];
  }
  for (const Json& id : run["greedy"]) {
    const auto best = std::max_element(logits.begin(), logits.end());
    if (best - logits.begin() != id.get<TokenId>()) {
      auto sorted = logits;
      std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
      EXPECT_LT(*best - sorted[1], 4e-3)
          << what << " at " << sequence->position();  // a near tie decides nothing
      return;
    }
    logits = StepOne(model, *sequence, {id.get<TokenId>()}, LogitRows::kLast, active);
    ASSERT_FALSE(logits.empty());
  }
}

int CheckFolder(const std::filesystem::path& folder) {
  int runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().string().ends_with(".expect.json")) continue;
    const Json expect = ReadJsonFile(entry.path());
    if (!expect.contains("engine") || expect["engine"].empty())
      continue;  // an image model, a standalone skill
    const Json& first = expect["files"][0];
    auto opened = cmf::File::Open(folder / (first.is_string() ? first : first["name"]).get<std::string>());
    EXPECT_TRUE(opened) << entry.path();
    if (!opened) continue;
    const auto file = std::make_shared<cmf::File>(std::move(*opened));
    ModelOptions options;
    options.mode = ComputeMode::kExact;
    options.pool = std::make_shared<ThreadPool>(1);
    const auto model = Model::Load(file, file->config(), options);
    EXPECT_TRUE(model) << entry.path() << (model ? "" : model.error().message);
    if (!model) continue;
    for (const Json& run : expect["engine"]) {
      if (run.contains("skill") || run.contains("blend") || run.contains("env"))
        continue;  // not the engine's
      CheckRun(**model, *file, run, entry.path().filename().string() + " " + run.value("task", "(no task)"));
      ++runs;
    }
  }
  return runs;
}

TEST(RecordedRuns, MaskedLoopedAndConvolvedModelsAnswerAsTheReferenceDoes) {
  EXPECT_EQ(CheckFolder(CMFORGE_TEST_DATA "/engine/cmf"), 16);
}

TEST(RecordedRuns, EveryFixtureAnswersAsTheReferenceDoes) {
  const std::filesystem::path all = CMFORGE_SOURCE_DIR "/../shared/fixtures/cmf-files";
  if (!std::filesystem::exists(all)) GTEST_SKIP() << "the full set of fixtures is not here";
  EXPECT_GE(CheckFolder(all), 60);
}

}  // namespace
}  // namespace cmforge::engine
