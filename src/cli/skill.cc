// cmforge skill list, add, remove: the skills of a .cmf file, changed in place and append-only.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/cmf_argument.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/skill_commands.h"
#include "cli/specialist_flags.h"
#include "open/quality.h"
#include "open/skill_graft.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string id, donor, name, layers, prompts, quality, task;
  double min_delta = 0;
  int64_t phi_layer = -1, rank = 2, prompt_tokens = 0;
};

uint64_t BytesOf(const TensorSource& source, const std::vector<std::string>& names, std::string_view id) {
  uint64_t bytes = 0;
  for (const std::string& name : names) bytes += source.Find(cmf::SkillTensorName(id, name))->nbytes;
  return bytes;
}

uint64_t BytesOf(const TensorSource& source) {
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : source.tensors()) bytes += tensor.nbytes;
  return bytes;
}

Result<int> List(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options.model));
  const auto& skills = source.cmf->header().skills;
  Json list = Json::array();
  for (const std::string& id : SkillIds(*source.tensors, skills)) {
    const auto it = std::find_if(skills.begin(), skills.end(), [&](const auto& s) { return s.id == id; });
    const bool is_bound =
        it != skills.end() && it->base_dir_hash.has_value();  // all of the file is this skill's
    const auto names = ReplacedTensors(*source.tensors, id, skills);
    const size_t count = is_bound ? source.tensors->tensors().size() : names.size();
    const uint64_t bytes = is_bound ? BytesOf(*source.tensors) : BytesOf(*source.tensors, names, id);
    Json json = it != skills.end() ? cmf::SkillToJson(*it) : Json{{"id", id}};
    if (json.contains("selection")) {  // its numbers are for programs: `info --header` has them
      json["selection"].erase("mean");
      json["selection"].erase("basis");
    }
    json["tensors"] = count;
    json["bytes"] = bytes;
    json["is_routable"] = it != skills.end() && IsRoutable(*it);
    if (!cli.common.json) {
      fmt::print("{:<16} {:>4} tensors, {:>9}{}{}{}, quality {}\n", id, count,
                 HumanBytes(static_cast<double>(bytes)),
                 it != skills.end() && IsRoutable(*it)
                     ? fmt::format(", routable by layer {}", it->selection->phi_layer)
                     : "",
                 it != skills.end() && it->input_mask_task ? ", with task " + *it->input_mask_task : "",
                 it != skills.end() && it->base_dir_hash ? ", bound to base " + *it->base_dir_hash : "",
                 it != skills.end() && !it->quality.is_null() ? DumpJson(it->quality) : "not measured");
      if (it != skills.end() && !it->selection_problem.empty())
        cli.Control().Warn(fmt::format("skill '{}': {}", id, it->selection_problem));
    }
    list.push_back(std::move(json));
  }
  if (cli.common.json) PrintJson(DumpJson(Json{{"skills", list}}));
  return kDone;
}

/// The lines of a text, or its passages of `length` tokens (0: lines).
Result<std::vector<std::vector<TokenId>>> PromptsOf(const Tokenizer& tokenizer, std::string_view text,
                                                    int64_t length) {
  std::vector<std::vector<TokenId>> prompts;
  if (length > 0) {
    CMF_TRY(const auto tokens, RoutingTokens(tokenizer, text));
    const auto step = static_cast<std::ptrdiff_t>(length);
    for (auto at = tokens.begin(); tokens.end() - at >= step; at += step) prompts.emplace_back(at, at + step);
    return prompts;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    CMF_TRY(auto tokens, RoutingTokens(tokenizer, line));
    if (!tokens.empty()) prompts.push_back(std::move(tokens));
  }
  return prompts;
}

