// cmforge shard: one .cmf file becomes a set of files of a bounded size, each valid by itself.
#include <cstdio>

#include "cli/cmf_files.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cmf/rewrite.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string prefix;
  double max_gb = 0;
};

Result<int> Shard(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_TRY(const auto file, NeedCmf(source));
  if (options.prefix.empty() || options.prefix.back() == '/')
    return Fail(ErrorKind::kUsage, "output-prefix: no name: give one like models/qwen3");
  CMF_TRY(const auto paths,
          cmf::WriteShards(options.prefix, cmf::ContentsOf(*file), options.max_gb, cli.Control()));
  PrintFiles(cli, paths);
  return kDone;
}

}  // namespace

void AddShard(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("shard", "Split a .cmf file into shards",
                              "cmforge shard qwen3.cmf --output-prefix parts/qwen3 --shard-max-gb 4");
  command->add_option("FILE", options->model.path, "A .cmf file, or any shard of a set to be split anew")
      ->required();
  command
      ->add_option("--output-prefix", options->prefix, "PREFIX of PREFIX-00001-of-0000N.cmf, with its folder")
      ->required();
  command
      ->add_option("--shard-max-gb", options->max_gb,
                   "Close a shard before it passes so many gigabytes, weighed as float32 (quantized shards "
                   "are smaller)")
      ->check(CLI::Range(1e-9, 1e9))
      ->required();
  command->callback([&cli, options] { cli.action = [&cli, options] { return Shard(cli, *options); }; });
}

}  // namespace cmforge::cli
