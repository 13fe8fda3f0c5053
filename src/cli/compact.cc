// cmforge compact: a fresh copy of a .cmf file, without what appends and removals left behind.
#include <cstdio>

#include "cli/cmf_files.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cmf/hash64.h"
#include "cmf/rewrite.h"

namespace cmforge::cli {
namespace {

Result<int> Compact(const Cli& cli, const ModelArgument& model, const std::string& output) {
  CMF_TRY(const OpenedSource source, model.Open(cli));
  CMF_TRY(const auto file, NeedCmf(source));
  CMF_CHECK(CheckOutput(source, output));
  uint64_t before = 0;
  for (const cmf::Part& part : file->parts()) before += part.bytes.size();
  CMF_TRY(const cmf::WriteSummary summary, cmf::WriteCmf(output, cmf::ContentsOf(*file), cli.Control()));
  if (cli.common.json) {
    PrintJson(DumpJson(Json{{"output", output},
                            {"bytes_before", before},
                            {"bytes", summary.bytes},
                            {"tensors", summary.tensors},
                            {"dir_hash", cmf::Hash64Hex(summary.dir_hash)}}));
  } else if (cli.common.verbosity >= 0) {
    fmt::print("{}: {}, {} before: {} tensors\n", output, HumanBytes(static_cast<double>(summary.bytes)),
               HumanBytes(static_cast<double>(before)), summary.tensors);
  }
  return kDone;
}

}  // namespace

void AddCompact(Cli& cli) {
  auto model = std::make_shared<ModelArgument>();
  auto output = std::make_shared<std::string>();
  CLI::App* command = cli.Add("compact", "Rewrite a .cmf file without dead space",
                              "cmforge compact model.cmf --output small.cmf");
  command->add_option("FILE", model->path, "A .cmf file; a set of shards becomes one file")->required();
  command->add_option("-o,--output", *output, "The .cmf file to write; an older one of that name is replaced")
      ->required();
  command->callback([&cli, model, output] {
    cli.action = [&cli, model, output] { return Compact(cli, *model, *output); };
  });
}

}  // namespace cmforge::cli
