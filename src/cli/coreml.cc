// cmforge coreml: Core ML models and ANEMLL package folders, described and executed.
#include "cli/coreml.h"

#include <algorithm>
#include <cstdio>

#include "cli/console.h"
#include "coreml/info.h"
#include "coreml/predict.h"

namespace cmforge::cli {
namespace {

// ---- info

std::string TypeOf(const coreml::FeatureInfo& feature) {
  std::string text = feature.type + " " + ShapeText(feature.shape);
  for (size_t at; (at = text.find("-1")) != text.npos;) text.replace(at, 2, "?");  // depends on the input
  if (!feature.enumerated.empty()) {
    std::vector<std::string> shapes;
    for (const Shape& shape : feature.enumerated) shapes.push_back(ShapeText(shape));
    return fmt::format("{} (one of {})", text, fmt::join(shapes, ", "));
  }
  if (feature.range.empty()) return text;
  std::vector<std::string> ranges;
  for (const mil::SizeRange& range : feature.range) {
    ranges.push_back(range.upper < 0 ? fmt::format("{} or more", range.lower)
                     : static_cast<uint64_t>(range.upper) == range.lower
                         ? fmt::format("{}", range.lower)
                         : fmt::format("{} to {}", range.lower, range.upper));
  }
  return fmt::format("{} (allowed: {})", text, fmt::join(ranges, " × "));
}

void PrintFeatures(const char* what, const std::vector<coreml::FeatureInfo>& features) {
  for (const coreml::FeatureInfo& feature : features)
    fmt::print("    {:<7} {:<28} {}\n", what, feature.name, TypeOf(feature));
}

void PrintModel(const coreml::ModelInfo& model) {
  fmt::print("{}: {}, specification version {}\n", model.path.string(), model.form,
             model.specification_version);
  for (const coreml::FunctionInfo& function : model.functions) {
    int64_t operations = 0;
    std::vector<std::pair<int64_t, std::string>> counts;
    for (const auto& [type, count] : function.operations) {
      operations += count;
      counts.emplace_back(-count, fmt::format("{} {}", count, type));
    }
    std::sort(counts.begin(), counts.end());
    std::vector<std::string> texts;
    for (const auto& [order, text] : counts) texts.push_back(text);
    fmt::print("  function {} ({}){}\n", function.name, function.opset,
               model.functions.size() > 1 && function.name == model.default_function ? ", the default" : "");
    PrintFeatures("input", function.inputs);
    PrintFeatures("state", function.states);
    PrintFeatures("output", function.outputs);
    fmt::print("    {} operations: {}\n", operations, fmt::join(texts, ", "));
  }
  for (const coreml::WeightFormInfo& form : model.weights) {
    fmt::print(
        "  weights {:<20} {:>5} tensors {:>13} elements {:>10}, {:.2f} bits each\n", form.form, form.tensors,
        form.elements, HumanBytes(static_cast<double>(form.bytes)),
        form.elements ? static_cast<double>(form.bytes) * 8 / static_cast<double>(form.elements) : 0.0);
  }
  if (model.weight_file_bytes > 0)
    fmt::print("  weight files: {}\n", HumanBytes(static_cast<double>(model.weight_file_bytes)));
}

void PrintMeta(const coreml::PackageMeta& meta) {
  fmt::print("{}: {}, context {}, batch {}, {} chunks, logits in {} parts\n", meta.name,
             meta.architecture.empty() ? "architecture not named" : meta.architecture, meta.context_length,
             meta.batch_size, meta.num_chunks, meta.split_lm_head);
  for (const coreml::StateMeta& state : meta.states)
    fmt::print("  state {} {} {}\n", state.name, state.dtype, ShapeText(state.shape));
}

Result<int> Info(const Cli& cli, const std::string& path) {
  CMF_TRY(const coreml::PackageInfo info, coreml::ReadInfo(path, cli.common.file_mode()));
  if (cli.common.json) {
    PrintJson(DumpJson(ToJson(info)));
    return kDone;
  }
  if (info.meta) PrintMeta(*info.meta);
  for (const coreml::ModelInfo& model : info.models) PrintModel(model);
  return kDone;
}

// ---- predict

struct PredictOptions {
  std::string model, function, output_dir, state_in, state_out, precision = "fp16";
  std::vector<std::string> inputs;
};

Json ArraysJson(const std::vector<coreml::PredictedArray>& arrays) {
  Json out = Json::array();
  for (const coreml::PredictedArray& array : arrays) {
    out.push_back({{"name", array.name},
                   {"type", DataTypeName(array.type.dtype)},
                   {"shape", array.type.shape},
                   {"file", array.file.string()}});
  }
  return out;
}

Result<int> Predict(const Cli& cli, const PredictOptions& options) {
  coreml::PredictRequest request;
  request.model = options.model;
  request.function = options.function;
  request.output_dir = options.output_dir;
  request.state_in = options.state_in;
  request.state_out = options.state_out;
  for (const std::string& pair : options.inputs) {
    const size_t at = pair.find('=');
    if (at == std::string::npos || at == 0 || at + 1 == pair.size())
      return Fail(ErrorKind::kUsage, fmt::format("input '{}': write NAME=FILE.npy", pair));
    if (!request.inputs.emplace(pair.substr(0, at), pair.substr(at + 1)).second)
      return Fail(ErrorKind::kUsage, fmt::format("input '{}': given twice", pair.substr(0, at)));
  }
  request.options.precision = options.precision == "f32" ? coreml::Precision::kF32 : coreml::Precision::kF16;
  request.options.pool = cli.common.MakePool();
  request.file_mode = cli.common.file_mode();
  const RunControl control = cli.Control();
  request.options.cancelled = control.cancelled;
  CMF_TRY(const coreml::PredictResult result, coreml::Predict(request));
  if (cli.common.json) {
    PrintJson(DumpJson(Json{{"function", result.function},
                            {"precision", options.precision},
                            {"outputs", ArraysJson(result.outputs)},
                            {"states", ArraysJson(result.states)}}));
    return kDone;
  }
  for (const auto* arrays : {&result.outputs, &result.states}) {
    for (const coreml::PredictedArray& array : *arrays)
      fmt::print("{} {} -> {}\n", array.name, TypeText(array.type), array.file.string());
  }
  return kDone;
}

}  // namespace

void AddCoreml(Cli& cli) {
  CLI::App* coreml = cli.app.add_subcommand("coreml", "Core ML models: write, check, describe, execute");
  coreml->require_subcommand(1);
  coreml->footer("Example:\n  cmforge coreml info model.mlpackage --json");

  AddCoremlConvert(cli, coreml);
  AddCoremlCheck(cli, coreml);
  AddCoremlLint(cli, coreml);

  auto path = std::make_shared<std::string>();
  CLI::App* info = cli.AddTo(coreml, "info", "Functions, inputs, states, operations and weights",
                             "cmforge coreml info qwen_FFN_PF_chunk_01of01.mlpackage");
  info->add_option("path", *path, "A .mlpackage, .mlmodelc or .mlmodel, or a folder with meta.yaml")
      ->required();
  info->callback([&cli, path] { cli.action = [&cli, path] { return Info(cli, *path); }; });

  auto options = std::make_shared<PredictOptions>();
  CLI::App* predict =
      cli.AddTo(coreml, "predict", "Execute one function on .npy files",
                "cmforge coreml predict model.mlpackage --function infer --input x=x.npy --output-dir out");
  predict->add_option("model", options->model, "A .mlpackage, .mlmodelc or .mlmodel")->required();
  predict->add_option("--function", options->function, "The function (default: the model's default)");
  predict->add_option("--input", options->inputs, "NAME=FILE.npy; once for every input");
  predict->add_option("--output-dir", options->output_dir, "Where NAME.npy of every output goes")->required();
  predict->add_option("--state-in", options->state_in, "Read the states from NAME.npy in this folder");
  predict->add_option("--state-out", options->state_out, "Write the states to NAME.npy in this folder");
  predict
      ->add_option("--precision", options->precision,
                   "fp16: round every result to its declared type; f32: keep floats wide")
      ->check(CLI::IsMember({"fp16", "f32"}));
  predict->callback([&cli, options] { cli.action = [&cli, options] { return Predict(cli, *options); }; });
}

}  // namespace cmforge::cli
