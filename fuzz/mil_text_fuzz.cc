// room: coreml
// Hostile program text: what parses is printed and parsed to the same program, and executed where it is right.
#include <cstdlib>

#include "execute_program.h"
#include "mil/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;  // NOLINT: a fuzz target
  auto program = mil::ParseProgramText({reinterpret_cast<const char*>(data), size});
  if (!program) return 0;
  const std::string printed = PrintProgram(*program);
  const auto again = mil::ParseProgramText(printed);
  if (!again || PrintProgram(*again) != printed) abort();
  mil::Model model;
  auto description = DescribeProgram(*program, program->functions.begin()->first);
  if (!description) return 0;
  model.description = std::move(*description);
  for (std::vector<mil::Feature>* inputs : {&model.description.inputs}) {
    for (mil::Feature& feature : *inputs) {  // dimensions the program leaves open are 2
      for (const mil::NamedType& value : program->functions.begin()->second.inputs) {
        if (value.name != feature.name || value.type.tensor.is_static()) continue;
        auto& array = std::get<mil::ArrayFeature>(feature.type);
        for (const int64_t dim : value.type.tensor.shape)
          array.shape.push_back(dim == mil::kUnknownDim ? 2 : dim);
      }
    }
  }
  model.program = std::move(*program);
  ExecuteProgram(std::move(model));
  return 0;
}
