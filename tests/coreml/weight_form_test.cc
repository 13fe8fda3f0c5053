// Forms of weights as users write them.
#include "coreml/graphs/weight_form.h"

#include <gtest/gtest.h>

#include "coreml/compression.h"
#include "coreml/graphs/weight_rows.h"

namespace cmforge::coreml {
namespace {

TEST(ParsePaletteForm, TakesWidthsAndGroups) {
  const auto text = [](const char* form) { return FormText(ParsePaletteForm(form).value_or(WeightForm())); };
  EXPECT_EQ(text("none"), "fp16");
  EXPECT_EQ(text("2"), "lut2,8");
  EXPECT_EQ(text("3,1"), "lut3,1");
  EXPECT_EQ(text("4,16"), "lut4,16");
  EXPECT_EQ(text("6,0"), "lut6,0");
  EXPECT_EQ(text("8,-1"), "lut8,0");
  for (const char* bad : {"", "1", "5", "7", "16", "-4", "4.5", "six", "4,", "4,x", "4,8,8", ",8", " 4",
                          "int8", "0", "99999999999999999999"}) {
    const auto form = ParsePaletteForm(bad);
    ASSERT_FALSE(form) << bad;
    EXPECT_EQ(form.error().kind, ErrorKind::kUsage);
    EXPECT_NE(form.error().message.find(fmt::format("'{}'", bad)), std::string::npos) << form.error().message;
  }
}

TEST(ParseScaledForm, TakesInt8AndBlocksOfInt4) {
  const auto text = [](const char* form) { return FormText(ParseScaledForm(form).value_or(WeightForm())); };
  EXPECT_EQ(text("none"), "fp16");
  EXPECT_EQ(text("int8"), "int8");
  EXPECT_EQ(text("int4"), "int4,32");
  EXPECT_EQ(text("int4,64"), "int4,64");
  for (const char* bad :
       {"", "4", "int4,0", "int4,-8", "int4,", "int4,x", "int2", "int8,32", "int16", "INT8"}) {
    EXPECT_FALSE(ParseScaledForm(bad)) << bad;
  }
}

TEST(FormFor, NarrowsAGroupThatDoesNotDivide) {
  const auto group = [](const char* form, int64_t rows) {
    return FormFor(*ParsePaletteForm(form), rows, 32).group;
  };
  EXPECT_EQ(group("4,8", 64), 8);
  EXPECT_EQ(group("4,8", 60), 6);
  EXPECT_EQ(group("4,8", 9497), 1);  // a prime
  EXPECT_EQ(group("4,8", 5), 5);
  EXPECT_EQ(group("4,0", 9497), 9497);
  EXPECT_EQ(FormFor(*ParseScaledForm("int4,32"), 8, 48).group, 24);
  EXPECT_EQ(FormFor(*ParseScaledForm("int8"), 8, 48).group, 48);
  EXPECT_FALSE(FormFor(WeightForm(), 8, 8).is_compressed());
}

TEST(ResolveMixed, FindsTheWidthBelowTheAverage) {
  const auto resolve = [](const char* ffn, double average) -> Result<WeightForm> {
    Compression c;
    c.ffn = *ParsePaletteForm(ffn);
    c.ffn_mixed = average;
    CMF_CHECK(ResolveMixed(c));
    return c.ffn;
  };
  EXPECT_EQ(resolve("none", 4.5)->bits, 4);
  EXPECT_EQ(resolve("none", 2.1)->bits, 2);
  EXPECT_EQ(resolve("none", 7.9)->bits, 6);
  EXPECT_EQ(resolve("4,16", 5.9)->group, 16);
  for (const auto& [ffn, average] : std::vector<std::pair<const char*, double>>{
           {"4", 6.5}, {"4", 3.9}, {"4", 4.0}, {"8", 8.0}, {"none", 2.0}}) {
    EXPECT_FALSE(resolve(ffn, average)) << ffn << " " << average;
  }
  Compression scaled;
  scaled.ffn = *ParseScaledForm("int8");
  scaled.ffn_mixed = 4.5;
  EXPECT_FALSE(ResolveMixed(scaled));
}

TEST(WeightRows, ImportanceGoesWithItsNumbers) {
  const auto tensor = [](int64_t rows, std::vector<float> row, std::vector<float> importance) {
    const std::vector<float> ones(static_cast<size_t>(rows), 1);
    WeightRows out = OuterProduct(ones, std::move(row));
    out.importance = std::make_shared<const WeightRows>(OuterProduct(ones, std::move(importance)));
    return out;
  };
  const auto read = [](const WeightRows& rows) {
    std::vector<float> out(static_cast<size_t>(rows.rows * rows.cols));
    rows.read(0, rows.rows, out.data());
    return out;
  };
  const WeightRows a = tensor(2, {1, 2}, {10, 20}), b = tensor(2, {3, 4}, {30, 40});
  const WeightRows stacked = StackRows({a, b});
  EXPECT_EQ(read(*stacked.importance), (std::vector<float>{10, 20, 10, 20, 30, 40, 30, 40}));
  EXPECT_EQ(read(*SelectRows(stacked, {{1, 3}}).importance), (std::vector<float>{10, 20, 30, 40}));
  EXPECT_EQ(read(*JoinColumns({a, b}).importance), (std::vector<float>{10, 20, 30, 40, 10, 20, 30, 40}));
  const WeightRows halved = ScaleRows(a, 0.5f);
  EXPECT_EQ(read(halved), (std::vector<float>{0.5, 1, 0.5, 1}));
  EXPECT_EQ(read(*halved.importance),
            (std::vector<float>{40, 80, 40, 80}));  // an error of 1 is one of 2 before
  EXPECT_EQ(read(*ScaleRows(a, 1, 1).importance), read(*a.importance));
  EXPECT_EQ(StackRows({a, OuterProduct({1}, {5, 6})}).importance, nullptr);
  EXPECT_EQ(read(SelectRows(OuterProduct({1, 2, 3}, {5, 6}), {{1, 3}})),
            (std::vector<float>{10, 12, 15, 18}));
}

}  // namespace
}  // namespace cmforge::coreml
