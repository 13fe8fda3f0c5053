// A fault of each kind, planted in a small program.
#include <limits>

#include "coreml/lint/planted.h"

namespace cmforge::coreml::lint {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsSubsetOf;
using testing::Not;

const mil::TensorType kRow{DataType::kFloat16, {1, 64, 1, 32}};

/// The rules that a program of one input x breaks.
std::set<std::string> Broken(const std::function<Var(FunctionBuilder&, const Var&)>& body, Severity severity,
                             const mil::TensorType& type = kRow) {
  return RulesOf(InspectMain([&](FunctionBuilder& b) { return body(b, b.Input("x", type)); }), severity);
}

TEST(Lint, HasNothingToSayAboutAPlainProgram) {
  const Report report = InspectMain([](FunctionBuilder& b) {
    const Var x = b.Input("x", kRow);
    return b.Op("tanh", {{"x", Conv(b, x, b.Const(Filled({64, 64, 1, 1}), "weight"))}});
  });
  EXPECT_EQ(TextOf(report), "");
  EXPECT_EQ(report.MemoryBytes(), 64 * 64 * 2u);
}

// ---- arithmetic

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

TEST(Lint, SeesConstantsThatAreNoNumbers) {
  const auto weights = [](float value, DataType dtype = DataType::kFloat16) {
    std::vector<float> values(64 * 64, 0.5f);
    values[77] = value;
    return mil::Floats(dtype, {64, 64, 1, 1}, values);
  };
  for (const float bad : {kNan, kInf, -kInf}) {
    const Report report = InspectMain(
        [&](FunctionBuilder& b) { return Conv(b, b.Input("x", kRow), b.Const(weights(bad), "weight")); });
    const Finding finding = Of(report, "not-finite");
    EXPECT_EQ(finding.severity, Severity::kError);
    EXPECT_EQ(finding.function, "main");
    EXPECT_EQ(finding.operation, "const 'weight'");
    EXPECT_EQ(finding.reason,
              fmt::format("1 of the 4096 numbers of 'val' is {}", std::isnan(bad) ? "NaN" : "infinite"));
    for (const char* op : {"mul", "real_div", "sub", "add"}) {  // as a value of its own, and as a literal
      for (const bool is_literal : {true, false}) {
        EXPECT_THAT(Broken(
                        [&](FunctionBuilder& b, const Var& x) {
                          if (is_literal) return b.Op(op, {{"x", x}, {"y", Half(bad)}});
                          return b.Op(op, {{"x", x}, {"y", b.Const(Half(bad), "factor")}});
                        },
                        Severity::kError),
                    Contains("not-finite"))
            << op << bad;
      }
    }
    EXPECT_THAT(Broken(
                    [&](FunctionBuilder& b, const Var& x) {  // behind a cast and a view
                      const Var wide = b.Const(mil::Floats(DataType::kFloat32, {1, 1, 1, 1}, {bad}), "wide");
                      return b.Op(
                          "mul",
                          {{"x", b.Op("cast", {{"x", x}, {"dtype", "fp32"}})},
                           {"y", b.Op("reshape", {{"x", wide}, {"shape", std::vector<int32_t>{1, 1}}})}});
                    },
                    Severity::kError),
                Contains("not-finite"));
    EXPECT_THAT(Broken(
                    [&](FunctionBuilder& b, const Var& x) {
                      const auto table = mil::Floats(DataType::kFloat16, {1, 1, 1, 1, 4, 1}, {0, 1, 2, bad});
                      return Conv(
                          b, x,
                          b.Constexpr("constexpr_lut_to_dense",
                                      {{"indices", Zeros(DataType::kUInt2, {64, 64, 1, 1})}, {"lut", table}},
                                      "weight"));
                    },
                    Severity::kError),
                Contains("not-finite"));
  }
}

TEST(Lint, TakesInfinityWhereItIsABoundOrAMask) {
  const auto quiet = [](const std::function<Var(FunctionBuilder&, const Var&)>& body) {
    EXPECT_THAT(Broken(body, Severity::kError), Not(Contains("not-finite")));
  };
  const auto named = [](FunctionBuilder& b) { return b.Const(Half(-kInf), "floor"); };
  quiet([](FunctionBuilder& b, const Var& x) {
    return b.Op("clip", {{"x", x}, {"alpha", Half(0)}, {"beta", Half(kInf)}});
  });
  quiet([&](FunctionBuilder& b, const Var& x) { return b.Op("maximum", {{"x", x}, {"y", named(b)}}); });
  quiet([&](FunctionBuilder& b, const Var& x) {
    const Var cond = b.Op("greater", {{"x", x}, {"y", named(b)}});
    return b.Op("select", {{"cond", cond}, {"a", x}, {"b", Half(-kInf)}});
  });
  quiet([](FunctionBuilder& b, const Var& x) {
    std::vector<float> mask(64 * 32, 0.0f);
    std::fill(mask.begin() + 77, mask.end(), -kInf);
    return b.Op("add",
                {{"x", x}, {"y", b.Const(mil::Floats(DataType::kFloat16, {64, 1, 32}, mask), "mask")}});
  });
  // NaN is nothing anywhere.
  EXPECT_THAT(Broken(
                  [](FunctionBuilder& b, const Var& x) {
                    return b.Op("maximum", {{"x", x}, {"y", Half(kNan)}});
                  },
                  Severity::kError),
              Contains("not-finite"));
}

TEST(Lint, SeesNativeSigmoids) {
  for (const char* op : {"sigmoid", "silu"}) {
    const Report report = InspectMain([&](FunctionBuilder& b) {
      return b.Op(op, {{"x", b.Input("x", kRow)}}, "gate");
    });
    const Finding finding = Of(report, "native-sigmoid");
    EXPECT_EQ(finding.severity, Severity::kWarning);
    EXPECT_EQ(finding.part, "model.mlmodel");
    EXPECT_EQ(finding.function, "main");
    EXPECT_EQ(finding.operation, std::string(op) + " 'gate'");
    EXPECT_THAT(finding.remedy, HasSubstr("tanh"));
  }
}

TEST(Lint, SeesEpsilonsLeftOutOrLost) {
  for (const char* op : {"rsqrt", "log", "inverse"}) {
    EXPECT_THAT(Broken(
                    [&](FunctionBuilder& b, const Var& x) {
                      return b.Op(op, {{"x", x}});
                    },
                    Severity::kWarning),
                Contains("omitted-epsilon"));
    EXPECT_THAT(Broken(
                    [&](FunctionBuilder& b, const Var& x) {
                      return b.Op(op, {{"x", x}, {"epsilon", Half(1e-3f)}});
                    },
                    Severity::kNote),
                testing::IsEmpty());
  }
  const mil::Value tiny = mil::Float(DataType::kFloat32, 1e-12f);
  EXPECT_THAT(Broken(
                  [&](FunctionBuilder& b, const Var& x) {
                    return b.Op("rsqrt", {{"x", x}, {"epsilon", tiny}});
                  },
                  Severity::kWarning),
              Contains("vanishing-epsilon"));
  const auto norm = [](FunctionBuilder& b, const Var& x) {
    return b.Op("layer_norm", {{"x", x}, {"axes", std::vector<int32_t>{-1}}});
  };
  EXPECT_THAT(Broken(norm, Severity::kNote), Contains("norm-epsilon"));
  EXPECT_THAT(Broken(norm, Severity::kWarning), testing::IsEmpty());
}

TEST(Lint, SeesGeluThatCubesInHalfPrecision) {
  const auto by_power = [](FunctionBuilder& b, const Var& x) {
    return b.Op("mul", {{"x", b.Op("pow", {{"x", x}, {"y", Half(3)}})}, {"y", Half(0.044715f)}});
  };
  const auto by_products = [](FunctionBuilder& b, const Var& x) {
    const Var cube = b.Op("mul", {{"x", x}, {"y", b.Op("mul", {{"x", x}, {"y", x}})}});
    return b.Op("mul", {{"x", Half(0.044715f)}, {"y", cube}});
  };
  const auto factored = [](FunctionBuilder& b, const Var& x) {
    const Var square = b.Op("mul", {{"x", x}, {"y", x}});
    return b.Op("mul", {{"x", x}, {"y", b.Op("mul", {{"x", square}, {"y", Half(0.044715f)}})}});
  };
  EXPECT_THAT(Broken(by_power, Severity::kWarning), Contains("gelu-overflow"));
  EXPECT_THAT(Broken(by_products, Severity::kWarning), Contains("gelu-overflow"));
  EXPECT_THAT(Broken(factored, Severity::kNote), testing::IsEmpty());
}

TEST(Lint, SeesDivisionOfIntegersAndEinsum) {
  const mil::TensorType ints{DataType::kInt32, {4}};
  const auto divide = [](FunctionBuilder& b, const Var& x) {
    return b.Op("real_div", {{"x", x}, {"y", mil::Int32(2)}});
  };
  EXPECT_THAT(Broken(divide, Severity::kError, ints), Contains("integer-division"));
  const auto einsum = [](FunctionBuilder& b, const Var& x) {
    return b.Op("einsum", {{"values", std::vector<Var>{x, x}}, {"equation", "abcd,abed->abce"}});
  };
  EXPECT_THAT(Broken(einsum, Severity::kNote), Contains("einsum"));
}

/// One step of a delta rule on a state of [4, 32, 32] that holds S or sqrt(32) S.
Report InspectRecurrence(bool is_scaled) {
  return InspectMain([&](FunctionBuilder& b) {
    const Var q = b.Input("q", {DataType::kFloat16, {4, 1, 32}}),
              k = b.Input("k", {DataType::kFloat16, {4, 1, 32}});
    const Var state = b.State("gdn", {DataType::kFloat16, {4, 32, 32}});
    const Var faded = b.Op("mul", {{"x", b.Read(state)}, {"y", Half(0.9f)}});
    const Var d = b.Op("sub", {{"x", k}, {"y", b.Op("matmul", {{"x", k}, {"y", faded}})}});
    const Var next =
        b.Op("add", {{"x", faded}, {"y", b.Op("matmul", {{"x", k}, {"y", d}, {"transpose_x", true}})}});
    b.Write(state, b.Op("slice_update", {{"x", b.Read(state)},
                                         {"update", next},
                                         {"begin", std::vector<int32_t>{0, 0, 0}},
                                         {"end", std::vector<int32_t>{4, 32, 32}}}));
    const float by = is_scaled ? 1.0f / 32 : 1 / std::sqrt(32.0f);
    return b.Op("mul", {{"x", b.Op("matmul", {{"x", q}, {"y", next}})}, {"y", Half(by)}});
  });
}

TEST(Lint, SeesRecurrentStatesThatFallIntoSubnormals) {
  EXPECT_THAT(RulesOf(InspectRecurrence(false)), Contains("subnormal-state"));
  EXPECT_THAT(RulesOf(InspectRecurrence(true)), Not(Contains("subnormal-state")));
}

// ---- states

Report InspectState(const Shape& shape, DataType dtype = DataType::kFloat16) {
  return InspectMain([&](FunctionBuilder& b) { return b.Read(b.State("cache", {dtype, shape})); });
}

TEST(Lint, SeesStateShapesThatFail) {
  EXPECT_THAT(RulesOf(InspectState({18, 64, 3}), Severity::kError), Contains("state-trailing-3"));
  EXPECT_THAT(RulesOf(InspectState({2, 2, 64, 270}), Severity::kWarning), Contains("state-width"));
  EXPECT_THAT(RulesOf(InspectState({2, 1025, 64}), Severity::kWarning), Contains("state-dim1"));
  EXPECT_THAT(RulesOf(InspectState({2, 2, 500, 64})), Contains("state-length"));
  EXPECT_THAT(RulesOf(InspectState({2, 2, 64, 64}, DataType::kFloat32), Severity::kError),
              Contains("state-type"));
  // The width of a convolution's history is no axis of the end.
  EXPECT_THAT(RulesOf(InspectState({18, 3, 64})), testing::ElementsAre("cpu-only"));
  EXPECT_EQ(InspectState({2, 2, 64, 32}).state_bytes, 2 * 2 * 64 * 32 * 2u);
}

mil::Function WithState(const Shape& shape, bool reads) {
  FunctionBuilder b;
  const Var x = b.Input("x", kRow), state = b.State("cache", {DataType::kFloat16, shape});
  if (reads) (void)b.Read(state);
  b.Output(b.Op("tanh", {{"x", x}}), "y");
  return Finished(b);
}

TEST(Lint, SeesStatesThatSomeFunctionLeavesOut) {
  const Shape shape{2, 2, 64, 32};
  const auto rules = [&](mil::Function infer, mil::Function prefill) {
    return InspectModel(ModelOf({{"infer", std::move(infer)}, {"prefill", std::move(prefill)}}));
  };
  EXPECT_THAT(RulesOf(rules(WithState(shape, true), WithState(shape, true)), Severity::kWarning),
              testing::IsEmpty());
  const Finding unread = Of(rules(WithState(shape, true), WithState(shape, false)), "state-unread");
  EXPECT_EQ(unread.severity, Severity::kError);
  EXPECT_EQ(unread.function, "prefill");
  FunctionBuilder none;
  none.Output(none.Op("tanh", {{"x", none.Input("x", kRow)}}), "y");
  EXPECT_THAT(Of(rules(WithState(shape, true), Finished(none)), "state-unread").reason,
              HasSubstr("does not declare"));
  EXPECT_THAT(RulesOf(rules(WithState(shape, true), WithState({2, 2, 96, 32}, true)), Severity::kError),
              Contains("states-differ"));
}

TEST(Lint, SeesStatesThatOneFunctionNeverWrites) {
  const auto function = [](bool writes) {
    FunctionBuilder b;
    const Var x = b.Input("x", kRow), state = b.State("cache", {DataType::kFloat16, {2, 2, 64, 32}});
    const Var read = b.Read(state);
    if (writes) b.Write(state, b.Op("tanh", {{"x", read}}));
    b.Output(b.Op("tanh", {{"x", x}}), "y");
    return Finished(b);
  };
  const auto report = [&](bool infer, bool prefill) {
    return InspectModel(ModelOf({{"infer", function(infer)}, {"prefill", function(prefill)}}));
  };
  const Finding lost = Of(report(true, false), "state-unwritten");
  EXPECT_EQ(lost.severity, Severity::kError);
  EXPECT_EQ(lost.function, "prefill");
  EXPECT_THAT(RulesOf(report(true, true)), Not(Contains("state-unwritten")));
  EXPECT_THAT(RulesOf(report(false, false)), Not(Contains("state-unwritten")));  // shared with other layers
}

/// Keys and values of `heads` heads in one slot of [2, 2 heads, 64, 32], stored one after the other.
Report InspectUpdates(int32_t heads, int64_t tokens = 1, int64_t dim = 32) {
  return InspectMain([&](FunctionBuilder& b) {
    const Var k = b.Input("k", {DataType::kFloat16, {1, heads, tokens, dim}});
    const Var at = b.Input("current_pos", {DataType::kInt32, {1}});
    const Var end = b.Op("add", {{"x", at}, {"y", mil::Int32(static_cast<int32_t>(tokens))}});
    const Var state = b.State("cache", {DataType::kFloat16, {2, 2 * heads, 64, dim}});
    for (const int32_t head : {0, heads}) {
      const auto number = [&](int32_t n) { return b.Const(mil::Int32s({n})); };
      b.Write(
          state,
          b.Op(
              "slice_update",
              {{"x", b.Read(state)},
               {"update", k},
               {"begin", b.Op("concat", {{"values", std::vector<Var>{number(1), number(head), at, number(0)}},
                                         {"axis", 0}})},
               {"end",
                b.Op("concat", {{"values", std::vector<Var>{number(2), number(head + heads), end, number(0)}},
                                {"axis", 0}})},
               {"end_mask", std::vector<bool>{false, false, false, true}}}));
    }
    return b.Read(state);
  });
}

TEST(Lint, SeesTwoUpdatesOfASingleHeadSlotAndLargeOnes) {
  EXPECT_THAT(RulesOf(InspectUpdates(1), Severity::kError), Contains("single-head-updates"));
  EXPECT_THAT(RulesOf(InspectUpdates(2), Severity::kError), testing::IsEmpty());
  EXPECT_THAT(RulesOf(InspectUpdates(2, 48, 32)), Contains("large-update"));
  EXPECT_THAT(RulesOf(InspectUpdates(2, 32, 32)), Not(Contains("large-update")));
  EXPECT_THAT(RulesOf(InspectUpdates(2, 48, 64)), Not(Contains("large-update")));
}

TEST(Lint, SeesFlexibleInputsBesideStatesAndShortContexts) {
  FunctionBuilder b;
  const Var x = b.Input("x", {DataType::kFloat16, {1, mil::kUnknownDim, 32}});
  (void)b.Input("causal_mask", {DataType::kFloat16, {1, 1, 1, 128}});
  const Var read = b.Read(b.State("cache", {DataType::kFloat16, {2, 2, 64, 32}}));
  b.Output(b.Op("tanh", {{"x", x}}), "y");
  b.Output(b.Op("identity", {{"x", read}}), "z");
  mil::Model model = ModelOf({{"main", Finished(b)}});
  EXPECT_THAT(RulesOf(InspectModel(model), Severity::kError), Contains("open-shape"));
  auto& array = std::get<mil::ArrayFeature>(model.description.inputs[0].type);
  array.shape = {1, 1, 32};
  array.enumerated_shapes = {{1, 1, 32}, {1, 64, 32}};
  const auto rules = RulesOf(InspectModel(model), Severity::kWarning);
  EXPECT_THAT(rules, Contains("flexible-state"));
  EXPECT_THAT(rules, Contains("short-context"));
  EXPECT_THAT(rules, Not(Contains("open-shape")));
}

// ---- devices

TEST(Lint, SeesWhatLeavesTheNeuralEngine) {
  const auto broken = [](const mil::TensorType& type, const char* op) {
    return Broken(
        [&](FunctionBuilder& b, const Var& x) {
          return b.Op(op, {{"x", x}});
        },
        Severity::kWarning, type);
  };
  EXPECT_THAT(broken({DataType::kFloat16, {1, 4, 1, 16385}}, "tanh"), Contains("axis-limit"));
  EXPECT_THAT(broken({DataType::kFloat16, {1, 65537, 1, 1}}, "tanh"), Contains("axis-limit"));
  EXPECT_THAT(broken({DataType::kFloat16, {1, 20000, 1, 1}}, "tanh"), testing::IsEmpty());
  EXPECT_THAT(broken({DataType::kFloat16, {1, 1, 1, 1, 2, 2}}, "tanh"), Contains("rank"));
  EXPECT_THAT(broken({DataType::kFloat32, {4}}, "tanh"), Contains("float32"));
  EXPECT_THAT(Broken(
                  [](FunctionBuilder& b, const Var& x) {
                    return b.Op("tanh", {{"x", x}});
                  },
                  Severity::kNote, {DataType::kFloat16, {1, 20000, 1, 1}}),
              Contains("long-axis"));
}

TEST(Lint, TellsTheCpuAtTheEdgeFromTheCpuInBetween) {
  const auto edge = InspectMain([](FunctionBuilder& b) {
    const Var ids = b.Input("ids", {DataType::kInt32, {3}});
    return b.Op("gather", {{"x", b.Const(Filled({8, 32}), "table")}, {"indices", ids}, {"axis", 0}});
  });
  EXPECT_THAT(RulesOf(edge), testing::ElementsAre("cpu-edge"));
  EXPECT_THAT(edge.findings.front().operation, testing::HasSubstr("gather"));
  EXPECT_EQ(edge.MemoryBytes(), 0u);  // a table stays outside
  const auto between = InspectMain([](FunctionBuilder& b) {
    const Var x = b.Input("x", {DataType::kFloat16, {1, 32}});
    const Var best = b.Op("reduce_argmax", {{"x", x}, {"axis", -1}, {"keep_dims", false}});
    return b.Op("gather", {{"x", b.Const(Filled({32, 32}), "table")}, {"indices", best}, {"axis", 0}});
  });
  EXPECT_THAT(RulesOf(between, Severity::kWarning), Contains("cpu-between"));
  // Comparing floats, as dense experts do, stays on the Neural Engine.
  const auto compare = [](FunctionBuilder& b, const Var& x) {
    const Var top = b.Op("reduce_max", {{"x", x}, {"axes", std::vector<int32_t>{1}}, {"keep_dims", true}});
    return b.Op("select",
                {{"cond", b.Op("greater_equal", {{"x", x}, {"y", top}})}, {"a", Half(-1)}, {"b", x}});
  };
  EXPECT_THAT(Broken(compare, Severity::kNote), testing::IsEmpty());
}

// ---- weights

TEST(Lint, SeesLinearQuantization) {
  const auto scaled = [](DataType dtype, const Shape& scale) {
    return [=](FunctionBuilder& b, const Var& x) {
      return Conv(b, x,
                  b.Constexpr("constexpr_blockwise_shift_scale",
                              {{"data", Zeros(dtype, {64, 64, 1, 1})}, {"scale", Filled(scale)}}, "weight"));
    };
  };
  EXPECT_THAT(Broken(scaled(DataType::kInt8, {64, 1, 1, 1}), Severity::kError), Contains("linear-int8"));
  EXPECT_THAT(Broken(scaled(DataType::kInt4, {64, 2, 1, 1}), Severity::kError), Contains("linear-int4"));
}

TEST(Lint, SeesPalettesThatAreSlow) {
  const auto with = [](int bits, int64_t channels) {
    return Broken(
        [=](FunctionBuilder& b, const Var& x) {
          return Conv(b, x, Palette(b, {64, 64, 1, 1}, bits, channels));
        },
        Severity::kNote);
  };
  EXPECT_THAT(with(4, 8), testing::IsEmpty());
  EXPECT_THAT(with(6, 0), testing::IsEmpty());
  EXPECT_THAT(with(4, 1), testing::ElementsAre("lut-one-channel"));
  EXPECT_THAT(with(4, 2), testing::ElementsAre("lut-two-channels"));
  EXPECT_THAT(with(3, 8), testing::ElementsAre("lut-three-bits"));
}

TEST(Lint, SeesCompressedTablesAndRouters) {
  const auto table = InspectMain([](FunctionBuilder& b) {
    const Var ids = b.Input("ids", {DataType::kInt32, {3}});
    return b.Op("gather", {{"x", Palette(b, {64, 32}, 4, 8)}, {"indices", ids}, {"axis", 0}});
  });
  EXPECT_EQ(Of(table, "compressed-table").severity, Severity::kWarning);
  const auto router = [](FunctionBuilder& b, const Var& x) {
    const Var p = b.Op("softmax", {{"x", Conv(b, x, Palette(b, {8, 64, 1, 1}, 4, 0))}, {"axis", 1}});
    const Var top = b.Op("reduce_max", {{"x", p}, {"axes", std::vector<int32_t>{1}}, {"keep_dims", true}});
    return b.Op("mul", {{"x", p}, {"y", top}});
  };
  EXPECT_THAT(Broken(router, Severity::kWarning), Contains("compressed-router"));
  const auto attention = [](FunctionBuilder& b, const Var& x) {  // a softmax that nothing selects from
    return b.Op("softmax", {{"x", Conv(b, x, Palette(b, {8, 64, 1, 1}, 4, 0))}, {"axis", 1}});
  };
  EXPECT_THAT(Broken(attention, Severity::kNote), testing::IsEmpty());
}

TEST(Lint, SeesScalesThatCompilersFold) {
  const auto scaled = [](FunctionBuilder& b, const Var& x) {
    return b.Op("mul", {{"x", Conv(b, x, b.Const(Filled({64, 64, 1, 1}), "weight"))}, {"y", Half(0.5f)}});
  };
  EXPECT_THAT(Broken(scaled, Severity::kNote), testing::ElementsAre("foldable-scale"));
}

TEST(Lint, SeesLongTablesOfPositions) {
  const auto look_up = [](int64_t rows, const char* input) {
    return InspectMain([&](FunctionBuilder& b) {
      const Var at = b.Input(input, {DataType::kInt32, {1}});
      return b.Op("gather", {{"x", b.Const(Filled({rows, 2}), "cosines")}, {"indices", at}, {"axis", 0}});
    });
  };
  EXPECT_THAT(RulesOf(look_up(16384, "position_ids")), Contains("rope-table"));
  EXPECT_THAT(RulesOf(look_up(16383, "position_ids")), Not(Contains("rope-table")));
  EXPECT_THAT(RulesOf(look_up(16384, "input_ids")), Not(Contains("rope-table")));  // a vocabulary
}

TEST(Lint, SeesModelsTooLargeForTheNeuralEngine) {
  const auto of = [](int64_t rows) {
    return InspectMain([&](FunctionBuilder& b) {
      const Var x = b.Input("x", {DataType::kFloat16, {1, 8192, 1, 1}});
      const mil::Value weight = mil::FromBlob({DataType::kFloat16, {rows, 8192, 1, 1}}, 64);
      return Conv(b, x, b.Const(weight, "weight"));
    });
  };
  EXPECT_THAT(RulesOf(of(32768)), testing::Not(Contains("large-for-phones")));    // 0.5 GB
  EXPECT_THAT(RulesOf(of(65536)), Contains("large-for-phones"));                  // 1.07 GB
  EXPECT_THAT(RulesOf(of(131072), Severity::kWarning), Contains("large-model"));  // 2.1 GB
}

TEST(Lint, EstimatesWiredMemoryOfEveryFunction) {
  const auto function = [](int bits, int64_t tokens) {
    FunctionBuilder b;
    const Var x = b.Input("x", {DataType::kFloat16, {1, 64, 1, tokens}});
    b.Output(Conv(b, x, Palette(b, {64, 64, 1, 1}, bits, 8)), "y");
    return Finished(b);
  };
  const auto bytes = [&](int bits) {
    const Report report =
        InspectModel(ModelOf({{"infer", function(bits, 1)}, {"prefill", function(bits, 8)}}));
    EXPECT_EQ(report.memory.size(), 2u);
    EXPECT_EQ(report.MemoryBytes(), 2 * report.memory[0].weight_bytes);  // a copy each
    return report.memory[0].weight_bytes - 8 * (uint64_t{2} << bits);    // without the tables
  };
  EXPECT_EQ(bytes(4), 64 * 64 / 2u);
  EXPECT_EQ(bytes(3), bytes(4));
  EXPECT_NEAR(static_cast<double>(bytes(2)) / static_cast<double>(bytes(4)), 0.47 / 0.84, 0.001);
  EXPECT_EQ(bytes(8), 64 * 64u);
}

// ---- programs that do not hold together

mil::Model Plain() {
  FunctionBuilder b;
  b.Output(b.Op("tanh", {{"x", b.Input("x", kRow)}}), "y");
  return ModelOf({{"main", Finished(b)}});
}

TEST(Lint, SeesDescriptionsThatDiffer) {
  mil::Model model = Plain();
  std::get<mil::ArrayFeature>(model.description.inputs[0].type).shape = {1, 32, 1, 32};
  EXPECT_THAT(RulesOf(InspectModel(model), Severity::kError), testing::ElementsAre("description"));
  model = Plain();
  model.description.outputs[0].name = "z";
  EXPECT_THAT(Of(InspectModel(model), "description").reason, HasSubstr("'z'"));
}

TEST(Lint, SeesProgramsThatContradictThemselves) {
  mil::Model model = Plain();
  model.program.functions["main"].body.operations[0].outputs[0].type.tensor.shape = {1, 64, 1, 31};
  EXPECT_THAT(RulesOf(InspectModel(model), Severity::kError), Contains("program"));
  model = Plain();
  model.program.functions["main"].body.operations[0].inputs["x"] = {std::string("y")};  // itself
  EXPECT_THAT(RulesOf(InspectModel(model), Severity::kError), testing::ElementsAre("program"));
  model = Plain();
  model.program.functions["main"].body.operations[0].type = "gru";
  EXPECT_THAT(RulesOf(InspectModel(model)), testing::ElementsAre("unknown-operation"));
  const Finding unknown = Of(InspectModel(model), "unknown-operation");
  EXPECT_THAT(unknown.operation, testing::StartsWith("gru '"));
  EXPECT_THAT(unknown.reason, testing::StartsWith("operation 'gru'"));
}

TEST(Lint, SeesVersionsThatLackWhatIsUsed) {
  mil::Model model = Plain();
  model.specification_version = 8;
  EXPECT_THAT(Of(InspectModel(model), "version").reason, HasSubstr("ios18"));
  model.program.functions["main"].opset = mil::Opset::kIos16;
  EXPECT_THAT(RulesOf(InspectModel(model)), testing::IsEmpty());
  model.specification_version = 6;  // fp16 arrays came with 7
  EXPECT_THAT(RulesOf(InspectModel(model), Severity::kError), Contains("version"));
  model = ModelOf({{"main", WithState({2, 2, 64, 32}, true)}});
  model.program.functions["main"].opset = mil::Opset::kIos17;
  EXPECT_THAT(Of(InspectModel(model), "version").reason, HasSubstr("states"));
}

TEST(Lint, EveryRuleIsInTheDocumentation) {
  const std::string text = ReadText(std::filesystem::path(CMFORGE_SOURCE_DIR) / "docs" / "coreml.md");
  std::set<std::string_view> ids;
  for (const Rule* rule : AllRules()) {
    EXPECT_TRUE(ids.insert(rule->id).second) << rule->id;
    EXPECT_THAT(text, HasSubstr(fmt::format("| `{}` | {} |", rule->id, SeverityName(rule->severity))));
  }
}

}  // namespace
}  // namespace cmforge::coreml::lint
