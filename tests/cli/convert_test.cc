// convert, verify, info and dequant through the program, on good and on bad input.
#include <sys/stat.h>

#include <limits>

#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class Convert : public CliTest {
 protected:
  static std::string Data(const std::string& name) {
    return std::string(CMFORGE_TEST_DATA) + "/checkpoint/" + name;
  }
  [[nodiscard]] size_t Entries() const {
    size_t n = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) n += entry.path().filename().string()[0] != '.';
    return n;
  }
  Ran ConvertTo(const std::string& source, const std::string& output, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"convert", "--model", source, "--output", Path(output)});
    return Run(more);
  }
};

TEST_F(Convert, EveryEncodingVerifiesAndRuns) {
  for (const char* quant : {"f32", "f16", "bf16", "q8", "q8_2f", "q4", "q4t", "q4tp", "q2tp", "q1", "q1p",
                            "q1s", "q1t", "vbit", "vbit_plain"}) {
    const Ran convert = ConvertTo(Data("odd-ffn-width"), "m.cmf", {"--quant", quant, "--json"});
    ASSERT_EQ(convert.status, 0) << quant << convert.err;
    const Ran verify = Run({"verify", Path("m.cmf"), "--json"});
    ASSERT_EQ(verify.status, 0) << quant << verify.out;
    const Json report = verify.json();
    EXPECT_TRUE(report["ok"].get<bool>());
    EXPECT_GT(report["checked"]["tensors"].get<int>(), 5);
    const Ran generate = Run(
        {"generate", Path("m.cmf"), "--tokens", "5,6,7", "-n", "4", "--greedy", "--ignore-eos", "--json"});
    ASSERT_EQ(generate.status, 0) << quant << generate.err;
    EXPECT_EQ(generate.json()["tokens"].size(), 4u);
  }
}

TEST_F(Convert, ReportsEachFallbackOnce) {
  const Ran ran = ConvertTo(Data("odd-ffn-width"), "m.cmf", {"--quant", "q4t", "--json"});
  const Json fallbacks = ran.json()["fallbacks"];
  ASSERT_EQ(fallbacks.size(), 1u) << fallbacks;
  EXPECT_EQ(fallbacks[0]["wanted"], "q4_tiled");
  EXPECT_EQ(fallbacks[0]["used"], "q8_2f");
  const Ran forced = ConvertTo(Data("odd-ffn-width"), "n.cmf", {"--tensor-quant", "*down_proj*=q4t"});
  EXPECT_EQ(forced.status, 2);
  EXPECT_NE(forced.err.find("down_proj"), std::string::npos);
  EXPECT_FALSE(fs::exists(Path("n.cmf")));
}

TEST_F(Convert, WritesTheSameBytesEveryTime) {
  for (const char* quant : {"q8", "q4tp", "vbit", "q8_2f"}) {
    ASSERT_EQ(ConvertTo(Data("odd-ffn-width"), "a.cmf", {"--quant", quant, "--threads", "1", "-q"}).status,
              0);
    ASSERT_EQ(ConvertTo(Data("odd-ffn-width"), "b.cmf", {"--quant", quant, "--threads", "3", "-q"}).status,
              0);
    EXPECT_EQ(Slurp(Path("a.cmf")), Slurp(Path("b.cmf"))) << quant;
  }
}

TEST_F(Convert, UnderstandsNestedMovedAndNullFields) {
  const Ran nested = ConvertTo(Data("nested-text-config"), "nested.cmf", {"--quant", "f32", "--json"});
  ASSERT_EQ(nested.status, 0) << nested.err;
  EXPECT_EQ(nested.json()["skipped"].size(), 1u);
  const Ran moved = ConvertTo(Data("null-and-moved-fields"), "moved.cmf", {"--quant", "f32"});
  ASSERT_EQ(moved.status, 0) << moved.err;
  const Json header = Run({"info", Path("moved.cmf"), "--json"}).json()["header"];
  EXPECT_EQ(header["arch"]["rope_theta"], 500000.0);
  EXPECT_EQ(header["arch"]["num_kv_heads"], header["arch"]["num_attention_heads"]);
  EXPECT_EQ(header["tokenizer_config"]["eos_token_ids"].size(), 2u);
  const Ran untied = ConvertTo(Data("untied-flag-without-head"), "untied.cmf");
  ASSERT_EQ(untied.status, 0) << untied.err;
  EXPECT_NE(untied.err.find("warning"), std::string::npos);
  EXPECT_EQ(Run({"info", Path("untied.cmf"), "--json"}).json()["header"]["arch"]["tie_word_embeddings"],
            true);
}

