// Packages of every family against the engine on the checkpoints they were made from: whatever the chunks,
// the batch, the length of the prompt and the place of the window.
#include <algorithm>
#include <cmath>

#include "coreml/check.h"
#include "coreml/package_fixture.h"
#include "engine/layer_states.h"

namespace cmforge::coreml {
namespace {

/// Of f32 runs at the worst position. Small random delta nets amplify what is rounded a hundredfold, routers with two
/// experts of almost equal weight choose by it, and scores that are not scaled turn with it: none of the numbers that
/// converters compute may be rounded to fp16 alone, and then a wrong graph has nowhere to hide.
constexpr double kWorstCosine = 0.99999;

/// Embeddings times sqrt(32) are handed over in fp16, whatever is done about it.
constexpr double kScaledEmbeddings = 0.9999;

struct Case {
  const char* checkpoint;
  GraphOptions graph;
  double worst_cosine = kWorstCosine;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.checkpoint << "_ctx" << c.graph.context_length << "_B" << c.graph.batch_size << "_chunks"
             << c.graph.num_chunks << "_head" << c.graph.split_lm_head;
}

class PackageParity : public testing::TestWithParam<Case> {};

TEST_P(PackageParity, LogitsAreTheEngines) {
  const Case& c = GetParam();
  const auto folder = ScratchFolder() / "package";
  const auto report = WriteFixture(c.checkpoint, c.graph, folder);
  ASSERT_TRUE(report) << report.error().message;
  const PackageMeta meta = MetaOf(folder);
  const auto package = LoadPackage(folder, meta);
  ASSERT_TRUE(package) << package.error().message;
  const auto reference = LoadReference(c.checkpoint);
  const int64_t batch = c.graph.batch_size, vocab = reference->config().vocab_size;
  for (const int64_t length :
       {int64_t{1}, batch - 1, batch, batch + 1, 3 * batch, c.graph.context_length - 6}) {
    if (length < 1 || length > c.graph.context_length) continue;
    SCOPED_TRACE(fmt::format("prompt of {}", length));
    CheckOptions options;
    options.max_tokens = 6;
    options.min_cosine = options.worst_cosine = c.worst_cosine;
    const auto result =
        CheckPackage(*reference, **package, batch, SomeTokens(length, vocab, static_cast<uint64_t>(length)),
                     options, {}, {engine::LayerStatesOf, meta});
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_FALSE(result->states.empty());
    for (const StateDifference& state : result->states) {
      EXPECT_GT(state.layers, 0) << state.state;
      EXPECT_LT(state.max_relative, 0.01) << state.state << ' ' << state.part;
    }
    EXPECT_TRUE(result->ok) << "cosine " << result->cosine_min << " at " << result->worst_position
                            << ", states " << result->state_cosine << ", " << result->decided_disagreements
                            << " decided tokens differ";
    EXPECT_EQ(result->prefill_calls, batch > 1 ? length / batch : 0);
    // Keys are read in one order by both functions, so nothing may differ; the delta rule is solved in another
    // order by a batch.
    if (!meta.recurrent_state) {
      EXPECT_EQ(result->prefill_infer_max_abs, 0);
      EXPECT_EQ(result->state_max_abs, 0);
    } else {
      EXPECT_LT(result->prefill_infer_max_abs, 1e-3);
    }
  }
}

GraphOptions Graph(int64_t context, int64_t batch, int64_t chunks = 1, int64_t head = 16) {
  return {context, batch, chunks, head};
}

INSTANTIATE_TEST_SUITE_P(
    Families, PackageParity,
    testing::Values(Case{"qwen3_linear", Graph(64, 8)}, Case{"qwen3_linear", Graph(40, 7, 3, 1)},
                    Case{"qwen3_yarn", Graph(96, 16, 2, 5)}, Case{"qwen3_yarn", Graph(33, 1, 3)},
                    Case{"qwen3_5", Graph(96, 16)}, Case{"qwen3_5", Graph(64, 6, 4)},
                    Case{"qwen3_5", Graph(48, 5, 2, 3)}, Case{"qwen3_5_moe", Graph(64, 8)},
                    Case{"qwen3_5_moe", Graph(64, 16, 3)}, Case{"qwen3_next", Graph(64, 8, 2)},
                    // A window of 8: the whole context as a mask, and by blocks.
                    Case{"gemma4", Graph(16, 4), kScaledEmbeddings},
                    Case{"gemma4", Graph(64, 4), kScaledEmbeddings},
                    Case{"gemma4", Graph(64, 4, 3), kScaledEmbeddings},
                    Case{"gemma4", Graph(80, 16, 2, 7), kScaledEmbeddings},
                    Case{"gemma4", Graph(48, 5, 6), kScaledEmbeddings},
                    Case{"gemma4", Graph(40, 1), kScaledEmbeddings}),
    [](const auto& info) {
      std::ostringstream name;
      name << info.param;
      return name.str();
    });

TEST(PackagePrecision, RoundingEveryResultToHalvesCostsLittle) {
  for (const char* name : {"qwen3_yarn", "qwen3_5", "gemma4"}) {
    SCOPED_TRACE(name);
    const auto folder = ScratchFolder() / "package";
    const auto report = WriteFixture(name, Graph(64, 8), folder);
    ASSERT_TRUE(report) << report.error().message;
    const auto package = LoadPackage(folder, MetaOf(folder), Precision::kF16);
    ASSERT_TRUE(package) << package.error().message;
    const auto reference = LoadReference(name);
    CheckOptions options;
    options.max_tokens = 12;
    options.min_cosine = options.worst_cosine = 0.999;
    options.decided_gap = 0.1;
    const auto result =
        CheckPackage(*reference, **package, 8, SomeTokens(20, reference->config().vocab_size), options, {});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_TRUE(result->ok) << result->cosine_min << ' ' << result->decided_disagreements;
    EXPECT_GT(result->max_abs, 0);  // it does round
  }
}

TEST(OlderWindow, IsRunAndCheckedLikeTheBlocksOfToday) {
  for (GraphOptions graph : {Graph(64, 4), Graph(64, 4, 3), Graph(80, 16, 2), Graph(48, 5, 6)}) {
    graph.window = GraphOptions::Window::kTokens;
    SCOPED_TRACE(fmt::format("context {}, batch {}", graph.context_length, graph.batch_size));
    const auto folder = ScratchFolder() / "package";
    const auto report = WriteFixture("gemma4", graph, folder);
    ASSERT_TRUE(report) << report.error().message;
    const PackageMeta meta = MetaOf(folder);
    EXPECT_EQ(meta.local_cache_length, 8 + graph.batch_size);  // window and batch
    const auto package = LoadPackage(folder, meta);
    ASSERT_TRUE(package) << package.error().message;
    const auto reference = LoadReference("gemma4");
    double prefill_infer = 0;
    for (const int64_t length :
         {int64_t{1}, graph.batch_size, graph.batch_size + 1, int64_t{24}, int64_t{39}}) {
      const auto result = CheckPackage(*reference, **package, graph.batch_size,
                                       SomeTokens(length, 131, static_cast<uint64_t>(length)),
                                       {.max_tokens = 6}, {}, {engine::LayerStatesOf, meta});
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_TRUE(result->ok) << length << ": " << result->cosine_min << " at " << result->worst_position;
      for (const StateDifference& state : result->states) EXPECT_LT(state.max_relative, 0.01) << state.state;
      prefill_infer = std::max(prefill_infer, result->prefill_infer_max_abs);
    }
    EXPECT_LT(prefill_infer, 1e-3);  // the two sum in another order
  }
}

TEST(CheckPackage, FindsStatesThatAreNotTheEngines) {
  const auto folder = ScratchFolder() / "package";
  const auto report = WriteFixture("qwen3_5", Graph(64, 8), folder);
  ASSERT_TRUE(report) << report.error().message;
  const PackageMeta meta = MetaOf(folder);
  const auto package = LoadPackage(folder, meta);
  ASSERT_TRUE(package) << package.error().message;
  const auto reference = LoadReference("qwen3_5");
  const auto check = [&](const LayerStatesReader& reader) {
    return CheckPackage(*reference, **package, 8, SomeTokens(19, 131), {.max_tokens = 2}, {}, {reader, meta});
  };
  const auto whole = check(engine::LayerStatesOf);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_TRUE(whole->ok);
  EXPECT_EQ(whole->states.size(), 4u);  // keys, values, memory, history
  for (const char* part : {"keys", "values", "memory", "history"}) {
    const auto other = check([&](const Sequence& sequence) -> Result<std::vector<LayerStates>> {
      CMF_TRY(auto layers, engine::LayerStatesOf(sequence));
      for (LayerStates& layer : layers) {
        for (const auto& [name, numbers] :
             {std::pair{"keys", &layer.keys}, std::pair{"values", &layer.values},
              std::pair{"memory", &layer.memory}, std::pair{"history", &layer.history}}) {
          if (std::string_view(name) == part && !numbers->empty()) numbers->back() += 10;
        }
      }
      return layers;
    });
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_FALSE(other->ok) << part;
    for (const StateDifference& state : other->states)
      EXPECT_EQ(state.max_relative > 0.14, state.part == part) << state.part;
  }
  EXPECT_FALSE(check([](const Sequence&) -> Result<std::vector<LayerStates>> {
                 return std::vector<LayerStates>(4);
               })->ok);
}

/// A model whose logits are multiplied.
class Spoiled : public LanguageModel {
 public:
  Spoiled(std::shared_ptr<LanguageModel> model, float factor) : model_(std::move(model)), factor_(factor) {}
  const ModelConfig& config() const override { return model_->config(); }
  Result<std::unique_ptr<Sequence>> NewSequence(const SequenceOptions& options) const override {
    return model_->NewSequence(options);
  }
  Result<StepResult> Step(const StepRequest& request) const override {
    auto result = model_->Step(request);
    if (result) {
      for (float& logit : result->logits) logit *= factor_;
    }
    return result;
  }
  Result<std::unique_ptr<Sequence>> RestoreSequence(std::span<const std::byte> snapshot) const override {
    return model_->RestoreSequence(snapshot);
  }
  uint64_t identity() const override { return model_->identity(); }

