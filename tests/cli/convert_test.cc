// convert, verify, info and dequant through the program, on good and on bad input.
#include <sys/stat.h>

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
  for (const char* quant : {"q8", "q4t", "q8_2f", "vbit"}) {
    const Ran nan = ConvertTo(write(std::numeric_limits<float>::quiet_NaN(), 1), "o.cmf", {"--quant", quant});
    EXPECT_EQ(nan.status, 4) << quant << nan.err;
    EXPECT_NE(nan.err.find("q_proj.weight"), std::string::npos) << nan.err;
    EXPECT_FALSE(fs::exists(Path("o.cmf")));
  }
  const Ran wide = ConvertTo(write(0.5f, 70000.0f), "o.cmf");
  EXPECT_EQ(wide.status, 2) << wide.err;  // a wider encoding helps
  EXPECT_NE(wide.err.find("model.norm.weight"), std::string::npos) << wide.err;
  EXPECT_EQ(ConvertTo(write(0.5f, 70000.0f), "o.cmf", {"--quant", "f32"}).status, 0);
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
