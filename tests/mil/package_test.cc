// Models on disk, in every form.
#include "mil/package.h"

#include <gtest/gtest.h>

#include "mil/analysis.h"
#include "mil/builder.h"
#include "mil/packed_bits.h"
#include "mil/test_files.h"

namespace cmforge::mil {
namespace {

namespace fs = std::filesystem;

TEST(WriteCompiled, ReproducesTheCompilersFilesByteForByte) {
  for (const std::string name : {"quantized_constexpr", "fp16_subnormal"}) {
    const auto package = OpenPackage(TestData("mil/" + name + "/input.mlmodel"));
    ASSERT_TRUE(package) << package.error().message;
    const auto checked = CheckModel(package->model, package->weights.get());
    EXPECT_TRUE(checked) << checked.error().message;
    const fs::path target = FreshFolder() / "input.mlmodelc";
    const auto written = WriteCompiled(*package, target);
    ASSERT_TRUE(written) << written.error().message;
    const fs::path expected = TestData("mil/" + name + "/expected.mlmodelc");
    for (const char* file : {"model.mil", "coremldata.bin", "metadata.json"}) {
      EXPECT_EQ(ReadAll(target / file), ReadAll(expected / file)) << name << " " << file;
    }
    if (fs::exists(expected / "weights")) {
      EXPECT_EQ(ReadAll(target / "weights/weights.bin"), ReadAll(expected / "weights/weights.bin"));
    }
    const auto again = OpenPackage(target);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(again->model.description == package->model.description);
    EXPECT_TRUE(again->model.program.functions == package->model.program.functions);
  }
}

TEST(OpenPackage, ReadsFixturesThatPassEveryCheck) {
  for (const char* name : {"coreml/lut_widths.mlpackage", "coreml/kv_two_functions.mlpackage"}) {
    const auto package = OpenPackage(TestData(name));
    ASSERT_TRUE(package) << package.error().message;
    const auto checked = CheckModel(package->model, package->weights.get());
    EXPECT_TRUE(checked) << name << ": " << checked.error().message;
    const fs::path target = FreshFolder() / "x.mlmodelc";
    ASSERT_TRUE(WriteCompiled(*package, target));
    const auto again = OpenPackage(target);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(again->model.program.functions == package->model.program.functions);
    EXPECT_TRUE(again->model.description == package->model.description);
    EXPECT_TRUE(CheckModel(again->model, again->weights.get()));
  }
}

/// A package with one input, a palettized convolution, a state and two enumerated shapes.
Result<void> WriteSample(const fs::path& path) {
  CMF_TRY(PackageWriter writer, PackageWriter::Create(path));
  std::vector<uint8_t> codes;
  for (int i = 0; i < 16 * 8; ++i) codes.push_back(static_cast<uint8_t>(i * 5 % 8));
  CMF_TRY(const uint64_t indices, writer.weights().Add(DataType::kUInt3, 16 * 8, PackBits(codes, 3)));
  const Value table = Floats(DataType::kFloat16, {1, 1, 1, 1, 8, 1}, {-3, -2, -1, -0.5, 0.5, 1, 2, 3});
  CMF_TRY(const uint64_t lut, writer.weights().Add(DataType::kFloat16, 8, Bytes(table.tensor()->bytes)));
  CMF_TRY(const uint64_t lut_again,
          writer.weights().Add(DataType::kFloat16, 8, Bytes(table.tensor()->bytes)));
  if (lut != lut_again || writer.weights().entries() != 2)
    return Fail(ErrorKind::kInternal, "equal contents stored twice");

  FunctionBuilder b;
  const Var x = b.Input("x", {DataType::kFloat16, {1, 8, 1, kUnknownDim}});
  const Var state = b.State("model.sum", {DataType::kFloat16, {1, 16, 1, 1}});
  const Var w = b.Constexpr("constexpr_lut_to_dense",
                            {{"indices", FromBlob({DataType::kUInt3, {16, 8, 1, 1}}, indices)},
                             {"lut", FromBlob({DataType::kFloat16, {1, 1, 1, 1, 8, 1}}, lut)}},
                            "w_palettized");
  const Var y = b.Op("conv", {{"x", x}, {"weight", w}, {"pad_type", "valid"}}, "y");
  const Var sum = b.Op("reduce_sum", {{"x", y}, {"axes", std::vector<int32_t>{-1}}, {"keep_dims", true}});
  b.Write(state, b.Op("add", {{"x", b.Read(state)}, {"y", sum}}));
  b.Output(y, "out");
  b.Output(b.Read(state), "total");
  CMF_TRY(Function function, b.Finish());
  Model model;
  model.program.functions["main"] = std::move(function);
  CMF_TRY(model.description, DescribeProgram(model.program));
  auto& input = std::get<ArrayFeature>(model.description.inputs[0].type);
  input.shape = {1, 8, 1, 1};
  input.enumerated_shapes = {{1, 8, 1, 1}, {1, 8, 1, 4}};
  model.description.metadata.user_defined["com.anemll.info"] = "a/b";
  return writer.Commit(model);
}

TEST(PackageWriter, WritesWhereALinkLeadsAndSaysAtOnceThatItLeadsNowhere) {
  const fs::path folder = FreshFolder();
  fs::create_directory(folder / "real.mlpackage");
  fs::create_directory_symlink("real.mlpackage", folder / "to_real.mlpackage");
  fs::create_directory_symlink("to_real.mlpackage", folder / "linked.mlpackage");
  fs::create_directory_symlink("new.mlpackage", folder / "to_new.mlpackage");
  for (const char* name : {"linked.mlpackage", "to_new.mlpackage"}) {
    const auto status = WriteSample(folder / name);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_TRUE(fs::is_symlink(folder / name)) << name;
  }
  EXPECT_TRUE(fs::exists(folder / "real.mlpackage/Manifest.json"));
  EXPECT_TRUE(fs::exists(folder / "new.mlpackage/Manifest.json"));
  fs::create_directory_symlink("missing/x.mlpackage", folder / "nowhere.mlpackage");
  const auto nowhere = PackageWriter::Create(folder / "nowhere.mlpackage");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().kind, ErrorKind::kNotFound);
  EXPECT_NE(nowhere.error().message.find("nowhere.mlpackage"), std::string::npos) << nowhere.error().message;
}

TEST(PackageWriter, WritesTheSameBytesTwiceAndReadsThemBack) {
  const fs::path folder = FreshFolder();
  for (const char* name : {"a.mlpackage", "b.mlpackage", "b.mlpackage"}) {  // the last one replaces
    const auto status = WriteSample(folder / name);
    ASSERT_TRUE(status) << status.error().message;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
  for (const char* file :
       {"Manifest.json", "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin"}) {
    EXPECT_EQ(ReadAll(folder / "a.mlpackage" / file), ReadAll(folder / "b.mlpackage" / file)) << file;
  }
  const auto package = OpenPackage(folder / "a.mlpackage");
  ASSERT_TRUE(package) << package.error().message;
  const auto checked = CheckModel(package->model, package->weights.get());
  EXPECT_TRUE(checked) << checked.error().message;
  const Function& main = package->model.program.functions.at("main");
  EXPECT_EQ(main.inputs[1].name, "model_sum");
  EXPECT_EQ(main.body.outputs, (std::vector<std::string>{"out", "total"}));
  ASSERT_TRUE(WriteCompiled(*package, folder / "a.mlmodelc"));
  const std::string text = ReadAll(folder / "a.mlmodelc/model.mil");
  EXPECT_NE(text.find("state<tensor<fp16, [1, 16, 1, 1]>> model_sum) [FlexibleShapeInformation = "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("write_state(data = "), std::string::npos);
  EXPECT_NE(text.find("constexpr_lut_to_dense(indices = tensor<uint3, [16, 8, 1, 1]>(BLOBFILE(path = "),
            std::string::npos);
  EXPECT_NE(ReadAll(folder / "a.mlmodelc/metadata.json")
                .find("\"shapeFlexibility\" : \"1 × 8 × 1 × 1 | 1 × 8 × 1 × 4\""),
            std::string::npos);
}

TEST(PackageWriter, RefusesAModelThatDoesNotFitItsWeights) {
  const fs::path folder = FreshFolder();
  auto writer = PackageWriter::Create(folder / "x.mlpackage");
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->weights().Add(DataType::kFloat16, 3, AsBytes("abcdef")));
  FunctionBuilder b;
  const Var x = b.Input("x", {DataType::kFloat16, {4}});
  b.Output(b.Op("add", {{"x", x}, {"y", FromBlob({DataType::kFloat16, {4}}, 64)}}), "y");
  auto function = b.Finish();
  ASSERT_TRUE(function) << function.error().message;
  Model model;
  model.program.functions["main"] = *function;
  model.description = *DescribeProgram(model.program);
  const auto status = writer->Commit(model);
  ASSERT_FALSE(status);
  EXPECT_NE(
      status.error().message.find("entry at 64: 6 bytes of fp16 stored, 8 bytes of tensor<fp16, [4]> wanted"),
      std::string::npos)
      << status.error().message;
  *writer = PackageWriter();
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(OpenPackage, NamesWhatIsWrongWithAManifest) {
  const fs::path package = FreshFolder() / "x.mlpackage";
  const std::string id = "\"11111111-1111-1111-1111-111111111111\"";
  const auto manifest = [&](const std::string& path, const std::string& root,
                            const std::string& version = "1.0.0") {
    return "{\"fileFormatVersion\":\"" + version + "\",\"itemInfoEntries\":{" + id +
           ":{\"author\":\"a\",\"description\":\"d\",\"name\":\"n\",\"path\":\"" + path +
           "\"}},\"rootModelIdentifier\":" + root + "}";
  };
  const auto message = [&](const std::string& text) {
    if (!text.empty()) WriteAll(package / "Manifest.json", text);
    const auto opened = OpenPackage(package);
    return opened ? std::string() : opened.error().message;
  };
  fs::create_directories(package / "Data/com.apple.CoreML");
  EXPECT_NE(message("").find("neither Manifest.json"), std::string::npos);
  EXPECT_NE(message("{").find("Manifest.json"), std::string::npos);
  EXPECT_NE(message("{}").find("'fileFormatVersion' is missing"), std::string::npos);
  EXPECT_NE(message(manifest("com.apple.CoreML/model.mlmodel", id)).find("is listed, but not there"),
            std::string::npos);
  EXPECT_NE(message(manifest("com.apple.CoreML/model.mlmodel", id, "2.0.0")).find("1.0.0 is known"),
            std::string::npos);
  EXPECT_NE(message(manifest("com.apple.CoreML/model.mlmodel", id, "1.0")).find("is no version"),
            std::string::npos);
  EXPECT_NE(message(manifest("../../etc/passwd", id)).find("leaves the package"), std::string::npos);
  EXPECT_NE(message(manifest("/etc/passwd", id)).find("leaves the package"), std::string::npos);
  EXPECT_NE(message(manifest("com.apple.CoreML/..", id)).find("leaves the package"), std::string::npos);
  EXPECT_NE(message(manifest("com.apple.CoreML", id)).find("is no file"), std::string::npos);
  fs::create_directory_symlink("..", package / "Data/up");
  EXPECT_NE(message(manifest("up", id)).find("circle"), std::string::npos);
  fs::create_directory_symlink("loop", package / "Data/loop");
  EXPECT_NE(message(manifest("loop", id)).find("symbolic links"), std::string::npos)
      << message(manifest("loop", id));
  WriteAll(package / "Data/com.apple.CoreML/model.mlmodel", "");
  EXPECT_NE(message(manifest("com.apple.CoreML/model.mlmodel", "\"2\"")).find("root model '2' is not listed"),
            std::string::npos);
  EXPECT_NE(message(manifest("com.apple.CoreML/model.mlmodel", id)).find("model.mlmodel: no program"),
            std::string::npos);
}

}  // namespace
}  // namespace cmforge::mil
