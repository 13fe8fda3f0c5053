// requant through the program: any source, what is kept, what is refused.
#include <fstream>

#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class Requant : public CliTest {
 protected:
  static std::string Data(const std::string& name) { return std::string(CMFORGE_TEST_DATA) + "/" + name; }
  std::string Copy(const std::string& name) {
    const std::string to = Path(fs::path(name).filename());
    fs::copy_file(Data(name), to);
    fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write);
    return to;
  }
  Json Encodings(const std::string& path) {
    Json by_name = Json::object();
    const Json info = Run({"info", path, "--json"}).json();
    for (const Json& tensor : info["tensors"]) by_name[tensor["name"].get<std::string>()] = tensor["dtype"];
    return by_name;
  }
};

TEST_F(Requant, TakesFoldersFilesAndAnyShard) {
  for (const std::string& source : {Data("checkpoint/odd-ffn-width"), Data("cmf/py-tiny-f16.cmf"),
                                    Data("cmf/py-tiny-sharded-00003-of-00004.cmf")}) {
    const Ran ran = Run({"requant", source, "--output", Path("out.cmf"), "--quant", "q4tp", "--json"});
    ASSERT_EQ(ran.status, 0) << source << ran.err;
    EXPECT_GT(ran.json()["encodings"]["q4tp"]["tensors"].get<int>(), 0);
    EXPECT_EQ(Run({"verify", Path("out.cmf")}).status, 0) << source;
    EXPECT_TRUE(Run({"info", Path("out.cmf"), "--json"}).json()["header"].value("shard", Json()).is_null());
  }
  const Ran bare = Run(
      {"requant", Data("checkpoint/odd-ffn-width/model.safetensors"), "-o", Path("x.cmf"), "--quant", "q8"});
  EXPECT_EQ(bare.status, 2);
  EXPECT_NE(bare.err.find("config.json"), std::string::npos) << bare.err;
}

TEST_F(Requant, KeepsMasksSkillsTokenizerAndForeignKeys) {
  const std::string source = Data("cmf/py-tiny-skills.cmf");
  const Json before = Run({"info", source, "--json"}).json();
  for (const char* command : {"requant", "convert"}) {  // a .cmf is a .cmf, whichever command takes it
    std::vector<std::string> arguments = {command, "--quant", "q8", "-q", "--output", Path("out.cmf")};
    if (std::string(command) == "convert") arguments.push_back("--model");
    arguments.push_back(source);
    const Ran ran = Run(arguments);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const Json after = Run({"info", Path("out.cmf"), "--json"}).json();
    EXPECT_EQ(after["skills"], before["skills"]);
    EXPECT_EQ(after["masks"], before["masks"]);
    for (const char* key : {"arch", "tokenizer_config"})
      EXPECT_EQ(after["header"][key], before["header"][key]) << key;
    for (const auto& [key, value] : before["header"]["provenance"].items())
      EXPECT_EQ(after["header"]["provenance"][key], value) << key;
    EXPECT_EQ(after["header"]["provenance"]["requant"]["quant"], "q8");
    EXPECT_EQ(after["header"]["quant_type"], "Q8_ROW");
    EXPECT_EQ(after["tensors"].size(), before["tensors"].size());
  }
}

TEST_F(Requant, InPlaceChangesEncodingsAndNothingElse) {
  const std::string path = Copy("cmf/rs-wide-q4t.cmf");
  const auto size = fs::file_size(path);
  const Ran before = Run({"generate", path, "--tokens", "5,6,7", "-n", "4", "--greedy", "--json"});
  std::ofstream(path + ".sig") << "{}";
  const Ran ran = Run({"requant", path, "--in-place", "--quant", "q4tp", "--tensor-quant", "lm_head*=keep"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("sign the file again"), std::string::npos) << ran.err;
  fs::remove(path + ".sig");
  EXPECT_EQ(fs::file_size(path), size);
  const Json encodings = Encodings(path);
  EXPECT_EQ(encodings["lm_head.weight"], "q4_tiled");
  EXPECT_EQ(encodings["model.layers.0.mlp.up_proj.weight"], "q4tp");
  EXPECT_EQ(Run({"verify", path}).status, 0);
  EXPECT_EQ(Run({"generate", path, "--tokens", "5,6,7", "-n", "4", "--greedy", "--json"}).status,
            before.status);
}

TEST_F(Requant, RefusesByName) {
  const std::string path = Copy("cmf/py-tiny-q4_block-masks.cmf");
  const std::string bytes = Slurp(path);
  const auto refused = [&](std::vector<std::string> arguments, const std::string& says) {
    arguments.insert(arguments.begin(), "requant");
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find(says), std::string::npos) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  };
  refused({path, "--quant", "q8"}, "--in-place");
  refused({path, "--quant", "q8", "--in-place", "-o", Path("x.cmf")}, "give one of the two");
  refused({path, "-o", Path("x.cmf")}, "--quant");
  refused({path, "-o", path, "--quant", "q8"}, "part of the source");
  refused({path, "--in-place", "--quant", "q8"}, "use --output");  // longer than the slots
  refused({path, "-o", Path("x.cmf"), "--quant", "q3"}, "q3");
  refused({path, "-o", Path("x.cmf"), "--quant", "q8", "--mean-bits", "5"}, "mean-bits");
  refused({path, "-o", Path("x.cmf"), "--quant", "q8", "--encoder", "mse"}, "mse is for");
  refused({path, "-o", Path("x.cmf"), "--quant", "q4t", "--encoder", "calibrated"}, "calibrated");
  refused({Data("checkpoint/odd-ffn-width"), "--in-place", "--quant", "q8"}, "use --output");
  refused({"--in-place", "--quant", "q4"}, "built-in");
  EXPECT_EQ(Slurp(path), bytes);
  EXPECT_FALSE(fs::exists(Path("x.cmf")));
  EXPECT_EQ(Run({"requant", Path("none.cmf"), "-o", Path("x.cmf"), "--quant", "q8"}).status, 3);
}

