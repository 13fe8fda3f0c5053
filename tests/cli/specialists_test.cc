// Tasks, skills and routing through the program.
#include <algorithm>
#include <cmath>

#include "base/npy.h"
#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class SpecialistsCli : public CliTest {
 protected:
  std::string Copy(const std::string& name, const std::string& as = "model.cmf") {
    const fs::path source = fs::path(CMFORGE_TEST_DATA) / "cmf" / name;
    fs::copy_file(source, Path(as), fs::copy_options::overwrite_existing);
    fs::permissions(Path(as), fs::perms::owner_write, fs::perm_options::add);
    return Path(as);
  }
  Json Logits(const std::string& model, const std::vector<std::string>& flags = {}) {
    std::vector<std::string> arguments = {"logits", model, "--tokens", "3,17,42", "--compute", "exact"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.status == 0 ? ran.json()["positions"][0]["logits"] : Json();
  }
  std::string Keep(const std::string& name, int64_t layers, int64_t width, int32_t every) {
    std::vector<int32_t> keep(static_cast<size_t>(layers * width));
    for (size_t i = 0; i < keep.size(); ++i) keep[i] = static_cast<int32_t>(i) % every == 0;
    EXPECT_TRUE(WriteNpy(Path(name), NpyArray::FromBools({layers, width}, keep)));
    return Path(name);
  }
  Json Info(const std::string& model) { return Run({"info", model, "--json"}).json(); }
};

TEST_F(SpecialistsCli, MeasuringCommandsUseAMaskOnlyWhenAsked) {
  const std::string model = Copy("py-tiny-f32-masks.cmf");
  const Json dense = Logits(model), coding = Logits(model, {"--task", "coding"});
  EXPECT_NE(dense, coding);
  EXPECT_EQ(Logits(model, {"--task", "none"}), dense);
  const Ran unknown = Run({"logits", model, "--tokens", "3", "--task", "prose"});
  EXPECT_EQ(unknown.status, 3);
  EXPECT_NE(unknown.err.find("coding"), std::string::npos) << unknown.err;
  const Ran warned =
      Run({"generate", model, "--tokens", "3,17", "-n", "2", "--greedy", "--task", "coding", "--json"});
  EXPECT_EQ(warned.status, 0);
  EXPECT_NE(warned.err.find("never measured"), std::string::npos) << warned.err;
  const std::vector<std::string> bench = {"bench",    model, "--prompt-tokens", "4", "--gen-tokens", "2",
                                          "--repeat", "1",   "--json"};
  auto masked = bench;
  masked.insert(masked.end(), {"--task", "coding"});
  const Json speed = Run(masked).json();
  EXPECT_EQ(speed["task"], "coding");
  EXPECT_GT(speed["prefill"][0]["feed_forward_speedup"], 0) << "against the same run without the mask";
  EXPECT_GT(speed["decode"][0]["feed_forward_speedup"], 0);
  EXPECT_FALSE(Run(bench).json()["prefill"][0].contains("feed_forward_speedup"));
}

