// Cutting neurons: from a mask in the file, from a folder with a keep-set, from columns that are all zero.
#include <algorithm>
#include <cmath>

#include "base/npy.h"
#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class Defrag : public CliTest {
 protected:
  static std::string Data(const std::string& name) { return std::string(CMFORGE_TEST_DATA) + "/" + name; }
  std::vector<double> Logits(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "logits");
    arguments.insert(arguments.end(), {"--tokens", "5,6,7,8", "--compute", "exact"});
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.json()["positions"][0]["logits"].get<std::vector<double>>();
  }
  static void ExpectClose(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    double largest = 0, worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(a[i]));
      worst = std::max(worst, std::abs(a[i] - b[i]));
    }
    EXPECT_LE(worst, tolerance * largest);
  }
  /// A folder whose keep-set has these neurons of each of the two layers of tests/data/engine/llama's first kind.
  void WriteKeep(const std::vector<int64_t>& shape, const std::vector<int32_t>& live) {
    fs::create_directories(Path("skill/tensors"));
    ASSERT_TRUE(WriteNpy(Path("skill/ffn_keep.npy"), NpyArray::FromBools(shape, live)));
  }
  Json TensorsOf(const std::string& path) { return Run({"info", path, "--json"}).json()["tensors"]; }
  static std::vector<int64_t> ShapeOf(const Json& tensors, const std::string& name) {
    for (const Json& tensor : tensors) {
      if (tensor["name"] == name) return tensor["shape"].get<std::vector<int64_t>>();
    }
    return {};
  }
};

