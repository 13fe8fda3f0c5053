// Whole folders: the small odd ones of this repository, and the larger ones where they are at hand.
#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/json.h"
#include "checkpoint/temp_folder.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const fs::path kData = CMFORGE_TEST_DATA "/checkpoint";

Checkpoint Open(const fs::path& folder) {
  auto checkpoint = OpenCheckpoint(folder);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return checkpoint ? std::move(*checkpoint) : Checkpoint{};
}
Error OpenError(const fs::path& folder) {
  auto checkpoint = OpenCheckpoint(folder);
  EXPECT_FALSE(checkpoint) << folder;
  return checkpoint ? Error{} : checkpoint.error();
}

TEST(Checkpoint, NamesTheMissingShardAndItsTensors) {
  const Error error = OpenError(kData / "shard-missing");
  EXPECT_EQ(error.kind, ErrorKind::kNotFound);
  EXPECT_THAT(error.message, AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("7 tensors")));
}

TEST(Checkpoint, SaysThatThePointerIsNoWeightFile) {
  EXPECT_THAT(OpenError(kData / "lfs-pointer").message,
              AllOf(HasSubstr("Git LFS pointer"), HasSubstr("not fetched")));
}

TEST(Checkpoint, AnUntiedFlagWithoutAHeadIsOneWarning) {
  const Checkpoint checkpoint = Open(kData / "untied-flag-without-head");
  EXPECT_TRUE(checkpoint.config.model.tie_word_embeddings);
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("the embedding serves as the head")));
}

/// A copy of a model of three layers whose config was changed.
class ChangedCheckpoint : public testing::Test {
 protected:
  void Change(const std::string& model, const std::function<void(Json&)>& change) {
    const fs::path from = fs::path(CMFORGE_TEST_DATA) / "engine" / model;
    Json config = ParseJson(ReadAll(from / "config.json"), "config").value();
    change(config);
    folder_.Write("config.json", DumpJson(config));
    folder_.Write("model.safetensors", ReadAll(from / "model.safetensors"));
  }
  TempFolder folder_;
};

TEST_F(ChangedCheckpoint, MissesTheBiasesThatItsConfigAnnounces) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    Change("qwen3_yarn", [&](Json& config) { config[key] = true; });
    const Error error = OpenError(folder_.path());
    EXPECT_EQ(error.kind, ErrorKind::kCorrupt) << key;
    EXPECT_THAT(error.message, AllOf(HasSubstr("_proj.bias' is missing"), HasSubstr("layers.0."))) << key;
    Change("llama", [&](Json& config) { config[key] = true; });  // it has them
    EXPECT_THAT(Open(folder_.path()).warnings, Not(testing::Contains(HasSubstr("bias"))));
  }
}

TEST_F(ChangedCheckpoint, WarnsOfLayersThatItsConfigDoesNotCount) {
  const auto two_layers = [](Json& config) {
    config["num_hidden_layers"] = 2;
    if (config.contains("layer_types")) config["layer_types"].erase(2);
  };
  const auto beyond = testing::Contains(AllOf(HasSubstr("'model.layers.2."), HasSubstr("num_hidden_layers")));
  Change("qwen3_yarn", [](Json&) {});
  EXPECT_THAT(Open(folder_.path()).warnings, Not(beyond));
  Change("qwen3_yarn", two_layers);
  EXPECT_THAT(Open(folder_.path()).warnings, beyond);
  // Layers that predict further tokens: announced, or known by what joins them to the model.
  Change("qwen3_yarn", [&](Json& config) {
    two_layers(config);
    config["num_nextn_predict_layers"] = 1;
  });
  EXPECT_THAT(Open(folder_.path()).warnings, Not(beyond));
  Change("qwen3_yarn", two_layers);
  std::string weights = ReadAll(folder_.path() / "model.safetensors");
  const std::string norm = "\"model.layers.2.self_attn.q_norm.weight\"";
  std::string joint = "\"model.layers.2.eh_proj.weight\"";
  joint.resize(norm.size(), ' ');
  ASSERT_NE(weights.find(norm), weights.npos);
  weights.replace(weights.find(norm), norm.size(), joint);
  folder_.Write("model.safetensors", weights);
  EXPECT_THAT(Open(folder_.path()).warnings, Not(beyond));
}

TEST(Checkpoint, ReadsANestedConfigAndSkipsTheVisionTensor) {
  const Checkpoint nested = Open(kData / "nested-text-config");
  EXPECT_EQ(nested.config.model_type, "qwen3");
  EXPECT_TRUE(nested.config.is_multimodal);
  ASSERT_EQ(nested.tensors->skipped().size(), 1u);
  EXPECT_THAT(nested.tensors->skipped()[0], HasSubstr("vis"));
  EXPECT_NE(nested.tensors->Find("model.embed_tokens.weight"), nullptr);
  EXPECT_NE(nested.raw->Find("model.language_model.embed_tokens.weight"), nullptr);
  EXPECT_THAT(nested.warnings, IsEmpty());
}

