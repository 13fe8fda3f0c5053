// cmforge coreml convert: any model becomes a Core ML package in the ANEMLL layout.
#include <cstdio>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/coreml.h"
#include "cli/model_argument.h"
#include "coreml/package_writer.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string output, form = "both";
  coreml::PackageOptions package;
  std::string lut_embeddings = "none", lut_ffn = "none", lut_lmhead = "none";
  std::string quant_embeddings, quant_ffn, quant_lmhead, lut_method, lut_ffn_mixed, calibrate;
};

/// Asked for and not written here must not pass unnoticed.
Result<void> RefuseCompression(const Options& o) {
  const std::pair<const char*, const std::string*> flags[] = {{"--lut-embeddings", &o.lut_embeddings},
                                                              {"--lut-ffn", &o.lut_ffn},
                                                              {"--lut-lmhead", &o.lut_lmhead},
                                                              {"--quant-embeddings", &o.quant_embeddings},
                                                              {"--quant-ffn", &o.quant_ffn},
                                                              {"--quant-lmhead", &o.quant_lmhead},
                                                              {"--lut-method", &o.lut_method},
                                                              {"--lut-ffn-mixed", &o.lut_ffn_mixed},
                                                              {"--calibrate", &o.calibrate}};
  for (const auto& [name, value] : flags) {
    if (value->empty() || *value == "none") continue;
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("{} {}: this build writes packages in fp16 only: leave the flag out", name, *value));
  }
  return {};
}

Json ReportJson(const coreml::PackageReport& report, const std::string& output) {
  Json json = {{"output", output}, {"architecture", report.architecture}};
  json["parts"] = Json::array();
  for (const coreml::WrittenPart& part : report.parts) {
    json["parts"].push_back(
        {{"name", part.name}, {"weight_bytes", part.weight_bytes}, {"functions", part.functions}});
  }
  json["files"] = report.files;
  json["warnings"] = report.warnings;
  return json;
}

Result<int> ConvertToCoreml(const Cli& cli, Options options) {
  CMF_CHECK(RefuseCompression(options));
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
  options.package.forms = options.form == "mlpackage"  ? coreml::PackageForms::kPackage
                          : options.form == "mlmodelc" ? coreml::PackageForms::kCompiled
                                                       : coreml::PackageForms::kBoth;
  options.package.tool = "cmforge " CMFORGE_VERSION;
  const auto pool = cli.common.MakePool();
  CMF_TRY(const coreml::PackageReport report,
          coreml::WritePackage(input, options.package, options.output, *pool, control));
  for (const std::string& warning : report.warnings) control.Warn(warning);
  if (cli.common.json) {
    PrintJson(DumpJson(ReportJson(report, options.output)));
  } else if (cli.common.verbosity >= 0) {
    for (const coreml::WrittenPart& part : report.parts) {
      fmt::print("{:<40} {:>10}  {}\n", part.name, HumanBytes(static_cast<double>(part.weight_bytes)),
                 fmt::join(part.functions, ", "));
    }
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
  command->add_option("-o,--output", options->output, "The folder to write")->required();
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
  command->add_option("--lut-embeddings", options->lut_embeddings, "Palette bits: none in this build");
  command->add_option("--lut-ffn", options->lut_ffn, "Palette bits: none in this build");
  command->add_option("--lut-lmhead", options->lut_lmhead, "Palette bits: none in this build");
  command->add_option("--lut-method", options->lut_method, "Not in this build");
  command->add_option("--lut-ffn-mixed", options->lut_ffn_mixed, "Not in this build");
  command->add_option("--quant-embeddings", options->quant_embeddings, "Not in this build");
  command->add_option("--quant-ffn", options->quant_ffn, "Not in this build");
  command->add_option("--quant-lmhead", options->quant_lmhead, "Not in this build");
  command->add_option("--calibrate", options->calibrate, "Not in this build");
  command->callback(
      [&cli, options] { cli.action = [&cli, options] { return ConvertToCoreml(cli, *options); }; });
}

}  // namespace cmforge::cli