TEST_F(Requant, RouterCountsSpendTheBitsOfExperts) {
  const std::string source = Data("cmf/py-qwen35moe-vbit-bfield.cmf");
  std::ofstream(Path("s.json")) << R"({"0":[90,3,40,0,25,12],"1":[5,60,1,77,9,30]})";
  std::ofstream(Path("few.json")) << R"({"0":[90,3,40]})";
  const auto vbit = [&](const std::string& output, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"requant", source, "-o",          Path(output),
                                          "--quant", "vbit", "--mean-bits", "4.25"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  ASSERT_EQ(vbit("loud.cmf", {}).status, 0);
  ASSERT_EQ(vbit("routed.cmf", {"--moe-stats", Path("s.json")}).status, 0);
  EXPECT_EQ(Run({"verify", Path("routed.cmf")}).status, 0);
  const auto expert_bytes = [&](const std::string& file, int expert) {
    const std::string part = ".0.mlp.experts." + std::to_string(expert) + ".gate_proj";
    const Json info = Run({"info", Path(file), "--json"}).json();
    for (const Json& tensor : info["tensors"]) {
      if (tensor["name"].get<std::string>().find(part) != std::string::npos)
        return tensor["nbytes"].get<int64_t>();
    }
    return int64_t{0};
  };
  EXPECT_GT(expert_bytes("routed.cmf", 0), expert_bytes("loud.cmf", 0)) << "chosen 90 times";
  EXPECT_LT(expert_bytes("routed.cmf", 3), expert_bytes("loud.cmf", 3)) << "never chosen";
  const Ran few = vbit("x.cmf", {"--moe-stats", Path("few.json")});
  EXPECT_EQ(few.status, 2) << few.err;
  EXPECT_NE(few.err.find("layer 0 has counts of 3 experts"), std::string::npos) << few.err;
  const Ran unused =
      Run({"requant", source, "-o", Path("x.cmf"), "--quant", "q8", "--moe-stats", Path("s.json")});
  EXPECT_EQ(unused.status, 2) << unused.err;
  EXPECT_FALSE(fs::exists(Path("x.cmf")));
  // And every role has what it should, as info says.
  const Json roles = Run({"info", Path("routed.cmf"), "--json"}).json()["roles"];
  EXPECT_EQ(roles["experts"]["encodings"], Json({"q8_2f", "vbit_ro"})) << "one has 48 columns";
  for (const char* role : {"norm", "router", "recurrent", "convolution"})
    EXPECT_EQ(roles[role]["encodings"], Json({"f16"})) << role;
  EXPECT_EQ(roles["embedding"]["encodings"], Json({"vbit_ro"}));
}

TEST_F(Requant, ReservedEncodingsAreRefusedByNameAndRawBytesStay) {
  // dtype of the first directory record: mix8_4 (5), q4_col (7), in a directory that no hash vouches for.
  const std::string path = Copy("cmf/py-tiny-f16.cmf");
  std::string bytes = Slurp(path);
  const auto at = *reinterpret_cast<const uint64_t*>(bytes.data() + 0x20) + 16 + 6;
  bytes.replace(0x78, 8, 8, '\0');
  for (const auto& [id, name] : {std::pair{5, "mix8_4"}, std::pair{7, "q4_col"}}) {
    bytes[at] = static_cast<char>(id);
    std::ofstream(path, std::ios::binary) << bytes;
    const Ran ran = Run({"requant", path, "-o", Path("x.cmf"), "--quant", "q8"});
    EXPECT_EQ(ran.status, 5) << ran.err;
    EXPECT_NE(ran.err.find(name), std::string::npos) << ran.err;
    const Ran dequant =
        Run({"dequant", path, "--tensor", Run({"info", path, "--json"}).json()["tensors"][0]["name"]});
    EXPECT_EQ(dequant.status, 5) << dequant.err;
    EXPECT_NE(dequant.err.find(name), std::string::npos) << dequant.err;
  }
  const Ran raw = Run({"requant", Data("cmf/lumina-q4t.cmf"), "-o", Path("l.cmf"), "--quant", "q8"});
  ASSERT_EQ(raw.status, 0) << raw.err;
  EXPECT_EQ(Encodings(Path("l.cmf"))["te.config_json"], "u8");
  const auto read = [&](const std::string& file, const std::string& out) {
    EXPECT_EQ(Run({"dequant", file, "--tensor", "te.config_json", "--out", Path(out)}).status, 0);
    return Slurp(Path(out));
  };
  EXPECT_EQ(read(Path("l.cmf"), "a"), read(Data("cmf/lumina-q4t.cmf"), "b"));
}

}  // namespace
}  // namespace cmforge