TEST_F(Convert, BadInputIsOneLineAndLeavesNothing) {
  struct Case {
    std::string source;
    int status;
    std::vector<std::string> says;
  };
  for (const Case& c : {Case{Data("shard-missing"), 3, {"model-00002-of-00002.safetensors"}},
                        Case{Data("lfs-pointer"), 4, {"LFS"}}}) {
    const Ran ran = ConvertTo(c.source, "out.cmf");
    EXPECT_EQ(ran.status, c.status) << ran.err;
    for (const std::string& word : c.says) EXPECT_NE(ran.err.find(word), std::string::npos) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(Entries(), 0u) << c.source;
  }
}

TEST_F(Convert, KeepsAnOldFileWhenItFails) {
  std::ofstream(Path("out.cmf")) << "precious";
  EXPECT_EQ(ConvertTo(Data("shard-missing"), "out.cmf").status, 3);
  EXPECT_EQ(Slurp(Path("out.cmf")), "precious");
  EXPECT_EQ(ConvertTo(Data("odd-ffn-width"), "no/such/folder/out.cmf").status, 3);
}

TEST_F(Convert, NamesTensorsThatHoldNanOrPassF16) {
  // One float32 matrix and one vector, written here: [u64 header length][header][data].
  const auto write = [&](float weight, float norm) {
    const fs::path folder = folder_ / "bad";
    fs::remove_all(folder);
    fs::copy(Data("odd-ffn-width"), folder, fs::copy_options::recursive);
    fs::permissions(folder, fs::perms::owner_all);
    std::string bytes = Slurp(folder / "model.safetensors");
    const uint64_t header_size = *reinterpret_cast<const uint64_t*>(bytes.data());
    Json header = ParseJson(std::string_view(bytes).substr(8, header_size), "header").value();
    std::string data;
    Json changed = Json::object();
    for (auto& [name, info] : header.items()) {
      if (name == "__metadata__") continue;
      size_t count = 1;
      for (const Json& d : info["shape"]) count *= d.get<size_t>();
      std::vector<float> values(count, 0.01f);
      if (name.find("q_proj.weight") != name.npos) values[1] = weight;
      if (name == "model.norm.weight") values[2] = norm;
      changed[name] = {{"dtype", "F32"},
                       {"shape", info["shape"]},
                       {"data_offsets", {data.size(), data.size() + count * 4}}};
      data.append(reinterpret_cast<const char*>(values.data()), count * 4);
    }
    std::string text = DumpJson(changed);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t size = text.size();
    fs::remove(folder / "model.safetensors");
    std::ofstream out(folder / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), 8);
    out << text << data;
    out.close();
    return folder.string();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const char* quant : {"keep", "f32", "f16", "bf16", "q8", "q8_2f", "q4", "q4t", "q4tp", "q2tp", "q1",
                            "q1p", "q1s", "q1t", "vbit", "vbit_plain"}) {
    for (const auto& [weight, norm, named] : {std::tuple(nan, 1.0f, "q_proj.weight': 1 values are NaN"),
                                              {-inf, 1.0f, "q_proj.weight': 1 values are NaN"},
                                              {0.5f, nan, "model.norm.weight': 1 values are NaN"},
                                              {0.5f, inf, "model.norm.weight': 1 values are NaN"}}) {
      const Ran bad = ConvertTo(write(weight, norm), "o.cmf", {"--quant", quant});
      EXPECT_EQ(bad.status, 4) << quant << bad.err;
      EXPECT_NE(bad.err.find(named), std::string::npos) << quant << bad.err;
      EXPECT_EQ(Entries(), 1u) << quant << "nothing but the source";
    }
  }
  for (const char* quant : {"f16", "q8", "q8_2f", "q4", "q4t", "q4tp", "q2tp", "q1", "q1s", "q1t", "vbit"}) {
    const Ran huge = ConvertTo(write(3e38f, 1), "o.cmf", {"--quant", quant});
    EXPECT_EQ(huge.status, 4) << quant << huge.err;
    EXPECT_NE(huge.err.find("3e+38 at row 0 column 1"), std::string::npos) << quant << huge.err;
    EXPECT_EQ(Entries(), 1u) << quant;
  }
  const Ran wide = ConvertTo(write(0.5f, 70000.0f), "o.cmf");
  EXPECT_EQ(wide.status, 4) << wide.err;
  EXPECT_NE(wide.err.find(
                "model.norm.weight': 1 numbers do not fit f16, which ends at 65504, the largest is 70000"),
            std::string::npos)
      << wide.err;
  EXPECT_EQ(ConvertTo(write(0.5f, 70000.0f), "o.cmf", {"--quant", "f32"}).status, 0);
  EXPECT_EQ(ConvertTo(write(3e38f, 1), "o.cmf", {"--quant", "bf16"}).status, 0);
}

