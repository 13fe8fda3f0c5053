// The interpreter behind the runtime's interfaces.
#include <algorithm>

#include "coreml/backend.h"

namespace cmforge::coreml {
namespace {

class InterpreterState : public PartState {
 public:
  explicit InterpreterState(StateSet states) : states_(std::move(states)) {
    for (const auto& [name, state] : states_.all()) ports_.push_back({name, state.type});
  }

  const std::vector<Port>& ports() const override { return ports_; }
  Result<void> Get(size_t port, std::span<float> out) const override {
    const std::vector<float>& values = states_.all().at(ports_[port].name).values;
    std::copy(values.begin(), values.end(), out.begin());
    return {};
  }
  Result<void> Set(size_t port, std::span<const float> values) override {
    std::copy(values.begin(), values.end(), states_.Find(ports_[port].name)->values.begin());
    return {};
  }
  [[nodiscard]] StateSet* set() { return &states_; }

 private:
  StateSet states_;
  std::vector<Port> ports_;
};

class InterpreterFunction : public PartFunction {
 public:
  explicit InterpreterFunction(Runner runner) : runner_(std::move(runner)) {}

  const std::vector<Port>& inputs() const override { return runner_.inputs(); }
  const std::vector<Port>& outputs() const override { return runner_.outputs(); }
  Result<void> SetFloats(size_t input, std::span<const float> values) override {
    return Fill(runner_.InputFloats(static_cast<int>(input)), values);
  }
  Result<void> SetInts(size_t input, std::span<const int32_t> values) override {
    return Fill(runner_.InputInts(static_cast<int>(input)), values);
  }
  Result<void> Run(PartState* state) override {
    auto* own = static_cast<InterpreterState*>(state);  // made by the same backend
    return runner_.Run(own ? own->set() : nullptr);
  }
  Result<void> GetFloats(size_t output, std::span<float> out) const override {
    return Fill(out, runner_.OutputFloats(static_cast<int>(output)));
  }

 private:
  template <class T>
  static Result<void> Fill(std::span<T> to, std::span<const T> from) {
    if (to.size() != from.size()) {
      return Fail(ErrorKind::kInternal, fmt::format("{} numbers where {} belong", from.size(), to.size()));
    }
    std::copy(from.begin(), from.end(), to.begin());
    return {};
  }

  Runner runner_;
};

class InterpreterPart : public Part {
 public:
  explicit InterpreterPart(std::shared_ptr<const Interpreter> interpreter)
      : interpreter_(std::move(interpreter)) {}

  Result<std::unique_ptr<PartFunction>> Function(const std::string& name,
                                                 const std::map<std::string, Shape>& shapes) const override {
    CMF_TRY(Runner runner, interpreter_->Plan(name, shapes));
    return std::make_unique<InterpreterFunction>(std::move(runner));
  }
  Result<std::unique_ptr<PartState>> NewState() const override {
    StateSet states;
    CMF_CHECK(interpreter_->AddStates("", states));
    return std::make_unique<InterpreterState>(std::move(states));
  }
  std::vector<Port> States() const override {
    std::map<std::string, Port> ports;
    for (const auto& [name, body] : interpreter_->package().model.program.functions) {
      for (const mil::NamedType& input : body.inputs) {
        if (input.type.is_state()) ports[input.name] = {input.name, input.type.tensor};
      }
    }
    std::vector<Port> out;
    for (auto& [name, port] : ports) out.push_back(std::move(port));
    return out;
  }

 private:
  std::shared_ptr<const Interpreter> interpreter_;
};

class InterpreterRuns : public Backend {
 public:
  explicit InterpreterRuns(InterpreterOptions options) : options_(std::move(options)) {
    if (!options_.pool) options_.pool = std::make_shared<ThreadPool>(1);
  }
  std::string_view name() const override { return "interpreter"; }
  bool rounds_to_f16() const override { return options_.precision == Precision::kF16; }
  Result<std::unique_ptr<Part>> Open(const std::filesystem::path& path) const override {
    CMF_TRY(mil::Package package, mil::OpenPackage(path));
    CMF_TRY(std::shared_ptr<const Interpreter> interpreter,
            Interpreter::Create(std::move(package), options_));
    return std::make_unique<InterpreterPart>(std::move(interpreter));
  }

 private:
  InterpreterOptions options_;
};

}  // namespace

std::unique_ptr<Backend> InterpreterBackend(const InterpreterOptions& options) {
  return std::make_unique<InterpreterRuns>(options);
}

int PortIndex(const std::vector<Port>& ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace cmforge::coreml
