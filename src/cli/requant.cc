// cmforge requant: a model in other encodings, as a new file or in the very bytes of the old one.
#include <filesystem>

#include "cli/conversion.h"
#include "cli/model_argument.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string output;
  bool in_place = false;
  EncodingFlags encodings;
};

Result<void> CheckOptions(Options& options) {
  if (options.in_place == !options.output.empty()) {
    return Fail(ErrorKind::kUsage, options.in_place
                                       ? "output: --in-place writes no other file: give one of the two"
                                       : "output: name a file with --output, or say --in-place");
  }
  if (options.encodings.quant.empty()) {
    if (options.encodings.tensor_quant.empty())
      return Fail(ErrorKind::kUsage,
                  "quant: name the encoding with --quant, or some tensors with --tensor-quant");
    options.encodings.quant = "keep";
  }
  return {};
}

Result<ConvertReport> InPlace(const Cli& cli, const OpenedSource& source, const Options& options) {
  if (options.model.path.empty() || !source.cmf) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: only a .cmf file can be rewritten in place: use --output", source.path));
  }
  const RunControl control = cli.Control();
  RoutingCounts routing;
  CMF_TRY(const ConvertOptions convert, options.encodings.Parse(source, routing));
  const auto pool = cli.common.MakePool();
  CMF_TRY(const ConvertReport report,
          RequantInPlace(options.model.path, convert, options.encodings.Provenance(), *pool, control));
  for (const cmf::Part& part : source.cmf->parts()) {
    std::error_code ignored;
    if (report.changed > 0 && std::filesystem::exists(part.path + ".sig", ignored))
      control.Warn(fmt::format("{}.sig: signs the bytes from before: sign the file again", part.path));
  }
  return report;
}

Result<int> Requant(const Cli& cli, Options options) {
  CMF_CHECK(CheckOptions(options));
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_CHECK(RequireTensors(source));
  if (options.in_place) {
    CMF_TRY(const ConvertReport report, InPlace(cli, source, options));
    PrintReport(cli, report, source, options.model.path);
  } else {
    CMF_TRY(const ConvertReport report, ConvertSource(cli, source, options.encodings, {}, options.output));
    PrintReport(cli, report, source, options.output);
  }
  return kDone;
}

}  // namespace

void AddRequant(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("requant", "Store a model in other encodings",
                              "cmforge requant model.cmf --quant q4tp --in-place");
  options->model.AddTo(command);
  command->add_option("-o,--output", options->output,
                      "The .cmf file to write; an older one of that name is replaced");
  command->add_flag(
      "--in-place", options->in_place,
      "Rewrite the file itself: offsets and length stay, and tensors that would not fit keep their "
      "encoding. Interrupted, it is valid and partly done. Not for a file that is in use");
  options->encodings.AddTo(command, "");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Requant(cli, *options); }; });
}

}  // namespace cmforge::cli