// The names an output's work grows under: the source itself, and what somebody else keeps there.
TEST_F(Convert, NeverWritesOverTheSourceOrFilesOfOthersBesideTheOutput) {
  ASSERT_EQ(ConvertTo(Data("odd-ffn-width"), "m.cmf").status, 0);
  const std::string model = Slurp(Path("m.cmf"));
  for (const char* suffix : {".part", ".manifest"}) {
    for (const bool resumes : {false, true}) {
      const std::string name = std::string("v.cmf") + suffix;
      const std::vector<std::string> more =
          resumes ? std::vector<std::string>{"--resume"} : std::vector<std::string>();
      fs::copy_file(Path("m.cmf"), Path(name));
      const Ran source = ConvertTo(Path(name), "v.cmf", more);
      EXPECT_EQ(source.status, 2) << name << source.err;
      EXPECT_NE(source.err.find(name + ": is part of the source"), std::string::npos) << source.err;
      EXPECT_EQ(Slurp(Path(name)), model);
      fs::create_symlink(Path("v.cmf"), Path("link.cmf"));
      EXPECT_EQ(ConvertTo(Path(name), "link.cmf", more).status, 2) << name;
      EXPECT_EQ(Slurp(Path(name)), model);
      fs::remove(Path("link.cmf"));
      for (const std::string& content : {model, std::string("a note")}) {
        std::ofstream(Path(name), std::ios::binary) << content;
        const Ran other = ConvertTo(Data("odd-ffn-width"), "v.cmf", more);
        EXPECT_EQ(other.status, 2) << name << other.err;
        EXPECT_NE(other.err.find(Path(name)), std::string::npos) << other.err;
        EXPECT_EQ(std::count(other.err.begin(), other.err.end(), '\n'), 1) << other.err;
        EXPECT_EQ(Slurp(Path(name)), content);
        EXPECT_EQ(Entries(), 2u) << name;
      }
      fs::remove(Path(name));
    }
  }
  // Commands whose work has no name leave such files alone, and may read from them.
  fs::copy_file(Path("m.cmf"), Path("v.cmf.part"));
  std::ofstream(Path("v.cmf.manifest")) << "a note";
  EXPECT_EQ(Run({"requant", Path("v.cmf.part"), "--quant", "q4t", "-o", Path("v.cmf")}).status, 0);
  EXPECT_EQ(Run({"compact", Path("v.cmf.part"), "-o", Path("v.cmf")}).status, 0);
  EXPECT_EQ(Slurp(Path("v.cmf.part")), model);
  EXPECT_EQ(Slurp(Path("v.cmf.manifest")), "a note");
  // Shards have such names each, packages one.
  std::ofstream(Path("s-00001-of-00002.cmf.part")) << "a note";
  const Ran shards = ConvertTo(Data("odd-ffn-width"), "s", {"--shard-max-gb", "9e-5"});
  if (fs::exists(Path("s-00001-of-00002.cmf"))) ADD_FAILURE() << shards.out;
  EXPECT_EQ(Slurp(Path("s-00001-of-00002.cmf.part")), "a note");
  const std::string qwen = std::string(CMFORGE_TEST_DATA) + "/engine/qwen3_yarn";
  std::ofstream(Path("p.part")) << "a note";
  const Ran package = Run({"coreml", "convert", "--model", qwen, "--output", Path("p"), "--form", "mlpackage",
                           "--context-length", "32", "--batch-size", "4", "--lut-ffn", "4"});
  EXPECT_EQ(package.status, 2) << package.err;
  EXPECT_NE(package.err.find("p.part"), std::string::npos) << package.err;
  EXPECT_EQ(Slurp(Path("p.part")), "a note");
  EXPECT_FALSE(fs::exists(Path("p")));
}

