// Other encodings from a file: recorded results of others, every encoding into every other, in place and not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "cmf/file.h"
#include "cmf/rewrite.h"
#include "cmf/verify.h"
#include "convert/converter.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class Requant : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / (fmt::format("requant_{}_", ::getpid()) +
                                              testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static fs::path Data(const std::string& name) { return fs::path(CMFORGE_TEST_DATA) / "cmf" / name; }
  fs::path Copy(const std::string& name) {
    const fs::path path = folder_ / name;
    fs::copy_file(Data(name), path);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    return path;
  }
  static ConvertOptions To(std::string_view quant, std::initializer_list<std::string_view> rules = {}) {
    ConvertOptions options;
    options.quant = ParseQuantPreset(quant).value();
    for (const std::string_view rule : rules)
      options.tensor_quant.push_back(ParseTensorQuantRule(rule).value());
    return options;
  }
  Result<ConvertReport> Rewrite(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
    CMF_TRY(const cmf::File file, cmf::File::Open(from));
    ConvertInput input;
    input.tensors = &file;
    input.header = file.header();
    input.header.shard.reset();
    input.header.quant_type.clear();
    input.masks = &file.masks();
    input.tokenizer_json = file.tokenizer_json();
    return ConvertToCmf(input, options, to, pool_, {});
  }
  Result<ConvertReport> InPlace(const fs::path& path, const ConvertOptions& options) {
    return RequantInPlace(path, options, {{"quant", options.quant.name}}, pool_, {});
  }
  void ExpectSound(const fs::path& path) {
    const auto report = cmf::Verify(path, {}, pool_, {});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->ok()) << path << ": " << report->problems[0].where << ": "
                              << report->problems[0].what;
  }
  static void ExpectSameTensors(const fs::path& got_path, const fs::path& want_path, bool places) {
    const auto got = cmf::File::Open(got_path), want = cmf::File::Open(want_path);
    ASSERT_TRUE(got && want);
    ASSERT_EQ(got->tensors().size(), want->tensors().size());
    for (const TensorInfo& tensor : want->tensors()) {
      const TensorInfo* info = got->Find(tensor.name);
      ASSERT_NE(info, nullptr) << tensor.name;
      EXPECT_EQ(DTypeName(info->dtype), DTypeName(tensor.dtype)) << tensor.name;
      EXPECT_EQ(got->PlaceOf(*info).hash, want->PlaceOf(tensor).hash) << tensor.name;
      if (places) {
        EXPECT_EQ(got->PlaceOf(*info).offset, want->PlaceOf(tensor).offset) << tensor.name;
      }
    }
  }

  fs::path folder_;
  ThreadPool pool_{2};
};

TEST_F(Requant, TiledToLadderIsTheRecordedFile) {
  const auto report = Rewrite(Data("rs-qwen3-q4t.cmf"), folder_ / "out.cmf", To("q4tp"));
  ASSERT_TRUE(report) << report.error().message;
  ExpectSameTensors(folder_ / "out.cmf", Data("rs-qwen3-requant-q4tp.cmf"), false);
  ExpectSound(folder_ / "out.cmf");
}

TEST_F(Requant, InPlaceIsTheRecordedFile) {
  const fs::path path = Copy("rs-wide-q4t.cmf");
  const auto size = fs::file_size(path);
  const auto report = InPlace(path, To("q4tp"));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_GT(report->changed, 0);
  EXPECT_TRUE(report->fallbacks.empty());
  EXPECT_EQ(fs::file_size(path), size);
  ExpectSameTensors(path, Data("rs-wide-requant-inplace.cmf"), true);
  ExpectSound(path);
  EXPECT_EQ(cmf::File::Open(path)->header().provenance["requant"]["quant"], "q4tp");
  // Again: there is nothing to do, and nothing is written.
  const auto written = fs::last_write_time(path);
  const auto again = InPlace(path, To("q4tp"));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->changed, 0);
  EXPECT_EQ(fs::last_write_time(path), written);
}

