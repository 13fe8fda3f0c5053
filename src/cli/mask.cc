// cmforge mask add, list, remove: the task masks of a .cmf file, changed in place and append-only.
#include <algorithm>
#include <cstdio>

#include "cli/cmf_argument.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/mask_json.h"
#include "cli/specialist_flags.h"
#include "cmf/append.h"
#include "open/mask_files.h"
#include "open/quality.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string name, keep, heads, gates, quality, description, parent, priority = "normal";
  bool is_default = false;
};

Json Describe(const cmf::TaskMask& mask, const cmf::MaskCatalog& catalog, const cmf::MaskGeometry& geometry) {
  Json layers = Json::array();
  for (int64_t layer = 0; layer < geometry.layers; ++layer) {
    const auto count = [&](const auto& rows, int64_t all) {
      return rows.empty() ? all : cmf::CountBits(rows[static_cast<size_t>(layer)]);
    };
    layers.push_back({{"on", mask.bits.layer_gates.empty() || cmf::TestBit(mask.bits.layer_gates, layer)},
                      {"neurons", count(mask.bits.ffn, geometry.ffn_width)},
                      {"heads", count(mask.bits.heads, geometry.heads)},
                      {"experts", count(mask.bits.experts, geometry.experts)}});
  }
  return MaskMetaJson(mask, catalog, std::move(layers));
}

Result<int> List(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options.model));
  const cmf::MaskCatalog& catalog = source.cmf->masks();
  const cmf::MaskGeometry geometry = source.cmf->mask_geometry();
  Json list = Json::array();
  for (const cmf::TaskMask& mask : catalog.masks) {
    list.push_back(Describe(mask, catalog, geometry));
    if (cli.common.json) continue;
    const Json& last = list.back();
    int64_t neurons = 0, heads = 0, on = 0;
    for (const Json& layer : last["layers"]) {
      if (!layer["on"].get<bool>()) continue;
      ++on;
      neurons += layer["neurons"].get<int64_t>();
      heads += layer["heads"].get<int64_t>();
    }
    fmt::print(
        "{:<16} {:>3} of {} layers, {:>5.1f}% of neurons, {:>5.1f}% of heads{}{}, quality {}\n", mask.name,
        on, geometry.layers,
        100.0 * static_cast<double>(neurons) /
            static_cast<double>(std::max<int64_t>(1, on * geometry.ffn_width)),
        100.0 * static_cast<double>(heads) / static_cast<double>(std::max<int64_t>(1, on * geometry.heads)),
        mask.has_expert_fields() ? ", experts restricted" : "",
        catalog.Initial() == &mask ? ", the default" : "",
        mask.is_measured() ? DumpJson(mask.quality) : "not measured");
  }
  if (cli.common.json) PrintJson(DumpJson(Json{{"default_task", catalog.default_task}, {"masks", list}}));
  return kDone;
}

/// A text is measured; a JSON object is a figure that comes with its evidence.
Result<Json> QualityOf(const Cli& cli, const OpenedSource& source, const cmf::TaskMask& mask,
                       const std::string& file) {
  CMF_TRY(const std::string text, ReadUtf8File(file));
  if (file.ends_with(".json")) {
    CMF_TRY(Json quality, ParseJson(text, file));
    if (auto status = cmf::CheckQuality(quality); !status) return Fail(std::move(status).error().In(file));
    return quality;
  }
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  CMF_TRY(const auto model, LoadModel(cli, source, {}));
  CMF_TRY(const HeldOut measured,
          MeasureHeldOut(*model, *model, &mask.bits, *tokenizer, text, cli.Control()));
  return MaskQuality(measured);
}

Result<int> Add(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options.model));
  if (options.name.empty() || options.name == kNoTask) {
    return Fail(ErrorKind::kUsage,
                fmt::format("mask '{}': this word asks for no mask: take another name", options.name));
  }
  CMF_TRY(cmf::TaskMask mask, ReadMaskFiles(options.name, {options.keep, options.heads, options.gates},
                                            source.cmf->mask_geometry()));
  if (!options.description.empty()) mask.description = options.description;
  cmf::AppendEdits edits;
  edits.masks = source.cmf->masks();
  if (!options.parent.empty()) {
    if (edits.masks->Find(options.parent) == nullptr)
      return Fail(ErrorKind::kNotFound,
                  fmt::format("{}: no task '{}' to be the parent", source.path, options.parent));
    mask.parent = options.parent;
  }
  mask.priority = options.priority == "fallback"  ? cmf::MaskPriority::kFallback
                  : options.priority == "primary" ? cmf::MaskPriority::kPrimary
                                                  : cmf::MaskPriority::kNormal;
  if (options.is_default || edits.masks->default_task.empty()) {
    edits.masks->default_task = options.is_default ? options.name : "general";
  }
  const double sparsity = mask.sparsity;
  CMF_CHECK(AddToCatalog(*edits.masks, mask));  // before anything is measured: the name may be taken
  if (!options.quality.empty()) {
    CMF_TRY(edits.masks->masks.back().quality, QualityOf(cli, source, mask, options.quality));
  }
  CMF_CHECK(cmf::Append(source.path, edits, cli.Control()));
  const cmf::TaskMask& added = edits.masks->masks.back();
  if (cli.common.json) {
    PrintJson(DumpJson(Describe(added, *edits.masks, source.cmf->mask_geometry())));
  } else if (cli.common.verbosity >= 0) {
    fmt::print("{}: task '{}', {:.1f}% off, quality {}\n", source.path, added.name, sparsity * 100,
               added.is_measured() ? DumpJson(added.quality) : "not measured");
  }
  return kDone;
}

