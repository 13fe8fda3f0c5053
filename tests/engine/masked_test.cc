// A masked model answers as the whole one does with those activations zeroed: checked by a model whose second
// projections have zeros in the columns of dead neurons and heads, for every encoding and attention feature.
#include <cmath>
#include <random>

#include "engine/model_fixture.h"

namespace cmforge::engine {
namespace {

/// `from`, with columns of some matrices zeroed.
class ZeroedSource final : public AlteredSource {
 public:
  ZeroedSource(std::shared_ptr<const TensorSource> from, const ActiveSet& active)
      : AlteredSource(std::move(from)) {
    for (const TensorInfo& info : from_->tensors()) {
      tensors_.push_back(info);
      constexpr std::string_view kLayers = "model.layers.";
      if (!info.name.starts_with(kLayers)) continue;
      const auto layer = static_cast<size_t>(std::atoi(info.name.c_str() + kLayers.size()));
      const bool is_down = info.name.ends_with(".mlp.down_proj.weight"),
                 is_out = info.name.ends_with("self_attn.o_proj.weight");
      if (!is_down && !is_out) continue;
      auto values = std::make_shared<std::vector<float>>(*Dequantize(*from_->Read(info.name)));
      const int64_t cols = info.shape[1];
      const auto& bits = is_down ? active.ffn[layer] : active.heads[layer];
      const int64_t unit = is_down ? 1 : cols / active.head_count;
      for (size_t i = 0; i < values->size(); ++i) {
        const int64_t bit = static_cast<int64_t>(i) % cols / unit;
        if ((bits[static_cast<size_t>(bit / 8)] >> (bit % 8) & 1) == 0) (*values)[i] = 0;
      }
      tensors_.back().dtype = DType::kF32;
      tensors_.back().nbytes = values->size() * sizeof(float);
      views_[info.name] = {DType::kF32, info.shape, std::as_bytes(std::span(*values)), values};
    }
  }
};

std::vector<std::vector<uint8_t>> RandomRows(int64_t layers, int64_t bits, int64_t unit, std::mt19937& rng) {
  std::vector<std::vector<uint8_t>> rows(static_cast<size_t>(layers),
                                         std::vector<uint8_t>(static_cast<size_t>((bits + 7) / 8)));
  for (auto& row : rows) {
    bool is_on = false;
    for (int64_t i = 0; i < bits; ++i) {
      if (i % unit == 0) is_on = rng() % 2 != 0 || i == 0;
      if (is_on) row[static_cast<size_t>(i / 8)] |= static_cast<uint8_t>(1u << (i % 8));
    }
  }
  return rows;
}

/// `unit`: neurons that live and die together.
ActiveSet RandomMask(const ModelConfig& config, int64_t unit, unsigned seed) {
  std::mt19937 rng(seed);
  ActiveSet active;
  active.ffn_width = config.intermediate_size;
  active.head_count = config.num_attention_heads;
  for (const int64_t heads : config.attention_heads_per_layer)
    active.head_count = std::max(active.head_count, heads);
  active.ffn = RandomRows(config.num_layers, active.ffn_width, unit, rng);
  active.heads = RandomRows(config.num_layers, active.head_count, 1, rng);
  return active;
}

std::shared_ptr<LanguageModel> Load(std::shared_ptr<const TensorSource> source, const ModelConfig& config,
                                    ComputeMode mode) {
  ModelOptions options;
  options.mode = mode;
  options.pool = std::make_shared<ThreadPool>(2);
  auto model = Model::Load(std::move(source), config, options);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  return model ? *model : nullptr;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(want[i]) - static_cast<double>(got[i])));
  }
  EXPECT_LE(worst, tolerance * largest) << what;
}

const std::vector<TokenId> kPrompt = {3, 17, 42, 9, 60, 21, 5, 33, 12, 40, 2, 7};

// Norms of queries and keys, biases, gates, windows, soft caps, per-layer heads, linear layers between.
TEST(Masked, EqualsZeroedActivationsForEveryAttentionFeature) {
  for (const char* family : {"llama", "llama_rope3", "qwen2_window", "qwen3_linear", "qwen3_yarn", "qwen3_5",
                             "qwen3_next", "gemma2", "gemma3", "laguna", "laguna_channels"}) {
    auto checkpoint = OpenCheckpoint(FixtureFolder(family));
    ASSERT_TRUE(checkpoint) << family;
    const ModelConfig& config = checkpoint->config.model;
    if (!config.attention_heads_per_layer.empty()) continue;  // a row of bits has one length in all layers
    for (const int64_t unit : {1, 32}) {
      const ActiveSet active = RandomMask(config, unit, 11);
      const auto model = Load(checkpoint->tensors, config, ComputeMode::kExact);
      const auto zeroed =
          Load(std::make_shared<ZeroedSource>(checkpoint->tensors, active), config, ComputeMode::kExact);
      ASSERT_TRUE(model && zeroed) << family;
      const auto sequence = NewSequence(*model), other = NewSequence(*zeroed);
      const std::string what = fmt::format("{} in units of {}", family, unit);
      ExpectClose(StepOne(*model, *sequence, kPrompt, LogitRows::kAll, &active),
                  StepOne(*zeroed, *other, kPrompt, LogitRows::kAll), 2e-5, what);
      ExpectClose(StepOne(*model, *sequence, {1}, LogitRows::kLast, &active), StepOne(*zeroed, *other, {1}),
                  2e-5, what + ", decoding");
    }
  }
}