TEST_F(Requant, EveryEncodingBecomesEveryOther) {
  const char* const names[] = {"f32",  "f16", "bf16", "q8",  "q8_2f", "q4",   "q4t",       "q4tp",
                               "q2tp", "q1",  "q1p",  "q1s", "q1t",   "vbit", "vbit_plain"};
  for (const char* from : names) {
    const fs::path source = folder_ / "from.cmf";
    ASSERT_TRUE(Rewrite(Data("py-tiny-f16.cmf"), source, To(from)));
    for (const char* to : names) {
      const auto report = Rewrite(source, folder_ / "to.cmf", To(to));
      ASSERT_TRUE(report) << from << " to " << to << ": " << report.error().message;
      ExpectSound(folder_ / "to.cmf");
      // What stays is byte for byte what it was; what changes is what encoding the decoded tensor gives.
      const auto before = cmf::File::Open(source), after = cmf::File::Open(folder_ / "to.cmf");
      for (const TensorInfo& tensor : after->tensors()) {
        const TensorInfo& old = *before->Find(tensor.name);
        if (old.dtype == tensor.dtype) {
          EXPECT_EQ(before->PlaceOf(old).hash, after->PlaceOf(tensor).hash)
              << from << " to " << to << tensor.name;
        }
      }
    }
  }
}

TEST_F(Requant, FromF32EqualsConvertingFromTheSource) {
  ASSERT_TRUE(Rewrite(Data("py-tiny-f16.cmf"), folder_ / "f32.cmf", To("f32")));
  for (const char* to : {"q8", "q8_2f", "q4tp", "vbit", "q1t", "f16"}) {
    ASSERT_TRUE(Rewrite(Data("py-tiny-f16.cmf"), folder_ / "direct.cmf", To(to)));
    ASSERT_TRUE(Rewrite(folder_ / "f32.cmf", folder_ / "twice.cmf", To(to)));
    ExpectSameTensors(folder_ / "twice.cmf", folder_ / "direct.cmf", true);
  }
}

TEST_F(Requant, BlockAndTiledKeepTheirNumbers) {
  ASSERT_TRUE(Rewrite(Data("py-tiny-q4_block-masks.cmf"), folder_ / "tiled.cmf", To("q4t")));
  const auto block = cmf::File::Open(Data("py-tiny-q4_block-masks.cmf")),
             tiled = cmf::File::Open(folder_ / "tiled.cmf");
  int moved = 0;
  for (const TensorInfo& tensor : tiled->tensors()) {
    const auto now = Dequantize(*tiled->Read(tensor.name)), was = Dequantize(*block->Read(tensor.name));
    if (tensor.dtype != DType::kQ4Tiled) continue;
    EXPECT_EQ(*now, *was) << tensor.name;
    ++moved;
  }
  EXPECT_GT(moved, 3);
}

TEST_F(Requant, VbitIsEncodedAgainOnlyForAnotherBudget) {
  ConvertOptions options = To("vbit");
  ASSERT_TRUE(Rewrite(Data("rs-qwen3-vbit.cmf"), folder_ / "same.cmf", options));
  ExpectSameTensors(folder_ / "same.cmf", Data("rs-qwen3-vbit.cmf"), false);
  options.encoders.mean_bits = 3.25;
  const auto report = Rewrite(Data("rs-qwen3-vbit.cmf"), folder_ / "small.cmf", options);
  ASSERT_TRUE(report);
  EXPECT_GT(report->changed, 5);
  EXPECT_LT(fs::file_size(folder_ / "small.cmf"), fs::file_size(folder_ / "same.cmf") - 4000);
}

TEST_F(Requant, SkillsKeepTheirEncodingUnlessNamed) {
  const fs::path path = Copy("py-tiny-skills.cmf");
  const auto before = cmf::File::Open(Data("py-tiny-skills.cmf"));
  ASSERT_TRUE(InPlace(path, To("q4t")));
  ExpectSound(path);
  const auto after = cmf::File::Open(path);
  EXPECT_EQ(after->header().skills, before->header().skills);
  int skills = 0, matrices = 0;
  for (const TensorInfo& tensor : after->tensors()) {
    const bool same = after->PlaceOf(tensor).hash == before->PlaceOf(*before->Find(tensor.name)).hash;
    if (tensor.name.starts_with("skill.")) {
      EXPECT_TRUE(same) << tensor.name;
      ++skills;
    } else if (tensor.dtype == DType::kQ4Tiled) {
      EXPECT_FALSE(same) << tensor.name;
      ++matrices;
    }
  }
  EXPECT_GT(skills, 0);
  EXPECT_GT(matrices, 0);
  ASSERT_TRUE(InPlace(path, To("keep", {"skill.*proj.weight=q4t"})));
  const auto named = cmf::File::Open(path);
  for (const TensorInfo& tensor : named->tensors()) {
    if (tensor.name.starts_with("skill.") && tensor.shape.size() == 2) {
      EXPECT_EQ(tensor.dtype, DType::kQ4Tiled) << tensor.name;
    }
  }
}

