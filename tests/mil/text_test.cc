// The text form of programs.
#include "mil/text.h"

#include <gtest/gtest.h>

#include "mil/proto.h"
#include "mil/test_files.h"

namespace cmforge::mil {
namespace {

TEST(ProgramText, OfTheCompilerIsReadAndPrintedByteForByte) {
  for (const char* name : {"mil/quantized_constexpr/expected.mlmodelc/model.mil",
                           "mil/fp16_subnormal/expected.mlmodelc/model.mil", "mil/multifunction_range.mil",
                           "mil/enumerated.mil"}) {
    const std::string text = ReadAll(TestData(name));
    const auto program = ParseProgramText(text);
    ASSERT_TRUE(program) << name << ": " << program.error().message;
    EXPECT_EQ(PrintProgram(*program), text) << name;
  }
}

TEST(ProgramText, PrintedFromProtobufIsReadBackToTheSameProgram) {
  for (const char* name : kModels) {
    const std::string bytes = ReadAll(TestData(name));
    const auto model = ParseModel(AsBytes(bytes));
    ASSERT_TRUE(model);
    const std::string text = PrintProgram(model->program);
    const auto again = ParseProgramText(text);
    ASSERT_TRUE(again) << name << ": " << again.error().message;
    EXPECT_TRUE(*again == model->program) << name;
    EXPECT_EQ(PrintProgram(*again), text);
  }
}

std::string Wrapped(const std::string& statements) {
  return "program(1.3)\n{\n    func main<ios18>(tensor<fp16, [2]> x) {\n" + statements +
         "        } -> (x);\n}";
}

Value FirstValue(const std::string& literal) {
  const auto program = ParseProgramText(Wrapped("int32 c = const()[val = " + literal + "];\n"));
  EXPECT_TRUE(program) << literal << ": " << program.error().message;
  return program ? program->functions.at("main").body.operations[0].attributes.at("val") : Value{};
}

TEST(ProgramText, HoldsValuesOfEveryType) {
  const char* const literals[] = {
      "fp32(0x1.99999ap-4)",
      "fp16(-0x0p+0)",
      "tensor<fp16, [4]>([inf, -inf, nan, 0x1p-24])",
      "fp64(0x1.5555555555555p-2)",
      "bf16(0x1.02p+0)",
      "tensor<fp8e4m3fn, [3]>([0x1.cp+8, -0x1p-9, nan])",
      "tensor<fp8e5m2, [2]>([0x1.cp+15, -inf])",
      "tensor<int8, [2]>([-128, 127])",
      "tensor<uint64, [2]>([18446744073709551615, 0])",
      "int64(-9223372036854775808)",
      "tensor<uint3, [2, 3]>([[0, 1, 2], [5, 6, 7]])",
      "tensor<int4, [3]>([-8, 7, -1])",
      "tensor<bool, [2, 1]>([[true], [false]])",
      R"(string("a \"quoted\" back\\slash"))",
      "tensor<string, [2]>([\"a\", \"b\"])",
      "tensor<int32, [0]>([])",
      "tensor<int32, [2, 0]>([[], []])",
      R"(tensor<uint6, [9, 2]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64))))",
      R"(dict<string, tuple<int32, list<bool, ?>>>({{"k", (1, [true, false])}, {"l", (2, [])}}))",
  };
  for (const char* literal : literals) {
    const std::string printed =
        PrintProgram(*ParseProgramText(Wrapped(std::string("int32 c = const()[val = ") + literal + "];\n")));
    EXPECT_NE(printed.find(std::string("[val = ") + literal + "]"), std::string::npos) << literal << "\n"
                                                                                       << printed;
  }
  EXPECT_EQ(FirstValue("tensor<uint3, [3]>([1, 2, 3])").tensor()->bytes[0], std::byte{0xd1});
  EXPECT_EQ(FirstValue("tensor<string, []>(\"old\")"), FirstValue("string(\"old\")"));
  EXPECT_EQ(FirstValue("fp32(0.1)"), FirstValue("fp32(0x1.99999ap-4)"));
}

