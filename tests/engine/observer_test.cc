// What observers see, and sequences under different masks in one batch.
#include <cmath>
#include <map>
#include <set>

#include "engine/model_fixture.h"

namespace cmforge::engine {
namespace {

struct Recorder final : StepObserver {
  struct Seen {
    int layer, item;
    std::vector<float> rows;
  };
  std::vector<Seen> hidden;
  std::map<std::string, int64_t> inputs;  // weight: columns
  std::map<int, std::vector<std::pair<std::vector<int32_t>, double>>>
      routes;  // layer: experts, sum of weights

  void OnHidden(int layer, int item, std::span<const float> rows) override {
    hidden.push_back({layer, item, {rows.begin(), rows.end()}});
  }
  void OnLinearInput(std::string_view weight, std::span<const float> rows, int64_t columns) override {
    EXPECT_EQ(rows.size() % static_cast<size_t>(columns), 0u) << weight;
    inputs[std::string(weight)] = columns;
  }
  void OnRoute(int layer, int /*item*/, std::span<const int32_t> experts,
               std::span<const float> weights) override {
    double sum = 0;
    for (const float w : weights) sum += static_cast<double>(w);
    routes[layer].push_back({{experts.begin(), experts.end()}, sum});
  }
  [[nodiscard]] bool wants_linear_inputs() const override { return true; }
};

TEST(Observer, HiddenStatesAreThoseOfTheFloat64Computation) {
  for (const char* family : {"llama", "qwen3_5", "qwen3_moe", "qwen3_next", "gemma3", "gemma4", "laguna"}) {
    const auto model = LoadFixture(family);
    const Json prompt = ReadJsonFile(FixtureFolder(family) / "expected.json")["prompts"][0];
    const auto tokens = prompt["tokens"].get<std::vector<TokenId>>();
    const auto want = prompt["hidden_rms"].get<std::vector<double>>();
    const auto sequence = NewSequence(*model);
    Recorder seen;
    StepOne(*model, *sequence, tokens, LogitRows::kLast, nullptr, &seen);
    ASSERT_EQ(seen.hidden.size(), want.size()) << family;
    const auto hidden = static_cast<size_t>(model->config().hidden_size);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(seen.hidden[i].layer, static_cast<int>(i) - 1);
      ASSERT_EQ(seen.hidden[i].rows.size(), tokens.size() * hidden);
      double squares = 0;
      for (const float x : std::span(seen.hidden[i].rows).last(hidden))
        squares += std::pow(static_cast<double>(x), 2);
      EXPECT_NEAR(std::sqrt(squares / static_cast<double>(hidden)), want[i], 1e-4 * want[i])
          << family << " " << i;
    }
  }
}

TEST(Observer, LinearInputsNameEveryMatrixAndRoutesEveryChoice) {
  const auto model = LoadFixture("qwen3_moe");
  const auto& config = model->config();
  const auto a = NewSequence(*model), b = NewSequence(*model);
  const std::vector<TokenId> first = {1, 2, 3}, second = {4, 5};
  const StepItem items[] = {{a.get(), first, LogitRows::kNone, nullptr},
                            {b.get(), second, LogitRows::kLast, nullptr}};
  Recorder seen;
  ASSERT_TRUE(model->Step({.items = items, .observer = &seen}));
  EXPECT_EQ(seen.inputs.at("model.layers.0.self_attn.q_proj.weight"), config.hidden_size);
  EXPECT_EQ(seen.inputs.at("model.layers.0.self_attn.o_proj.weight"),
            config.num_attention_heads * config.head_dim);
  EXPECT_EQ(seen.inputs.count("model.layers.0.mlp.gate.weight"), 1u);
  ASSERT_FALSE(seen.routes.empty());
  for (const auto& [layer, rows] : seen.routes) {
    EXPECT_EQ(rows.size(), 5u) << layer;  // one choice a row
    for (const auto& [experts, sum] : rows) {
      EXPECT_EQ(std::set<int32_t>(experts.begin(), experts.end()).size(),
                static_cast<size_t>(config.moe->top_k));
      EXPECT_NEAR(sum, 1, 1e-5);  // norm_topk_prob
      for (const int32_t e : experts) {
        EXPECT_EQ(seen.inputs.count(fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", layer, e)),
                  1u);
      }
    }
  }
  int of_second = 0;
  for (const auto& state : seen.hidden) {
    of_second += state.item == 1;
    EXPECT_EQ(state.rows.size(), (state.item == 1 ? 2u : 3u) * static_cast<size_t>(config.hidden_size));
  }
  EXPECT_EQ(of_second, config.num_layers + 1);
}

TEST(ActiveSets, EachSequenceOfABatchHasItsOwn) {
  for (const char* family : {"qwen3_moe", "llama", "qwen3_5_moe"}) {
    for (const auto& [mode, dtype] :
         {std::pair<ComputeMode, std::optional<DType>>{ComputeMode::kExact, std::nullopt},
          {ComputeMode::kFast, DType::kQ8Row}}) {
      const auto model = LoadFixture(family, {.mode = mode, .dtype = dtype});
      const ModelConfig& c = model->config();
      std::vector<ActiveSet> sets(2);
      for (size_t s = 0; s < sets.size(); ++s) {
        ActiveSet& set = sets[s];
        const auto rows = [&](int64_t bits) {
          std::vector<uint8_t> row(static_cast<size_t>((bits + 7) / 8), s == 0 ? 0x57 : 0xE9);
          if (bits % 8 != 0) row.back() &= static_cast<uint8_t>((1 << (bits % 8)) - 1);
          return std::vector<std::vector<uint8_t>>(static_cast<size_t>(c.num_layers), row);
        };
        if (c.moe) set.experts = rows(set.expert_count = c.moe->num_experts);
        if (!c.moe) set.ffn = rows(set.ffn_width = c.intermediate_size);
      }
      const ActiveSet* active[] = {&sets[0], nullptr, &sets[1]};
      std::vector<std::vector<float>> want;
      std::vector<std::unique_ptr<Sequence>> together;
      std::vector<StepItem> items;
      const std::vector<std::vector<TokenId>> prompts = {{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}};
      for (size_t i = 0; i < 3; ++i) {
        const auto alone = NewSequence(*model);
        want.push_back(StepOne(*model, *alone, prompts[i], LogitRows::kAll, active[i]));
        together.push_back(NewSequence(*model));
        items.push_back({together.back().get(), prompts[i], LogitRows::kAll, active[i]});
      }
      const auto result = model->Step({.items = items, .observer = nullptr});
      ASSERT_TRUE(result) << result.error().message;
      std::vector<float> all;
      for (const auto& logits : want) all.insert(all.end(), logits.begin(), logits.end());
      EXPECT_EQ(result->logits, all) << family;
      EXPECT_NE(want[0], want[1]) << family;
      EXPECT_NE(want[1], want[2]) << family;
    }
  }
}

}  // namespace
}  // namespace cmforge::engine
