// Plans and runs every function of a hostile program with little memory: errors are fine, reading or writing
// outside a buffer is not.
#pragma once

#include "coreml/interpreter.h"

inline void ExecuteProgram(cmforge::mil::Model model) {
  using namespace cmforge;  // NOLINT: a fuzz target
  mil::Package package;
  package.path = "fuzz";
  package.model = std::move(model);
  package.weights = std::make_shared<mil::Weights>("/nonexistent");
  const auto interpreter =
      coreml::Interpreter::Create(std::move(package), {.memory_limit_bytes = uint64_t{64} << 10});
  if (!interpreter) return;
  coreml::StateSet states;
  if (!(*interpreter)->AddStates("", states)) return;
  for (const auto& [name, function] : (*interpreter)->package().model.program.functions) {
    auto runner = (*interpreter)->Plan(name);
    if (!runner) continue;
    for (int round = 0; round < 2; ++round) {
      for (size_t i = 0; i < runner->inputs().size(); ++i) {
        const int input = static_cast<int>(i);
        // Zeros first, then numbers that are indices, positions and sizes somewhere.
        if (mil::IsFloat(runner->inputs()[i].type.dtype)) {
          for (float& v : runner->InputFloats(input)) v = round ? 1.5f : 0.0f;
        } else {
          for (int32_t& v : runner->InputInts(input)) v = round;
        }
      }
      if (!runner->Run(&states)) break;
    }
  }
}