Result<int> Remove(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options.model));
  CMF_TRY(const Task task, FindTask(source, options.name));
  cmf::AppendEdits edits;
  edits.masks = source.cmf->masks();
  if (std::erase_if(edits.masks->masks, [&](const auto& mask) { return mask.name == task.name; }) == 0)
    return Fail(ErrorKind::kNotFound, fmt::format("{}: no task '{}'", source.path, options.name));
  for (const cmf::SkillRecord& skill : source.cmf->header().skills) {
    if (skill.input_mask_task == task.name) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: task '{}': skill '{}' is used with it: remove that first", source.path,
                              task.name, skill.id));
    }
  }
  for (cmf::TaskMask& mask : edits.masks->masks) {
    if (mask.parent == task.name) mask.parent.reset();
  }
  if (edits.masks->default_task == task.name) edits.masks->default_task = "general";
  CMF_CHECK(cmf::Append(source.path, edits, cli.Control()));
  if (cli.common.json)
    PrintJson(DumpJson(Json{{"removed", task.name}, {"masks", edits.masks->masks.size()}}));
  return kDone;
}

}  // namespace

Json MaskMetaJson(const cmf::TaskMask& mask, const cmf::MaskCatalog& catalog, Json layers) {
  static constexpr const char* kPriorities[] = {"Fallback", "Normal", "Primary"};
  const auto text = [](const std::optional<std::string>& value) { return value ? Json(*value) : Json(); };
  Json json = {{"task_id", mask.task_id},
               {"name", mask.name},
               {"description", text(mask.description)},
               {"sparsity", mask.sparsity},
               {"quality", mask.quality},
               {"parent", text(mask.parent)},
               {"priority", kPriorities[static_cast<size_t>(mask.priority)]},
               {"is_default", catalog.Initial() == &mask},
               {"has_hot_pack", mask.has_hot_pack},
               {"has_expert_fields", mask.has_expert_fields()}};
  if (!layers.is_null()) json["layers"] = std::move(layers);
  return json;
}

void AddMask(Cli& cli) {
  CLI::App* group = cli.AddGroup("mask", "The task masks of a file", "cmforge mask list model.cmf");
  {
    auto options = std::make_shared<Options>();
    CLI::App* command = cli.AddTo(group, "list", "List task masks", "cmforge mask list model.cmf");
    options->model.AddTo(command);
    command->callback([&cli, options] { cli.action = [&cli, options] { return List(cli, *options); }; });
  }
  {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        cli.AddTo(group, "add", "Add a task mask, in place",
                  "cmforge mask add model.cmf --name code --keep code-50.npy --quality heldout.txt");
    options->model.AddTo(command);
    command->add_option("--name", options->name, "The task's name")->required();
    command->add_option("--keep", options->keep, "Neurons that stay on: .npy of shape [layers, neurons]");
    command->add_option("--heads", options->heads, "Attention heads that stay on: .npy [layers, heads]");
    command->add_option("--gates", options->gates, "Layers that stay on: .npy [layers]");
    command->add_option("--quality", options->quality,
                        "Held-out text to measure on, or a .json with a measured figure and its evidence");
    command->add_option("--description", options->description, "What it is for");
    command->add_option("--parent", options->parent, "The task it was made from");
    command->add_option("--priority", options->priority, "fallback, normal or primary")
        ->check(CLI::IsMember({"fallback", "normal", "primary"}))
        ->capture_default_str();
    command->add_flag("--default", options->is_default, "Make it what `run` and `chat` start with");
    command->callback([&cli, options] { cli.action = [&cli, options] { return Add(cli, *options); }; });
  }
  {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        cli.AddTo(group, "remove", "Remove a task mask, in place", "cmforge mask remove model.cmf code");
    options->model.AddTo(command);
    command->add_option("NAME", options->name, "The task's name")->required();
    command->callback([&cli, options] { cli.action = [&cli, options] { return Remove(cli, *options); }; });
  }
}

}  // namespace cmforge::cli
