// What Core ML, the Neural Engine or ANEMLL's runtimes would reject, miscompute or run slowly in a model or a
// package folder, ours or anybody's: `cmforge coreml lint`. Known rules are applied to what the files say; nothing
// is executed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"

namespace cmforge::coreml::lint {

enum class Severity : uint8_t {
  kError,    // will not load, or computes garbage
  kWarning,  // runs inexactly, slowly or beside the Neural Engine; some reader does without it
  kNote,
};
[[nodiscard]] std::string_view SeverityName(Severity severity);  // "error"

struct Finding {
  Severity severity = Severity::kNote;
  std::string rule;       // "native-sigmoid"
  std::string part;       // "qwen_lm_head.mlpackage", "meta.yaml"
  std::string function;   // empty: all of the part
  std::string operation;  // "sigmoid 'gate'"; empty: all of the function
  std::string reason, remedy;
};

/// What one function's weights take on the Neural Engine: an estimate, see docs/coreml.md.
struct FunctionMemory {
  std::string part, function;
  uint64_t weight_bytes = 0;
};

struct Report {
  std::filesystem::path path;
  std::vector<std::string> parts;
  std::vector<Finding> findings;  // errors first; within a level in the order of rules
  std::vector<FunctionMemory> memory;
  uint64_t state_bytes = 0;  // of one conversation

  [[nodiscard]] int64_t Count(Severity severity) const;
  [[nodiscard]] uint64_t MemoryBytes() const;  // of all functions
};

/// `path`: a .mlpackage, .mlmodelc or .mlmodel, or a folder with meta.yaml, whose broken parts are findings.
/// Fails: as mil::OpenPackage for a model; kCorrupt for a meta.yaml that is no YAML.
Result<Report> Inspect(const std::filesystem::path& path, MappedFile::Mode mode = MappedFile::Mode::kMap);

[[nodiscard]] Json ToJson(const Report& report);

}  // namespace cmforge::coreml::lint
