// cmforge skill bake, export, apply: a specialist of its own, and the small file that turns its base into it.
#include <cstdio>

#include "cli/cmf_argument.h"
#include "cli/console.h"
#include "cli/skill_commands.h"
#include "cmf/rewrite.h"
#include "cmf/standalone_skill.h"
#include "open/skill_graft.h"
#include "open/skill_overlay.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model, base;
  std::string donor, output, task, layers, skill, id, name;
  double min_delta = 0;
  bool force = false;
};

void PrintSummary(const Cli& cli, const std::string& output, const cmf::WriteSummary& summary, Json json) {
  if (cli.common.json) {
    json["output"] = output;
    json["bytes"] = summary.bytes;
    json["tensors"] = summary.tensors;
    PrintJson(DumpJson(json));
  } else if (cli.common.verbosity >= 0) {
    fmt::print("{}: {} tensors, {}\n", output, summary.tensors,
               HumanBytes(static_cast<double>(summary.bytes)));
  }
}

/// The backbone with the donor's tensors in their places, and without skills.
Result<int> Bake(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options.model));
  CMF_CHECK(CheckOutput(source, options.output));
  if (source.cmf->is_skill_file())
    return Fail(ErrorKind::kUsage, fmt::format("{}: a standalone skill is no backbone", source.path));
  GraftOptions graft_options;
  if (!options.layers.empty()) {
    CMF_TRY(graft_options.layers, ParseLayerRange(options.layers));
  }
  graft_options.min_delta = options.min_delta;
  CMF_TRY(auto donor, OpenDonor(options.donor, cli.Control()));
  CMF_TRY(const Graft graft,
          PlanGraft(*source.cmf, std::move(donor), graft_options, cli.common.MakePool(), cli.Control()));
  const FrontedSource baked(*graft.tensors, *source.tensors);
  cmf::Contents contents = cmf::ContentsOf(*source.cmf);
  contents.tensors = &baked;
  std::erase_if(contents.names, [](const std::string& name) { return name.starts_with("skill."); });
  contents.header.skills.clear();
  if (!options.task.empty()) {
    if (contents.masks.Find(options.task) == nullptr)
      return Fail(ErrorKind::kNotFound,
                  fmt::format("{}: no task '{}': see `cmforge mask list`", source.path, options.task));
    contents.masks.default_task = options.task;
  }
  if (!contents.header.provenance.is_object()) contents.header.provenance = Json::object();
  contents.header.provenance["baked"] = {{"base", std::filesystem::path(source.path).filename().string()},
                                         {"base_dir_hash", fmt::format("{:016x}", source.cmf->dir_hash())},
                                         {"tensors", graft.tensors->tensors().size()}};
  CMF_TRY(const cmf::WriteSummary summary, cmf::WriteCmf(options.output, contents, cli.Control()));
  PrintSummary(cli, options.output, summary,
               {{"baked", graft.tensors->tensors().size()}, {"unchanged", graft.unchanged}});
  return kDone;
}

Result<int> Export(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource specialist, OpenCmf(cli, options.model));
  CMF_TRY(const OpenedSource base, OpenCmf(cli, options.base));
  CMF_CHECK(CheckOutput(specialist, options.output));
  CMF_CHECK(CheckOutput(base, options.output));
  const std::string id =
      options.id.empty() ? std::filesystem::path(options.output).stem().string() : options.id;
  if (!cmf::CheckSkillId(id) && options.id.empty()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("skill: the output's name '{}' cannot serve as its id: give one with --id", id));
  }
  CMF_CHECK(CheckNewSkillId(id));
  const cmf::ExportedSkill skill{id, options.name.empty() ? id : options.name,
                                 std::filesystem::path(specialist.path).filename().string()};
  CMF_TRY(const cmf::WriteSummary summary,
          cmf::ExportSkill(*specialist.cmf, *base.cmf, skill, options.output, cli.Control()));
  PrintSummary(cli, options.output, summary,
               {{"id", id}, {"base_dir_hash", fmt::format("{:016x}", base.cmf->dir_hash())}});
  return kDone;
}

Result<int> Apply(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource base, OpenCmf(cli, options.base));
  CMF_TRY(const OpenedSource skill, OpenCmf(cli, {options.skill}));
  CMF_CHECK(CheckOutput(base, options.output));
  CMF_CHECK(CheckOutput(skill, options.output));
  CMF_TRY(const cmf::WriteSummary summary,
          cmf::ApplySkill(*base.cmf, *skill.cmf, options.force, options.output, cli.Control()));
  PrintSummary(cli, options.output, summary, Json::object());
  return kDone;
}

}  // namespace

void AddStandaloneSkill(Cli& cli, CLI::App* group) {
  {
    auto options = std::make_shared<Options>();
    CLI::App* command = cli.AddTo(
        group, "bake", "Make a specialist: a copy of the model with a donor's tensors in their places",
        "cmforge skill bake base.cmf --from ./tuned --output specialist.cmf");
    options->model.AddTo(command);
    command
        ->add_option("--from", options->donor, "Checkpoint folder, delta folder or file of the same backbone")
        ->required();
    command
        ->add_option("-o,--output", options->output,
                     "The .cmf file to write; an older one of that name is replaced")
        ->required();
    command->add_option("--task", options->task, "The task mask the specialist starts with");
    command->add_option("--layers", options->layers, "Only tensors of these layers, like 3-5");
    command
        ->add_option("--min-delta", options->min_delta,
                     "Keep the base's tensor where the relative change is at most this")
        ->check(MinDelta());
    command->callback([&cli, options] { cli.action = [&cli, options] { return Bake(cli, *options); }; });
  }
  {
    auto options = std::make_shared<Options>();
    CLI::App* command = cli.AddTo(group, "export", "Cut a standalone skill out of a specialist",
                                  "cmforge skill export specialist.cmf --base base.cmf -o sql.cmf");
    command->add_option("SPECIALIST", options->model.path, "The specialist's .cmf file")->required();
    command->add_option("--base", options->base.path, "The .cmf file it was made from")->required();
    command->add_option("-o,--output", options->output, "The standalone skill to write")->required();
    command->add_option("--id", options->id, "Its id (default: the output's name)");
    command->add_option("--name", options->name, "A name for people");
    command->callback([&cli, options] { cli.action = [&cli, options] { return Export(cli, *options); }; });
  }
  {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        cli.AddTo(group, "apply", "Put a standalone skill over its base: the specialist again",
                  "cmforge skill apply base.cmf sql.cmf -o specialist.cmf");
    command->add_option("BASE", options->base.path, "The exact file the skill was cut against")->required();
    command->add_option("SKILL", options->skill, "The standalone skill")->required();
    command
        ->add_option("-o,--output", options->output,
                     "The .cmf file to write; an older one of that name is replaced")
        ->required();
    command->add_flag("--force", options->force,
                      "Apply it to another base; what comes of it is yours to judge");
    command->callback([&cli, options] { cli.action = [&cli, options] { return Apply(cli, *options); }; });
  }
}

}  // namespace cmforge::cli