TEST(Masked, EqualsZeroedActivationsForEveryEncoding) {
  auto checkpoint = OpenCheckpoint(FixtureFolder("qwen3_yarn"));
  ASSERT_TRUE(checkpoint);
  const ModelConfig& config = checkpoint->config.model;
  const ActiveSet active = RandomMask(config, 32, 5);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8Row, DType::kQ8TwoField,
                            DType::kQ4Block, DType::kQ4Tiled, DType::kQ4tp, DType::kQ2tp, DType::kVbit,
                            DType::kVbitRo, DType::kQ1, DType::kQ1s, DType::kQ1t}) {
    const auto source = std::make_shared<QuantizedSource>(checkpoint->tensors, dtype);
    const auto zeroed = std::make_shared<ZeroedSource>(source, active);
    const auto model = Load(source, config, ComputeMode::kExact),
               dense = Load(zeroed, config, ComputeMode::kExact);
    ASSERT_TRUE(model && dense) << DTypeName(dtype);
    ExpectClose(StepOne(*model, *NewSequence(*model), kPrompt, LogitRows::kAll, &active),
                StepOne(*dense, *NewSequence(*dense), kPrompt, LogitRows::kAll), 2e-5,
                std::string(DTypeName(dtype)));
    // Fast mode rounds activations as it does without a mask, so the two stay as near as rounding allows.
    const auto fast = Load(source, config, ComputeMode::kFast);
    ExpectClose(StepOne(*fast, *NewSequence(*fast), kPrompt, LogitRows::kAll, &active),
                StepOne(*dense, *NewSequence(*dense), kPrompt, LogitRows::kAll), 0.15,
                std::string(DTypeName(dtype)) + " fast");
  }
}

TEST(Masked, BatchMatesAndPiecesChangeNoBit) {
  auto checkpoint = OpenCheckpoint(FixtureFolder("qwen3_yarn"));
  ASSERT_TRUE(checkpoint);
  const ModelConfig& config = checkpoint->config.model;
  for (const auto mode : {ComputeMode::kExact, ComputeMode::kFast}) {
    const auto model =
        Load(std::make_shared<QuantizedSource>(checkpoint->tensors, DType::kQ8Row), config, mode);
    const ActiveSet masks[] = {RandomMask(config, 32, 1), RandomMask(config, 32, 2),
                               RandomMask(config, 1, 3)};
    const ActiveSet* active[] = {&masks[0], &masks[1], &masks[2], nullptr, &masks[0]};
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<StepItem> items;
    for (const ActiveSet* mask : active) {
      sequences.push_back(NewSequence(*model));
      items.push_back({sequences.back().get(), kPrompt, LogitRows::kLast, mask});
    }
    const StepResult together = model->Step({items, nullptr}).value();
    for (size_t i = 0; i < items.size(); ++i) {
      const auto alone = StepOne(*model, *NewSequence(*model), kPrompt, LogitRows::kLast, active[i]);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.LastRow(i).begin())) << "item " << i;
      const auto pieces = NewSequence(*model);
      std::vector<float> last;
      for (const TokenId token : kPrompt)
        last = StepOne(*model, *pieces, {token}, LogitRows::kLast, active[i]);
      EXPECT_EQ(alone, last) << "item " << i << " token by token";
    }
  }
}

TEST(Masked, AModelWithoutNeuronsOrHeadsStillAnswers) {
  auto checkpoint = OpenCheckpoint(FixtureFolder("llama"));
  ASSERT_TRUE(checkpoint);
  const ModelConfig& config = checkpoint->config.model;
  ActiveSet nothing = RandomMask(config, 1, 1);
  for (auto* rows : {&nothing.ffn, &nothing.heads}) {
    for (auto& row : *rows) std::fill(row.begin(), row.end(), uint8_t{0});
  }
  const auto model = Load(checkpoint->tensors, config, ComputeMode::kFast);
  const auto logits = StepOne(*model, *NewSequence(*model), kPrompt, LogitRows::kLast, &nothing);
  for (const float v : logits) ASSERT_TRUE(std::isfinite(v));
}

}  // namespace
}  // namespace cmforge::engine