TEST(Checkpoint, ReadsNullAndMovedFields) {
  const Checkpoint checkpoint = Open(kData / "null-and-moved-fields");
  const ModelConfig& model = checkpoint.config.model;
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.num_kv_heads, 2);
  EXPECT_EQ(model.rope.theta, 500000.0);
  EXPECT_THAT(checkpoint.config.chat.eos_token_ids, testing::IsSupersetOf({261, 263}));
}

TEST(Checkpoint, ReadsAnOddWidth) {
  const Checkpoint checkpoint = Open(kData / "odd-ffn-width");
  EXPECT_EQ(checkpoint.config.model.intermediate_size, 44);
  EXPECT_FALSE(checkpoint.tokenizer_json().empty());
}

/// A copy of a good folder, to be damaged.
class Damaged {
 public:
  explicit Damaged(const std::string& name = "odd-ffn-width") {
    for (const auto& entry : fs::directory_iterator(kData / name)) {
      folder_.Write(entry.path().filename().string(), ReadAll(entry.path()));
    }
  }
  [[nodiscard]] const fs::path& path() const { return folder_.path(); }
  void Write(const std::string& name, std::string_view bytes) const { folder_.Write(name, bytes); }

  void EditConfig(const std::string& key, const Json& value) const {
    Json config = *ParseJson(ReadAll(path() / "config.json"), "config.json");
    config[key] = value;
    Write("config.json", DumpJson(config));
  }
  void DropConfigKey(const std::string& key) const {
    Json config = *ParseJson(ReadAll(path() / "config.json"), "config.json");
    config.erase(key);
    Write("config.json", DumpJson(config));
  }
  /// Renames a tensor, which is as good as losing it.
  void RenameTensor(const std::string& from, const std::string& to) const {
    ASSERT_EQ(from.size(), to.size());
    std::string file = ReadAll(path() / "model.safetensors");
    const size_t at = file.find(from);
    ASSERT_NE(at, file.npos);
    file.replace(at, from.size(), to);
    Write("model.safetensors", file);
  }

 private:
  TempFolder folder_;
};

TEST(Checkpoint, NamesAMissingTensor) {
  for (const char* name :
       {"mlp.down_proj.weight", "self_attn.k_norm.weight", "post_attention_layernorm.weight"}) {
    const Damaged folder;
    const std::string tensor = std::string("model.layers.0.") + name;
    std::string foreign = tensor;
    foreign.replace(0, 5, "other");
    folder.RenameTensor(tensor, foreign);
    const Error error = OpenError(folder.path());
    EXPECT_EQ(error.kind, ErrorKind::kCorrupt);
    EXPECT_THAT(error.message, HasSubstr("tensor '" + tensor + "' is missing"));
  }
}

TEST(Checkpoint, NamesATensorThatDoesNotFit) {
  const std::tuple<const char*, int, const char*> rows[] = {
      {"intermediate_size", 64, "gate_proj.weight': shape [44, 32], the config wants [64, 32]"},
      {"vocab_size", 300, "embed_tokens.weight': shape [264, 32], the config wants [300, 32]"},
      {"head_dim", 32, "q_proj.weight': shape [32, 32], the config wants [64, 32]"},
      {"num_hidden_layers", 2, "tensor 'model.layers.1.input_layernorm.weight' is missing"},
      {"hidden_size", 64, "embed_tokens.weight': shape [264, 32], the config wants [264, 64]"},
  };
  for (const auto& [key, value, words] : rows) {
    const Damaged folder;
    folder.EditConfig(key, value);
    const Error error = OpenError(folder.path());
    EXPECT_EQ(error.kind, ErrorKind::kCorrupt) << key;
    EXPECT_THAT(error.message, HasSubstr(words));
  }
}

TEST(Checkpoint, NamesAMissingKeyAndItsFile) {
  for (const char* key : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "vocab_size", "intermediate_size"}) {
    const Damaged folder;
    folder.DropConfigKey(key);
    const Error error = OpenError(folder.path());
    EXPECT_EQ(error.kind, ErrorKind::kCorrupt) << key;
    EXPECT_THAT(error.message, HasSubstr(std::string("config.json: key '") + key + "' is missing"));
  }
}

