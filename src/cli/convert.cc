// cmforge convert: a checkpoint (or any other source) becomes a .cmf file.
#include <cstdio>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "convert/converter.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string output, quant = "q8";
  std::vector<std::string> tensor_quant;
  double mean_bits = 4.25;
  bool no_tokenizer = false;
};

void PrintTable(const ConvertReport& report, const std::string& output) {
  fmt::print("{:<10} {:>8} {:>12} {:>10} {:>12}\n", "encoding", "tensors", "weights", "bytes", "bits/weight");
  for (const auto& [dtype, type] : report.types) {
    fmt::print("{:<10} {:>8} {:>12} {:>10} {:>12.2f}\n", DTypeName(dtype), type.tensors, type.weights,
               HumanBytes(static_cast<double>(type.bytes)),
               type.weights ? static_cast<double>(type.bytes) * 8 / static_cast<double>(type.weights) : 0.0);
  }
  for (const auto& fallback : report.fallbacks) {
    fmt::print("{}: {} instead of {}: {}\n", fallback.tensor, DTypeName(fallback.used),
               DTypeName(fallback.wanted), fallback.reason);
  }
  fmt::print("{}: {} in {:.1f} s, {:.0f} million weights a second\n", output,
             HumanBytes(static_cast<double>(report.file_bytes)), report.seconds,
             static_cast<double>(report.weights) / report.seconds / 1e6);
}

Json ReportJson(const ConvertReport& report, const OpenedSource& source, const std::string& output) {
  Json json = {{"output", output},
               {"bytes", report.file_bytes},
               {"weights", report.weights},
               {"seconds", report.seconds}};
  json["encodings"] = Json::object();
  for (const auto& [dtype, type] : report.types) {
    json["encodings"][std::string(DTypeName(dtype))] = {
        {"tensors", type.tensors}, {"weights", type.weights}, {"bytes", type.bytes}};
  }
  json["fallbacks"] = Json::array();
  for (const auto& f : report.fallbacks) {
    json["fallbacks"].push_back({{"tensor", f.tensor},
                                 {"wanted", DTypeName(f.wanted)},
                                 {"used", DTypeName(f.used)},
                                 {"reason", f.reason}});
  }
  json["skipped"] =
      std::vector<std::string>(source.tensors->skipped().begin(), source.tensors->skipped().end());
  return json;
}

Result<int> Convert(const Cli& cli, const Options& options) {
  const RunControl control = cli.Control();
  ConvertOptions convert;
  CMF_TRY(convert.quant, ParseQuantPreset(options.quant));
  for (const std::string& rule : options.tensor_quant) {
    CMF_TRY(TensorQuantRule parsed, ParseTensorQuantRule(rule));
    convert.tensor_quant.push_back(std::move(parsed));
  }
  convert.mean_bits = options.mean_bits;
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  if (!source.config) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: a bare tensor file says nothing about the model: name its folder, with config.json",
                    source.path));
  }
  CMF_CHECK(CheckOutput(source, options.output));
  ConvertInput input;
  input.tensors = source.tensors.get();
  input.config = *source.config;
  input.chat = source.chat;
  input.sampling = source.sampling;
  if (!options.no_tokenizer) {
    input.tokenizer_json = AsBytes(source.tokenizer_json());
    if (input.tokenizer_json.empty()) {
      control.Warn(fmt::format(
          "{}: no tokenizer.json: the file takes token ids only, until a tokenizer.json lies beside it",
          source.path));
    } else if (const auto read = LoadTokenizer(source); !read && read.error().kind == ErrorKind::kUnsupported) {
      control.Warn(fmt::format("{}: the file will hold it as it is, and this program will take token ids only",
                               read.error().message));
    } else if (!read) {
      return Fail(read.error());  // a broken one would only be noticed by those who get the file
    }
  }
  std::filesystem::path name(source.path);
  if (name.filename().empty()) name = name.parent_path();  // a trailing slash
  input.provenance = {
      {"tool", "cmforge " CMFORGE_VERSION},
      {"source_model", std::filesystem::absolute(name).lexically_normal().filename().string()}};
  if (const auto skipped = source.tensors->skipped(); !skipped.empty()) {
    control.Warn(fmt::format("{}: {} tensors are not part of the text model and were skipped, '{}' first",
                             source.path, skipped.size(), skipped[0]));
    for (const std::string& tensor : skipped) control.Info(fmt::format("skipped {}", tensor));
  }
  const auto pool = cli.common.MakePool();
  CMF_TRY(const ConvertReport report, ConvertToCmf(input, convert, options.output, *pool, control));
  if (cli.common.json) {
    PrintJson(DumpJson(ReportJson(report, source, options.output)));
  } else if (cli.common.verbosity >= 0) {
    PrintTable(report, options.output);
  }
  return kDone;
}

}  // namespace

void AddConvert(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("convert", "Package a checkpoint as a .cmf file",
                              "cmforge convert --model ./Qwen3-0.6B --quant q4t --output qwen3.cmf");
  command->add_option("--model", options->model.path, "A Hugging Face folder, or any other model")
      ->required();
  command->add_option("-o,--output", options->output, "The .cmf file to write")->required();
  command
      ->add_option("--quant", options->quant,
                   "Encoding of the matrices: f32, f16, bf16, q8, q8_2f, q4, q4t, q4tp, q2tp, q1, q1p, q1s, "
                   "q1t, vbit, vbit_plain")
      ->capture_default_str();
  command->add_option("--tensor-quant", options->tensor_quant,
                      "GLOB=QUANT for some tensors; may be repeated, the last match wins");
  command->add_option("--mean-bits", options->mean_bits, "vbit: bits a weight, 3 to 8")
      ->check(CLI::Range(3.0, 8.0))
      ->capture_default_str();
  command->add_flag("--no-tokenizer", options->no_tokenizer, "Leave the tokenizer out");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Convert(cli, *options); }; });
}

}  // namespace cmforge::cli