TEST_F(Convert, AnOutputInTheSourcesFolderIsTheSameQuestionEveryTime) {
  fs::copy(Data("odd-ffn-width"), folder_ / "d");
  for (const char* name : {"d/x.cmf", "d/x", "d/x.json"}) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(ConvertTo(Path("d"), name).status, 0) << name << i;
  }
  for (const char* name : {"d/model.safetensors", "d/config.json", "d/tokenizer.json", "d/new.safetensors",
                           "d/chat_template.jinja"}) {
    const std::string before = Slurp(Path(name));
    for (int i = 0; i < 2; ++i) {
      const Ran ran = ConvertTo(Path("d"), name);
      EXPECT_EQ(ran.status, 2) << name << ran.err;
      EXPECT_NE(ran.err.find("part of the source"), std::string::npos) << ran.err;
    }
    EXPECT_EQ(Slurp(Path(name)), before);
  }
  fs::create_symlink(Path("d/config.json"), Path("link"));
  EXPECT_EQ(ConvertTo(Path("d"), "link").status, 2);
  const std::string qwen = std::string(CMFORGE_TEST_DATA) + "/engine/qwen3_yarn";
  fs::copy(qwen, folder_ / "q");
  for (int i = 0; i < 2; ++i) {
    const Ran package = Run({"coreml", "convert", "--model", Path("q"), "--output", Path("q/package"),
                             "--form", "mlpackage", "--context-length", "32", "--batch-size", "4"});
    EXPECT_EQ(package.status, 0) << i << package.err;
  }
}

// Every payload and every section with a hash, by every command that writes a new file from it.
TEST_F(Convert, PassesNoDamageOn) {
  const std::string good = std::string(CMFORGE_TEST_DATA) + "/cmf/rs-qwen3-q8.cmf",
                    masks = std::string(CMFORGE_TEST_DATA) + "/cmf/py-tiny-q4_block-masks.cmf";
  for (const std::string& source : {good, masks}) {
    const std::string bytes = Slurp(source);
    const Json info = Run({"info", source, "--json"}).json();
    std::vector<std::pair<std::string, size_t>> places;
    for (const Json& tensor : info["tensors"]) {
      places.emplace_back("tensor '" + tensor["name"].get<std::string>() + "'",
                          tensor["offset"].get<size_t>());
      if (places.size() == 3) break;
    }
    for (const Json& section : info["sections"]) {
      const std::string name = section["name"];
      if ((name == "vocab" || name == "masks") && section["length"].get<size_t>() > 0)
        places.emplace_back(name, section["offset"].get<size_t>() + section["length"].get<size_t>() - 1);
    }
    ASSERT_GT(places.size(), 3u) << info["sections"];
    for (const auto& [what, offset] : places) {
      std::string damaged = bytes;
      damaged.at(offset) = static_cast<char>(damaged[offset] ^ 1);
      std::ofstream(Path("bad.cmf"), std::ios::binary) << damaged;
      for (const std::vector<std::string>& command :
           {std::vector<std::string>{"convert", "--model", Path("bad.cmf"), "--quant", "keep", "-o",
                                     Path("o.cmf")},
            {"convert", "--model", Path("bad.cmf"), "--quant", "q8_2f", "-o", Path("o.cmf")},
            {"requant", Path("bad.cmf"), "--tensor-quant", "*norm*=f32", "-o", Path("o.cmf")},
            {"shard", Path("bad.cmf"), "--output-prefix", Path("o"), "--shard-max-gb", "1"},
            {"compact", Path("bad.cmf"), "-o", Path("o.cmf")}}) {
        const Ran ran = Run(command);
        EXPECT_EQ(ran.status, 4) << command[0] << what << ran.err;
        EXPECT_NE(ran.err.find(what), std::string::npos) << command[0] << ran.err;
        EXPECT_EQ(Entries(), 1u) << command[0] << what;
      }
      if (what.starts_with("tensor")) continue;
      for (const std::vector<std::string>& command :
           {std::vector<std::string>{"requant", Path("bad.cmf"), "--tensor-quant", "*proj*=q1", "--in-place"},
            {"mask", "remove", Path("bad.cmf"), "coding"}}) {
        const Ran ran = Run(command);
        EXPECT_NE(ran.status, 0) << command[0] << what;
        EXPECT_EQ(Slurp(Path("bad.cmf")), damaged) << command[0] << what;
      }
    }
  }
}

