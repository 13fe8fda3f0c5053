// What runs the parts of a package: the interpreter everywhere, Core ML itself on a Mac. The runtime contract
// (package_model.h) is written against these interfaces alone.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coreml/compute_units.h"
#include "coreml/interpreter.h"

namespace cmforge::coreml {

/// The states of one conversation: fp16 arrays by name, zeros at first. One thread at a time.
class PartState {
 public:
  virtual ~PartState() = default;
  [[nodiscard]] virtual const std::vector<Port>& ports() const = 0;
  /// Copies a whole state out or in; the number of elements is that of its port.
  virtual Result<void> Get(size_t port, std::span<float> out) const = 0;
  virtual Result<void> Set(size_t port, std::span<const float> values) = 0;
};

/// One function of a part for fixed input shapes. One thread at a time.
class PartFunction {
 public:
  virtual ~PartFunction() = default;
  [[nodiscard]] virtual const std::vector<Port>& inputs() const = 0;
  [[nodiscard]] virtual const std::vector<Port>& outputs() const = 0;
  virtual Result<void> SetFloats(size_t input, std::span<const float> values) = 0;
  virtual Result<void> SetInts(size_t input, std::span<const int32_t> values) = 0;
  /// `state` may be null for functions without states.
  virtual Result<void> Run(PartState* state) = 0;
  /// Of the last run.
  virtual Result<void> GetFloats(size_t output, std::span<float> out) const = 0;
};

class Part {
 public:
  virtual ~Part() = default;
  /// "": the default function. `shapes`: of inputs that allow several. Fails: as Interpreter::Plan.
  virtual Result<std::unique_ptr<PartFunction>> Function(
      const std::string& name, const std::map<std::string, Shape>& shapes = {}) const = 0;
  /// States for this part and every part that declares no others.
  virtual Result<std::unique_ptr<PartState>> NewState() const = 0;
  /// All states the part declares.
  [[nodiscard]] virtual std::vector<Port> States() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Whether states and results are rounded to fp16, so that a snapshot loses nothing in it.
  [[nodiscard]] virtual bool rounds_to_f16() const = 0;
  virtual Result<std::unique_ptr<Part>> Open(const std::filesystem::path& part) const = 0;
};

/// The interpreter of this library.
[[nodiscard]] std::unique_ptr<Backend> InterpreterBackend(const InterpreterOptions& options);

/// What runs packages on this machine: the interpreter; on a Mac Core ML, unless the interpreter is asked for by
/// its f32 precision, which Core ML does not have.
Result<std::shared_ptr<const Backend>> DefaultBackend(const InterpreterOptions& options,
                                                      ComputeUnits units = ComputeUnits::kNeuralEngine);

/// Core ML; on a Mac only. Fails: as CheckComputeUnits.
Result<std::shared_ptr<const Backend>> CoremlBackend(ComputeUnits units);

/// Index of a port, or -1.
[[nodiscard]] int PortIndex(const std::vector<Port>& ports, std::string_view name);

}  // namespace cmforge::coreml
