// Channel statistics of real networks (generate/calibration.h): what the engine shows is what a package needs.
#include "generate/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/channel_stats_file.h"
#include "checkpoint/checkpoint.h"
#include "coreml/package_writer.h"
#include "engine/model.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

struct Loaded {
  Checkpoint checkpoint;
  std::shared_ptr<LanguageModel> model;
};

Loaded Load(const std::string& fixture) {
  Loaded loaded;
  auto checkpoint = OpenCheckpoint(fs::path(CMFORGE_TEST_DATA) / "engine" / fixture);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  loaded.checkpoint = std::move(*checkpoint);
  engine::ModelOptions options;
  options.mode = ComputeMode::kExact;
  options.pool = std::make_shared<ThreadPool>(1);
  auto model = engine::Model::Load(loaded.checkpoint.tensors, loaded.checkpoint.config.model, options);
  EXPECT_TRUE(model) << model.error().message;
  loaded.model = *model;
  return loaded;
}

std::vector<TokenId> Tokens(size_t count) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>((i * i * 7 + 3 * i + 1) % 131));
  return ids;
}

ChannelStats StatsOf(const Loaded& loaded, std::span<const TokenId> tokens, int64_t window = 512) {
  CalibrationOptions options;
  options.window = window;
  auto stats = Calibrate(*loaded.model, *loaded.checkpoint.tensors, tokens, options, {});
  EXPECT_TRUE(stats) << stats.error().message;
  return stats.value_or(ChannelStats());
}

TEST(Calibrate, GivesTheMeanSquareOfEveryChannel) {
  const Loaded loaded = Load("qwen3_yarn");
  const auto tokens = Tokens(70);  // more than one step
  const ChannelStats stats = StatsOf(loaded, tokens);
  EXPECT_EQ(stats.tokens, 70);
  // The first layer's projections read the normed embedding.
  const TensorSource& source = *loaded.checkpoint.tensors;
  const auto floats = [&](const char* name) { return *Dequantize(*source.Read(name)); };
  const auto table = floats("model.embed_tokens.weight"),
             norm = floats("model.layers.0.input_layernorm.weight");
  const size_t width = norm.size();
  std::vector<double> wanted(width);
  for (const TokenId token : tokens) {
    const float* row = table.data() + static_cast<size_t>(token) * width;
    double squares = 0;
    for (size_t j = 0; j < width; ++j) squares += std::pow(static_cast<double>(row[j]), 2);
    const double scale = squares / static_cast<double>(width) + loaded.checkpoint.config.model.rms_norm_eps;
    for (size_t j = 0; j < width; ++j)
      wanted[j] += std::pow(static_cast<double>(row[j]) * static_cast<double>(norm[j]), 2) / scale / 70;
  }
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const auto& found = stats.mean_square.at(std::string("model.layers.0.self_attn.") + name + ".weight");
    ASSERT_EQ(found.size(), width);
    for (size_t j = 0; j < width; ++j)
      EXPECT_NEAR(static_cast<double>(found[j]), wanted[j], 1e-4 * wanted[j]) << name;
  }
  EXPECT_TRUE(stats.mean_square.contains("model.embed_tokens.weight")) << "the tied head's input";
  // Windows begin anew: two of a length are the mean of each alone.
  const ChannelStats cut = StatsOf(loaded, tokens, 35);
  const ChannelStats first = StatsOf(loaded, std::span(tokens).first(35));
  const ChannelStats second = StatsOf(loaded, std::span(tokens).subspan(35));
  for (const auto& [name, mean] : cut.mean_square) {
    for (size_t j = 0; j < mean.size(); ++j) {
      const float half = (first.mean_square.at(name)[j] + second.mean_square.at(name)[j]) / 2;
      ASSERT_NEAR(mean[j], half, 1e-5f * half + 1e-12f) << name;
    }
  }
}

