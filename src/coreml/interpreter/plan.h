// A function planned for fixed input shapes: its values with their places in memory, its steps with their
// kernels. Made once, in this order:
//   bind     every operation against the types that these shapes give; constants folded, views recognised
//   fuse     chains of operations that are computed in one step
//   states   which reads may look into the state itself, which updates may happen there
//   memory   one arena, in which values that do not live at the same time share places
//   kernels  one per step that is left
#pragma once

#include <deque>
#include <limits>

#include "coreml/interpreter.h"
#include "coreml/interpreter/kernel.h"
#include "mil/analysis.h"

namespace cmforge::coreml {

struct PlanValue {
  std::string name;
  mil::Type type;                     // dimensions unknown only where they depend on contents
  const mil::Value* known = nullptr;  // contents: strings, numbers of parameters, small integers
  bool is_constant = false;
  WeightPtr constant;        // a constant in its stored form
  std::vector<float> owned;  // decoded constant; a value whose shape is only known when it runs
  bool has_owned = false;

  ValueId root = kNoValue;  // whose memory this is a view of; itself when of none
  int64_t offset = 0;       // elements into it
  int state = -1;           // of a root that lives in a state
  int32_t defined_at = -1;  // step
  int32_t last_use = -1;    // step, of a root: by itself and all its views; kForever for outputs
  int64_t arena_offset = -1;
  bool is_gone = false;  // inside a chain that is one step now: has no memory

  [[nodiscard]] bool is_dynamic() const { return !type.tensor.is_static(); }
  [[nodiscard]] int64_t count() const { return ElementCount(type.tensor.shape).value_or(0); }
};
inline constexpr int32_t kForever = std::numeric_limits<int32_t>::max();

struct PlanStep {
  const mil::Operation* op = nullptr;
  mil::NameMap<std::vector<ValueId>> operands;
  std::vector<ValueId> outputs;
  bool is_dynamic = false;   // planned anew in every run
  bool is_in_place = false;  // slice_update inside its input
  bool is_view = false;      // nothing to do
  bool is_rounded = false;
  bool rounds_itself = false;    // its kernel does
  int state = -1;                // of read_state and write_state
  std::vector<PlanStep> joined;  // convolutions of the same input that are computed with this one
  std::string_view fused;        // what a chain of operations became, of which `op` is the last
  Kernel kernel;
};

struct PlanState {
  std::string name;
  mil::TensorType type;
  ValueId home = kNoValue;
};

class FunctionPlan {
 public:
  FunctionPlan(const mil::Package& package, const std::string& name, const mil::Function& function,
               const InterpreterOptions& options, std::shared_ptr<ThreadPool> pool);

  Result<void> Make(const std::map<std::string, Shape>& input_shapes);
  Result<void> Run(StateSet* states);

  std::vector<Port> inputs, outputs, states;
  [[nodiscard]] void* DataOf(ValueId id) const;
  [[nodiscard]] ValueId InputId(int i) const { return input_ids_[static_cast<size_t>(i)]; }
  [[nodiscard]] ValueId OutputId(int i) const { return output_ids_[static_cast<size_t>(i)]; }
  [[nodiscard]] const PlanValue& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  [[nodiscard]] uint64_t memory_bytes() const;
  [[nodiscard]] std::map<std::string, int64_t> StepHistogram() const;

 private:
  class StepContext;
  class Fuser;
  class StatePlacer;

  PlanValue& At(ValueId id) { return values_[static_cast<size_t>(id)]; }
  ValueId NewValue(std::string name, mil::Type type);
  [[nodiscard]] bool rounds() const { return options_.precision == Precision::kF16; }

  // bind (plan.cc)
  Result<void> BindInputs(const std::map<std::string, Shape>& input_shapes);
  Result<void> BindOperation(const mil::Operation& op);
  Result<ValueId> BindLiteral(const mil::Value& value);
  Result<void> BindConstant(ValueId id, const mil::Value& value);
  Result<mil::OpCall> CallOf(const mil::Operation& op,
                             const mil::NameMap<std::vector<ValueId>>& operands) const;
  Result<void> DefineConstexpr(const mil::OpCall& call, PlanStep& step,
                               const std::vector<mil::TensorType>& types);
  Result<bool> TryFold(const mil::OpCall& call, PlanStep& step);
  void TryView(const mil::OpCall& call, PlanStep& step);
  Result<void> BindOutputs();
  Result<void> Materialize(ValueId id);
  Result<void> CheckSize(const mil::TensorType& type) const;

  // fuse (plan_fuse.cc)
  Result<void> FuseSteps();

  // states (plan_states.cc)
  void CountUses();
  void PlaceStates();

  // memory and kernels (plan_memory.cc)
  Result<void> PlaceBuffers();
  Result<void> MakeKernels();
  Result<Kernel> KernelOf(PlanStep& step, const mil::OpCall& call);
  Result<Kernel> KernelOfConvs(PlanStep& step, StepContext& first);

  // run (plan_run.cc)
  Result<void> RunDynamic(PlanStep& step);
  void Point(ValueId id);

  const mil::Package& package_;
  const std::string name_;
  const mil::Function& function_;
  const InterpreterOptions options_;
  std::shared_ptr<ThreadPool> pool_;

  std::deque<PlanValue> values_;  // addresses stay
  std::deque<mil::Value> kept_;
  std::unordered_map<std::string, ValueId> by_name_;
  std::vector<PlanStep> steps_;
  std::vector<PlanState> plan_states_;
  std::vector<ValueId> input_ids_, output_ids_;
  std::vector<ValueId> state_values_;  // values whose memory is a state's
  AlignedFloats arena_;
  uint64_t constant_bytes_ = 0;
  Frame frame_;
};

}  // namespace cmforge::coreml
