// NeedCmf and PrintFiles.
#include "cli/cmf_files.h"

#include "cli/console.h"

namespace cmforge::cli {

Result<std::shared_ptr<const cmf::File>> NeedCmf(const OpenedSource& source) {
  if (source.cmf) return source.cmf;
  return Fail(ErrorKind::kUsage, fmt::format("{}: a {}, and this needs a .cmf file: convert it first",
                                             source.path, SourceFormatName(source.format)));
}

void PrintFiles(const Cli& cli, std::span<const std::filesystem::path> paths) {
  Json json = {{"files", Json::array()}};
  std::error_code ignored;
  for (const std::filesystem::path& path : paths) {
    const uint64_t bytes = std::filesystem::file_size(path, ignored);
    json["files"].push_back({{"file", path.string()}, {"bytes", bytes}});
    if (!cli.common.json && cli.common.verbosity >= 0)
      fmt::print("{}: {}\n", path.string(), HumanBytes(static_cast<double>(bytes)));
  }
  if (cli.common.json) PrintJson(DumpJson(json));
}

}  // namespace cmforge::cli
