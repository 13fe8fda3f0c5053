// States: where a read may look into the state itself instead of copying it, and where an update may happen
// in place. The usual chain  v = read_state(s); w = slice_update(v, ...); write_state(s, w)  then copies
// nothing but the slice.
//
// Times are step numbers. A state's memory changes at its mutations: updates in place, and writes that copy.
// A value that looks into the state must not be used after the next mutation.
#include <algorithm>

#include "coreml/interpreter/plan.h"

namespace cmforge::coreml {

void FunctionPlan::CountUses() {
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (steps_[s].is_view) continue;  // a view has no time of its own: its users count
    for (const auto& [parameter, ids] : steps_[s].operands) {
      for (const ValueId id : ids) {
        PlanValue& root = At(At(id).root);
        root.last_use = std::max(root.last_use, static_cast<int32_t>(s));
      }
    }
  }
  for (const ValueId id : output_ids_) At(At(id).root).last_use = kForever;
}

/// The decisions for one state, write by write in order of time.
class FunctionPlan::StatePlacer {
 public:
  StatePlacer(FunctionPlan& plan, int state, const std::vector<int32_t>& producer)
      : plan_(plan), state_(state), producer_(producer) {
    for (size_t s = 0; s < plan.steps_.size(); ++s) {
      const PlanStep& step = plan.steps_[s];
      if (step.state == state) (step.outputs.empty() ? writes_ : reads_).push_back(static_cast<int32_t>(s));
    }
  }

  void Place() {
    for (const int32_t write : writes_) {
      if (!TryInPlace(write)) mutations_.push_back(write);
    }
    // Other reads look into the state when they are used up before it changes.
    for (const int32_t read : reads_) {
      PlanValue& value = plan_.At(Step(read).outputs[0]);
      const auto next = std::upper_bound(mutations_.begin(), mutations_.end(), read);
      if (next == mutations_.end() || value.last_use < *next) value.state = state_;
      Step(read).is_view = value.state == state_;
    }
  }

 private:
  PlanStep& Step(int32_t step) { return plan_.steps_[static_cast<size_t>(step)]; }
  [[nodiscard]] bool IsWhole(ValueId id) const {
    const PlanValue& value = plan_.At(id);
    return value.offset == 0 && value.count() == plan_.At(value.root).count();
  }

  /// The slice updates that lead from a value equal to the state to the data of `write`, first one first.
  /// False when the data comes from elsewhere, or when a value on the way is used again later.
  bool FindChain(int32_t write, std::vector<int32_t>& chain, ValueId& base) {
    const ValueId data = Step(write).operands.at("data")[0];
    if (!IsWhole(data)) return false;
    base = plan_.At(data).root;
    while (true) {
      const int32_t made = producer_[static_cast<size_t>(base)];
      if (made < 0) return false;
      const PlanStep& step = Step(made);
      // What an earlier chain left in the state is as good as a read.
      if (step.state == state_ || (step.is_in_place && plan_.At(base).state == state_)) break;
      if (step.op->type != "slice_update" || step.is_dynamic || step.is_in_place) return false;
      const ValueId x = step.operands.at("x")[0];
      const ValueId x_root = plan_.At(x).root, update_root = plan_.At(step.operands.at("update")[0]).root;
      if (!IsWhole(x) || update_root == x_root || plan_.At(x_root).last_use > made) return false;
      chain.push_back(made);
      base = x_root;
    }
    std::reverse(chain.begin(), chain.end());
    return !chain.empty();
  }

  bool TryInPlace(int32_t write) {
    std::vector<int32_t> chain;
    ValueId base = kNoValue;
    if (!FindChain(write, chain, base)) return false;
    const int32_t since = producer_[static_cast<size_t>(base)], first = chain.front();
    const ValueId result = plan_.At(Step(write).operands.at("data")[0]).root;
    // The state has not changed since the base was taken from it,
    if (!mutations_.empty() && mutations_.back() > since) return false;
    for (const int32_t other : writes_) {
      // no other write comes in between (one that found its data in place already is none),
      if (other > since && other < write && !Step(other).is_view) return false;
      // the result is not used after a later one,
      if (other > write && plan_.At(result).last_use > other) return false;
    }
    // nobody reads the state while it is ahead of its writes,
    for (const int32_t read : reads_) {
      if (read > first && read < write) return false;
    }
    // and no other value that lives in it is used from the first update on.
    for (const ValueId value : inside_) {
      if (value != base && plan_.At(value).last_use >= first) return false;
    }
    const auto put_inside = [&](ValueId id) {
      plan_.At(id).state = state_;
      inside_.push_back(id);
    };
    put_inside(base);
    for (const int32_t update : chain) {
      Step(update).is_in_place = true;
      put_inside(Step(update).outputs[0]);
      mutations_.push_back(update);
    }
    Step(write).is_view = true;  // the data is already there
    return true;
  }

  FunctionPlan& plan_;
  const int state_;
  const std::vector<int32_t>& producer_;
  std::vector<int32_t> reads_, writes_;
  std::vector<int32_t> mutations_;  // ascending
  std::vector<ValueId> inside_;     // values decided to live in the state
};

void FunctionPlan::PlaceStates() {
  std::vector<int32_t> producer(values_.size(), -1);
  for (size_t s = 0; s < steps_.size(); ++s) {
    for (const ValueId id : steps_[s].outputs) producer[static_cast<size_t>(id)] = static_cast<int32_t>(s);
  }
  for (size_t state = 0; state < plan_states_.size(); ++state) {
    StatePlacer(*this, static_cast<int>(state), producer).Place();
  }
}

}  // namespace cmforge::coreml
