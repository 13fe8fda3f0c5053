// Weights that a mask, a gate or another skill leaves out never become resident.
#include <fcntl.h>
#include <unistd.h>

#include "cmf/tiny_model.h"
#include "open/fixtures.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

/// How many of the pages that lie wholly in `bytes` this process has mapped in.
struct Pages {
  int64_t resident = 0, all = 0;
};
Pages PagesOf(Bytes bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  // The kernel maps neighbours of a page that is touched, in windows of its own choice: keep away from the edges, and
  // allow a window or two.
  const uint64_t window = 64 << 10;
  const uint64_t first = AlignUp(reinterpret_cast<uint64_t>(bytes.data()), window),
                 last = (reinterpret_cast<uint64_t>(bytes.data()) + bytes.size()) / window * window;
  Pages pages;
  const int file = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  for (uint64_t at = first; at < last; at += page) {
    uint64_t entry = 0;
    if (::pread(file, &entry, sizeof entry, static_cast<off_t>(at / page * sizeof entry)) != sizeof entry)
      break;
    ++pages.all;
    pages.resident += static_cast<int64_t>(entry >> 63);
  }
  ::close(file);
  return pages;
}

TEST(Residency, ColdWeightsStayOnDisk) {
  if (::access("/proc/self/pagemap", R_OK) != 0) GTEST_SKIP() << "no /proc/self/pagemap here";
  constexpr int64_t kHidden = 64, kWidth = 8192, kLayers = 3;
  cmf::MemorySource tensors;
  cmf::Contents contents;
  ModelConfig& config = contents.header.config = cmf::TinyConfig();
  config.hidden_size = kHidden;
  config.intermediate_size = kWidth;
  config.num_layers = kLayers;
  config.layer_types.assign(kLayers, LayerKind::kFullAttention);
  config.head_dim = 32;
  config.vocab_size = 32;
  config.tie_word_embeddings = true;
  tensors.AddPattern("model.embed_tokens.weight", DType::kBF16, {32, kHidden});
  tensors.AddPattern("model.norm.weight", DType::kF16, {kHidden});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string stem = fmt::format("model.layers.{}.", layer);
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      tensors.AddPattern(stem + norm, DType::kF16, {kHidden});
    tensors.AddPattern(stem + "self_attn.q_proj.weight", DType::kBF16, {64, kHidden});
    tensors.AddPattern(stem + "self_attn.k_proj.weight", DType::kBF16, {32, kHidden});
    tensors.AddPattern(stem + "self_attn.v_proj.weight", DType::kBF16, {32, kHidden});
    tensors.AddPattern(stem + "self_attn.o_proj.weight", DType::kBF16, {kHidden, 64});
    tensors.AddPattern(stem + "mlp.gate_proj.weight", DType::kBF16, {kWidth, kHidden});
    tensors.AddPattern(stem + "mlp.up_proj.weight", DType::kBF16, {kWidth, kHidden});
    tensors.AddPattern(stem + "mlp.down_proj.weight", DType::kBF16, {kHidden, kWidth});
  }
  tensors.AddPattern("skill.law.model.layers.0.mlp.gate_proj.weight", DType::kBF16, {kWidth, kHidden});
  contents.header.skills.emplace_back().id = "law";
  cmf::TaskMask mask;
  mask.name = "half";
  mask.bits.ffn.assign(kLayers, std::vector<uint8_t>(kWidth / 8, 0));
  for (auto& row : mask.bits.ffn) std::fill(row.begin() + kWidth / 16, row.end(), uint8_t{0xFF});
  mask.bits.heads.assign(kLayers, {0x03});
  mask.bits.layer_gates = {0x05};  // layer 1 is off
  contents.masks.masks = {mask};
  contents.tensors = &tensors;
  for (const TensorInfo& tensor : tensors.tensors()) contents.names.push_back(tensor.name);
  const fs::path path = fs::path(testing::TempDir()) / "cmforge-residency.cmf";
  ASSERT_TRUE(cmf::WriteCmf(path, contents));

  const auto specialists = OpenAll(path, ComputeMode::kFast);
  ASSERT_NE(specialists, nullptr);
  const auto model = specialists->Backbone();
  ASSERT_TRUE(model) << model.error().message;
  const Task half = FindTask(specialists->source(), "half").value();
  LastLogits(**model, {3, 17, 8}, half.active.get());

  const TensorSource& source = *specialists->source().tensors;
  const auto bytes = [&](const std::string& name) { return source.Read(name)->bytes; };
  for (const char* name : {"model.layers.0.mlp.gate_proj.weight", "model.layers.2.mlp.up_proj.weight"}) {
    const Bytes whole = bytes(name);
    const Pages dead = PagesOf(whole.first(whole.size() / 2)), live = PagesOf(whole.last(whole.size() / 2));
    EXPECT_GT(dead.all, 50);
    EXPECT_LT(dead.resident, dead.all / 4) << name << ": of " << dead.all << " pages of dead neurons";
    EXPECT_EQ(live.resident, live.all) << name;
  }
  for (const char* name : {"model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.down_proj.weight",
                           "skill.law.model.layers.0.mlp.gate_proj.weight"}) {
    EXPECT_EQ(PagesOf(bytes(name)).resident, 0) << name << " takes no part";
  }
  LastLogits(**specialists->WithSkill("law"), {3, 17, 8});
  const Pages law = PagesOf(bytes("skill.law.model.layers.0.mlp.gate_proj.weight"));
  EXPECT_EQ(law.resident, law.all) << "now it is asked for";
  fs::remove(path);
}

}  // namespace
}  // namespace cmforge