TEST_F(Defrag, AMaskBecomesASmallerModel) {
  const std::string file = Data("cmf/py-tiny-f32-masks.cmf");
  const Ran ran = Run({"defrag", file, "--task", "coding", "--output", Path("c.cmf"), "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const Json report = ran.json();
  EXPECT_GT(report["pruned_ratio"].get<double>(), 0.1);
  EXPECT_LT(report["bytes"].get<int64_t>(), report["bytes_before"].get<int64_t>());
  EXPECT_EQ(Run({"verify", Path("c.cmf")}).status, 0);
  const Json info = Run({"info", Path("c.cmf"), "--json"}).json();
  EXPECT_TRUE(info["masks"].empty());
  const Json provenance = info["header"]["provenance"]["defrag"];
  EXPECT_EQ(provenance["source_skill"], "coding");
  EXPECT_EQ(provenance["pre_intermediate"], 64);
  EXPECT_EQ(info["header"]["arch"]["intermediate_size"], provenance["post_intermediate_max"]);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string mlp = "model.layers." + std::to_string(layer) + ".mlp.";
    const int64_t kept = provenance["kept_per_layer"][static_cast<size_t>(layer)].get<int64_t>();
    EXPECT_EQ(ShapeOf(info["tensors"], mlp + "gate_proj.weight"), (std::vector<int64_t>{kept, 32}));
    EXPECT_EQ(ShapeOf(info["tensors"], mlp + "up_proj.weight"), (std::vector<int64_t>{kept, 32}));
    EXPECT_EQ(ShapeOf(info["tensors"], mlp + "down_proj.weight"), (std::vector<int64_t>{32, kept}));
  }
  // A dead neuron contributes nothing: the masked model and the cut one say the same.
  if (Run({"logits", "--help"}).out.find("--task") != std::string::npos) {
    ExpectClose(Logits({Path("c.cmf")}), Logits({file, "--task", "coding"}), 1e-5);
  }
  EXPECT_EQ(Run({"defrag", file, "--task", "none", "--output", Path("x.cmf")}).status, 3);
  EXPECT_EQ(Run({"defrag", file, "--task", "general", "--output", Path("x.cmf")}).status, 2)
      << "nothing to cut";
  EXPECT_FALSE(fs::exists(Path("x.cmf")));
}

TEST_F(Defrag, QuantizedFilesKeepTheirEncodingsOrSayWhy) {
  for (const char* name :
       {"cmf/py-tiny-q8_row-masks.cmf", "cmf/py-tiny-q4_block-masks.cmf", "cmf/py-tiny-vbit-masks.cmf"}) {
    const Ran ran = Run({"defrag", Data(name), "--task", "coding", "--output", Path("c.cmf"), "--json"});
    ASSERT_EQ(ran.status, 0) << name << ran.err;
    EXPECT_EQ(Run({"verify", Path("c.cmf")}).status, 0) << name;
    EXPECT_EQ(Run({"logits", Path("c.cmf"), "--tokens", "1,2", "--top", "1"}).status, 0) << name;
    const Json report = ran.json();
    for (const Json& wider : report["q8_2f_instead"]) {
      EXPECT_NE(wider.get<std::string>().find("down_proj"), std::string::npos)
          << "only columns have a rule: " << wider;
    }
  }
}

TEST_F(Defrag, AKeepSetOrZeroColumnsCutAConversion) {
  const std::string source = Data("checkpoint/odd-ffn-width");  // one layer of 44 neurons
  std::vector<int32_t> live(44, 1);
  for (const int dead : {0, 7, 8, 43}) live[static_cast<size_t>(dead)] = 0;
  WriteKeep({1, 44}, live);
  const std::vector<std::string> convert = {"convert", "-q",  "--model",  source,
                                            "--quant", "f32", "--defrag", Path("skill")};
  const auto to = [&](const std::string& output) {
    std::vector<std::string> arguments = convert;
    arguments.insert(arguments.end(), {"--output", Path(output)});
    return Run(arguments);
  };
  const Ran kept = to("kept.cmf");
  ASSERT_EQ(kept.status, 0) << kept.err;
  const Json tensors = TensorsOf(Path("kept.cmf"));
  EXPECT_EQ(ShapeOf(tensors, "model.layers.0.mlp.down_proj.weight"), (std::vector<int64_t>{32, 40}));
  EXPECT_EQ(ShapeOf(tensors, "model.layers.0.mlp.gate_proj.weight"), (std::vector<int64_t>{40, 32}));

  // The same weights baked: down_proj with zero columns for the dead neurons, no keep-set.
  ASSERT_EQ(Run({"convert", "-q", "--model", source, "--quant", "f32", "--output", Path("whole.cmf")}).status,
            0);
  ASSERT_EQ(Run({"dequant", Path("whole.cmf"), "--tensor", "model.layers.0.mlp.down_proj.weight", "--out",
                 Path("d.f32")})
                .status,
            0);
  const std::string raw = Slurp(Path("d.f32"));
  std::vector<float> down(raw.size() / 4);
  std::copy_n(raw.data(), raw.size(), reinterpret_cast<char*>(down.data()));
  for (size_t i = 0; i < down.size(); ++i) down[i] *= static_cast<float>(live[i % 44]);
  ASSERT_TRUE(WriteNpy(Path("skill/tensors/model.layers.0.mlp.down_proj.weight.npy"),
                       NpyArray::FromFloats({32, 44}, down)));
  fs::remove(Path("skill/ffn_keep.npy"));
  ASSERT_EQ(to("baked.cmf").status, 0);
  fs::rename(Path("skill/tensors"), Path("baked"));
  fs::create_directory(Path("skill/tensors"));
  EXPECT_EQ(to("nothing.cmf").status, 3);  // nothing was baked and nothing says what to keep
  fs::remove(Path("skill/tensors"));
  fs::rename(Path("baked"), Path("skill/tensors"));
  const Json diff = Run({"diff", Path("kept.cmf"), Path("baked.cmf"), "--json"}).json();
  EXPECT_TRUE(diff["tensors"]["changed"].empty()) << diff["tensors"];
  // Exactly the masked output: the whole model with the same columns zeroed.
  ExpectClose(Logits({Path("baked.cmf")}), Logits({Path("kept.cmf")}), 0);

  // What is wrong with a folder is said, and nothing is written.
  fs::remove(Path("bad.cmf"));
  ASSERT_TRUE(
      WriteNpy(Path("skill/ffn_keep.npy"), NpyArray::FromBools({1, 43}, std::vector<int32_t>(43, 1))));
  EXPECT_EQ(to("bad.cmf").status, 4);
  ASSERT_TRUE(
      WriteNpy(Path("skill/ffn_keep.npy"), NpyArray::FromBools({1, 44}, std::vector<int32_t>(44, 0))));
  EXPECT_EQ(to("bad.cmf").status, 5) << "no live neuron";
  fs::remove(Path("skill/ffn_keep.npy"));
  ASSERT_TRUE(WriteNpy(Path("skill/tensors/model.layers.9.mlp.down_proj.weight.npy"),
                       NpyArray::FromFloats({32, 44}, down)));
  const Ran misspelt = to("bad.cmf");
  EXPECT_EQ(misspelt.status, 4);
  EXPECT_NE(misspelt.err.find("model.layers.9"), std::string::npos) << misspelt.err;
  fs::remove_all(Path("skill"));
  EXPECT_EQ(to("bad.cmf").status, 3);
  EXPECT_FALSE(fs::exists(Path("bad.cmf")));
}

}  // namespace
}  // namespace cmforge
