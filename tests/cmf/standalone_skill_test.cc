// Standalone skills: what was cut out and put back is the specialist again; everything that does not fit is refused.
#include "cmf/standalone_skill.h"

#include "cmf/hash64.h"
#include "cmf/rewrite.h"
#include "cmf/verify.h"
#include "files.h"
#include "tiny_model.h"

namespace cmforge::cmf {
namespace {

class StandaloneSkill : public InFolder {
 protected:
  /// A base, and a specialist of it: one tensor changed, one re-encoded, one new; other masks.
  void SetUp() override {
    InFolder::SetUp();
    base_ = Write("base.cmf", TinyContents(tensors_));
    tuned_.AddPattern("model.embed_tokens.weight", DType::kQ8Row, {10, 8});
    tuned_.AddPattern("model.norm.weight", DType::kF16, {8}, 12);
    tuned_.AddPattern("model.layers.0.mlp.down_proj.weight", DType::kQ4Block, {8, 12}, 3);
    tuned_.AddPattern("model.layers.1.mlp.down_proj.weight", DType::kF32, {8, 12}, 5);
    tuned_.AddPattern("model.layers.1.mlp.down_proj.bias", DType::kF16, {8}, 6);
    specialist_ = Write("specialist.cmf", Tuned());
  }
  Contents Tuned() {
    Contents contents;
    contents.header.config = TinyConfig();
    contents.tensors = &tuned_;
    for (const TensorInfo& tensor : tuned_.tensors()) contents.names.push_back(tensor.name);
    contents.masks.default_task = "law";
    contents.masks.masks = {TinyMask("law", 4)};
    contents.tokenizer_json = AsBytes(R"({"model":{}})");
    return contents;
  }
  std::shared_ptr<File> Write(const std::string& name, const Contents& contents) {
    EXPECT_TRUE(WriteCmf(folder_ / name, contents));
    return std::make_shared<File>(File::Open(folder_ / name).value());
  }
  Result<WriteSummary> Export(const File& specialist, const File& base, std::string id = "law") {
    return ExportSkill(specialist, base, {std::move(id), "Law", "specialist.cmf"}, folder_ / "skill.cmf");
  }
  File Skill() { return File::Open(folder_ / "skill.cmf").value(); }

  MemorySource tensors_, tuned_;
  std::shared_ptr<File> base_, specialist_;
  ThreadPool pool_{1};
};

void ExpectSameModel(const File& got, const File& want) {
  ASSERT_EQ(got.tensors().size(), want.tensors().size());
  for (const TensorInfo& tensor : want.tensors()) {
    const TensorInfo* other = got.Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(other->shape, tensor.shape) << tensor.name;
    const auto a = got.Read(tensor.name).value(), b = want.Read(tensor.name).value();
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) << tensor.name;
  }
  EXPECT_EQ(PackMasks(got.masks(), got.mask_geometry()).value(),
            PackMasks(want.masks(), want.mask_geometry()).value());
}

TEST_F(StandaloneSkill, AppliedIsTheSpecialistTensorForTensorAndMaskForMask) {
  const auto exported = Export(*specialist_, *base_);
  ASSERT_TRUE(exported) << exported.error().message;
  const File skill = Skill();
  EXPECT_EQ(skill.tensors().size(), 3u) << "only what differs";
  EXPECT_EQ(skill.required_features() & kSkillFile, uint32_t{kSkillFile});
  EXPECT_TRUE(skill.tokenizer_json().empty());
  const SkillRecord& record = skill.header().skills.at(0);
  EXPECT_EQ(record.base_dir_hash, Hash64Hex(base_->dir_hash()));
  EXPECT_EQ(record.base_arch, "tiny");
  EXPECT_EQ(record.task, "law");
  EXPECT_EQ(record.layers, std::vector<int64_t>{1});
  EXPECT_TRUE(Verify(skill, pool_)->ok());

  ASSERT_TRUE(ApplySkill(*base_, skill, false, folder_ / "applied.cmf"));
  const File applied = File::Open(folder_ / "applied.cmf").value();
  ExpectSameModel(applied, *specialist_);
  EXPECT_FALSE(applied.is_skill_file());
  EXPECT_EQ(applied.header().skills.at(0).id, "law");
  EXPECT_EQ(AsText(applied.tokenizer_json()), R"({"model":{}})");
  EXPECT_TRUE(Verify(applied, pool_)->ok());
}

TEST_F(StandaloneSkill, RefusesWhatItWasNotCutFrom) {
  ASSERT_TRUE(Export(*specialist_, *base_));
  const File skill = Skill();
  // Another base of the same architecture: refused, both hashes named; forced, a warning.
  Contents other = TinyContents(tensors_);
  other.names = {"model.embed_tokens.weight", "model.norm.weight", "model.layers.0.mlp.down_proj.weight",
                 "model.layers.1.mlp.down_proj.weight"};
  other.header.skills.clear();
  const auto stranger = Write("other.cmf", other);
  const auto refused = ApplySkill(*stranger, skill, false, folder_ / "no.cmf");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUsage);
  EXPECT_NE(refused.error().message.find(Hash64Hex(base_->dir_hash())), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find(Hash64Hex(stranger->dir_hash())), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "no.cmf"));
  RunControl control;
  int warnings = 0;
  control.log = [&](LogLevel, std::string_view) { ++warnings; };
  EXPECT_TRUE(ApplySkill(*stranger, skill, true, folder_ / "forced.cmf", control));
  EXPECT_EQ(warnings, 1);
  EXPECT_EQ(ApplySkill(*base_, *specialist_, false, folder_ / "no.cmf").error().kind, ErrorKind::kUsage)
      << "not a standalone skill";
  EXPECT_EQ(ApplySkill(skill, skill, false, folder_ / "no.cmf").error().kind, ErrorKind::kUsage)
      << "a skill is no base";
}

