// Interpreters, runners and state sets.
#include "coreml/interpreter.h"

#include "coreml/interpreter/plan.h"

namespace cmforge::coreml {

// ---- states

Result<void> StateSet::Add(const std::string& name, const mil::TensorType& type) {
  const auto it = states_.find(name);
  if (it != states_.end()) {
    if (it->second.type == type) return {};
    return Fail(ErrorKind::kCorrupt, fmt::format("state '{}' is {} here, {} elsewhere", name, TypeText(type),
                                                 TypeText(it->second.type)));
  }
  const auto count = type.is_static() ? ElementCount(type.shape) : std::nullopt;
  if (!count)
    return Fail(ErrorKind::kCorrupt, fmt::format("state '{}' of no fixed size: {}", name, TypeText(type)));
  states_[name] = {type, std::vector<float>(static_cast<size_t>(*count), 0.0f)};
  return {};
}

StateSet::State* StateSet::Find(const std::string& name) {
  const auto it = states_.find(name);
  return it == states_.end() ? nullptr : &it->second;
}

uint64_t StateSet::bytes() const {
  uint64_t total = 0;
  for (const auto& [name, state] : states_) total += state.values.size() * sizeof(float);
  return total;
}

void StateSet::Clear() {
  for (auto& [name, state] : states_) std::fill(state.values.begin(), state.values.end(), 0.0f);
}

// ---- runners

Runner::Runner(std::unique_ptr<FunctionPlan> plan) : plan_(std::move(plan)) {}
Runner::~Runner() = default;
Runner::Runner(Runner&&) noexcept = default;

const std::vector<Port>& Runner::inputs() const { return plan_->inputs; }
const std::vector<Port>& Runner::outputs() const { return plan_->outputs; }
const std::vector<Port>& Runner::states() const { return plan_->states; }

namespace {

int FindPort(const std::vector<Port>& ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

int Runner::FindInput(std::string_view name) const { return FindPort(inputs(), name); }
int Runner::FindOutput(std::string_view name) const { return FindPort(outputs(), name); }

std::span<float> Runner::InputFloats(int input) {
  const ValueId id = plan_->InputId(input);
  return {static_cast<float*>(plan_->DataOf(id)), static_cast<size_t>(plan_->value(id).count())};
}

std::span<int32_t> Runner::InputInts(int input) {
  const ValueId id = plan_->InputId(input);
  return {static_cast<int32_t*>(plan_->DataOf(id)), static_cast<size_t>(plan_->value(id).count())};
}

Result<void> Runner::Run(StateSet* states) { return plan_->Run(states); }

std::span<const float> Runner::OutputFloats(int output) const {
  const ValueId id = plan_->OutputId(output);
  return {static_cast<const float*>(plan_->DataOf(id)), static_cast<size_t>(plan_->value(id).count())};
}

std::span<const int32_t> Runner::OutputInts(int output) const {
  const ValueId id = plan_->OutputId(output);
  return {static_cast<const int32_t*>(plan_->DataOf(id)), static_cast<size_t>(plan_->value(id).count())};
}

uint64_t Runner::memory_bytes() const { return plan_->memory_bytes(); }
std::map<std::string, int64_t> Runner::StepHistogram() const { return plan_->StepHistogram(); }

// ---- interpreters

Result<std::shared_ptr<const Interpreter>> Interpreter::Create(mil::Package package,
                                                               const InterpreterOptions& options) {
  if (auto status = CheckModel(package.model, package.weights.get()); !status) {
    return Fail(mil::WithRemedy(std::move(status).error().In(package.path.string())));
  }
  auto interpreter = std::make_shared<Interpreter>();
  interpreter->package_ = std::move(package);
  interpreter->options_ = options;
  if (!interpreter->options_.pool) interpreter->options_.pool = std::make_shared<ThreadPool>(1);
  return std::shared_ptr<const Interpreter>(std::move(interpreter));
}

Result<Runner> Interpreter::Plan(const std::string& function,
                                 const std::map<std::string, Shape>& shapes) const {
  const std::string name = function.empty() ? package_.model.DefaultFunction() : function;
  const auto it = package_.model.program.functions.find(name);
  if (it == package_.model.program.functions.end()) {
    std::vector<std::string> names;
    for (const auto& [known, body] : package_.model.program.functions) names.push_back(known);
    return Fail(ErrorKind::kNotFound, fmt::format("{}: no function '{}': it has {}: name one of these",
                                                  package_.path.string(), name, fmt::join(names, ", ")));
  }
  auto plan = std::make_unique<FunctionPlan>(package_, name, it->second, options_, options_.pool);
  if (auto status = plan->Make(shapes); !status) {
    Error error = std::move(status).error().In(package_.path.string());
    if (error.kind == ErrorKind::kLimit) error.message += ": give smaller inputs, or a model in more parts";
    return Fail(std::move(error));
  }
  return Runner(std::move(plan));
}

Result<void> Interpreter::AddStates(const std::string& function, StateSet& states) const {
  for (const auto& [name, body] : package_.model.program.functions) {
    if (!function.empty() && name != function) continue;
    for (const mil::NamedType& input : body.inputs) {
      if (!input.type.is_state()) continue;
      if (auto status = states.Add(input.name, input.type.tensor); !status) {
        return Fail(std::move(status).error().In(package_.path.string()));
      }
    }
  }
  return {};
}

}  // namespace cmforge::coreml
