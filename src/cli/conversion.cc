// Flags, input and closing table of convert and requant.
#include "cli/conversion.h"

#include <cstdio>
#include <filesystem>
#include <map>

#include "cli/active_flags.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cli/source_state.h"
#include "cmf/checked_source.h"
#include "convert/defrag.h"
#include "convert/defrag_source.h"
#include "open/mask_files.h"
#include "quant/least_error.h"

namespace cmforge::cli {
namespace {

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
  if (report.resumed > 0) fmt::print("{} tensors were taken over from the interrupted run\n", report.resumed);
  if (report.files.size() > 1)
    fmt::print("{} shards, {} to {}\n", report.files.size(), report.files.front().string(),
               report.files.back().filename().string());
  fmt::print("{}: {} in {:.1f} s, {:.0f} million weights a second\n", output,
             HumanBytes(static_cast<double>(report.file_bytes)), report.seconds,
             static_cast<double>(report.weights) / report.seconds / 1e6);
}

Json ReportJson(const ConvertReport& report, const OpenedSource& source, const std::string& output) {
  std::vector<std::string> files;
  for (const auto& file : report.files) files.push_back(file.string());
  Json json = {{"output", output},           {"files", files},
               {"bytes", report.file_bytes}, {"weights", report.weights},
               {"changed", report.changed},  {"resumed", report.resumed},
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

// The header of a file made from `source`.
cmf::Header HeaderOf(const OpenedSource& source, const EncodingFlags& flags) {
  cmf::Header header;
  if (source.cmf) {
    header = source.cmf->header();
    header.shard.reset();
    header.quant_type.clear();
    if (header.provenance.is_null()) header.provenance = Json::object();
    if (header.provenance.is_object()) header.provenance["requant"] = flags.Provenance();
    return header;
  }
  header.config = *source.config;
  header.chat = source.chat;
  header.sampling = source.sampling;
  std::filesystem::path name(source.path);
  if (name.filename().empty()) name = name.parent_path();  // a trailing slash
  header.provenance = {
      {"tool", "cmforge " CMFORGE_VERSION},
      {"source_model", std::filesystem::absolute(name).lexically_normal().filename().string()}};
  if (flags.encoder != "standard") header.provenance["encoder"] = flags.encoder;
  return header;
}

// Says what a checkpoint's tokenizer will not do; one inside a .cmf is what it was.
Result<void> CheckTokenizer(const OpenedSource& source, const RunControl& control) {
  if (source.cmf) return {};
  if (source.tokenizer_json().empty()) {
    if (source.format == SourceFormat::kCheckpoint) return {};  // said when it was opened
    control.Warn(fmt::format(
        "{}: no tokenizer.json: the file takes token ids only, until a tokenizer.json lies beside it",
        source.path));
  } else if (const auto read = LoadTokenizer(source); !read && read.error().kind == ErrorKind::kUnsupported) {
    control.Warn(fmt::format("{}: the file will hold it as it is, and this program will take token ids only",
                             read.error().message));
  } else if (!read) {
    return Fail(read.error());  // a broken one would only be noticed by those who get the file
  }
  return {};
}

}  // namespace

void EncodingFlags::AddTo(CLI::App* command, const std::string& default_quant) {
  auto* option = command->add_option("--quant", quant,
                                     "Encoding of the matrices: f32, f16, bf16, q8, q8_2f, q4, q4t, q4tp, "
                                     "q2tp, q1, q1p, q1s, q1t, vbit, vbit_plain, or "
                                     "keep: as they are");
  if (!default_quant.empty()) option->default_str(default_quant);
  command->add_option("--tensor-quant", tensor_quant,
                      "GLOB=QUANT for some tensors; may be repeated, the last match wins");
  command->add_option("--mean-bits", mean_bits, "vbit: bits a weight, 3 to 8 (default 4.25)")
      ->check(CLI::Range(3.0, 8.0));
  command
      ->add_option("--encoder", encoder,
                   "standard, or mse: search each scale for the least squared error (q4, q4t, q4tp, vbit)")
      ->check(CLI::IsMember({"standard", "mse"}))
      ->capture_default_str();
  command->add_option("--moe-stats", moe_stats,
                      "vbit: router counts from `moe-stats`: experts that are chosen often get more bits");
}

Result<ConvertOptions> EncodingFlags::Parse(const OpenedSource& source, RoutingCounts& routing) const {
  ConvertOptions options;
  CMF_TRY(options.quant, ParseQuantPreset(quant));
  bool has_vbit = options.quant.name.starts_with("vbit");
  bool has_search = LeastErrorEncoder(options.quant.dtype) != nullptr;
  for (const std::string& rule : tensor_quant) {
    CMF_TRY(TensorQuantRule parsed, ParseTensorQuantRule(rule));
    has_vbit = has_vbit || parsed.preset.name.starts_with("vbit");
    has_search = has_search || LeastErrorEncoder(parsed.preset.dtype) != nullptr;
    options.tensor_quant.push_back(std::move(parsed));
  }
  for (const auto& [flag, is_given] :
       {std::pair{"mean-bits", mean_bits.has_value()}, {"moe-stats", !moe_stats.empty()}}) {
    if (is_given && !has_vbit)
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: nothing is vbit under --quant {}: leave it out", flag, quant));
  }
  options.encoders.least_error = encoder == "mse";
  if (options.encoders.least_error && !has_search) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format(
            "encoder: {} has its standard encoder only: mse is for q4, q4t, q4tp, q2tp, vbit, vbit_plain",
            quant));
  }
  if (!moe_stats.empty()) {
    CMF_TRY(cmf::ExpertStats stats, LoadExpertStats(moe_stats));
    routing = std::move(stats.counts);
    const auto experts =
        source.config ? cmf::ExpertsOfLayers(*source.tensors, *source.config) : std::map<int64_t, int64_t>();
    for (const auto& [layer, counts] : routing) {
      const auto has = experts.find(layer);
      const int64_t count = has == experts.end() ? 0 : has->second;
      if (count == static_cast<int64_t>(counts.size())) continue;
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: layer {} has counts of {} experts, {} has {}: count with this model",
                              moe_stats, layer, counts.size(), source.path, count));
    }
    options.encoders.routing = &routing;
  }
  options.encoders.mean_bits = mean_bits;
  return options;
}

