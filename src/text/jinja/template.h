// Jinja templates as Hugging Face's transformers runs them: an immutable sandbox with trim_blocks,
// lstrip_blocks, loop controls and `generation` blocks, rendering byte for byte what Python's jinja2 does.
// Parse once, render many; a hostile template ends in an error, never in a hang, an overflow or exhausted
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cmforge {
using Json = nlohmann::ordered_json;  // base/json.h, for those that need more than its name
}

namespace cmforge::jinja {

/// Values of Error::name for errors of this engine; the kind is kCorrupt, or kLimit for kLimitReached.
/// Messages read "NAME:LINE: fact", except kRaised: there the message is what the template said, unchanged.
namespace error_name {
inline constexpr std::string_view kSyntax = "syntax";  // the template does not parse; unknown filter or test
inline constexpr std::string_view kUndefined = "undefined";  // something was taken from an undefined value
inline constexpr std::string_view kSecurity =
    "security";  // what the immutable sandbox refuses: list.append, x.__class__
inline constexpr std::string_view kRaised = "raised";      // the template called raise_exception(message)
inline constexpr std::string_view kTemplate = "template";  // a rule of Jinja broken while rendering
inline constexpr std::string_view kRuntime = "runtime";    // what is a Python exception there: TypeError, ...
inline constexpr std::string_view kLimitReached = "limit";  // a bound of Limits
}  // namespace error_name

struct TemplateOptions {
  bool trim_blocks = true;    // the newline after a block or comment tag goes
  bool lstrip_blocks = true;  // white space between line start and a block or comment tag goes
};

/// Wall clock time that strftime_now() shows.
struct LocalTime {
  int year = 1970;
  int month = 1;  // 1..12
  int day = 1;
  int hour = 0, minute = 0, second = 0;
  int microsecond = 0;

  /// This machine's local time.
  static LocalTime Now();
  /// "2025-07-26", "2025-07-26T09:05:07[.123456]" or with a blank for the T. Fails: kUsage.
  static Result<LocalTime> ParseIso(std::string_view text);
};

/// Bounds of one rendering.
struct Limits {
  int64_t steps = 100'000'000;       // nodes evaluated, items visited, and bytes moved / 16
  int64_t output_bytes = 64 << 20;   // of the result and of every captured block
  int64_t memory_bytes = 256 << 20;  // all values made while rendering, together
  int64_t stack_bytes = 2 << 20;     // of the calling thread; macros may call each other 200 deep besides
};

struct RenderOptions {
  std::optional<LocalTime> now = {};  // without it strftime_now() shows LocalTime::Now()
  Limits limits = {};
  bool allow_mutation = false;  // list.append, dict.update and their kin work instead of being refused
  /// String nodes of the context (by address) whose characters are traced to the output: see Rendering.
  std::vector<const Json*> traced = {};
};

/// Where traced strings ended up. `traced` are byte ranges [begin, end) of `text`, ascending, not touching.
/// A byte is in a range iff its character came from a traced string: through concatenation, slices, trim,
/// split, join, case changes, replace, format, tojson, macros and captured blocks alike. Tracing never
/// changes the text. Text that a filter rebuilds without following single characters (wordwrap, urlize,
/// pprint, ...) is traced as a whole when any of its input was.
struct Rendering {
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  std::string text;
  std::vector<Range> traced;
};

struct Program;  // the parsed template

class Template {
 public:
  /// `name` stands in messages. Fails: kCorrupt (syntax), kLimit (nested too deep, too large).
  static Result<Template> Parse(std::string_view source, std::string_view name,
                                const TemplateOptions& options = {});

  /// Renders with the members of `context` (an object) as variables; key order is kept, integers and
  /// floats stay apart. `context` is only read, and only during the call.
  /// Threads: any number may render one Template.
  [[nodiscard]] Result<std::string> Render(const Json& context, const RenderOptions& options = {}) const;
  [[nodiscard]] Result<Rendering> RenderTraced(const Json& context, const RenderOptions& options) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace cmforge::jinja