TEST_F(Convert, InfoAndDequantAgreeWithTheFile) {
  ASSERT_EQ(ConvertTo(Data("odd-ffn-width"), "m.cmf", {"--quant", "q8"}).status, 0);
  const Json info = Run({"info", Path("m.cmf"), "--json"}).json();
  for (const char* key : {"file", "format", "version", "required_features", "header", "dir_hash", "sections",
                          "tensors", "masks", "skills"}) {
    EXPECT_TRUE(info.contains(key)) << key;
  }
  EXPECT_EQ(info["format"], "cmf");
  EXPECT_EQ(info["dir_hash"].get<std::string>().size(), 16u);
  const std::string bytes = Slurp(Path("m.cmf"));
  for (const Json& tensor : info["tensors"]) {
    EXPECT_LE(tensor["offset"].get<uint64_t>() + tensor["nbytes"].get<uint64_t>(), bytes.size());
    EXPECT_EQ(tensor["offset"].get<uint64_t>() % 64, 0u);
  }
  const Json tensor =
      Run({"dequant", Path("m.cmf"), "--tensor", "model.norm.weight", "--json", "--out", Path("n.f32")})
          .json();
  EXPECT_EQ(tensor["dtype"], "f16");
  const std::string raw = Slurp(Path("n.f32"));
  ASSERT_EQ(raw.size(), tensor["shape"][0].get<size_t>() * 4);
  EXPECT_EQ(*reinterpret_cast<const float*>(raw.data()), tensor["first"][0].get<float>());
  const Ran all = Run({"dequant", Path("m.cmf"), "--all"});
  EXPECT_EQ(static_cast<size_t>(std::count(all.out.begin(), all.out.end(), '\n')), info["tensors"].size());
  for (const char* command : {"info", "verify"}) {
    EXPECT_EQ(Run({command, Data("odd-ffn-width")}).status, 0);
    EXPECT_EQ(Run({command, Data("odd-ffn-width") + "/model.safetensors"}).status, 0);
  }
}

TEST_F(Convert, NeverWritesOverItsOwnSource) {
  fs::copy(Data("odd-ffn-width"), folder_ / "src", fs::copy_options::recursive);
  fs::permissions(folder_ / "src", fs::perms::owner_all);
  const std::string weights = Slurp(folder_ / "src" / "model.safetensors");
  for (const char* name : {"src/model.safetensors", "src/tokenizer.json", "src/config.json"}) {
    EXPECT_EQ(ConvertTo(Path("src"), name).status, 2) << name;
  }
  EXPECT_EQ(Slurp(folder_ / "src" / "model.safetensors"), weights);
  ASSERT_EQ(ConvertTo(Path("src"), "m.cmf").status, 0);
  const std::string model = Slurp(Path("m.cmf"));
  fs::create_symlink("m.cmf", folder_ / "link.cmf");
  EXPECT_EQ(ConvertTo(Path("m.cmf"), "m.cmf").status, 2);
  EXPECT_EQ(ConvertTo(Path("m.cmf"), "link.cmf").status, 2);
  EXPECT_EQ(Run({"dequant", Path("m.cmf"), "--tensor", "model.norm.weight", "--out", Path("m.cmf")}).status,
            2);
  EXPECT_EQ(Slurp(Path("m.cmf")), model);
  EXPECT_EQ(ConvertTo(Path("src"), "").status, 2) << "a folder";
}

TEST_F(Convert, LeavesPipesAlone) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(ConvertTo(Data("odd-ffn-width"), "pipe").status, 2);
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
}

TEST_F(Convert, VerifySeesAFlippedByte) {
  ASSERT_EQ(ConvertTo(Data("odd-ffn-width"), "m.cmf").status, 0);
  const Json info = Run({"info", Path("m.cmf"), "--json"}).json();
  std::string bytes = Slurp(Path("m.cmf"));
  const Json& tensor = info["tensors"][3];
  bytes[tensor["offset"].get<size_t>()] ^= 1;
  std::ofstream(Path("m.cmf"), std::ios::binary) << bytes;
  const Ran ran = Run({"verify", Path("m.cmf"), "--json"});
  EXPECT_EQ(ran.status, 1);
  const Json report = ran.json();
  EXPECT_FALSE(report["ok"].get<bool>());
  ASSERT_EQ(report["problems"].size(), 1u);
  EXPECT_NE(report["problems"][0]["where"].get<std::string>().find(tensor["name"].get<std::string>()),
            std::string::npos);
  std::ofstream(Path("x.cmf")) << "not a model at all, just text that is long enough to hold an envelope: "
                               << std::string(200, 'x');
  const Ran broken = Run({"verify", Path("x.cmf"), "--json"});
  EXPECT_EQ(broken.status, 4);
  EXPECT_FALSE(broken.json()["ok"].get<bool>());
}

}  // namespace
}  // namespace cmforge