Json EncodingFlags::Provenance() const {
  Json json = {{"tool", "cmforge " CMFORGE_VERSION}, {"quant", quant}};
  if (!tensor_quant.empty()) json["tensor_quant"] = tensor_quant;
  if (mean_bits) json["mean_bits"] = *mean_bits;
  if (encoder != "standard") json["encoder"] = encoder;
  return json;
}

Result<ConvertReport> ConvertSource(const Cli& cli, const OpenedSource& source, const EncodingFlags& flags,
                                    const ConversionExtras& extras, const std::string& output) {
  CMF_CHECK(RequireTensors(source));
  const RunControl control = cli.Control();
  const SourceState state(source, extras.defrag.empty() ? std::vector<std::filesystem::path>()
                                                        : std::vector<std::filesystem::path>{extras.defrag});
  RoutingCounts routing;
  CMF_TRY(ConvertOptions options, flags.Parse(source, routing));
  options.shard_max_gb = extras.shard_max_gb;
  options.resume = extras.resume;
  if (!extras.identity.empty())
    options.identity = fmt::format("cmforge {}\n{}\n{}", CMFORGE_VERSION, state.Text(), extras.identity);
  options.before_commit = [&state] { return state.CheckUnchanged(); };
  if (!source.config) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: a bare tensor file says nothing about the model: name its folder, with config.json",
                    source.path));
  }
  CMF_CHECK(CheckOutput(source, output));
  if (!extras.identity.empty()) CMF_CHECK(CheckWorkNames(source, output, {".part", ".manifest"}));
  ConvertInput input;
  input.tensors = source.tensors.get();
  input.header = HeaderOf(source, flags);
  std::optional<cmf::CheckedSource> checked;
  if (source.cmf) {
    CMF_TRY(checked, cmf::CheckedSource::Of(*source.cmf));
    input.tensors = &*checked;
    input.masks = &source.cmf->masks();
    input.sparse_index = !source.cmf->sparse_index().empty();
  }
  cmf::MaskCatalog read_masks;
  if (!extras.masks.folder.empty()) {
    CMF_TRY(read_masks, ReadMaskFolder(extras.masks.folder, cmf::MaskGeometry::Of(*source.config)));
    input.masks = &read_masks;
  }
  if (extras.masks.sparse_index && (input.masks == nullptr || input.masks->empty()))
    return Fail(ErrorKind::kUsage, "--sparse-index: there are no masks to index: give --masks DIR");
  input.sparse_index = input.sparse_index || extras.masks.sparse_index;
  if (!extras.no_tokenizer) {
    input.tokenizer_json = AsBytes(source.tokenizer_json());
    CMF_CHECK(CheckTokenizer(source, control));
  }
  if (const auto skipped = source.tensors->skipped(); !skipped.empty()) {
    control.Warn(fmt::format("{}: {} tensors are not part of the text model and were skipped, '{}' first",
                             source.path, skipped.size(), skipped[0]));
    for (const std::string& tensor : skipped) control.Info(fmt::format("skipped {}", tensor));
  }
  const auto pool = cli.common.MakePool();
  if (extras.defrag.empty()) return ConvertToCmf(input, options, output, *pool, control);

  const std::filesystem::path folder(extras.defrag);
  std::error_code ignored;
  std::unique_ptr<TensorSource> overlay;
  if (std::filesystem::exists(folder / "tensors", ignored) ||
      !std::filesystem::exists(folder / "ffn_keep.npy", ignored)) {
    CMF_TRY(overlay, OverlayNpyFolder(*input.tensors, folder / "tensors"));
  }
  const TensorSource* const baked = overlay ? overlay.get() : input.tensors;
  CMF_TRY(FfnKeep keep, KeepFromFolder(extras.defrag, *baked, input.header.config, *pool, control));
  const FfnKeepSummary summary = Summarize(keep, *baked);
  CMF_TRY(const DefragSource cut, DefragSource::Create(*baked, std::move(keep)));
  input.tensors = &cut;
  input.masks = nullptr;  // the mask is all ones now
  input.header.config.intermediate_size = summary.widest_after;
  for (cmf::SkillRecord& skill : input.header.skills) skill.input_mask_task.reset();
  input.header.provenance["defrag"] = Json::parse(DefragProvenance(
      summary, (folder.filename().empty() ? folder.parent_path() : folder).filename().string()));
  return ConvertToCmf(input, options, output, *pool, control);
}

void PrintReport(const Cli& cli, const ConvertReport& report, const OpenedSource& source,
                 const std::string& output) {
  if (cli.common.json) {
    PrintJson(DumpJson(ReportJson(report, source, output)));
  } else if (cli.common.verbosity >= 0) {
    PrintTable(report, output);
  }
}

}  // namespace cmforge::cli
