// Every tensor of files that others wrote decodes to the recorded bits, and encoding their checkpoint again
// gives the recorded payloads.
#include <filesystem>
#include <map>
#include <set>

#include "quant/cmf_tensors.h"

namespace cmforge {
namespace {

/// Compares all tensors of the files named by `expect_path`; returns how many, by dtype.
std::map<std::string, int> CheckDecoding(const std::filesystem::path& expect_path) {
  std::map<std::string, int> checked;
  const Json expect = ReadJsonFile(expect_path);
  std::map<std::string, TensorView> views;
  const std::string stem = expect_path.stem().stem();
  for (const auto& entry : std::filesystem::directory_iterator(expect_path.parent_path())) {
    const std::string name = entry.path().filename();
    // A sharded model has several files for one list of tensors.
    if (entry.path().extension() != ".cmf" || (name != stem + ".cmf" && !name.starts_with(stem + "-0")))
      continue;
    for (NamedTensor& tensor : ReadCmfTensors(entry.path())) views[tensor.name] = std::move(tensor.view);
  }
  for (const Json& tensor : expect["tensors"]) {
    const auto name = tensor["name"].get<std::string>();
    const TensorView& view = views[name];
    EXPECT_EQ(DTypeName(view.dtype), tensor["dtype"].get<std::string>()) << stem << " " << name;
    EXPECT_EQ(view.shape, tensor["shape"].get<Shape>()) << stem << " " << name;
    EXPECT_EQ(Hash64Hex(view.bytes), tensor["hash"].get<std::string>()) << stem << " " << name;
    if (!tensor.contains("f32_hash64") || !tensor["f32_hash64"].is_string()) continue;
    EXPECT_EQ(FloatHash(MustDequantize(view)), tensor["f32_hash64"].get<std::string>())
        << stem << " " << name;
    ++checked[tensor["dtype"].get<std::string>()];
  }
  return checked;
}

TEST(FixtureFiles, EveryTensorDecodesToTheRecordedBits) {
  std::map<std::string, int> checked;
  for (const auto& entry : std::filesystem::directory_iterator(CMFORGE_TEST_DATA "/quant/cmf-files")) {
    if (entry.path().extension() != ".json") continue;
    for (const auto& [dtype, count] : CheckDecoding(entry.path())) checked[dtype] += count;
  }
  for (const Encoding* encoding : AllEncodings()) {
    if (encoding->dtype == DType::kBF16) continue;  // no file has it
    EXPECT_GT(checked[std::string(encoding->name)], 0) << encoding->name;
  }
}

TEST(FixtureFiles, EveryTensorOfTheWholeCollectionDecodesToTheRecordedBits) {
  const std::filesystem::path folder = CMFORGE_SOURCE_DIR "/../shared/fixtures/cmf-files";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    for (const auto& [dtype, count] : CheckDecoding(entry.path())) checked += count;
  }
  EXPECT_GE(checked, 1990);
}

TEST(FixtureFiles, EncodingTheCheckpointGivesTheRecordedPayloads) {
  std::map<std::string, TensorView> source;
  for (NamedTensor& tensor : ReadBf16Safetensors(CMFORGE_TEST_DATA "/quant/src-qwen3/model.safetensors")) {
    source[tensor.name] = std::move(tensor.view);
  }
  std::set<std::string> dtypes;
  for (const char* file :
       {"rs-qwen3-q1", "rs-qwen3-q1p", "rs-qwen3-q1s", "rs-qwen3-q1t", "rs-qwen3-q2tp", "rs-qwen3-q4t",
        "rs-qwen3-q4tp", "rs-qwen3-q8", "rs-qwen3-vbit", "rs-qwen3-vbit-mb6"}) {
    const std::string name = file;
    EncodeOptions options;
    options.error_diffusion = name == "rs-qwen3-q1p";
    if (name == "rs-qwen3-vbit-mb6") options.mean_bits = 6;
    for (const NamedTensor& tensor : ReadCmfTensors(CMFORGE_TEST_DATA "/quant/cmf-files/" + name + ".cmf")) {
      ASSERT_TRUE(source.contains(tensor.name)) << tensor.name;
      const Encoding& encoding = *FindEncoding(tensor.view.dtype);
      const ByteVector got = MustEncode(encoding, source[tensor.name], options, 2);
      EXPECT_TRUE(std::ranges::equal(got, tensor.view.bytes))
          << name << " " << tensor.name << " " << encoding.name;
      dtypes.emplace(encoding.name);
    }
  }
  EXPECT_EQ(dtypes.size(), 9u);
}

}  // namespace
}  // namespace cmforge
