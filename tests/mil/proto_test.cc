// The protobuf form of models.
#include "mil/proto.h"

#include <gtest/gtest.h>

#include "mil/builder.h"
#include "mil/test_files.h"

namespace cmforge::mil {
namespace {

TEST(ParseModel, ReadsRealModelsAndWritesThemBackToTheSameMeaning) {
  for (const char* name : kModels) {
    const std::string bytes = ReadAll(TestData(name));
    const auto model = ParseModel(AsBytes(bytes));
    ASSERT_TRUE(model) << name << ": " << model.error().message;
    const std::string written = SerializeModel(*model);
    const auto again = ParseModel(AsBytes(written));
    ASSERT_TRUE(again) << name << ": " << again.error().message;
    EXPECT_TRUE(*model == *again) << name;
    EXPECT_EQ(SerializeModel(*again), written) << name;
  }
}

TEST(ParseModel, SeesFunctionsStatesAndConstantsOfAChunk) {
  const std::string bytes = ReadAll(TestData(kModels[3]));
  const auto model = ParseModel(AsBytes(bytes));
  ASSERT_TRUE(model);
  EXPECT_EQ(model->specification_version, 9);
  EXPECT_EQ(model->DefaultFunction(), "infer");
  ASSERT_EQ(model->program.functions.size(), 2u);
  const Function& infer = model->program.functions.at("infer");
  EXPECT_EQ(infer.opset, Opset::kIos18);
  const auto view = model->description.Find("prefill");
  ASSERT_TRUE(view);
  ASSERT_EQ(view->states->size(), 1u);
  EXPECT_EQ((*view->states)[0].array()->shape, (Shape{4, 2, 16, 8}));
  int64_t states = 0;
  for (const NamedType& input : infer.inputs) states += input.type.is_state();
  EXPECT_EQ(states, 1);
}

TEST(ParseModel, NeverCrashesOnAnyCutOrFlippedByte) {
  const std::string bytes = ReadAll(TestData(kModels[1]));
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(ParseModel(AsBytes(std::string_view(bytes).substr(0, cut)))) << cut;
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {1, 0x80, 0xFF}) {
      std::string bad = bytes;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      if (const auto model = ParseModel(AsBytes(bad))) (void)SerializeModel(*model);
    }
  }
}

/// A bool may be stored as raw bytes; whatever bits say "true", it is 1 from then on.
TEST(ParseModel, NormalizesBoolsStoredAsBytes) {
  Model model;
  FunctionBuilder b;
  const Var x = b.Input("x", {DataType::kFloat16, {2}});
  b.Output(b.Op("reduce_sum", {{"x", x}, {"keep_dims", true}}), "y");
  model.program.functions["main"] = *b.Finish();
  model.description = *DescribeProgram(model.program);
  std::string bytes = SerializeModel(model);
  // TensorValue {3: RepeatedBools {1: packed [1]}} becomes {7: RepeatedBytes {1: "\xff"}}.
  const std::string bools("\x1a\x03\x0a\x01\x01", 5), raw("\x3a\x03\x0a\x01\xff", 5);
  const size_t at = bytes.find(bools);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, bools.size(), raw);
  const auto parsed = ParseModel(AsBytes(bytes));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(*parsed == model);
}

/// Whoever takes the first of two entries with one key and whoever takes the last run different programs.
TEST(ParseModel, RefusesNamesThatOccurTwice) {
  Model model;
  FunctionBuilder b;
  const Var x = b.Input("x", {DataType::kFloat16, {2, 3}});
  b.Output(b.Op("softmax", {{"x", x}, {"axis", 1}}, "y"), "y");
  model.program.functions["main"] = *b.Finish();
  model.program.functions["twin"] = model.program.functions["main"];
  Function& main = model.program.functions["main"];
  main.attributes["note"] = Int32(1);
  main.attributes["twin"] = Int32(2);
  for (Operation& op : main.body.operations) {
    if (op.type == "softmax") op.inputs["twin"] = {Int32(1)};
    if (op.type == "softmax") op.attributes["twin"] = Int32(1);
  }
  const std::string bytes = SerializeModel(model);
  ASSERT_TRUE(ParseModel(AsBytes(bytes)));
  struct Case {
    std::string to;
    const char* message;
  };
  for (const Case& c :
       {Case{"main", "program: function 'main' occurs twice"},
        {"note", "program: function 'main': attribute 'note' occurs twice"},
        {"axis", "program: function 'main': operation softmax 'y': parameter 'axis' occurs twice"},
        {"name", "program: function 'main': operation softmax 'y': attribute 'name' occurs twice"}}) {
    // "twin" takes the place of each name in turn, which has as many letters.
    bool is_told = false;
    for (size_t at = 0; (at = bytes.find("twin", at)) != bytes.npos; ++at) {
      std::string doubled = bytes;
      const auto parsed = ParseModel(AsBytes(doubled.replace(at, 4, c.to)));
      is_told = is_told || (!parsed && parsed.error().message == c.message);
    }
    EXPECT_TRUE(is_told) << c.message;
  }
}

TEST(ParseModel, NamesWhatIsWrong) {
  const auto message = [](std::string_view bytes) {
    const auto model = ParseModel(AsBytes(bytes));
    return model ? "" : model.error().message;
  };
  using std::literals::operator""sv;
  EXPECT_EQ(message(""), "no program: this is not a Core ML model");
  // specificationVersion 1, field 500 (an empty neural network)
  EXPECT_EQ(message("\x08\x01\xa2\x1f\x00"sv), "the model is of kind 500, only ML Programs (502) are read");
  EXPECT_EQ(message("\xb2\x1f\x05\x08\x01"sv), "field 502 claims 5 bytes, 2 are left in its message");
  EXPECT_EQ(message("\xb2\x1f\x02\x08\x01"sv), "program: a program without functions");
  EXPECT_EQ(message("\xb2\x1f\x02\x08\x02"sv), "program: program version 2, 1 is known");
}

}  // namespace
}  // namespace cmforge::mil
