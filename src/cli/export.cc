// cmforge export: any model as a Hugging Face folder.
#include "convert/export.h"

#include <algorithm>
#include <cstdio>

#include "checkpoint/side_files.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cmf/checked_source.h"
#include "convert/defrag_source.h"
#include "open/skill_overlay.h"
#include "open/tasks.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string output, dtype = "bf16", skill, task;
};

Result<std::vector<std::pair<std::string, MappedFile>>> SideFiles(const OpenedSource& source) {
  std::vector<std::pair<std::string, MappedFile>> files;
  if (source.format != SourceFormat::kCheckpoint) return files;
  std::error_code ignored;
  for (const char* name : kSideFiles) {
    const std::filesystem::path path = std::filesystem::path(source.path) / name;
    if (!std::filesystem::exists(path, ignored)) continue;
    CMF_TRY(MappedFile file, MappedFile::Open(path));
    files.emplace_back(name, std::move(file));
  }
  return files;
}

// The backbone or a skill over it, and what a task mask forbids as zeros.
Result<std::shared_ptr<const TensorSource>> Tensors(const OpenedSource& source, const Options& options,
                                                    const RunControl& control) {
  std::shared_ptr<const TensorSource> tensors = source.tensors;
  std::span<const cmf::SkillRecord> skills;
  if (source.cmf) {
    CMF_TRY(auto checked, cmf::CheckedSource::Of(*source.cmf));
    tensors = std::make_shared<const cmf::CheckedSource>(std::move(checked));
    skills = source.cmf->header().skills;
  }
  if (!options.skill.empty() && options.skill != "none") {
    CMF_TRY(tensors, MakeSkillOverlay(tensors, options.skill, skills));
    const auto record = std::find_if(skills.begin(), skills.end(),
                                     [&](const auto& skill) { return skill.id == options.skill; });
    if (options.task.empty() && record != skills.end() && record->input_mask_task) {
      control.Warn(
          fmt::format("{}: skill '{}' is used with task '{}', which was not asked for: --task {} writes its "
                      "zeros too",
                      source.path, options.skill, *record->input_mask_task, *record->input_mask_task));
    }
  }
  if (options.task.empty()) return tensors;
  CMF_TRY(const Task task, FindTask(source, options.task, control));
  if (task.active == nullptr) return tensors;
  CMF_TRY(auto zeroed, DefragSource::Zeroed(*tensors, *source.cmf->masks().Find(task.name), *source.config));
  struct Masked {  // the one reads from the other
    std::shared_ptr<const TensorSource> below;
    DefragSource source;
  };
  const auto masked = std::make_shared<const Masked>(Masked{std::move(tensors), std::move(zeroed)});
  return std::shared_ptr<const TensorSource>(masked, &masked->source);
}

Result<int> Export(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_CHECK(RequireTensors(source));
  if (!source.config) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: a bare tensor file says nothing about the model: name its folder, with config.json",
                    source.path));
  }
  if (source.cmf && source.cmf->is_skill_file()) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("{}: a standalone skill is not a model: apply it to its base first", source.path));
  }
  CMF_TRY(const auto side_files, SideFiles(source));
  CMF_TRY(auto tensors, Tensors(source, options, cli.Control()));
  ExportInput input;
  input.tensors = tensors.get();
  input.config = *source.config;
  input.chat = source.chat ? &*source.chat : nullptr;
  input.sampling = source.sampling;
  input.tokenizer_json = AsBytes(source.tokenizer_json());
  for (const auto& [name, file] : side_files) input.verbatim.emplace_back(name, file.bytes());
  ExportOptions write;
  write.dtype = options.dtype == "f32" ? DType::kF32 : options.dtype == "f16" ? DType::kF16 : DType::kBF16;
  const auto pool = cli.common.MakePool();
  CMF_TRY(const ExportReport report, ExportToHf(input, write, options.output, *pool, cli.Control()));
  if (cli.common.json) {
    std::vector<std::string> files;
    for (const auto& file : report.files) files.push_back(file.string());
    PrintJson(DumpJson(Json{{"output", options.output},
                            {"model_type", report.model_type},
                            {"dtype", options.dtype},
                            {"tensors", report.tensors},
                            {"bytes", report.bytes},
                            {"files", files}}));
  } else if (cli.common.verbosity >= 0) {
    fmt::print("{}: {}, {} tensors, {} of {}\n", options.output, report.model_type, report.tensors,
               HumanBytes(static_cast<double>(report.bytes)), options.dtype);
  }
  return kDone;
}

}  // namespace

void AddExport(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("export", "Write a model as a Hugging Face folder",
                              "cmforge export model.cmf --output ./model-hf --dtype bf16");
  options->model.AddTo(command);
  command->add_option("-o,--output", options->output, "The folder to make")->required();
  command->add_option("--dtype", options->dtype, "bf16, f16 or f32 (f32 loses nothing)")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->capture_default_str();
  command->add_option("--skill", options->skill,
                      "With the tensors of this skill in their places (default: none)");
  command->add_option("--task", options->task,
                      "With what this task mask switches off as zeros (default: none)");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Export(cli, *options); }; });
}

}  // namespace cmforge::cli
