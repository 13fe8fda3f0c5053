// cmforge unshard: a set of shards becomes one .cmf file again.
#include "cli/cmf_files.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cmf/rewrite.h"

namespace cmforge::cli {
namespace {

Result<int> Unshard(const Cli& cli, const ModelArgument& model, const std::string& output) {
  CMF_TRY(const OpenedSource source, model.Open(cli));
  CMF_TRY(const auto file, NeedCmf(source));
  if (!file->header().shard) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: not a shard: one file already (`cmforge compact` rewrites it)", source.path));
  }
  CMF_CHECK(CheckOutput(source, output));
  CMF_CHECK(cmf::WriteCmf(output, cmf::ContentsOf(*file), cli.Control()));
  PrintFiles(cli, std::vector<std::filesystem::path>{output});
  return kDone;
}

}  // namespace

void AddUnshard(Cli& cli) {
  auto model = std::make_shared<ModelArgument>();
  auto output = std::make_shared<std::string>();
  CLI::App* command = cli.Add("unshard", "Join shards into one .cmf file",
                              "cmforge unshard qwen3-00001-of-00004.cmf --output qwen3.cmf");
  command->add_option("FILE", model->path, "Any shard of the set")->required();
  command->add_option("-o,--output", *output, "The .cmf file to write; an older one of that name is replaced")
      ->required();
  command->callback([&cli, model, output] {
    cli.action = [&cli, model, output] { return Unshard(cli, *model, *output); };
  });
}

}  // namespace cmforge::cli
