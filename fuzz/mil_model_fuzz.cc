// room: coreml
// A hostile .mlmodel: what parses is written back to the same meaning, and what passes the checks is executed.
// The same bytes are tried as the description of a compiled model.
#include <cstdio>
#include <cstdlib>

#include "execute_program.h"
#include "mil/compiled.h"
#include "mil/proto.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  (void)cmforge::mil::ParseCompiledDescription(bytes);
  auto model = cmforge::mil::ParseModel(bytes);
  if (!model) return 0;
  const std::string written = SerializeModel(*model);
  const auto again = cmforge::mil::ParseModel(cmforge::AsBytes(written));
  if (!again) std::fprintf(stderr, "%s\n", again.error().message.c_str());
  if (!again || SerializeModel(*again) != written) abort();
  (void)CompiledMetadata(*model, "fuzz");
  (void)CompiledProgramText(*model);
  ExecuteProgram(std::move(*model));
  return 0;
}
