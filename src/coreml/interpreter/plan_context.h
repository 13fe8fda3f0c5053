// What the kernel of a planned step is made from.
#pragma once

#include "coreml/interpreter/plan.h"

namespace cmforge::coreml {

class FunctionPlan::StepContext final : public OpContext {
 public:
  StepContext(FunctionPlan& plan, PlanStep& step, const mil::OpCall& operation)
      : OpContext(operation), plan_(plan), step_(step) {}

  ValueId Input(std::string_view parameter, size_t index) override {
    const auto it = step_.operands.find(parameter);
    if (it == step_.operands.end() || index >= it->second.size()) return kNoValue;
    const ValueId id = it->second[index];
    if (plan_.At(id).is_constant && status_) status_ = plan_.Materialize(id);
    return id;
  }
  [[nodiscard]] WeightPtr Constant(std::string_view parameter) override {
    const auto it = step_.operands.find(parameter);
    if (it == step_.operands.end() || plan_.At(it->second[0]).has_owned) return nullptr;
    return plan_.At(it->second[0]).constant;
  }
  [[nodiscard]] ValueId Output(size_t index) const override { return step_.outputs[index]; }
  [[nodiscard]] const mil::TensorType& OutputType(size_t index) const override {
    return plan_.At(step_.outputs[index]).type.tensor;
  }
  void Reserve(int64_t floats_per_worker, int64_t shared_floats) override {
    plan_.frame_.Reserve(floats_per_worker, shared_floats);
  }
  [[nodiscard]] Isa isa() const override { return plan_.options_.isa; }
  [[nodiscard]] mil::Opset opset() const override { return plan_.function_.opset; }
  [[nodiscard]] bool TakeRounding() override {
    step_.rounds_itself = step_.is_rounded && OutputType(0).dtype == mil::DataType::kFloat16;
    return step_.rounds_itself;
  }
  [[nodiscard]] bool IsInPlace() const override { return step_.is_in_place; }

  /// The first failure of decoding an input.
  Result<void>& status() { return status_; }

 private:
  FunctionPlan& plan_;
  PlanStep& step_;
  Result<void> status_;
};

}  // namespace cmforge::coreml
