// cmforge coreml info and predict.
#include <cmath>
#include <functional>

#include "base/npy.h"
#include "cli/program.h"

namespace cmforge {
namespace {

using Coreml = CliTest;

std::string Data(const std::string& name) { return std::string(CMFORGE_TEST_DATA) + "/coreml/" + name; }

std::vector<float> FloatsOf(const Json& tensor) {
  std::vector<float> values;
  for (const Json& v : tensor.at("data")) values.push_back(v.is_string() ? -INFINITY : v.get<float>());
  return values;
}

/// The inputs of one recorded call as .npy files, and the arguments that name them.
std::vector<std::string> WriteInputs(const Json& call, const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::vector<std::string> arguments;
  for (const auto& [name, tensor] : call.at("inputs").items()) {
    const std::string file = folder + "/" + name + ".npy";
    const std::vector<int64_t> shape = tensor.at("shape");
    const std::vector<float> values = FloatsOf(tensor);
    const bool is_float = tensor.at("dtype") == "float16";
    const std::vector<int32_t> integers(values.begin(), values.begin() + (is_float ? 0 : values.size()));
    EXPECT_TRUE(
        WriteNpy(file, is_float ? NpyArray::FromHalves(shape, values) : NpyArray::FromInts(shape, integers)));
    arguments.push_back("--input");
    arguments.push_back(name + "=" + file);
  }
  return arguments;
}

void ExpectNear(const std::string& file, const Json& wanted, double tolerance, NpyType type) {
  const auto array = ReadNpy(file);
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(array->type, type) << file;
  EXPECT_EQ(array->shape, wanted.at("shape").get<std::vector<int64_t>>());
  const std::vector<float> got = array->ToFloats(), values = FloatsOf(wanted);
  ASSERT_EQ(got.size(), values.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], values[i], tolerance) << file << " " << i;
}

TEST_F(Coreml, PredictCarriesStatesFromCallToCall) {
  const Json recorded = Json::parse(Slurp(Data("kv_two_functions.json")));
  for (const std::string precision : {"f32", "fp16"}) {
    const double tolerance = precision == "f32" ? 4e-3 : 3e-2;
    const NpyType type = precision == "f32" ? NpyType::kF32 : NpyType::kF16;
    std::string before;
    int number = 0;
    for (const Json& call : recorded.at("calls")) {
      const std::string here = Path(precision + std::to_string(number++));
      std::vector<std::string> arguments = {"coreml",
                                            "predict",
                                            Data("kv_two_functions.mlpackage"),
                                            "--function",
                                            call.at("function").get<std::string>(),
                                            "--precision",
                                            precision,
                                            "--output-dir",
                                            here + "/out",
                                            "--state-out",
                                            here + "/state",
                                            "--json"};
      for (std::string& argument : WriteInputs(call, here + "/in")) arguments.push_back(std::move(argument));
      if (!before.empty()) {
        arguments.push_back("--state-in");
        arguments.push_back(before);
      }
      const Ran ran = Run(arguments);
      ASSERT_EQ(ran.status, 0) << ran.err;
      EXPECT_EQ(ran.err, "");
      EXPECT_EQ(ran.json().at("function"), call.at("function"));
      EXPECT_EQ(ran.json().at("outputs").at(0).at("file"), here + "/out/output_hidden_states.npy");
      EXPECT_EQ(ran.json().at("states").at(0).at("name"), "model_model_kv_cache_0");
      for (const auto& [name, wanted] : call.at("outputs").items())
        ExpectNear(here + "/out/" + name + ".npy", wanted, tolerance, type);
      before = here + "/state";
    }
    for (const auto& [name, wanted] : recorded.at("final_state").items())
      ExpectNear(before + "/" + name + ".npy", wanted, tolerance, type);
  }
}

TEST_F(Coreml, PredictSaysWhatIsWrongWithItsArguments) {
  const std::string model = Data("lut_widths.mlpackage"), out = Path("out");
  const std::string good = Path("x.npy"), wrong = Path("wrong.npy");
  ASSERT_TRUE(WriteNpy(good, NpyArray::FromFloats({1, 5, 24}, std::vector<float>(120, 0.5f))));
  ASSERT_TRUE(WriteNpy(wrong, NpyArray::FromFloats({5, 24}, std::vector<float>(120, 0.5f))));
  std::ofstream(Path("junk.npy")) << "junk";
  struct Wrong {
    std::vector<std::string> arguments;
    int status;
    const char* message;
  };
  const std::vector<Wrong> cases = {
      {{model, "--output-dir", out}, 2, "input 'hidden_states' (tensor<fp16, [1, 5, 24]>) is missing"},
      {{model, "--output-dir", out, "--input", "hidden_states"}, 2, "write NAME=FILE.npy"},
      {{model, "--output-dir", out, "--input", "hidden_states=" + good, "--input", "hidden_states=" + good},
       2,
       "given twice"},
      {{model, "--output-dir", out, "--input", "hidden_states=" + wrong},
       2,
       "shape [5, 24] does not fit tensor<fp16, [1, 5, 24]>: give an array of that shape"},
      {{model, "--output-dir", out, "--input", "nothing=" + good},
       3,
       "no input 'nothing': it has hidden_states: name one of these"},
      {{model, "--output-dir", out, "--input", "hidden_states=" + Path("none.npy")}, 3, "none.npy"},
      {{model, "--output-dir", out, "--input", "hidden_states=" + Path("junk.npy")},
       4,
       "junk.npy: 4 bytes without the mark of an .npy file: write it again"},
      {{model, "--output-dir", out, "--function", "infer", "--input", "hidden_states=" + good},
       3,
       "no function 'infer': it has main: name one of these"},
      {{Path("none"), "--output-dir", out}, 3, "no such file or folder: check the path"},
      {{Data("bad"), "--output-dir", out}, 3, "neither Manifest.json"},
      {{Data("bad/weight-bad-sentinel.bin"), "--output-dir", out}, 4, "weight-bad-sentinel.bin"},
      {{model, "--input", "hidden_states=" + good}, 2, "--output-dir is required"},
      {{model, "--output-dir", good, "--input", "hidden_states=" + good},
       6,
       "x.npy: cannot be made: not a directory: check the path"},
      {{model, "--output-dir", out, "--input", "hidden_states=" + good, "--state-in", out},
       2,
       "the function has no states: leave it out"},
      {{model, "--output-dir", out, "--precision", "f64"}, 2, "f64"},
      {{Data("kv_two_functions.mlpackage"), "--output-dir", out, "--state-in", Path("nostate")},
       2,
       "is missing"},
  };
  for (const Wrong& one : cases) {
    std::vector<std::string> arguments = {"coreml", "predict"};
    arguments.insert(arguments.end(), one.arguments.begin(), one.arguments.end());
    const Ran ran = Run(arguments);
    EXPECT_EQ(ran.status, one.status) << one.message << "\n" << ran.err;
    EXPECT_NE(ran.err.find(one.message), std::string::npos) << ran.err << one.message;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "");
  }
  const Ran ran =
      Run({"coreml", "predict", model, "--output-dir", out, "--input", "hidden_states=" + good, "--no-mmap"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("y_w6 tensor<fp16, [1, 16, 1, 5]> -> " + out + "/y_w6.npy"), std::string::npos)
      << ran.out;
}

/// Whatever is wrong with what it reads: the file, the place in it, what to do.
TEST_F(Coreml, EveryReadErrorNamesARemedy) {
  const std::string model = Path("m.mlpackage"), data = model + "/Data/com.apple.CoreML";
  const std::string compiled = Path("c.mlmodelc"), array = Path("x.npy"), out = Path("out");
  const auto fresh = [&] {
    for (const auto& [from, to] :
         {std::pair{Data("lut_widths.mlpackage"), model},
          {std::string(CMFORGE_TEST_DATA) + "/mil/quantized_constexpr/expected.mlmodelc", compiled}}) {
      std::filesystem::remove_all(to);
      std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
    }
    ASSERT_TRUE(WriteNpy(array, NpyArray::FromHalves({1, 5, 24}, std::vector<float>(120, 0.5f))));
  };
  const auto cut = [](const std::string& file) {
    std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  };
  const auto remove = [](const std::string& file) { std::filesystem::remove_all(file); };
  const std::string again = "copy the file again, or convert the model again";
  struct Case {
    std::function<void()> spoil;
    std::string place, remedy = "copy the file again, or convert the model again";
    bool is_compiled = false;
  };
  const std::vector<Case> cases = {
      {[&] { cut(data + "/model.mlmodel"); }, data + "/model.mlmodel: "},
      {[&] { remove(data + "/model.mlmodel"); }, model + "/Manifest.json: item"},
      {[&] { cut(model + "/Manifest.json"); }, model + "/Manifest.json: "},
      {[&] { remove(model + "/Manifest.json"); }, model + ": neither Manifest.json", "check the path"},
      {[&] { cut(data + "/weights/weight.bin"); }, data + "/weights/weight.bin: entry at "},
      {[&] { remove(data + "/weights/weight.bin"); },
       data + "/weights/weight.bin: the weight file is not there"},
      {[&] { cut(compiled + "/model.mil"); }, compiled + "/model.mil: line ", again, true},
      {[&] { remove(compiled + "/model.mil"); }, compiled + "/model.mil: ", again, true},
      {[&] { remove(compiled + "/coremldata.bin"); }, compiled + "/coremldata.bin: ", again, true},
      {[&] { cut(compiled + "/coremldata.bin"); }, compiled + "/coremldata.bin: ", again, true},
      {[&] { cut(array); }, array + ": ", "write it again (numpy.save), or copy it again"},
  };
  for (const Case& c : cases) {
    fresh();
    c.spoil();
    const std::string& path = c.is_compiled ? compiled : model;
    const Ran predict =
        Run({"coreml", "predict", path, "--output-dir", out, "--input", "hidden_states=" + array});
    EXPECT_TRUE(predict.status == 3 || predict.status == 4) << c.place << predict.err;
    EXPECT_NE(predict.err.find(c.place), std::string::npos) << c.place << "\n" << predict.err;
    EXPECT_TRUE(predict.err.ends_with(": " + c.remedy + "\n")) << predict.err;
    const Ran lint = Run({"coreml", "lint", path});
    EXPECT_TRUE(lint.err.empty() || lint.err.ends_with(": " + c.remedy + "\n")) << lint.err;
    EXPECT_EQ(lint.out.find(again), lint.out.rfind(again)) << lint.out;  // told once
  }
}

TEST_F(Coreml, InfoDescribesEveryForm) {
  const Json info = Run({"coreml", "info", Data("kv_two_functions.mlpackage"), "--json"}).json();
  const Json& model = info.at("models").at(0);
  EXPECT_EQ(model.at("form"), "mlpackage");
  EXPECT_EQ(model.at("default_function"), "infer");
  ASSERT_EQ(model.at("functions").size(), 2u);
  const Json& prefill = model.at("functions").at(1);
  EXPECT_EQ(prefill.at("name"), "prefill");
  EXPECT_EQ(prefill.at("opset"), "ios18");
  EXPECT_EQ(prefill.at("states").at(0),
            (Json{{"name", "model_model_kv_cache_0"}, {"type", "fp16"}, {"shape", {4, 2, 16, 8}}}));
  EXPECT_EQ(prefill.at("operations").at("slice_update"), 4);
  EXPECT_FALSE(prefill.at("operations").contains("const"));
  EXPECT_EQ(model.at("weight_file_bytes"), 13248);
  uint64_t bytes = 0;
  std::vector<std::string> forms;
  for (const Json& form : model.at("weights")) {
    bytes += form.at("bytes").get<uint64_t>();
    forms.push_back(form.at("form"));
  }
  EXPECT_EQ(forms, (std::vector<std::string>{"lut4 groups 8", "lut6 groups 8", "fp16"}));
  EXPECT_LT(bytes, 13248u);

  const Ran text = Run({"coreml", "info", Data("kv_two_functions.mlpackage")});
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("function infer (ios18), the default"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("state   model_model_kv_cache_0       fp16 [4, 2, 16, 8]"), std::string::npos)
      << text.out;

  const std::string compiled = std::string(CMFORGE_TEST_DATA) + "/mil/quantized_constexpr/expected.mlmodelc";
  EXPECT_EQ(Run({"coreml", "info", compiled, "--json"}).json().at("models").at(0).at("form"), "mlmodelc");
  const std::string bare = std::string(CMFORGE_TEST_DATA) + "/mil/quantized_constexpr/input.mlmodel";
  EXPECT_EQ(Run({"coreml", "info", bare, "--json"}).json().at("models").at(0).at("form"), "mlmodel");
}

/// A folder with meta.yaml: its parts in the order they run, each missing one by name.
TEST_F(Coreml, InfoReadsAPackageFolder) {
  const std::string folder = Path("package");
  for (const char* part :
       {"qwen_embeddings", "qwen_FFN_PF_chunk_01of02", "qwen_FFN_PF_chunk_02of02", "qwen_lm_head"}) {
    std::filesystem::create_directories(folder);
    std::filesystem::copy(Data("lut_widths.mlpackage"), folder + "/" + part + ".mlpackage",
                          std::filesystem::copy_options::recursive);
  }
  std::filesystem::copy_file(Data("bad/meta-missing-chunk/meta.yaml"), folder + "/meta.yaml");
  const Ran ran = Run({"coreml", "info", folder, "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const Json info = ran.json();
  EXPECT_EQ(info.at("meta").at("num_chunks"), 2);
  EXPECT_EQ(info.at("meta").at("context_length"), 64);
  ASSERT_EQ(info.at("models").size(), 4u);
  EXPECT_EQ(info.at("models").at(2).at("path"), folder + "/qwen_FFN_PF_chunk_02of02.mlpackage");
  EXPECT_NE(
      Run({"coreml", "info", folder}).out.find("tiny: architecture not named, context 64, batch 8, 2 chunks"),
      std::string::npos);

  std::filesystem::remove_all(folder + "/qwen_FFN_PF_chunk_02of02.mlpackage");
  const Ran missing = Run({"coreml", "info", folder, "--json"});
  EXPECT_EQ(missing.status, 3);
  EXPECT_NE(missing.err.find("names a part that is not there: qwen_FFN_PF_chunk_02of02.mlmodelc"),
            std::string::npos)
      << missing.err;
}

TEST_F(Coreml, HelpHasExamples) {
  for (const char* command : {"info", "predict"}) {
    const Ran help = Run({"coreml", command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("Example:\n  cmforge coreml "), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("--json"), std::string::npos);
  }
  EXPECT_EQ(Run({"coreml"}).status, 2);
  EXPECT_EQ(Run({"coreml", "nonsense"}).status, 2);
}

}  // namespace
}  // namespace cmforge