/// The subspace of the prompts in a file.
Result<cmf::SkillSelection> SelectionFrom(const Cli& cli, const OpenedSource& source,
                                          const Options& options) {
  CMF_TRY(const std::string text, ReadUtf8File(options.prompts));
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  ComputeFlags compute;
  compute.compute = "exact";  // as `route` looks at prompts
  CMF_TRY(const auto backbone, LoadModel(cli, source, compute));
  const int64_t layer = options.phi_layer >= 0 ? options.phi_layer : 2 * source.config->num_layers / 3;
  CMF_TRY(const auto prompts, PromptsOf(*tokenizer, text, options.prompt_tokens));
  std::vector<std::vector<float>> phis;
  const RunControl control = cli.Control();
  for (const auto& tokens : prompts) {
    CMF_TRY(LayerMeans means, MeanHidden(*backbone, tokens, std::span(&layer, 1), control));
    phis.push_back(std::move(means[0].second));
    control.Report("prompts", static_cast<int64_t>(phis.size()), static_cast<int64_t>(prompts.size()));
  }
  auto selection = FitSelection(phis, layer, options.rank);
  if (!selection) return Fail(std::move(selection).error().In(options.prompts));
  return selection;
}

/// A text is measured; a JSON object is a figure that comes with its evidence.
Result<Json> QualityOf(const Cli& cli, const OpenedSource& source, const TensorSource& grafted,
                       const Task& task, const std::string& file) {
  CMF_TRY(const std::string text, ReadUtf8File(file));
  if (file.ends_with(".json")) {
    CMF_TRY(Json quality, ParseJson(text, file));
    if (auto status = CheckSkillQuality(quality); !status) return Fail(std::move(status).error().In(file));
    return quality;
  }
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  const auto pool = cli.common.MakePool();
  CMF_TRY(const auto backbone, LoadModelOver(cli, source, source.tensors, 0, {}, pool));
  const auto overlaid = std::make_shared<FrontedSource>(grafted, *source.tensors);
  CMF_TRY(const auto specialist, LoadModelOver(cli, source, overlaid, 1, {}, pool));
  CMF_TRY(const HeldOut measured,
          MeasureHeldOut(*backbone, *specialist, task.active.get(), *tokenizer, text, cli.Control()));
  return SkillQuality(measured);
}

Result<int> Add(const Cli& cli, const Options& options) {
  CMF_CHECK(CheckNewSkillId(options.id));
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options.model));
  if (source.cmf->is_skill_file()) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: a standalone skill is no backbone: apply it to its base first", source.path));
  }
  GraftOptions graft_options;
  if (!options.layers.empty()) {
    CMF_TRY(graft_options.layers, ParseLayerRange(options.layers));
  }
  graft_options.min_delta = options.min_delta;
  Task task;
  if (!options.task.empty()) {
    CMF_TRY(task, FindTask(source, options.task));
  }
  CMF_TRY(auto donor, OpenDonor(options.donor, cli.Control()));
  CMF_TRY(const Graft graft,
          PlanGraft(*source.cmf, std::move(donor), graft_options, cli.common.MakePool(), cli.Control()));
  cmf::SkillRecord record;
  record.id = options.id;
  record.name = options.name.empty() ? options.id : options.name;
  record.layers = graft.layers;
  if (!task.name.empty()) record.input_mask_task = task.name;
  if (!options.prompts.empty()) {
    CMF_TRY(record.selection, SelectionFrom(cli, source, options));
  }
  if (!options.quality.empty()) {
    CMF_TRY(record.quality, QualityOf(cli, source, *graft.tensors, task, options.quality));
  }
  const auto tensors = AsSkillTensors(graft.tensors, options.id);
  const cmf::AppendEdits edits = SkillEdits(*source.cmf, *tensors, record);
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors->tensors()) bytes += tensor.nbytes;
  CMF_CHECK(cmf::Append(source.path, edits, cli.Control()));
  if (cli.common.json) {
    PrintJson(DumpJson(Json{{"id", record.id},
                            {"tensors", tensors->tensors().size()},
                            {"bytes", bytes},
                            {"unchanged", graft.unchanged},
                            {"layers", record.layers},
                            {"rank", record.selection ? record.selection->rank : 0},
                            {"quality", record.quality}}));
  } else if (cli.common.verbosity >= 0) {
    fmt::print("{}: skill '{}': {} tensors, {}, in layers {}; {} donor tensors are the backbone's\n",
               source.path, record.id, tensors->tensors().size(), HumanBytes(static_cast<double>(bytes)),
               fmt::join(record.layers, ", "), graft.unchanged);
    if (record.selection)
      fmt::print("  routable by layer {}, rank {}\n", record.selection->phi_layer, record.selection->rank);
    if (!record.quality.is_null()) fmt::print("  quality {}\n", DumpJson(record.quality));
  }
  return kDone;
}