TEST_F(Requant, MasksAndTokenizerStay) {
  for (const char* name : {"py-tiny-f32-masks.cmf", "rs-qwen3_moe-moemask.cmf", "rs-nanbeige-loopmask.cmf"}) {
    const auto before = cmf::File::Open(Data(name));
    ASSERT_TRUE(Rewrite(Data(name), folder_ / "out.cmf", To("q8")));
    const fs::path path = Copy(name);
    ASSERT_TRUE(InPlace(path, To("q4"))) << name;
    for (const fs::path& made : {folder_ / "out.cmf", path}) {
      ExpectSound(made);
      const auto after = cmf::File::Open(made);
      EXPECT_EQ(after->masks().masks.size(), before->masks().masks.size());
      EXPECT_EQ(after->masks().default_task, before->masks().default_task);
      EXPECT_TRUE(std::ranges::equal(after->tokenizer_json(), before->tokenizer_json()));
      EXPECT_EQ(after->header().config, before->header().config);
      EXPECT_EQ(after->header().chat, before->header().chat);
    }
  }
}

TEST_F(Requant, TensorsThatDoNotFitStayAndAreReported) {
  // 64 columns: the ladder's row parameters make q4tp longer than q4_tiled; the slot's padding saves some.
  const fs::path path = Copy("rs-qwen3-q4t.cmf");
  const auto before = cmf::File::Open(Data("rs-qwen3-q4t.cmf"));
  const auto report = InPlace(path, To("q4tp", {"*norm*=keep"}));
  if (report) {
    EXPECT_FALSE(report->fallbacks.empty());
    for (const auto& fallback : report->fallbacks)
      EXPECT_NE(fallback.reason.find("do not fit the slot of"), fallback.reason.npos);
  } else {
    EXPECT_EQ(report.error().kind, ErrorKind::kUsage);
    EXPECT_NE(report.error().message.find("use --output"), std::string::npos) << report.error().message;
    ExpectSameTensors(path, Data("rs-qwen3-q4t.cmf"), true);
  }
  ExpectSound(path);
  const auto wider = InPlace(path, To("f32", {"*norm*=keep"}));
  ASSERT_FALSE(wider);
  EXPECT_EQ(wider.error().kind, ErrorKind::kUsage);
}

TEST_F(Requant, ASetOfShardsIsRewrittenInPlace) {
  const auto file = cmf::File::Open(Data("rs-wide-q4t.cmf"));
  const auto shards = cmf::WriteShards(folder_ / "set", cmf::ContentsOf(*file), 2e-4);
  ASSERT_TRUE(shards) << shards.error().message;
  ASSERT_GT(shards->size(), 2u);
  const auto report = InPlace(shards->back(), To("q4tp"));
  ASSERT_TRUE(report) << report.error().message;
  const auto set = cmf::File::Open(shards->front());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->header().shard->dir_hashes.size(), shards->size());
  ExpectSound(shards->front());
  for (const TensorInfo& tensor : set->tensors()) EXPECT_NE(tensor.dtype, DType::kQ4Tiled) << tensor.name;
  for (const fs::path& shard : *shards) ExpectSound(shard);
}

TEST_F(Requant, DamageIsNotPassedOn) {
  const fs::path path = Copy("rs-wide-q4t.cmf");
  const auto place = [&] {
    const auto file = cmf::File::Open(path);
    return file->PlaceOf(*file->Find("lm_head.weight")).offset;
  }();
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(place));
  stream.put('\x55');
  stream.close();
  const auto report = Rewrite(path, folder_ / "out.cmf", To("q8"));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kCorrupt);
  EXPECT_NE(report.error().message.find("lm_head.weight"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "out.cmf"));
}

}  // namespace
}  // namespace cmforge
