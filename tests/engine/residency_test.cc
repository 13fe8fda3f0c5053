// What stays on disk: only pages of tensors that a token needs are ever mapped. Matrices here are far larger
// than the 64 KiB that the kernel maps around a fault.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <set>

#include "base/half.h"
#include "cmf/files.h"
#include "cmf/tiny_model.h"
#include "engine/model_fixture.h"

namespace cmforge::engine {
namespace {

constexpr int64_t kHidden = 256, kWidth = 1024, kExperts = 8, kVocab = 64;
constexpr size_t kAround = 64 << 10;  // mapped around a fault, aligned to its own size

/// Whether this process has that page in its page table.
class PageMap {
 public:
  PageMap()
      : fd_(::open("/proc/self/pagemap", O_RDONLY)), page_(static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))) {}
  ~PageMap() { ::close(fd_); }
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  [[nodiscard]] bool IsPresent(uint64_t address) const {
    uint64_t entry = 0;
    const auto n = ::pread(fd_, &entry, sizeof(entry), static_cast<off_t>(address / page_ * sizeof(entry)));
    return n == sizeof(entry) && (entry >> 63) != 0;
  }
  /// Pages of the inside of `bytes`, without what a fault beside it may bring along.
  [[nodiscard]] std::pair<int64_t, int64_t> PresentOf(Bytes bytes) const {
    const auto begin = reinterpret_cast<uint64_t>(bytes.data());
    int64_t present = 0, all = 0;
    for (uint64_t at = begin + kAround; at + kAround < begin + bytes.size(); at += page_, ++all) {
      present += IsPresent(at);
    }
    return {present, all};
  }
  [[nodiscard]] bool works() const {
    int here = 1;
    return fd_ >= 0 && IsPresent(reinterpret_cast<uint64_t>(&here));
  }

 private:
  int fd_;
  uint64_t page_;
};

/// Remembers which experts were chosen.
struct Chosen final : StepObserver {
  std::set<int32_t> experts;
  void OnRoute(int /*layer*/, int /*item*/, std::span<const int32_t> ids,
               std::span<const float> /*weights*/) override {
    experts.insert(ids.begin(), ids.end());
  }
};

class Residency : public cmf::InFolder {
 protected:
  void SetUp() override {
    InFolder::SetUp();
    if (!pages_.works()) GTEST_SKIP() << "/proc/self/pagemap cannot be read here";
    Add("model.embed_tokens.weight", {kVocab, kHidden});
    Add("lm_head.weight", {kVocab, kHidden});
    for (const char* name :
         {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"})
      Add(std::string(name) + ".weight", {kHidden});
    for (const char* name : {"q", "k", "v", "o"})
      Add(fmt::format("model.layers.0.self_attn.{}_proj.weight", name), {kHidden, kHidden});
    Add("model.layers.0.mlp.gate.weight", {kExperts, kHidden});
    for (const char* role : {"gate", "up", "down"}) {
      for (int64_t e = 0; e < kExperts; ++e) {
        const bool is_down = role[0] == 'd';
        Add(Expert(e, role), {is_down ? kHidden : kWidth, is_down ? kWidth : kHidden});
      }
    }
    cmf::Contents contents;
    ModelConfig& config = contents.header.config;
    config = cmf::TinyConfig();
    config.hidden_size = kHidden;
    config.intermediate_size = kWidth;
    config.num_layers = 1;
    config.layer_types.assign(1, LayerKind::kFullAttention);
    config.num_attention_heads = config.num_kv_heads = 4;
    config.head_dim = 64;
    config.vocab_size = kVocab;
    config.moe =
        MoeConfig{.num_experts = kExperts, .top_k = 2, .intermediate_size = kWidth, .norm_topk_prob = true};
    contents.tensors = &tensors_;
    for (const TensorInfo& tensor : tensors_.tensors()) contents.names.push_back(tensor.name);
    const auto written = cmf::WriteCmf(folder_ / "m.cmf", contents);
    ASSERT_TRUE(written) << written.error().message;
  }
  static std::string Expert(int64_t e, const char* role) {
    return fmt::format("model.layers.0.mlp.experts.{}.{}_proj.weight", e, role);
  }
  void Add(const std::string& name, Shape shape) {
    const auto count = static_cast<size_t>(*ElementCount(shape));
    std::vector<std::byte> bytes(count * 2);
    for (size_t i = 0; i < count; ++i) {
      StoreLe<uint16_t>(bytes.data() + i * 2, F32ToF16(static_cast<float>(rng_() % 2001) / 10000.0f - 0.1f));
    }
    tensors_.Add(name, DType::kF16, std::move(shape), std::move(bytes));
  }

  PageMap pages_;
  std::mt19937 rng_{3};
  cmf::MemorySource tensors_;
};

TEST_F(Residency, OnlyPagesOfChosenExpertsAreMapped) {
  auto opened = cmf::File::Open(folder_ / "m.cmf");
  ASSERT_TRUE(opened) << opened.error().message;
  const auto file = std::make_shared<cmf::File>(std::move(*opened));
  for (const ComputeMode mode : {ComputeMode::kFast, ComputeMode::kExact}) {
    ModelOptions options;
    options.mode = mode;
    options.pool = std::make_shared<ThreadPool>(2);
    const auto model = Model::Load(file, file->config(), options);
    ASSERT_TRUE(model) << model.error().message;
    const auto count = [&](int64_t e, const char* role) {
      return pages_.PresentOf(file->Read(Expert(e, role))->bytes);
    };
    if (mode == ComputeMode::kFast) {  // opening and loading touch no expert
      for (int64_t e = 0; e < kExperts; ++e) EXPECT_EQ(count(e, "gate").first, 0) << e;
    }
    Chosen chosen;
    const auto sequence = NewSequence(**model);
    StepOne(**model, *sequence, {5}, LogitRows::kLast, nullptr, &chosen);
    ASSERT_EQ(chosen.experts.size(), 2u);
    for (int64_t e = 0; e < kExperts; ++e) {
      for (const char* role : {"gate", "up", "down"}) {
        const auto [present, all] = count(e, role);
        EXPECT_GT(all, 90);
        EXPECT_EQ(present, chosen.experts.contains(static_cast<int32_t>(e)) ? all : 0) << e << role;
      }
    }
  }
  // A restriction of the run decides what may ever be read: whatever comes, 0 and 3 alone.
  ActiveSet active;
  active.expert_count = kExperts;
  active.experts = {{0x09}};
  auto fresh = cmf::File::Open(folder_ / "m.cmf");
  const auto other = std::make_shared<cmf::File>(std::move(*fresh));
  ModelOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  const auto model = Model::Load(other, other->config(), options);
  ASSERT_TRUE(model);
  const auto sequence = NewSequence(**model);
  std::vector<TokenId> tokens;
  for (TokenId t = 0; t < kVocab; ++t) tokens.push_back(t);
  StepOne(**model, *sequence, tokens, LogitRows::kLast, &active);
  for (int64_t e = 0; e < kExperts; ++e) {
    const auto [present, all] = pages_.PresentOf(other->Read(Expert(e, "up"))->bytes);
    EXPECT_EQ(present, e == 0 || e == 3 ? all : 0) << e;
  }
}

}  // namespace
}  // namespace cmforge::engine