Result<int> Remove(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options.model));
  CMF_TRY(const cmf::AppendEdits edits, SkillRemovalEdits(*source.cmf, options.id));
  CMF_CHECK(cmf::Append(source.path, edits, cli.Control()));
  if (cli.common.json) PrintJson(DumpJson(Json{{"removed", options.id}, {"tensors", edits.remove.size()}}));
  return kDone;
}

}  // namespace

Result<void> CheckNewSkillId(const std::string& id) {
  CMF_CHECK(cmf::CheckSkillId(id));
  if (id == "none" || id == "backbone" || id == "auto")
    return Fail(ErrorKind::kUsage,
                fmt::format("skill id '{}': this word asks for another thing: take another", id));
  return {};
}

CLI::Validator MinDelta() {
  return {[](std::string& text) {
            double value = -1;
            return CLI::detail::lexical_cast(text, value) && value >= 0 && std::isfinite(value)
                       ? std::string()
                       : fmt::format("'{}' is not a number of 0 or more", text);
          },
          "NUMBER"};
}

void AddSkill(Cli& cli) {
  CLI::App* group = cli.AddGroup("skill", "The skills of a file", "cmforge skill list model.cmf");
  {
    auto options = std::make_shared<Options>();
    CLI::App* command = cli.AddTo(group, "list", "List skills", "cmforge skill list model.cmf");
    options->model.AddTo(command);
    command->callback([&cli, options] { cli.action = [&cli, options] { return List(cli, *options); }; });
  }
  {
    auto options = std::make_shared<Options>();
    CLI::App* command = cli.AddTo(
        group, "add", "Add what a donor checkpoint does differently, in place",
        "cmforge skill add model.cmf --from ./tuned --id sql --prompts sql.txt --quality heldout.txt");
    options->model.AddTo(command);
    command
        ->add_option("--from", options->donor, "Checkpoint folder, delta folder or file of the same backbone")
        ->required();
    command
        ->add_option("--id", options->id, "Letters, digits, _ and -; an older skill of that id is replaced")
        ->required();
    command->add_option("--name", options->name, "A name for people");
    command->add_option("--layers", options->layers, "Only tensors of these layers, like 3-5");
    command
        ->add_option("--min-delta", options->min_delta,
                     "Leave out tensors whose relative change is at most this (default 0)")
        ->check(MinDelta());
    CLI::Option* prompts =
        command->add_option("--prompts", options->prompts, "Texts it is for, one a line: makes it routable");
    command
        ->add_option("--prompt-tokens", options->prompt_tokens,
                     "Cut the prompts' file into passages of this many tokens instead of lines")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
        ->needs(prompts);
    command
        ->add_option("--phi-layer", options->phi_layer,
                     "Layer whose hidden states route (default: at two thirds)")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
        ->needs(prompts);
    command->add_option("--rank", options->rank, "Dimensions of the routing subspace")
        ->check(CLI::Range(int64_t{0}, int64_t{64}))
        ->needs(prompts)
        ->capture_default_str();
    command->add_option(
        "--quality", options->quality,
        "Held-out text: perplexity without and with the skill; or a .json with measured figures and "
        "their evidence");
    command->add_option("--task", options->task, "The task mask it is used with");
    command->callback([&cli, options] { cli.action = [&cli, options] { return Add(cli, *options); }; });
  }
  {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        cli.AddTo(group, "remove", "Remove a skill, in place", "cmforge skill remove model.cmf sql");
    options->model.AddTo(command);
    command->add_option("ID", options->id, "The skill")->required();
    command->callback([&cli, options] { cli.action = [&cli, options] { return Remove(cli, *options); }; });
  }
  AddStandaloneSkill(cli, group);
}

}  // namespace cmforge::cli
