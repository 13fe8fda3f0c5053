// Running a planned function.
#include <algorithm>

#include "coreml/interpreter/plan.h"
#include "coreml/interpreter/plan_context.h"

namespace cmforge::coreml {
namespace {

constexpr int64_t kKnownWhenRun = 64;  // integers of a buffer that inference may ask for

}  // namespace

Result<void> FunctionPlan::Run(StateSet* run_states) {
  const auto fail = [&](Error error) {
    return Fail(std::move(error).In(fmt::format("function '{}'", name_)));
  };
  for (size_t i = 0; i < plan_states_.size(); ++i) {
    const PlanState& state = plan_states_[i];
    StateSet::State* found = run_states ? run_states->Find(state.name) : nullptr;
    if (!found || !(found->type == state.type)) {
      return fail({ErrorKind::kUsage,
                   fmt::format("state '{}' ({}) is not given", state.name, TypeText(state.type)),
                   {}});
    }
    frame_.SetData(state.home, found->values.data());
  }
  for (const ValueId id : state_values_) {
    const PlanValue& root = value(value(id).root);
    float* home = frame_.Out(plan_states_[static_cast<size_t>(root.state)].home);
    frame_.SetData(id, home + value(id).offset);
  }
  const auto round = [&](ValueId id) {
    if (value(id).type.tensor.dtype != mil::DataType::kFloat16) return;
    float* values = frame_.Out(id);
    frame_.pool().ForRanges(value(id).count(), 1 << 13,
                            [&](int64_t begin, int64_t end) { RoundToHalves(values + begin, end - begin); });
  };
  if (rounds()) {
    for (const ValueId id : input_ids_) round(id);
  }
  for (PlanStep& step : steps_) {
    if (options_.cancelled && options_.cancelled->load(std::memory_order_relaxed))
      return Fail(ErrorKind::kCancelled, "interrupted");
    auto status = step.is_dynamic ? RunDynamic(step) : step.kernel(frame_);
    if (!status) return fail(std::move(status).error().In(mil::OperationLabel(*step.op)));
    if (!step.is_rounded || step.rounds_itself) continue;
    for (const ValueId id : step.outputs) round(id);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].type.shape != value(output_ids_[i]).type.tensor.shape) {
      outputs[i].type.shape = value(output_ids_[i]).type.tensor.shape;
    }
  }
  return {};
}

Result<void> FunctionPlan::RunDynamic(PlanStep& step) {
  // The same as planning a step, with the contents of small integers known.
  std::deque<mil::Value> contents;
  mil::NameMap<std::vector<mil::Operand>> operands;
  for (const auto& [parameter, ids] : step.operands) {
    for (const ValueId id : ids) {
      const PlanValue& v = value(id);
      mil::Operand operand{&v.type, v.known, v.is_constant};
      const bool is_integer = v.type.is_tensor() && (mil::IsInteger(v.type.tensor.dtype) ||
                                                     v.type.tensor.dtype == mil::DataType::kBool);
      const bool is_scalar =
          v.type.is_tensor() && v.count() == 1 && v.type.tensor.dtype != mil::DataType::kString;
      if (!v.known && !v.is_constant && ((is_integer && v.count() <= kKnownWhenRun) || is_scalar)) {
        const auto bytes = std::as_bytes(std::span(frame_.In(id), static_cast<size_t>(v.count())));
        const mil::DataType wide = is_integer ? mil::DataType::kInt32 : mil::DataType::kFloat32;
        contents.push_back(mil::Raw({wide, v.type.tensor.shape}, {bytes.begin(), bytes.end()}));
        operand.value = &contents.back();
      }
      operands[parameter].push_back(operand);
    }
  }
  CMF_TRY(const mil::OpCall call, mil::OpCall::Bind(step.op->type, std::move(operands)));
  CMF_TRY(const std::vector<mil::TensorType> types, InferTypes(call));
  for (size_t i = 0; i < types.size(); ++i) {
    const mil::TensorType& declared = step.op->outputs[i].type.tensor;
    if (!types[i].is_static() || !AreCompatible(types[i], declared)) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("'{}' is declared {}, its inputs give {}", step.op->outputs[i].name,
                              TypeText(declared), TypeText(types[i])));
    }
    CMF_CHECK(CheckSize(types[i]));
    PlanValue& out = At(step.outputs[i]);
    out.type = types[i];
    if (out.arena_offset >= 0 || out.state >= 0) continue;
    out.owned.resize(static_cast<size_t>(std::max<int64_t>(out.count(), 1)));
    out.has_owned = true;
    Point(step.outputs[i]);
  }
  CMF_TRY(const Kernel kernel, KernelOf(step, call));
  return kernel(frame_);
}

}  // namespace cmforge::coreml
