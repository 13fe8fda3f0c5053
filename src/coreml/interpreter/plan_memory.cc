// Memory and kernels of a planned function.
#include <algorithm>
#include <numeric>

#include "coreml/interpreter/plan.h"
#include "coreml/interpreter/plan_context.h"

namespace cmforge::coreml {
namespace {

/// Places for buffers that live from one step to another: each goes to the lowest gap that is free meanwhile.
class Arena {
 public:
  int64_t Place(int64_t floats, int32_t from, int32_t until) {
    std::erase_if(live_, [&](const Block& b) { return b.until < from; });
    int64_t at = 0;
    auto before = live_.begin();
    for (; before != live_.end(); ++before) {
      if (before->at - at >= floats) break;
      at = before->at + before->floats;
    }
    live_.insert(before, {at, floats, until});
    size_ = std::max(size_, at + floats);
    return at;
  }
  [[nodiscard]] int64_t size() const { return size_; }

 private:
  struct Block {
    int64_t at, floats;
    int32_t until;
  };
  std::vector<Block> live_;  // ascending
  int64_t size_ = 0;
};

}  // namespace

Result<void> FunctionPlan::PlaceBuffers() {
  std::vector<ValueId> by_time(values_.size());  // inputs first
  std::iota(by_time.begin(), by_time.end(), 0);
  std::stable_sort(by_time.begin(), by_time.end(),
                   [&](ValueId a, ValueId b) { return At(a).defined_at < At(b).defined_at; });
  Arena arena;
  constexpr int64_t kAlign = 16;
  for (const ValueId id : by_time) {
    PlanValue& v = At(id);
    const bool is_elsewhere =
        v.root != id || v.state >= 0 || v.is_constant || v.is_dynamic() || v.type.is_state() || v.is_gone;
    if (is_elsewhere || !v.type.is_tensor() || v.type.tensor.dtype == mil::DataType::kString) continue;
    const int64_t floats = (std::max<int64_t>(v.count(), 1) + kAlign - 1) / kAlign * kAlign;
    // An input must keep its numbers from one run to the next; a result nobody uses still gets written.
    const int32_t from = v.defined_at, until = from < 0 ? kForever : std::max(v.last_use, from);
    v.arena_offset = arena.Place(floats, from, until);
    if (static_cast<uint64_t>(arena.size()) > options_.memory_limit_bytes / 4) {
      return Fail(ErrorKind::kLimit,
                  fmt::format("buffers need more than the {} bytes allowed", options_.memory_limit_bytes));
    }
  }
  arena_.Resize(arena.size());
  for (size_t i = 0; i < values_.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (At(At(id).root).state >= 0) state_values_.push_back(id);
    Point(id);
  }
  return {};
}

void FunctionPlan::Point(ValueId id) {
  PlanValue& v = At(id);
  PlanValue& root = At(v.root);
  float* base = root.has_owned           ? root.owned.data()
                : root.arena_offset >= 0 ? arena_.data() + root.arena_offset
                                         : nullptr;
  if (base) frame_.SetData(id, base + v.offset);
}

Result<Kernel> FunctionPlan::KernelOf(PlanStep& step, const mil::OpCall& call) {
  const auto copy = [](ValueId from, ValueId to, int64_t count) -> Kernel {
    return [from, to, count](const Frame& frame) -> Result<void> {
      if (frame.In(from) != frame.Out(to)) std::copy_n(frame.In(from), count, frame.Out(to));
      return {};
    };
  };
  if (step.state >= 0) {
    const ValueId home = step.operands.at("input")[0];
    if (!step.outputs.empty()) return copy(home, step.outputs[0], At(home).count());
    return copy(step.operands.at("data")[0], home, At(home).count());
  }
  step.rounds_itself = false;
  StepContext context(*this, step, call);
  if (!step.joined.empty()) return KernelOfConvs(step, context);
  CMF_TRY(Kernel kernel, MakeKernel(context));
  CMF_CHECK(std::move(context.status()));
  return kernel;
}

Result<Kernel> FunctionPlan::KernelOfConvs(PlanStep& step, StepContext& first) {
  std::deque<mil::OpCall> calls;
  std::deque<StepContext> others;
  std::vector<OpContext*> contexts = {&first};
  for (PlanStep& other : step.joined) {
    CMF_TRY(mil::OpCall call, CallOf(*other.op, other.operands));
    contexts.push_back(&others.emplace_back(*this, other, calls.emplace_back(std::move(call))));
  }
  CMF_TRY(Kernel kernel, MakeConvs(contexts));
  CMF_CHECK(std::move(first.status()));
  for (StepContext& other : others) CMF_CHECK(std::move(other.status()));
  return kernel;
}

Result<void> FunctionPlan::MakeKernels() {
  for (PlanStep& step : steps_) {
    if (step.is_view || step.is_dynamic || step.kernel) continue;
    const auto make = [&]() -> Result<void> {
      CMF_TRY(const mil::OpCall call, CallOf(*step.op, step.operands));
      CMF_TRY(step.kernel, KernelOf(step, call));
      return {};
    };
    if (auto status = make(); !status)
      return Fail(std::move(status).error().In(mil::OperationLabel(*step.op)));
  }
  // What is left is what runs.
  std::erase_if(steps_, [](const PlanStep& step) { return step.is_view; });
  return {};
}

uint64_t FunctionPlan::memory_bytes() const {
  uint64_t bytes = static_cast<uint64_t>(arena_.size()) * 4;
  for (const PlanValue& v : values_) bytes += v.owned.size() * 4;
  return bytes;
}

std::map<std::string, int64_t> FunctionPlan::StepHistogram() const {
  std::map<std::string, int64_t> counts;
  for (const PlanStep& step : steps_) {
    ++counts[step.fused.empty() ? step.op->type + (step.is_in_place ? " (in place)" : "")
                                : std::string(step.fused)];
  }
  return counts;
}

void* FunctionPlan::DataOf(ValueId id) const {
  return const_cast<float*>(frame_.In(id));  // NOLINT: inputs are written through it
}

}  // namespace cmforge::coreml
