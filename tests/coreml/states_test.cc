// States and memory: random programs over two states against a plain simulation, so that no update in place,
// view into a state or shared buffer changes what a program means.
#include <random>

#include "coreml/tensors.h"

namespace cmforge::coreml {
namespace {

using mil::Arg;
using mil::DataType;
using mil::TensorType;
using mil::Var;
using Numbers = std::vector<double>;

constexpr int64_t kLength = 6;
constexpr int kCalls = 3;
const TensorType kVector{DataType::kFloat16, {kLength}};
using Ints = std::vector<int32_t>;

/// A program, and the same as a list of actions on plain vectors.
class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {
    values_.push_back(b_.Input("x", kVector));
    position_ = b_.Input("pos", {DataType::kInt32, {1}});
    for (const char* name : {"s", "t"}) states_.push_back(b_.State(name, kVector));
    Read(0);
    Read(1);
    const int steps = 6 + Below(14);
    for (int i = 0; i < steps; ++i) Step();
    for (int i = 0; i < 3; ++i) {
      const size_t pick = 1 + static_cast<size_t>(Below(static_cast<int>(values_.size()) - 1));
      if (!outputs_.contains(pick)) outputs_.insert({pick, fmt::format("out{}", i)});
    }
    for (const auto& [pick, name] : outputs_) b_.Output(values_[pick], name);
    package_ = PackageOf(b_);
  }

  [[nodiscard]] const Result<mil::Package>& package() const { return package_; }

  /// The outputs by name; `states` as they are afterwards.
  std::map<std::string, Numbers> Simulate(const Numbers& x, int pos, std::vector<Numbers>& states) const {
    std::vector<Numbers> values{x};
    for (const auto& action : actions_) action(values, states, pos);
    std::map<std::string, Numbers> out;
    for (const auto& [pick, name] : outputs_) out[name] = values[pick];
    return out;
  }

 private:
  using Action = std::function<void(std::vector<Numbers>&, std::vector<Numbers>&, int pos)>;

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  size_t Any() {
    // Recent values more often: chains of updates grow.
    const int n = static_cast<int>(values_.size());
    return static_cast<size_t>(Below(3) ? std::max(0, n - 1 - Below(3)) : Below(n));
  }
  void Define(Var var, Action action) {
    values_.push_back(std::move(var));
    actions_.push_back(std::move(action));
  }

  void Read(size_t s) {
    Define(b_.Read(states_[s]), [s](auto& v, auto& states, int) { v.push_back(states[s]); });
  }
  void Write(size_t s) { Write(s, Any()); }
  void Write(size_t s, size_t from) {
    b_.Write(states_[s], values_[from]);
    actions_.push_back([s, from](auto& v, auto& states, int) { states[s] = v[from]; });
  }

  void Update() { Update(Any()); }
  void Update(size_t to) {
    const size_t from = Any();
    const int length = 1 + Below(4), read_at = Below(static_cast<int>(kLength) - length + 1);
    const Var piece = b_.Op(
        "slice_by_index", {{"x", values_[from]}, {"begin", Ints{read_at}}, {"end", Ints{read_at + length}}});
    if (Below(2)) {  // at a place that is only known when it runs
      const Var end = b_.Op("add", {{"x", position_}, {"y", length}});
      Define(
          b_.Op("slice_update", {{"x", values_[to]}, {"update", piece}, {"begin", position_}, {"end", end}}),
          [=](auto& v, auto&, int pos) {
            Numbers out = v[to];
            for (int i = 0; i < length; ++i)
              out[static_cast<size_t>(pos + i)] = v[from][static_cast<size_t>(read_at + i)];
            v.push_back(out);
          });
      return;
    }
    const int at = Below(static_cast<int>(kLength) - length + 1);
    Define(b_.Op("slice_update",
                 {{"x", values_[to]}, {"update", piece}, {"begin", Ints{at}}, {"end", Ints{at + length}}}),
           [=](auto& v, auto&, int) {
             Numbers out = v[to];
             for (int i = 0; i < length; ++i)
               out[static_cast<size_t>(at + i)] = v[from][static_cast<size_t>(read_at + i)];
             v.push_back(out);
           });
  }

  /// What decoders do: read, update once or more, write; sometimes something else in between.
  void Chain() {
    const auto s = static_cast<size_t>(Below(2));
    Read(s);
    for (int i = Below(3); i >= 0; --i) {
      Update(values_.size() - 1);
      if (Below(6) == 0) Step();
    }
    Write(s, values_.size() - 1);
  }