 private:
  std::shared_ptr<LanguageModel> model_;
  float factor_;
};

TEST(CheckPackage, NamesEveryLimitThatFailed) {
  const auto folder = ScratchFolder() / "package";
  const auto report = WriteFixture("qwen3_yarn", Graph(32, 8), folder);
  ASSERT_TRUE(report) << report.error().message;
  const auto package = LoadPackage(folder, MetaOf(folder));
  ASSERT_TRUE(package) << package.error().message;
  const auto reference = LoadReference("qwen3_yarn");
  const auto check = [&](float factor, int64_t length = 9) {
    return CheckPackage(*reference, Spoiled(*package, factor), 8, SomeTokens(length, 131), {.max_tokens = 4},
                        {});
  };
  const auto right = check(1);
  ASSERT_TRUE(right) << right.error().message;
  EXPECT_TRUE(right->ok && right->failed.empty());
  const auto zeros = check(0);  // like nothing, and the lowest token is the best of equals
  ASSERT_TRUE(zeros) << zeros.error().message;
  EXPECT_EQ(zeros->cosine_mean, 0);
  EXPECT_FALSE(zeros->ok);
  ASSERT_EQ(zeros->failed.size(), 3u);
  EXPECT_EQ(zeros->failed[0], "min-cosine: 0 of logits on average, at least 0.9999 is wanted");
  EXPECT_EQ(zeros->failed[1], "worst-cosine: 0 of logits at position 0, at least 0.99 is wanted");
  EXPECT_EQ(zeros->failed[2], fmt::format("decided-gap: {} of {} decided choices differ, none may",
                                          zeros->decided_disagreements, zeros->decided));
  const auto turned = check(-1);
  ASSERT_TRUE(turned) << turned.error().message;
  EXPECT_LT(turned->cosine_mean, -0.99);
  EXPECT_TRUE(check(1, 32));
  const auto longer = check(1, 33);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().kind, ErrorKind::kLimit);
  EXPECT_NE(longer.error().message.find("33 tokens do not fit a context of 32"), std::string::npos);
}

TEST(CheckPackage, FindsAPackageOfAnotherModel) {
  const auto folder = ScratchFolder() / "package";
  const auto report = WriteFixture("qwen3_linear", Graph(64, 8), folder);
  ASSERT_TRUE(report) << report.error().message;
  const auto package = LoadPackage(folder, MetaOf(folder));
  ASSERT_TRUE(package) << package.error().message;
  const auto reference = LoadReference("qwen3_yarn");
  const auto result = CheckPackage(*reference, **package, 8, SomeTokens(9, 131), {}, {});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(result->ok);
  EXPECT_LT(result->cosine_min, 0.9);
  // Another size is told at once.
  const auto other = LoadReference("tiny-qwen3");
  const auto refused = CheckPackage(*other, **package, 8, SomeTokens(9, 131), {}, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("vocab_size: the package says 131"), std::string::npos);
}

}  // namespace
}  // namespace cmforge::coreml