TEST_F(StandaloneSkill, ExportRefusesWhatASkillCannotSay) {
  EXPECT_EQ(Export(*base_, *base_).error().kind, ErrorKind::kUsage) << "nothing differs";
  for (const char* id : {"", "../law", "a/b", "law.cmf", "law skill", ".."})
    EXPECT_EQ(Export(*specialist_, *base_, id).error().kind, ErrorKind::kUsage) << id;
  Contents fewer = Tuned();
  fewer.names = {"model.embed_tokens.weight"};
  EXPECT_EQ(Export(*Write("fewer.cmf", fewer), *base_).error().kind, ErrorKind::kUsage) << "a tensor is gone";
  for (int what = 0; what < 3; ++what) {
    Contents other = Tuned();
    other.masks = {};
    if (what == 0) other.header.config.arch_name = "other";
    if (what == 1) other.header.config.hidden_size = 16;
    if (what == 2) {
      other.header.config.num_layers = 3;
      other.header.config.layer_types.assign(3, LayerKind::kFullAttention);
    }
    EXPECT_EQ(Export(*Write("arch.cmf", other), *base_).error().kind, ErrorKind::kUsage) << what;
  }
  ASSERT_TRUE(Export(*specialist_, *base_));
  const File skill = Skill();
  EXPECT_EQ(Export(skill, *base_).error().kind, ErrorKind::kUsage);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other"));
}

TEST_F(StandaloneSkill, AHostileIdIsRefusedWhenApplied) {
  Contents contents = Tuned();
  SkillRecord record;
  record.id = "../../home";
  record.base_dir_hash = Hash64Hex(base_->dir_hash());
  contents.header.skills = {record};
  const auto hostile = Write("hostile.cmf", contents);
  EXPECT_EQ(ApplySkill(*base_, *hostile, true, folder_ / "no.cmf").error().kind, ErrorKind::kCorrupt);
}

TEST_F(StandaloneSkill, FilesOfTheReferenceToolsGoTogether) {
  const fs::path data = CMFORGE_TEST_DATA "/cmf";
  const File base = File::Open(data / "rs-qwen3-vbit.cmf").value(),
             skill = File::Open(data / "rs-skillfile.cmf").value(),
             expected = File::Open(data / "rs-skillapplied.cmf").value();
  EXPECT_TRUE(skill.is_skill_file());
  const auto applied = ApplySkill(base, skill, false, folder_ / "applied.cmf");
  ASSERT_TRUE(applied) << applied.error().message;
  ExpectSameModel(File::Open(folder_ / "applied.cmf").value(), expected);
  // And ours cut from theirs.
  ASSERT_TRUE(Export(expected, base));
  ASSERT_TRUE(ApplySkill(base, Skill(), false, folder_ / "again.cmf"));
  ExpectSameModel(File::Open(folder_ / "again.cmf").value(), expected);
}

}  // namespace
}  // namespace cmforge::cmf
