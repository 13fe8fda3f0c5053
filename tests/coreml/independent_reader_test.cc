// What we write, read by a program that shares nothing with ours (tests/oracle/mlpackage_reader.py).
#include <cstdio>
#include <cstdlib>

#include "coreml/case_program.h"
#include "coreml/tensors.h"

namespace cmforge::coreml {
namespace {

struct Answer {
  int status = -1;
  std::string text;
};

Answer RunReader(const std::string& arguments) {
  const std::string command = std::string("/usr/bin/python3 ") + CMFORGE_SOURCE_DIR +
                              "/tests/oracle/mlpackage_reader.py " + arguments + " 2>&1";
  Answer answer;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return answer;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) answer.text.append(buffer, n);
  answer.status = pclose(pipe);
  return answer;
}

bool HasNumpy() { return std::system("/usr/bin/python3 -c 'import numpy' >/dev/null 2>&1") == 0; }

/// Skips a test, and says why.
#define CMF_NEEDS_NUMPY() \
  if (!HasNumpy()) GTEST_SKIP() << "no /usr/bin/python3 with numpy: install python3-numpy"

/// Tensors go into the weight file: every type it has a code for, all but the smallest.
Result<void> MoveToFile(mil::Value& value, mil::BlobWriter& weights) {
  const mil::TensorData* data = value.tensor();
  if (!data || !value.type.is_tensor() || !mil::BlobCodeOf(value.type.tensor.dtype)) return {};
  const int64_t count = *ElementCount(value.type.tensor.shape);
  if (count < 10) return {};
  CMF_TRY(const uint64_t offset, weights.Add(value.type.tensor.dtype, count, Bytes(data->bytes)));
  value = mil::FromBlob(value.type.tensor, offset);
  return {};
}

Result<void> WritePackage(const std::filesystem::path& path, mil::Model model) {
  CMF_TRY(mil::PackageWriter writer, mil::PackageWriter::Create(path));
  for (auto& [name, function] : model.program.functions) {
    for (mil::Operation& op : function.body.operations) {
      for (auto& [key, value] : op.attributes) CMF_CHECK(MoveToFile(value, writer.weights()));
      for (auto& [parameter, arguments] : op.inputs) {
        for (mil::Argument& argument : arguments) {
          if (auto* value = std::get_if<mil::Value>(&argument))
            CMF_CHECK(MoveToFile(*value, writer.weights()));
        }
      }
    }
  }
  return writer.Commit(model);
}

/// Packages of many functions, one for every case.
TEST(IndependentReader, AcceptsPackagesOfEveryOperation) {
  CMF_NEEDS_NUMPY();
  const auto folder = FreshFolder();
  std::string arguments = "--sorted";
  int number = 0;
  for (const CaseVariant& variant : kCaseVariants) {
    mil::Model model;
    mil::Description& described = model.description;
    for (const Json& json : OperationCases()) {
      if (!IsMeant(json, variant)) continue;
      const auto package = BuildCase(json, variant);
      ASSERT_TRUE(package) << package.error().message;
      const std::string name = fmt::format("case_{:03}", model.program.functions.size());
      const mil::Description& one = package->model.description;
      described.functions.push_back({name, one.inputs, one.outputs, one.states});
      model.program.functions[name] = package->model.program.functions.at("main");
    }
    ASSERT_GT(described.functions.size(), 300u);
    described.default_function = "case_000";
    for (const char* form : {".mlpackage", ".mlmodelc"}) {
      const auto path = folder / (std::string(variant.name) + form);
      if (std::string_view(form) == ".mlpackage") {
        const auto status = WritePackage(path, model);
        ASSERT_TRUE(status) << status.error().message;
      } else {
        const auto package = mil::OpenPackage(folder / (std::string(variant.name) + ".mlpackage"));
        ASSERT_TRUE(package) << package.error().message;
        const auto status = WriteCompiled(*package, path);
        ASSERT_TRUE(status) << status.error().message;
        const auto again = mil::OpenPackage(path);
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_TRUE(again->model.program.functions == package->model.program.functions) << variant.name;
        EXPECT_TRUE(again->model.description == package->model.description) << variant.name;
      }
      arguments += " " + path.string();
      ++number;
    }
  }
  const Answer answer = RunReader(arguments);
  EXPECT_EQ(answer.status, 0) << answer.text;
  EXPECT_EQ(answer.text.rfind("accepted " + std::to_string(number) + " models", 0), 0u) << answer.text;
  std::filesystem::remove_all(folder);
}

TEST(IndependentReader, AcceptsFixturesWrittenAgainInBothForms) {
  CMF_NEEDS_NUMPY();
  const auto folder = FreshFolder();
  std::string arguments = "--sorted";
  for (const std::string name : {"lut_widths", "kv_two_functions"}) {
    const auto package = mil::OpenPackage(TestData("coreml/" + name + ".mlpackage"));
    ASSERT_TRUE(package);
    // The weights are read from the old file and written by us.
    mil::Model model = package->model;
    const auto inlined = [&](mil::Value& value) {
      if (value.blob()) value = *package->weights->Immediate(value);
    };
    for (auto& [function_name, function] : model.program.functions) {
      for (mil::Operation& op : function.body.operations) {
        for (auto& [key, value] : op.attributes) inlined(value);
        for (auto& [parameter, operands] : op.inputs)
          for (mil::Argument& argument : operands)
            if (auto* value = std::get_if<mil::Value>(&argument)) inlined(*value);
      }
    }
    const auto written = folder / (name + ".mlpackage"), compiled = folder / (name + ".mlmodelc");
    const auto status = WritePackage(written, model);
    ASSERT_TRUE(status) << status.error().message;
    const auto reopened = mil::OpenPackage(written);
    ASSERT_TRUE(reopened);
    ASSERT_TRUE(WriteCompiled(*reopened, compiled));
    arguments += " " + written.string() + " " + compiled.string();
  }
  const Answer answer = RunReader(arguments);
  EXPECT_EQ(answer.status, 0) << answer.text;
  EXPECT_EQ(answer.text.rfind("accepted 4 models", 0), 0u) << answer.text;
}

/// The reader sees faults: a byte of the weight file, of the program, of the manifest.
TEST(IndependentReader, RefusesWhatIsDamaged) {
  CMF_NEEDS_NUMPY();
  const auto folder = FreshFolder();
  const auto original = TestData("coreml/lut_widths.mlpackage");
  const std::string weights = "Data/com.apple.CoreML/weights/weight.bin",
                    model = "Data/com.apple.CoreML/model.mlmodel";
  struct Damage {
    std::string file;
    size_t at;
  };
  int number = 0;
  for (const Damage& damage : {Damage{weights, 64}, Damage{weights, 72}, Damage{weights, 80},
                               Damage{weights, 4}, Damage{model, 3}, Damage{"Manifest.json", 20}}) {
    const auto copy = folder / fmt::format("{}.mlpackage", number++);
    std::filesystem::copy(original, copy, std::filesystem::copy_options::recursive);
    std::string bytes = ReadAll(copy / damage.file);
    bytes[damage.at] = static_cast<char>(bytes[damage.at] ^ 0x15);
    WriteAll(copy / damage.file, bytes);
    const Answer answer = RunReader(copy.string());
    EXPECT_NE(answer.status, 0) << damage.file << " " << damage.at << ": " << answer.text;
  }
}

}  // namespace
}  // namespace cmforge::coreml
