// Remedies for the engine's kinds of error.
#include "cli/template_error.h"

#include "text/jinja/template.h"

namespace cmforge::cli {
namespace {

std::string_view Remedy(std::string_view name) {
  namespace kind = jinja::error_name;
  if (name == kind::kSyntax) return "correct the template";
  if (name == kind::kRaised) return "the template refuses what it is given: change that";
  if (name == kind::kLimitReached) return "simplify the template, or give it less";
  const bool is_ours = name == kind::kUndefined || name == kind::kSecurity || name == kind::kTemplate ||
                       name == kind::kRuntime;
  return is_ours ? "correct the template, or what it is given" : "";
}

}  // namespace

Error TemplateError(Error error, std::string_view origin) {
  const std::string_view remedy = Remedy(error.name);
  if (remedy.empty()) return error;
  if (!error.message.starts_with(origin)) error = std::move(error).In(origin);
  error.message += fmt::format(": {}", remedy);
  return error;
}

}  // namespace cmforge::cli