TEST(Checkpoint, APresentHeadWinsOverATieFlag) {
  // The folder is tied; give it a head by a second shard.
  const Damaged folder;
  fs::rename(folder.path() / "model.safetensors", folder.path() / "a.safetensors");
  std::string header = R"({"lm_head.weight":{"dtype":"BF16","shape":[264,32],"data_offsets":[0,16896]}})";
  folder.Write("b.safetensors", SafetensorsBytes(header, 16896));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"lm_head.weight":"b.safetensors","model.norm.weight":"a.safetensors"}})");
  const Checkpoint checkpoint = Open(folder.path());
  EXPECT_FALSE(checkpoint.config.model.tie_word_embeddings);
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("lm_head.weight is there: it is used")));
}

TEST(Checkpoint, WithoutATokenizerIsAWarning) {
  const Damaged folder;
  fs::remove(folder.path() / "tokenizer.json");
  const Checkpoint checkpoint = Open(folder.path());
  EXPECT_TRUE(checkpoint.tokenizer_json().empty());
  EXPECT_THAT(checkpoint.warnings, testing::Contains(HasSubstr("no tokenizer.json")));
}

TEST(Checkpoint, AFolderWithoutConfigIsNotFound) {
  const TempFolder folder;
  EXPECT_EQ(OpenError(folder.path()).kind, ErrorKind::kNotFound);
  EXPECT_EQ(OpenError(folder.path() / "nowhere").kind, ErrorKind::kNotFound);
}

TEST(Checkpoint, AnUnknownFamilyOfKnownTensorsOpensWithAWarning) {
  const Damaged folder;
  folder.EditConfig("model_type", "novel");
  const Checkpoint checkpoint = Open(folder.path());
  EXPECT_FALSE(checkpoint.config.known_family);
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("'novel' is not a family we know")));

  folder.RenameTensor("model.layers.0.self_attn.q_norm", "model.layers.0.self_attn.q_warp");
  const Error error = OpenError(folder.path());
  EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("model.layers.0.self_attn.q_warp"));
}

TEST(Checkpoint, PackedWeightsAreRefusedEvenWithoutAWordInTheConfig) {
  const Damaged folder;
  std::string file = ReadAll(folder.path() / "model.safetensors");
  for (size_t at = 0; (at = file.find("\"BF16\"", at)) != file.npos; ++at) file.replace(at, 6, "\"I16\" ");
  folder.Write("model.safetensors", file);
  const Error error = OpenError(folder.path());
  EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("dtype i16"));
}

TEST(Checkpoint, LinksOfACacheWorkAndADanglingOneIsNamed) {
  const Damaged blobs;
  const TempFolder folder;
  for (const auto& entry : fs::directory_iterator(blobs.path())) {
    fs::create_symlink(entry.path(), folder.path() / entry.path().filename());
  }
  Open(folder.path());
  fs::remove(blobs.path() / "config.json");
  const Error error = OpenError(folder.path());
  EXPECT_EQ(error.kind, ErrorKind::kNotFound);
  EXPECT_THAT(error.message, AllOf(HasSubstr("config.json"), HasSubstr("link")));
}

TEST(Checkpoint, NoTruncationPassesSilently) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    const Damaged folder;
    const std::string whole = ReadAll(folder.path() / name);
    // Cut at every byte of the config; the weights' every byte is safetensors_test's.
    const size_t end = whole.find_last_not_of(" \r\n");
    for (size_t size = 0; size <= end; size += size < 500 ? 1 : 499) {
      folder.Write(name, std::string_view(whole).substr(0, size));
      ASSERT_FALSE(OpenCheckpoint(folder.path(), MappedFile::Mode::kRead)) << name << " cut to " << size;
    }
  }
}

// ---- the larger fixtures, where they are at hand

TEST(CheckpointFixtures, OpenWithoutComplaint) {
  const fs::path root = CMFORGE_SOURCE_DIR "/../shared/fixtures/checkpoints";
  if (!fs::exists(root)) GTEST_SKIP() << "no " << root;
  int opened = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const Checkpoint checkpoint = Open(entry.path());
    ASSERT_NE(checkpoint.tensors, nullptr);
    ++opened;
    EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("no tokenizer.json")));
    for (const TensorInfo& info : checkpoint.tensors->tensors()) {
      const auto view = checkpoint.tensors->Read(info.name);
      ASSERT_TRUE(view) << info.name;
      EXPECT_EQ(view->bytes.size(), info.nbytes) << info.name;
      EXPECT_EQ(view->shape, info.shape) << info.name;
    }
    const bool has_mtp = checkpoint.tensors->Find("model.mtp.eh_proj.weight") != nullptr;
    EXPECT_EQ(checkpoint.config.model.mtp.has_value(), has_mtp);
  }
  EXPECT_GE(opened, 14);
}

}  // namespace
}  // namespace cmforge
