// cmforge coreml convert: any model becomes a Core ML package in the ANEMLL layout.
#include <cstdio>

#include "cli/calibration.h"
#include "cli/compression_flags.h"
#include "cli/console.h"
#include "cli/coreml.h"
#include "cli/model_argument.h"
#include "cli/source_state.h"
#include "coreml/package_writer.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string output, form = "both";
  coreml::PackageOptions package;
  CompressionFlags compression;
  std::string identity;  // of the command line
};

constexpr int64_t kCalibrationTokens = 4096;  // of a text; see the help of --calibrate

Json ReportJson(const coreml::PackageReport& report, const std::string& output) {
  Json json = {{"output", output}, {"architecture", report.architecture}};
  json["parts"] = Json::array();
  for (const coreml::WrittenPart& part : report.parts) {
    json["parts"].push_back({{"name", part.name},
                             {"weight_bytes", part.weight_bytes},
                             {"functions", part.functions},
                             {"form", part.form},
                             {"bits_per_weight", part.bits},
                             {"relative_error", part.relative_error}});
  }
  json["files"] = report.files;
  json["resumed"] = report.resumed;
  json["warnings"] = report.warnings;
  return json;
}

Result<int> ConvertToCoreml(const Cli& cli, Options options) {
  coreml::PackageOptions& package = options.package;
  CMF_TRY(package.compression, options.compression.Parse());
  const RunControl control = cli.Control();
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_CHECK(RequireTensors(source));
  if (!source.config) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: a bare tensor file says nothing about the model: name its folder, with config.json",
                    source.path));
  }
  CMF_CHECK(CheckOutput(source, options.output));
  CMF_CHECK(CheckWorkNames(source, options.output, {".part"}));
  coreml::PackageSource input;
  input.tensors = source.tensors.get();
  input.config = *source.config;
  input.chat = source.chat;
  input.sampling = source.sampling;
  input.tokenizer_json = source.tokenizer_json();
  if (source.format == SourceFormat::kCheckpoint) input.checkpoint = source.path;
  std::filesystem::path name(source.path);
  if (name.filename().empty()) name = name.parent_path();  // a trailing slash
  name = std::filesystem::absolute(name).lexically_normal();
  input.name = source.format == SourceFormat::kCmf ? name.stem().string() : name.filename().string();
  package.forms = options.form == "mlpackage"  ? coreml::PackageForms::kPackage
                  : options.form == "mlmodelc" ? coreml::PackageForms::kCompiled
                                               : coreml::PackageForms::kBoth;
  package.tool = "cmforge " CMFORGE_VERSION;
  const SourceState state(source);
  package.identity = fmt::format("cmforge {}\n{}\n{}", CMFORGE_VERSION, state.Text(), options.identity);
  package.before_commit = [&state] { return state.CheckUnchanged(); };
  ChannelStats statistics;
  if (package.compression.method == coreml::PaletteMethod::kActivation) {
    CMF_TRY(statistics, LoadOrCalibrate(cli, source, options.compression.calibrate, kCalibrationTokens));
    package.compression.statistics = &statistics;
  }
  const auto pool = cli.common.MakePool();
  CMF_TRY(const coreml::PackageReport report,
          coreml::WritePackage(input, package, options.output, *pool, control));
  for (const std::string& warning : report.warnings) control.Warn(warning);
  if (cli.common.json) {
    PrintJson(DumpJson(ReportJson(report, options.output)));
  } else if (cli.common.verbosity >= 0) {
    for (const coreml::WrittenPart& part : report.parts) {
      fmt::print("{:<40} {:>10}  {}{}\n", part.name, HumanBytes(static_cast<double>(part.weight_bytes)),
                 fmt::join(part.functions, ", "),
                 part.form == "fp16" ? ""
                                     : fmt::format("; {}: {:.2f} bits a weight, relative error {:.4f}",
                                                   part.form, part.bits, part.relative_error));
    }
    if (report.resumed > 0)
      fmt::print("{} matrices were taken over from the interrupted run\n", report.resumed);
    fmt::print("{}: {} package, with {}\n", options.output, report.architecture,
               fmt::join(report.files, ", "));
  }
  return kDone;
}

}  // namespace

void AddCoremlConvert(Cli& cli, CLI::App* parent) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      cli.AddTo(parent, "convert", "Write a Core ML package (ANEMLL layout)",
                "cmforge coreml convert --model ./Qwen3-0.6B --output ./qwen3-ane --context-length "
                "1024 --chunks 2");
  coreml::PackageOptions& package = options->package;
  const auto count = CLI::Range(int64_t{1}, int64_t{1} << 30);
  command->add_option("--model", options->model.path, "A Hugging Face folder or a .cmf file")->required();
  command
      ->add_option("-o,--output", options->output,
                   "The folder to write; an older package of that name is replaced")
      ->required();
  command->add_option("--context-length", package.graph.context_length, "Positions of the caches")
      ->check(count)
      ->capture_default_str();
  command->add_option("--batch-size", package.graph.batch_size, "Tokens of a prefill call")
      ->check(count)
      ->capture_default_str();
  command->add_option("--chunks", package.graph.num_chunks, "Models the layers are split into")
      ->check(count)
      ->capture_default_str();
  command->add_option("--split-lm-head", package.graph.split_lm_head, "Outputs the logits are split into")
      ->check(count)
      ->capture_default_str();
  command->add_option("--prefix", package.prefix, "Of the parts' names (default: the family's)");
  command
      ->add_option("--form", options->form,
                   "mlpackage, mlmodelc or both; meta.yaml names the compiled form where there is one")
      ->check(CLI::IsMember({"mlpackage", "mlmodelc", "both"}))
      ->capture_default_str();
  options->compression.AddTo(command);
  command->add_flag(
      "--resume", package.resume,
      "Go on with a conversion that was interrupted or killed, and keep the work if this one is");
  command->callback([&cli, options, command] {
    cli.action = [&cli, options, command] {
      options->identity = CommandIdentity(*command);
      return ConvertToCoreml(cli, *options);
    };
  });
}

}  // namespace cmforge::cli
