// A model cut to one task in memory answers as the mask in place does, bit for bit.
#include "open/compact_task.h"

#include <random>

#include "open/fixtures.h"

namespace cmforge {
namespace {

constexpr int64_t kWidth = 320;  // ten groups of 32

/// The fixture with feed-forward networks of kWidth neurons.
class WideSource final : public engine::AlteredSource {
 public:
  WideSource(std::shared_ptr<const TensorSource> from, int64_t hidden) : AlteredSource(std::move(from)) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0, 0.2f);
    for (const TensorInfo& info : from_->tensors()) {
      tensors_.push_back(info);
      if (info.name.find(".mlp.") == info.name.npos) continue;
      const Shape shape =
          info.name.find("down") != info.name.npos ? Shape{hidden, kWidth} : Shape{kWidth, hidden};
      auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(hidden * kWidth));
      for (float& v : *values) v = normal(rng);
      tensors_.back() = {info.name, DType::kF32, shape, values->size() * sizeof(float)};
      views_[info.name] = {DType::kF32, shape, std::as_bytes(std::span(*values)), values};
    }
  }
};

struct Fixture {
  std::shared_ptr<const TensorSource> tensors;
  ModelConfig config;
};

Fixture Wide() {
  auto checkpoint = OpenCheckpoint(engine::FixtureFolder("qwen3_yarn"));
  EXPECT_TRUE(checkpoint);
  ModelConfig config = checkpoint->config.model;
  config.intermediate_size = kWidth;
  return {std::make_shared<WideSource>(checkpoint->tensors, config.hidden_size), config};
}

/// Half of the groups; a live group loses some neurons more where `is_ragged`. The last layer keeps all groups but one.
ActiveSet Mask(const ModelConfig& config, bool is_ragged) {
  std::mt19937 rng(7);
  ActiveSet active;
  active.ffn_width = kWidth;
  active.head_count = config.num_attention_heads;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    auto& bits = active.ffn.emplace_back(static_cast<size_t>(kWidth / 8));
    for (int64_t i = 0; i < kWidth; ++i) {
      const bool group_is_on = layer + 1 == config.num_layers ? i / 32 != 3 : (i / 32 + layer) % 2 == 0;
      if (group_is_on && (!is_ragged || rng() % 3 != 0))
        bits[static_cast<size_t>(i / 8)] |= static_cast<uint8_t>(1u << (i % 8));
    }
  }
  return active;
}

std::shared_ptr<LanguageModel> Load(std::shared_ptr<const TensorSource> source, const ModelConfig& config,
                                    ComputeMode mode) {
  engine::ModelOptions options;
  options.mode = mode;
  options.pool = std::make_shared<ThreadPool>(1);
  auto model = engine::Model::Load(std::move(source), config, options);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return model ? *model : nullptr;
}

const std::vector<TokenId> kPrompt = {3, 17, 42, 9, 60, 21, 5, 33, 12, 40, 2, 7};

TEST(CompactTask, AnswersAsTheMaskInPlaceDoesBitForBit) {
  const Fixture fixture = Wide();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8Row, DType::kQ8TwoField, DType::kQ4Block,
                            DType::kQ4Tiled, DType::kQ4tp, DType::kQ1}) {
    const auto source = std::make_shared<engine::QuantizedSource>(fixture.tensors, dtype);
    for (const bool is_ragged : {false, true}) {
      const ActiveSet active = Mask(fixture.config, is_ragged);
      auto compact = MakeCompactTask(source, fixture.config, active);
      ASSERT_TRUE(compact && *compact) << DTypeName(dtype);
      EXPECT_EQ((*compact)->active, nullptr);
      EXPECT_EQ((*compact)->tensors->Find("model.layers.0.mlp.down_proj.weight")->shape[1], kWidth / 2);
      for (const ComputeMode mode : {ComputeMode::kFast, ComputeMode::kExact}) {
        SCOPED_TRACE(fmt::format("{}, {}", DTypeName(dtype), mode == ComputeMode::kFast ? "fast" : "exact"));
        const auto masked = Load(source, fixture.config, mode),
                   cut = Load((*compact)->tensors, fixture.config, mode);
        ASSERT_TRUE(masked && cut);
        const auto a = masked->NewSequence({}).value(), b = cut->NewSequence({}).value();
        EXPECT_EQ(engine::StepOne(*masked, *a, kPrompt, LogitRows::kAll, &active),
                  engine::StepOne(*cut, *b, kPrompt, LogitRows::kAll));
        EXPECT_EQ(engine::StepOne(*masked, *a, {1}, LogitRows::kLast, &active),
                  engine::StepOne(*cut, *b, {1}));
      }
    }
  }
}

TEST(CompactTask, LeavesOtherRestrictionsToTheMask) {
  const Fixture fixture = Wide();
  ActiveSet active = Mask(fixture.config, false);
  active.heads.assign(static_cast<size_t>(fixture.config.num_layers), cmf::FullRow(active.head_count));
  active.heads[1][0] &= 0xFE;
  const auto compact = MakeCompactTask(fixture.tensors, fixture.config, active);
  ASSERT_TRUE(compact && *compact);
  ASSERT_NE((*compact)->active, nullptr);
  EXPECT_TRUE((*compact)->active->ffn.empty());
  const auto masked = Load(fixture.tensors, fixture.config, ComputeMode::kExact),
             cut = Load((*compact)->tensors, fixture.config, ComputeMode::kExact);
  EXPECT_EQ(engine::StepOne(*masked, *masked->NewSequence({}).value(), kPrompt, LogitRows::kLast, &active),
            engine::StepOne(*cut, *cut->NewSequence({}).value(), kPrompt, LogitRows::kLast,
                            (*compact)->active.get()));
}

TEST(CompactTask, StepsBackWhereItCannotBeDone) {
  const Fixture fixture = Wide();
  const ActiveSet active = Mask(fixture.config, false);
  const auto vbit = std::make_shared<engine::QuantizedSource>(fixture.tensors, DType::kVbitRo);
  EXPECT_FALSE(MakeCompactTask(vbit, fixture.config, active)->has_value());
  ActiveSet whole = active;
  for (auto& bits : whole.ffn) bits = cmf::FullRow(kWidth);
  EXPECT_FALSE(MakeCompactTask(fixture.tensors, fixture.config, whole)->has_value()) << "no neuron is off";
  EXPECT_FALSE(MakeCompactTask(fixture.tensors, fixture.config, {})->has_value());
  ModelConfig looped = fixture.config;
  looped.num_loops = 2;
  EXPECT_FALSE(MakeCompactTask(fixture.tensors, looped, active)->has_value());
}

}  // namespace
}  // namespace cmforge