TEST(ProgramText, OfOlderCompilersAndOtherSpacingIsRead) {
  const auto program = ParseProgramText(R"(program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "1877.40.3"}})]
{ func main<ios16>(tensor<fp16,[1,4]>x,state<tensor<fp16,[2]>>s){
  tensor<int32, []> axis = const()[name=tensor<string, []>("axis"),val=tensor<int32, []>(-1)];
  tensor<fp16, [4, 4]> w = const()[val = tensor<fp16, [4, 4]>(BLOBFILE(path = tensor<string, []>("@model_path/w.bin"), offset = tensor<uint64, []>(64)))];
  tensor<fp16,[1,2]> a, tensor<fp16,[1,2]> b = split(x=x,axis=axis,num_splits=int32(2));
  tensor<fp16,[1,4]> c = concat(values=(a,b),axis=axis);
  write_state(input=s,data=a);
} -> (c,b); })");
  ASSERT_TRUE(program) << program.error().message;
  const Function& main = program->functions.at("main");
  EXPECT_EQ(main.body.operations[1].attributes.at("val").blob()->offset, 64u);
  EXPECT_EQ(main.body.operations[2].outputs.size(), 2u);
  EXPECT_EQ(main.body.operations[3].inputs.at("values").size(), 2u);
  EXPECT_TRUE(main.body.operations[4].outputs.empty());
  EXPECT_EQ(main.body.outputs, (std::vector<std::string>{"c", "b"}));
}

TEST(ProgramText, ErrorsNameLineAndColumn) {
  const auto message = [](const std::string& text) {
    const auto program = ParseProgramText(text);
    return program ? "" : program.error().message;
  };
  EXPECT_EQ(message(""), "line 1, column 1: the text ends where 'program' should be");
  EXPECT_EQ(message("program(2.0)"), "line 1, column 9: program version '2.0', 1.x is known");
  EXPECT_EQ(message(Wrapped("   int32 c = const()[val = int32(x)];\n")),
            "line 4, column 34: 'x' where a number that fits int32 should be");
  EXPECT_EQ(message(Wrapped("int8 c = const()[val = int8(200)];\n")),
            "line 4, column 29: '200' where a number that fits int8 should be");
  EXPECT_EQ(message(Wrapped("tensor<fp99, [2]> y = relu(x = x);\n")),
            "line 4, column 12: 'fp99' is no element type");
  EXPECT_EQ(message(Wrapped("fp16 y = relu(x = x)\n")), "line 5, column 9: '}' where ';' should be");
  EXPECT_EQ(message(Wrapped("fp16 y = relu(x = x, x = x);\n")),
            "line 4, column 22: parameter 'x' occurs twice");
  EXPECT_EQ(message(Wrapped("fp16 y = relu(x = \"open);\n")),
            "line 4, column 19: a string without its closing quote");
  EXPECT_EQ(message(Wrapped("int32 c = const()[val = tensor<int32, [2]>([1, 2, 3])];\n")),
            "line 4, column 44: 3 elements where the type has 2");
  EXPECT_EQ(message(Wrapped("fp16 y = $;\n")), "line 4, column 10: unexpected byte 0x24");
  EXPECT_EQ(message(Wrapped("fp16 y = cond(p = x) { block0() {} -> (); };\n")),
            "line 4, column 22: control flow (nested blocks) is not supported");
}

TEST(ProgramText, NestsOnlySoDeep) {
  std::string types, blobs;
  for (int i = 0; i < 100000; ++i) {
    types += "state<";
    blobs += "string(BLOBFILE(path = ";
  }
  const auto program = ParseProgramText(Wrapped(types + "int32 c = const();\n"));
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message.find("nest deeper"), std::string::npos) << program.error().message;
  EXPECT_FALSE(ParseProgramText(Wrapped("int32 c = const()[val = " + blobs + "];\n")));
}

TEST(ProgramText, NeverCrashesOnCutsAndFlips) {
  const std::string text = ReadAll(TestData("mil/enumerated.mil"));
  for (size_t cut = 0; cut < text.size(); ++cut) EXPECT_FALSE(ParseProgramText(text.substr(0, cut))) << cut;
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char c : {'\0', '<', '(', '"', '9', '-', '?', '\xff'}) {
      std::string bad = text;
      bad[at] = c;
      if (const auto program = ParseProgramText(bad)) (void)PrintProgram(*program);
    }
  }
}

}  // namespace
}  // namespace cmforge::mil