/// Half the sum of row_weight * e^2 is how far the answers move when every logit of the head is off by an
/// independent e: here one logit after the other, through the model's own soft cap.
TEST(Calibrate, WeighsLogitsByHowFarTheyMoveTheAnswer) {
  for (const char* fixture : {"qwen3_yarn", "gemma4"}) {
    SCOPED_TRACE(fixture);
    const Loaded loaded = Load(fixture);
    const auto tokens = Tokens(5);
    const ChannelStats stats = StatsOf(loaded, tokens);
    ASSERT_EQ(stats.row_weight.size(), 1u) << "of the head alone";
    const std::vector<float>& weight = stats.row_weight.begin()->second;
    EXPECT_TRUE(stats.mean_square.contains(stats.row_weight.begin()->first));
    const auto sequence = loaded.model->NewSequence();
    ASSERT_TRUE(sequence);
    const StepItem item{sequence->get(), tokens, LogitRows::kAll, nullptr};
    const auto step = loaded.model->Step({{&item, 1}, nullptr});
    ASSERT_TRUE(step);
    ASSERT_EQ(weight.size(), static_cast<size_t>(step->vocab_size));
    const double cap = loaded.checkpoint.config.model.final_logit_softcapping.value_or(0);
    EXPECT_EQ(cap > 0, std::string_view(fixture) == "gemma4");
    constexpr double kOff = 1e-2;
    for (size_t v = 0; v < weight.size(); v += 7) {
      double divergence = 0;  // of both signs, mean over tokens
      for (int64_t row = 0; row < 5; ++row) {
        const auto logits = step->Row(row);
        double total = 0;
        for (const float logit : logits) total += std::exp(static_cast<double>(logit));
        const auto z = static_cast<double>(logits[v]);
        const double p = std::exp(z) / total;
        for (const double off : {kOff, -kOff}) {
          const double moved = cap > 0 ? cap * std::tanh(std::atanh(z / cap) + off / cap) : z + off;
          divergence += (std::log(1 + p * std::expm1(moved - z)) - p * (moved - z)) / 10;
        }
      }
      EXPECT_NEAR(static_cast<double>(weight[v]) * kOff * kOff / 2, divergence, 1e-3 * divergence + 1e-12)
          << v;
    }
  }
}

TEST(Calibrate, WeighsExpertsByWhoChoseThem) {
  const Loaded loaded = Load("qwen3_5_moe");
  const auto tokens = Tokens(3);
  const ChannelStats stats = StatsOf(loaded, tokens);
  // A router sees every token, and every token goes to top_k experts.
  for (int64_t layer = 0; layer < loaded.checkpoint.config.model.num_layers; ++layer) {
    const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
    const auto& router = stats.mean_square.at(mlp + "gate.weight");
    const auto top_k = static_cast<double>(loaded.checkpoint.config.model.moe->top_k);
    for (size_t j = 0; j < router.size(); ++j) {
      double sum = 0;
      for (int e = 0; e < 4; ++e)
        sum +=
            static_cast<double>(stats.mean_square.at(fmt::format("{}experts.{}.up_proj.weight", mlp, e))[j]);
      EXPECT_NEAR(sum, top_k * static_cast<double>(router[j]), 1e-5 * sum) << layer;
    }
  }
}

/// Packages by activations of every family: no matrix is without statistics.
TEST(Calibrate, CoversWhatPackagesCompress) {
  for (const char* fixture : {"qwen3_yarn", "qwen3_5", "qwen3_5_moe", "qwen3_next", "gemma4"}) {
    SCOPED_TRACE(fixture);
    const Loaded loaded = Load(fixture);
    const ChannelStats stats = StatsOf(loaded, Tokens(9));
    coreml::PackageSource source;
    source.tensors = loaded.checkpoint.tensors.get();
    source.config = loaded.checkpoint.config.model;
    source.checkpoint = fs::path(CMFORGE_TEST_DATA) / "engine" / fixture;
    source.name = fixture;
    coreml::PackageOptions options;
    options.graph = {64, 8, 1, 1};
    options.forms = coreml::PackageForms::kPackage;
    options.compression.embeddings = options.compression.ffn = options.compression.lmhead =
        *coreml::ParsePaletteForm("3");
    options.compression.method = coreml::PaletteMethod::kActivation;
    options.compression.statistics = &stats;
    const fs::path folder = fs::path(testing::TempDir()) / fmt::format("calibrated-{}", fixture);
    ThreadPool pool(1);
    const auto report = coreml::WritePackage(source, options, folder, pool, {});
    ASSERT_TRUE(report) << report.error().message;
    for (const coreml::WrittenPart& part : report->parts) EXPECT_EQ(part.form, "lut3,8") << part.name;
    fs::remove_all(folder);
    for (const TensorInfo& info : source.tensors->tensors()) {
      const bool is_matrix = info.shape.size() == 2 && info.name.starts_with("model.layers.");
      if (is_matrix && std::string_view(fixture) != "gemma4") {  // whose last layers share keys and values
        EXPECT_TRUE(stats.mean_square.contains(info.name)) << info.name;
      }
    }
  }
}

TEST(Calibrate, RefusesNothingToRead) {
  const Loaded loaded = Load("qwen3_yarn");
  EXPECT_EQ(Calibrate(*loaded.model, *loaded.checkpoint.tensors, {}, {}, {}).error().kind, ErrorKind::kUsage);
  const std::atomic<bool> cancelled = true;
  RunControl control;
  control.cancelled = &cancelled;
  EXPECT_EQ(Calibrate(*loaded.model, *loaded.checkpoint.tensors, Tokens(5), {}, control).error().kind,
            ErrorKind::kCancelled);
}

}  // namespace
}  // namespace cmforge
