// Executes Core ML programs on the CPU. An Interpreter is one opened model, immutable; a Runner is one of its
// functions planned for fixed input shapes, with all its memory; a StateSet is what a conversation keeps.
//
// Every operation is computed in f32. With Precision::kF16, results are rounded to the type the program
// declares; with kF32 floats stay wide (a debugging aid, and the form parity is measured in).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "mil/package.h"

namespace cmforge::coreml {

enum class Precision : uint8_t { kF16, kF32 };

struct InterpreterOptions {
  Precision precision = Precision::kF16;
  std::shared_ptr<ThreadPool> pool;                 // null: one thread
  uint64_t memory_limit_bytes = uint64_t{8} << 30;  // of buffers and decoded constants of one Runner
  const std::atomic<bool>* cancelled = nullptr;     // looked at between operations
  Isa isa = BestIsa();                              // of products; results do not depend on it
};

/// The states of one conversation, by name, all zero at first: f32 numbers, whatever type the program
/// declares. One set serves every function and every model that declares the same states. One thread at a
/// time.
class StateSet {
 public:
  struct State {
    mil::TensorType type;
    std::vector<float> values;
  };

  /// Adds what is missing. Fails: kCorrupt when a state of that name has another type (both named).
  Result<void> Add(const std::string& name, const mil::TensorType& type);
  [[nodiscard]] State* Find(const std::string& name);
  [[nodiscard]] const std::map<std::string, State>& all() const { return states_; }
  [[nodiscard]] uint64_t bytes() const;
  void Clear();  // zeros again

 private:
  std::map<std::string, State> states_;
};

struct Port {
  std::string name;
  mil::TensorType type;  // shape: of this plan; unknown dimensions of outputs are known after a run
};

class FunctionPlan;  // plan.h
class Interpreter;

/// Belongs to one thread at a time. Running allocates nothing, except where a shape depends on contents.
class Runner {
 public:
  ~Runner();
  Runner(Runner&&) noexcept;

  [[nodiscard]] const std::vector<Port>& inputs() const;
  [[nodiscard]] const std::vector<Port>& outputs() const;  // shapes of the last run
  [[nodiscard]] const std::vector<Port>& states() const;
  [[nodiscard]] int FindInput(std::string_view name) const;  // -1: none
  [[nodiscard]] int FindOutput(std::string_view name) const;

  /// Where an input's numbers go before Run; the second for integer and bool inputs.
  [[nodiscard]] std::span<float> InputFloats(int input);
  [[nodiscard]] std::span<int32_t> InputInts(int input);

  /// Fails: kUsage (`states` is null or lacks one), kCorrupt (an index outside its axis, a slice that does
  /// not fit), "function 'f': gather 'y': ...", kCancelled. States may then hold part of the step.
  Result<void> Run(StateSet* states);

  /// Valid until the next run of any function on the same states: an output may lie in one.
  [[nodiscard]] std::span<const float> OutputFloats(int output) const;
  [[nodiscard]] std::span<const int32_t> OutputInts(int output) const;

  [[nodiscard]] uint64_t memory_bytes() const;
  /// What is left to do per run, by operation: folded constants and views have gone.
  [[nodiscard]] std::map<std::string, int64_t> StepHistogram() const;

 private:
  friend class Interpreter;
  explicit Runner(std::unique_ptr<FunctionPlan> plan);
  std::unique_ptr<FunctionPlan> plan_;
};

class Interpreter {
 public:
  /// Checks the whole model first. Fails: as mil::CheckModel, with the package's path.
  static Result<std::shared_ptr<const Interpreter>> Create(mil::Package package,
                                                           const InterpreterOptions& options = {});

  [[nodiscard]] const mil::Package& package() const { return package_; }
  [[nodiscard]] const InterpreterOptions& options() const { return options_; }

  /// Plans a function ("": the default one). `shapes`: of inputs that allow several, by name; others have
  /// theirs. Fails: kNotFound (no such function or input), kUsage (a shape the model does not allow),
  /// kUnsupported, kCorrupt, kLimit (more memory than allowed).
  Result<Runner> Plan(const std::string& function, const std::map<std::string, Shape>& shapes = {}) const;

  /// Adds the states of a function ("": all functions) to a set.
  Result<void> AddStates(const std::string& function, StateSet& states) const;

 private:
  mil::Package package_;
  InterpreterOptions options_;
};

}  // namespace cmforge::coreml