TEST_F(SpecialistsCli, MasksAreAddedListedAndRemovedInPlace) {
  const std::string model = Copy("rs-qwen3-q8.cmf");
  const Json before = Info(model);
  const int64_t layers = before["header"]["arch"]["num_layers"],
                width = before["header"]["arch"]["intermediate_size"];
  const std::string bytes = Slurp(model);
  const Json dense = Logits(model);
  const Ran added =
      Run({"mask", "add", model, "--name", "half", "--keep", Keep("half.npy", layers, width, 2), "--json"});
  ASSERT_EQ(added.status, 0) << added.err;
  EXPECT_EQ(added.json()["quality"], nullptr);
  EXPECT_EQ(Slurp(model).substr(128, bytes.size() - 128), bytes.substr(128)) << "append-only";
  EXPECT_EQ(Run({"verify", model}).status, 0);
  EXPECT_EQ(Logits(model), dense);
  EXPECT_NE(Logits(model, {"--task", "half"}), dense);
  EXPECT_EQ(Logits(model, {"--task", "half", "--hot"}), Logits(model, {"--task", "half"}));
  const Json list = Run({"mask", "list", model, "--json"}).json();
  ASSERT_EQ(list["masks"].size(), 1u);
  EXPECT_EQ(list["masks"][0]["name"], "half");
  EXPECT_EQ(list["masks"][0]["layers"][0]["neurons"], (width + 1) / 2);
  EXPECT_EQ(Info(model)["masks"][0]["priority"], "Normal");

  EXPECT_EQ(Run({"mask", "add", model, "--name", "half", "--keep", Path("half.npy")}).status, 2)
      << "the name is taken";
  EXPECT_EQ(Run({"mask", "add", model, "--name", "none", "--keep", Path("half.npy")}).status, 2);
  EXPECT_EQ(
      Run({"mask", "add", model, "--name", "odd", "--keep", Keep("odd.npy", layers, width + 1, 2)}).status,
      2);
  std::ofstream(Path("claim.json")) << R"({"metric":"heldout_ppl_ratio","value":1.0})";
  const Ran claimed = Run(
      {"mask", "add", model, "--name", "claim", "--keep", Path("half.npy"), "--quality", Path("claim.json")});
  EXPECT_EQ(claimed.status, 2) << "a figure without its evidence";
  EXPECT_NE(claimed.err.find("baseline_dense"), std::string::npos) << claimed.err;

  EXPECT_TRUE(WriteNpy(
      Path("nan.npy"),
      NpyArray::FromFloats({layers, width}, std::vector<float>(static_cast<size_t>(layers * width), NAN))));
  EXPECT_EQ(Run({"mask", "add", model, "--name", "nan", "--keep", Path("nan.npy")}).status, 4);
  EXPECT_TRUE(WriteNpy(
      Path("off.npy"),
      NpyArray::FromBools({layers, width}, std::vector<int32_t>(static_cast<size_t>(layers * width)))));
  EXPECT_EQ(Run({"mask", "add", model, "--name", "off", "--keep", Path("off.npy")}).status, 2)
      << "a mask that keeps nothing";
  std::ofstream(Path("latin.txt")) << "caf\xe9";
  const Ran latin = Run(
      {"mask", "add", model, "--name", "latin", "--keep", Path("half.npy"), "--quality", Path("latin.txt")});
  EXPECT_EQ(latin.status, 4);
  EXPECT_NE(latin.err.find("latin.txt"), std::string::npos) << latin.err;

  EXPECT_EQ(Run({"mask", "remove", model, "prose"}).status, 3);
  ASSERT_EQ(Run({"mask", "remove", model, "half"}).status, 0);
  EXPECT_TRUE(Info(model)["masks"].empty());
  EXPECT_EQ(Run({"verify", model}).status, 0);
}

