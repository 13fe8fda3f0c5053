// Arguments of commands that work on .cmf files.
#include "cli/cmf_argument.h"

#include <charconv>

namespace cmforge::cli {

Result<OpenedSource> OpenCmf(const Cli& cli, const ModelArgument& model) {
  CMF_TRY(OpenedSource source, model.Open(cli));
  if (!source.cmf || model.path.empty()) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: not a .cmf file on disk: convert it first", source.path));
  }
  return source;
}

Result<std::pair<int64_t, int64_t>> ParseLayerRange(const std::string& text) {
  int64_t first = 0, last = 0;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, first);
  last = first;
  if (error == std::errc() && at != end && *at == '-') {
    const auto second = std::from_chars(at + 1, end, last);
    at = second.ptr;
    error = second.ec;
  }
  if (error != std::errc() || at != end || first < 0 || last < first)
    return Fail(ErrorKind::kUsage, fmt::format("layers '{}': give them like 3-5 or 4", text));
  return std::pair(first, last);
}

}  // namespace cmforge::cli