  void Step() {
    switch (Below(11)) {
      case 8:
      case 9:
      case 10:
        return Chain();
      case 0:
        return Read(static_cast<size_t>(Below(2)));
      case 1:
      case 2:
        return Write(static_cast<size_t>(Below(2)));
      case 3:
      case 4:
        return Update();
      case 5: {
        const size_t p = Any(), q = Any();
        return Define(b_.Op("sub", {{"x", values_[p]}, {"y", values_[q]}}), [=](auto& v, auto&, int) {
          Numbers out = v[p];
          for (size_t i = 0; i < out.size(); ++i) out[i] -= v[q][i];
          v.push_back(out);
        });
      }
      case 6: {  // the same memory under another shape
        const size_t p = Any();
        const Var wide = b_.Op("reshape", {{"x", values_[p]}, {"shape", Ints{2, 3}}});
        return Define(b_.Op("reshape", {{"x", wide}, {"shape", Ints{-1}}}),
                      [=](auto& v, auto&, int) { v.push_back(v[p]); });
      }
      default: {  // halves, each a view, changed places
        const size_t p = Any();
        const std::vector<Var> halves = b_.Ops("split", {{"x", values_[p]}, {"axis", 0}, {"num_splits", 2}});
        if (halves.size() != 2) return;
        return Define(b_.Op("concat", {{"values", std::vector{halves[1], halves[0]}}, {"axis", 0}}),
                      [=](auto& v, auto&, int) {
                        Numbers out = v[p];
                        std::rotate(out.begin(), out.begin() + kLength / 2, out.end());
                        v.push_back(out);
                      });
      }
    }
  }

  std::mt19937 random_;
  mil::FunctionBuilder b_;
  std::vector<Var> values_, states_;
  Var position_;
  std::vector<Action> actions_;
  std::map<size_t, std::string> outputs_;
  Result<mil::Package> package_ = Fail(ErrorKind::kInternal, "not built");
};

TEST(States, OfRandomProgramsAreThoseOfAPlainSimulation) {
  int64_t in_place = 0;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    const RandomProgram program(seed);
    ASSERT_TRUE(program.package()) << "seed " << seed << ": " << program.package().error().message;
    const auto interpreter = Interpreter::Create(*program.package(), {Precision::kF32});
    ASSERT_TRUE(interpreter) << interpreter.error().message;
    auto runner = (*interpreter)->Plan("");
    ASSERT_TRUE(runner) << runner.error().message;
    const auto steps = runner->StepHistogram();
    if (const auto it = steps.find("slice_update (in place)"); it != steps.end()) in_place += it->second;
    StateSet states;
    ASSERT_TRUE((*interpreter)->AddStates("", states));
    std::vector<Numbers> expected_states(2, Numbers(kLength, 0));
    for (int call = 0; call < kCalls; ++call) {
      Numbers x;
      for (int i = 0; i < kLength; ++i) x.push_back(1 + i + 10 * call);
      const int pos = call % 3;
      SetInput(*runner, runner->FindInput("x"), x);
      SetInput(*runner, runner->FindInput("pos"), {static_cast<double>(pos)});
      const auto status = runner->Run(&states);
      ASSERT_TRUE(status) << "seed " << seed << ": " << status.error().message;
      for (const auto& [name, wanted] : program.Simulate(x, pos, expected_states))
        ASSERT_TRUE(Near(OutputOf(*runner, runner->FindOutput(name)), wanted, 0))
            << "seed " << seed << ", call " << call << ", " << name;
      for (const size_t s : {size_t{0}, size_t{1}}) {
        const StateSet::State* state = states.Find(s ? "t" : "s");
        ASSERT_TRUE(Near({state->values.begin(), state->values.end()}, expected_states[s], 0))
            << "seed " << seed << ", call " << call << ", state " << s;
      }
    }
  }
  EXPECT_GT(in_place, 200) << "the optimization is hardly exercised";
}

/// Two functions over one state, as decoder packages have them.
TEST(States, AreSharedByTheFunctionsOfAModel) {
  mil::Model model;
  for (const int32_t step : {1, 10}) {
    mil::FunctionBuilder b;
    const Var s = b.State("total", kVector);
    const Var sum =
        b.Op("add", {{"x", b.Read(s)}, {"y", mil::Float(DataType::kFloat16, static_cast<float>(step))}});
    b.Write(s, sum);
    b.Output(b.Op("identity", {{"x", sum}}), "y");
    auto function = b.Finish();
    ASSERT_TRUE(function) << function.error().message;
    model.program.functions[step == 1 ? "one" : "ten"] = *function;
  }
  auto description = DescribeProgram(model.program, "one");
  ASSERT_TRUE(description) << description.error().message;
  model.description = *description;
  const auto interpreter = Interpreter::Create(PackageOf(model));
  ASSERT_TRUE(interpreter) << interpreter.error().message;
  auto one = (*interpreter)->Plan(""), ten = (*interpreter)->Plan("ten");
  ASSERT_TRUE(one && ten);
  StateSet states;
  ASSERT_TRUE((*interpreter)->AddStates("", states));
  ASSERT_EQ(states.all().size(), 1u);
  ASSERT_TRUE(one->Run(&states) && ten->Run(&states) && one->Run(&states));
  EXPECT_EQ(OutputOf(*one, 0), Numbers(kLength, 12));
  states.Clear();
  ASSERT_TRUE(ten->Run(&states));
  EXPECT_EQ(states.Find("total")->values, std::vector<float>(kLength, 10));
  const auto missing = (*interpreter)->Plan("two");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(missing.error().message, "test: no function 'two': it has one, ten: name one of these");
  StateSet none;
  const auto without = one->Run(&none);
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().message, "function 'one': state 'total' (tensor<fp16, [6]>) is not given");
  EXPECT_FALSE(one->Run(nullptr));
}

}  // namespace
}  // namespace cmforge::coreml