TEST_F(SpecialistsCli, ConvertTakesMasksAndWritesTheIndexOnlyOnRequest) {
  const std::string source = std::string(CMFORGE_TEST_DATA) + "/engine/llama";
  const Json config = ParseJson(Slurp(source + "/config.json"), "config").value();
  fs::create_directories(Path("masks"));
  Keep("masks/half.npy", config["num_hidden_layers"], config["intermediate_size"], 2);
  const std::string out = Path("masked.cmf"), indexed = Path("indexed.cmf");
  const Ran ran =
      Run({"convert", "--model", source, "--output", out, "--masks", Path("masks"), "--quant", "f32"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(Info(out)["masks"][0]["name"], "half");
  EXPECT_EQ(Info(out)["default_task"], "half");
  EXPECT_EQ(Info(out)["sparse_index"], 0);
  ASSERT_EQ(
      Run({"convert", "--model", source, "--output", indexed, "--masks", Path("masks"), "--sparse-index"})
          .status,
      0);
  EXPECT_GT(Info(indexed)["sparse_index"], 0);
  EXPECT_EQ(Run({"verify", indexed}).status, 0);
  EXPECT_EQ(Run({"convert", "--model", source, "--output", indexed, "--sparse-index"}).status, 2);
  EXPECT_NE(Logits(out, {"--task", "half"}), Logits(out));
}

TEST_F(SpecialistsCli, SkillsRunByIdBlendAndRoute) {
  const std::string model = Copy("py-tiny-skills.cmf");
  const Json backbone = Logits(model), sql = Logits(model, {"--skill", "sql"});
  EXPECT_NE(backbone, sql);
  EXPECT_EQ(Logits(model, {"--skill", "none"}), backbone);
  EXPECT_EQ(Logits(model, {"--blend", "sql:2"}), sql);
  EXPECT_NE(Logits(model, {"--blend", "sql:0.5,poet:0.5"}), sql);
  EXPECT_NE(Logits(model, {"--blend", "auto"}), backbone);
  EXPECT_EQ(Run({"logits", model, "--tokens", "3", "--skill", "prose"}).status, 3);
  EXPECT_EQ(Run({"logits", model, "--tokens", "3", "--blend", "sql:x"}).status, 2);
  EXPECT_EQ(Run({"logits", model, "--tokens", "3", "--skill", "sql", "--blend", "auto"}).status, 2);
  EXPECT_EQ(Run({"bench", model, "--skill", "auto"}).status, 2) << "no prompt to choose by";

  const Json ranking = Run({"route", model, "--tokens", "3,17,42,9,88,21", "--json"}).json();
  EXPECT_EQ(ranking["winner"], "sql");
  ASSERT_EQ(ranking["ranking"].size(), 2u);
  EXPECT_NEAR(ranking["ranking"][0]["energy"].get<double>(), 0.09280237, 1e-5);
  EXPECT_EQ(Logits(model, {"--skill", "auto"}), sql);
  const Ran dynamic = Run({"generate", model, "--tokens", "3,17,42,9,88,21,4,5", "-n", "4", "--greedy",
                           "--ignore-eos", "--json", "--route-dynamic"});
  EXPECT_EQ(dynamic.status, 0) << dynamic.err;
  EXPECT_EQ(dynamic.json()["tokens"].size(), 4u);

  const Json list = Run({"skill", "list", model, "--json"}).json();
  ASSERT_EQ(list["skills"].size(), 2u);
  EXPECT_TRUE(list["skills"][0]["is_routable"]);
  ASSERT_EQ(Run({"skill", "remove", model, "sql"}).status, 0);
  EXPECT_EQ(Run({"skill", "remove", model, "sql"}).status, 3);
  EXPECT_EQ(Logits(model), backbone);
  EXPECT_EQ(Run({"verify", model}).status, 0);
  const std::string plain = Copy("rs-qwen3-q8.cmf", "plain.cmf");
  EXPECT_EQ(Run({"route", plain, "--tokens", "3", "--json"}).json()["winner"], nullptr);
  const Ran none = Run({"logits", plain, "--tokens", "3", "--route-dynamic"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("has no skills"), std::string::npos) << none.err;
}

TEST_F(SpecialistsCli, ASkillFromADonorAndItsWayAsAFile) {
  const std::string base = Copy("rs-qwen3-vbit.cmf", "base.cmf"),
                    donor = Copy("rs-skillapplied.cmf", "donor.cmf");
  // Bake, export, apply.
  const Ran baked =
      Run({"skill", "bake", base, "--from", donor, "--output", Path("specialist.cmf"), "--json"});
  ASSERT_EQ(baked.status, 0) << baked.err;
  ASSERT_EQ(Run({"skill", "export", Path("specialist.cmf"), "--base", base, "-o", Path("law.cmf")}).status,
            0);
  ASSERT_EQ(Run({"skill", "apply", base, Path("law.cmf"), "-o", Path("applied.cmf")}).status, 0);
  EXPECT_EQ(Logits(Path("applied.cmf")), Logits(Path("specialist.cmf")));
  const auto hashes = [&](const std::string& file) {
    std::map<std::string, std::string> all;
    for (const Json& tensor : Info(file)["tensors"]) all[tensor["name"]] = tensor["hash"];
    return all;
  };
  EXPECT_EQ(hashes(Path("applied.cmf")), hashes(Path("specialist.cmf")));
  const Ran run = Run({"run", Path("law.cmf"), "--prompt", "x"});
  EXPECT_EQ(run.status, Run({"logits", Path("law.cmf"), "--tokens", "3"}).status);
  EXPECT_NE(Run({"logits", Path("law.cmf"), "--tokens", "3"}).err.find("skill apply"), std::string::npos);
  EXPECT_NE(Run({"route", Path("law.cmf"), "--tokens", "3"}).err.find("skill apply"), std::string::npos);
  EXPECT_EQ(Run({"skill", "list", Path("law.cmf"), "--json"}).json()["skills"][0]["tensors"],
            Info(Path("law.cmf"))["tensors"].size());
  EXPECT_EQ(
      Run({"skill", "export", Path("specialist.cmf"), "--base", base, "-o", Path("x.cmf"), "--id", "../x"})
          .status,
      2);
  EXPECT_EQ(Run({"skill", "apply", donor, Path("law.cmf"), "-o", Path("no.cmf")}).status, 2)
      << "another base";
  EXPECT_EQ(Run({"skill", "apply", donor, Path("law.cmf"), "-o", Path("forced.cmf"), "--force"}).status, 0);
  EXPECT_EQ(Run({"skill", "apply", base, Path("law.cmf"), "-o", base}).status, 2)
      << "not over its own source";

  // The same donor as a skill in the file.
  const std::string bytes = Slurp(base);
  const Ran added = Run({"skill", "add", base, "--from", donor, "--id", "law", "--json"});
  ASSERT_EQ(added.status, 0) << added.err;
  EXPECT_EQ(Slurp(base).substr(128, bytes.size() - 128), bytes.substr(128)) << "append-only";
  EXPECT_EQ(Logits(base, {"--skill", "law"}), Logits(Path("specialist.cmf")));
  EXPECT_EQ(Run({"verify", base}).status, 0);
  EXPECT_EQ(Run({"skill", "add", base, "--from", donor, "--id", "../law"}).status, 2);
  EXPECT_EQ(Run({"skill", "add", base, "--from", base, "--id", "same"}).status, 2) << "nothing changed";
  for (const char* word : {"none", "auto", "backbone"})
    EXPECT_EQ(Run({"skill", "add", base, "--from", donor, "--id", word}).status, 2) << word;
  for (const char* delta : {"nan", "inf", "-1", "x"})
    EXPECT_EQ(Run({"skill", "add", base, "--from", donor, "--id", "a", "--min-delta", delta}).status, 2)
        << delta;
  const Ran far = Run({"skill", "add", base, "--from", donor, "--id", "a", "--min-delta", "1e9"});
  EXPECT_EQ(far.status, 2);
  EXPECT_NE(far.err.find("--min-delta"), std::string::npos) << far.err;
  EXPECT_EQ(Run({"skill", "add", base, "--from", donor, "--id", "a", "--phi-layer", "1"}).status, 2)
      << "nothing to route by without prompts";
  std::ofstream(Path("claim.json")) << R"({"metric":"ppl","backbone":21.4,"overlaid":17.9})";
  const Ran claim =
      Run({"skill", "add", base, "--from", donor, "--id", "a", "--quality", Path("claim.json")});
  EXPECT_EQ(claim.status, 2) << "a figure without its evidence";
  EXPECT_NE(claim.err.find("dataset_sha256"), std::string::npos) << claim.err;
  std::ofstream(Path("figure.json"))
      << R"({"metric":"ppl","backbone":21.4,"overlaid":17.9,"dataset_sha256":")" << std::string(64, 'a')
      << R"("})";
  ASSERT_EQ(
      Run({"skill", "add", base, "--from", donor, "--id", "law", "--quality", Path("figure.json")}).status,
      0);
  EXPECT_EQ(Run({"skill", "list", base, "--json"}).json()["skills"][0]["quality"]["overlaid"], 17.9);
  EXPECT_EQ(Run({"skill", "add", base, "--from", Path("none"), "--id", "a"}).status, 3);
  const Json arch = Info(base)["header"]["arch"];
  ASSERT_EQ(Run({"mask", "add", base, "--name", "m", "--keep",
                 Keep("m.npy", arch["num_layers"], arch["intermediate_size"], 2)})
                .status,
            0);
  ASSERT_EQ(Run({"skill", "add", base, "--from", donor, "--id", "masked", "--task", "m"}).status, 0);
  EXPECT_NE(Run({"export", base, "--output", Path("hf"), "--skill", "masked"}).err.find("--task m"),
            std::string::npos)
      << "the mask a skill is used with is not left out silently";
  const Ran stale = Run({"skill", "apply", base, Path("law.cmf"), "-o", Path("no.cmf")});
  EXPECT_EQ(stale.status, 2);
  EXPECT_NE(stale.err.find("adding or removing a skill changes the hash"), std::string::npos) << stale.err;
}

TEST_F(SpecialistsCli, ChatSwitchesTasksAndSkills) {
  const std::string model = Copy("py-tiny-skills.cmf");
  const Ran ran = Run({"chat", model, "-n", "2", "--greedy"},
                      "/skill\n/skill sql\n/skill\n/task\n/task prose\n/skill none\n/skill\n");
  if (ran.status == 3) GTEST_SKIP() << "the file has no tokenizer";
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("sql\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("no task\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.err.find("no task 'prose'"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace cmforge
