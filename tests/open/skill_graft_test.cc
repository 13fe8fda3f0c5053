// Adding a skill from a donor: only what changed, in the backbone's encodings, append-only.
#include "open/skill_graft.h"

#include "cmf/verify.h"
#include "open/fixtures.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

/// The decoded backbone with some tensors changed, as a tuned checkpoint has it.
class Donor final : public TensorSource {
 public:
  Donor(const TensorSource& backbone, const std::vector<std::pair<std::string, float>>& changes) {
    for (const TensorInfo& tensor : backbone.tensors()) {
      auto values =
          std::make_shared<std::vector<float>>(Dequantize(backbone.Read(tensor.name).value()).value());
      for (const auto& [name, factor] : changes) {
        if (name != tensor.name) continue;
        for (size_t i = 0; i < values->size(); i += 2) (*values)[i] *= factor;
      }
      tensors_.push_back({tensor.name, DType::kF32, tensor.shape, values->size() * sizeof(float)});
      values_.push_back(std::move(values));
    }
  }
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    for (const TensorInfo& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  Result<TensorView> Read(std::string_view name) const override {
    const TensorInfo* info = Find(name);
    const auto& values = values_[static_cast<size_t>(info - tensors_.data())];
    return TensorView{DType::kF32, info->shape, std::as_bytes(std::span(*values)), values};
  }
  [[nodiscard]] std::string_view path() const override { return "donor"; }
  TensorInfo& Entry(std::string_view name) { return *const_cast<TensorInfo*>(Find(name)); }

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<std::shared_ptr<std::vector<float>>> values_;
};

constexpr const char* kGate = "model.layers.1.mlp.gate_proj.weight";
constexpr const char* kNorm = "model.norm.weight";

class SkillGraft : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::path(testing::TempDir()) /
            (std::string("cmforge-graft-") + testing::UnitTest::GetInstance()->current_test_info()->name() +
             ".cmf");
    Use("rs-qwen3-q8.cmf");
  }
  void TearDown() override { fs::remove(path_); }
  void Use(const std::string& name) {
    fs::copy_file(CmfFile(name), path_, fs::copy_options::overwrite_existing);
    fs::permissions(path_, fs::perms::owner_write, fs::perm_options::add);
    file_ = std::make_shared<cmf::File>(cmf::File::Open(path_).value());
  }
  Result<Graft> Plan(std::shared_ptr<const TensorSource> donor, const GraftOptions& options = {}) {
    return PlanGraft(*file_, std::move(donor), options, pool_, {});
  }
  std::vector<std::byte> Bytes() const {
    const MappedFile file = MappedFile::Open(path_).value();
    return {file.bytes().begin(), file.bytes().end()};
  }

  fs::path path_;
  std::shared_ptr<cmf::File> file_;
  std::shared_ptr<ThreadPool> pool_ = std::make_shared<ThreadPool>(1);
};

TEST_F(SkillGraft, TakesWhatChangedInTheBackbonesEncoding) {
  for (const char* name : {"rs-qwen3-q8.cmf", "rs-qwen3-q4tp.cmf", "rs-qwen3-vbit.cmf", "rs-qwen3-q4t.cmf",
                           "rs-phi3-q4.cmf", "rs-gemma2-f16.cmf", "py-tiny-q8_2f.cmf"}) {
    Use(name);
    const auto donor =
        std::make_shared<Donor>(*file_, std::vector<std::pair<std::string, float>>{{kGate, 1.5f}});
    const auto graft = Plan(donor);
    ASSERT_TRUE(graft) << name << graft.error().message;
    const TensorInfo* gate = graft->tensors->Find(kGate);
    ASSERT_NE(gate, nullptr) << name;
    EXPECT_EQ(gate->dtype, file_->Find(kGate)->dtype) << name;
    EXPECT_EQ(gate->shape, file_->Find(kGate)->shape) << name;
    const auto encoded = Dequantize(graft->tensors->Read(kGate).value()).value();
    const auto wanted = Dequantize(donor->Read(kGate).value()).value();
    double error = 0, length = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      error += std::pow(static_cast<double>(encoded[i]) - static_cast<double>(wanted[i]), 2);
      length += std::pow(static_cast<double>(wanted[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / length), 0.2) << name;
    const GraftOptions only_large{.layers = {}, .min_delta = 0.15};
    EXPECT_EQ(Plan(donor, only_large)->tensors->tensors().size(), 1u) << name;
  }
}

TEST_F(SkillGraft, UnchangedTensorsAndOtherLayersAreLeftOut) {
  const auto donor = std::make_shared<Donor>(
      *file_, std::vector<std::pair<std::string, float>>{{kGate, 1.5f}, {kNorm, 2.0f}});
  const auto all = Plan(donor);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->tensors->tensors().size(), 2u);
  EXPECT_EQ(all->unchanged, static_cast<int64_t>(file_->tensors().size()) - 2);
  EXPECT_EQ(all->layers, std::vector<int64_t>{1});
  GraftOptions options;
  options.layers = {1, 1};
  EXPECT_EQ(Plan(donor, options)->tensors->tensors().size(), 1u);
  options.layers = {0, 0};
  EXPECT_EQ(Plan(donor, options).error().kind, ErrorKind::kUsage) << "nothing changed there";
  EXPECT_EQ(Plan(std::make_shared<Donor>(*file_, std::vector<std::pair<std::string, float>>{})).error().kind,
            ErrorKind::kUsage);
}

TEST_F(SkillGraft, DemandsTheFullShape) {
  const auto donor =
      std::make_shared<Donor>(*file_, std::vector<std::pair<std::string, float>>{{kGate, 1.5f}});
  donor->Entry(kGate).shape[0] -= 1;
  const auto graft = Plan(donor);
  ASSERT_FALSE(graft);
  EXPECT_EQ(graft.error().kind, ErrorKind::kUsage);
  EXPECT_NE(graft.error().message.find(kGate), std::string::npos) << graft.error().message;
}

TEST_F(SkillGraft, RefusesADonorWhoseLayersHaveWhatTheBackbonesHaveNot) {
  const auto donor =
      std::make_shared<Donor>(*file_, std::vector<std::pair<std::string, float>>{{kNorm, 2.0f}});
  donor->Entry(kGate).name = "model.layers.1.mlp.experts.0.gate_proj.weight";
  const auto graft = Plan(donor);
  ASSERT_FALSE(graft);
  EXPECT_EQ(graft.error().kind, ErrorKind::kUsage);
  EXPECT_NE(graft.error().message.find("experts.0"), std::string::npos) << graft.error().message;
}

// What EmitAppend writes, in order.
class Recorder final : public cmf::InPlaceSink {
 public:
  Result<void> WriteAt(uint64_t offset, cmforge::Bytes bytes) override {
    writes.push_back({offset, {bytes.begin(), bytes.end()}});
    return {};
  }
  Result<void> Sync() override { return {}; }
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> writes;
};

TEST_F(SkillGraft, KilledAtAnyWriteTheFileIsTheOldOneOrTheNewOne) {
  const std::vector<std::byte> before = Bytes();
  const auto graft = Plan(std::make_shared<Donor>(
      *file_, std::vector<std::pair<std::string, float>>{{kGate, 1.5f}, {kNorm, 2.0f}}));
  const auto tensors = AsSkillTensors(graft->tensors, "sql");
  cmf::SkillRecord record;
  record.id = "sql";
  record.layers = graft->layers;
  const cmf::AppendEdits edits = SkillEdits(*file_, *tensors, record);
  Recorder recorder;
  ASSERT_TRUE(cmf::EmitAppend(file_->parts()[0], edits, recorder));
  ASSERT_EQ(recorder.writes.back().first, 0u) << "the envelope comes last";

  const uint64_t old_hash = file_->dir_hash();
  std::vector<std::byte> state = before;
  const auto apply = [](std::vector<std::byte>& to, uint64_t offset, std::span<const std::byte> bytes) {
    to.resize(std::max<size_t>(to.size(), offset + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<std::ptrdiff_t>(offset));
  };
  for (size_t w = 0; w + 1 < recorder.writes.size(); ++w) {
    const auto& [offset, bytes] = recorder.writes[w];
    EXPECT_GE(offset, before.size()) << "what was there is not touched";
    for (size_t count = 0; count <= bytes.size(); count += std::max<size_t>(1, bytes.size() / 97)) {
      std::vector<std::byte> torn = state;
      apply(torn, offset, std::span(bytes).first(count));
      const auto opened = cmf::File::OpenBytes(torn, "torn");
      ASSERT_TRUE(opened) << opened.error().message;
      ASSERT_EQ(opened->dir_hash(), old_hash);
    }
    apply(state, offset, bytes);
  }
  EXPECT_TRUE(cmf::Verify(cmf::File::OpenBytes(state, "all but the envelope").value(), *pool_)->ok());
  apply(state, 0, recorder.writes.back().second);
  const cmf::File after = cmf::File::OpenBytes(state, "after").value();
  EXPECT_TRUE(cmf::Verify(after, *pool_)->ok());
  EXPECT_EQ(after.header().skills.size(), 1u);
  for (const TensorInfo& tensor : file_->tensors()) {
    EXPECT_EQ(after.PlaceOf(*after.Find(tensor.name)).offset, file_->PlaceOf(tensor).offset) << tensor.name;
  }
}

TEST_F(SkillGraft, TheSkillIsTheTunedModelAndReplacingItLeavesNothingOver) {
  const auto add = [&](const std::vector<std::pair<std::string, float>>& changes) {
    const auto graft = Plan(std::make_shared<Donor>(*file_, changes));
    const auto tensors = AsSkillTensors(graft->tensors, "sql");
    cmf::SkillRecord record;
    record.id = "sql";
    ASSERT_TRUE(cmf::Append(path_, SkillEdits(*file_, *tensors, record)));
    file_ = std::make_shared<cmf::File>(cmf::File::Open(path_).value());
  };
  add({{kGate, 1.5f}, {kNorm, 2.0f}});
  EXPECT_EQ(ReplacedTensors(*file_, "sql", file_->header().skills).size(), 2u);
  const std::vector<TokenId> ids = {3, 17, 42};
  const auto dense = LastLogits(**OpenAll(path_)->Backbone(), ids),
             tuned = LastLogits(**OpenAll(path_)->WithSkill("sql"), ids);
  EXPECT_NE(dense, tuned);
  EXPECT_EQ(dense, LastLogits(**OpenAll(CmfFile("rs-qwen3-q8.cmf"))->Backbone(), ids))
      << "the backbone is untouched";

  add({{kGate, 1.5f}});
  EXPECT_EQ(ReplacedTensors(*file_, "sql", file_->header().skills), std::vector<std::string>{kGate});
  EXPECT_EQ(file_->header().skills.size(), 1u);
  const auto removal = SkillRemovalEdits(*file_, "sql");
  ASSERT_TRUE(removal);
  ASSERT_TRUE(cmf::Append(path_, *removal));
  file_ = std::make_shared<cmf::File>(cmf::File::Open(path_).value());
  EXPECT_TRUE(SkillIds(*file_, file_->header().skills).empty());
  EXPECT_TRUE(cmf::Verify(*file_, *pool_)->ok());
  EXPECT_EQ(SkillRemovalEdits(*file_, "sql").error().kind, ErrorKind::kNotFound);
}

}  // namespace
}  // namespace cmforge
