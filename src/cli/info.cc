// cmforge info: what is in a model, for people (sizes as bars) and for scripts.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <set>

#include "base/atomic_file.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/mask_json.h"
#include "cli/model_argument.h"
#include "cli/size_chart.h"
#include "cmf/hash64.h"
#include "cmf/header.h"
#include "cmf/signature.h"
#include "cmf/verify.h"
#include "convert/quant_plan.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  bool tensors = false, header = false;
  std::string svg;
};

struct Amount {
  int64_t tensors = 0, weights = 0;
  uint64_t bytes = 0;
  std::set<DType> dtypes;

  void Add(const TensorInfo& tensor) {
    ++tensors;
    weights += ElementCount(tensor.shape).value_or(0);
    bytes += tensor.nbytes;
    dtypes.insert(tensor.dtype);
  }
};

/// What tensors are for, and how those of each role are stored.
std::map<TensorRole, Amount> ByRole(const TensorSource& source) {
  std::map<TensorRole, Amount> roles;
  for (const TensorInfo& tensor : source.tensors()) roles[RoleOf(tensor.name, tensor.shape)].Add(tensor);
  return roles;
}

Json InfoJson(const OpenedSource& source) {
  Json json = {{"file", source.path}, {"format", SourceFormatName(source.format)}};
  const cmf::File* file = source.cmf.get();
  if (file) {
    json["version"] = 2;
    json["required_features"] = file->required_features();
    json["header"] = file->header().document;
    json["dir_hash"] = cmf::Hash64Hex(file->dir_hash());
    json["sections"] = Json::array();
    for (const cmf::Part& part : file->parts()) {
      for (const cmf::Section& section : part.sections()) {
        Json entry = {
            {"name", section.name}, {"offset", section.range.offset}, {"length", section.range.size}};
        if (file->parts().size() > 1) entry["file"] = part.path;
        json["sections"].push_back(std::move(entry));
      }
    }
  } else if (source.config) {
    json["header"] = {{"arch", cmf::ArchToJson(*source.config)}};
  }
  json["tensors"] = Json::array();
  for (const TensorInfo& tensor : source.tensors->tensors()) {
    Json entry = {{"name", tensor.name},
                  {"dtype", DTypeName(tensor.dtype)},
                  {"shape", tensor.shape},
                  {"nbytes", tensor.nbytes}};
    if (file) {
      const cmf::TensorPlace& place = file->PlaceOf(tensor);
      entry["offset"] = place.offset;
      entry["hash"] = cmf::Hash64Hex(place.hash);
      entry["shard"] = place.part + 1;
    }
    json["tensors"].push_back(std::move(entry));
  }
  json["roles"] = Json::object();
  for (const auto& [role, amount] : ByRole(*source.tensors)) {
    Json& entry = json["roles"][std::string(RoleName(role))];
    entry = {{"tensors", amount.tensors}, {"weights", amount.weights}, {"bytes", amount.bytes}};
    for (const DType dtype : amount.dtypes) entry["encodings"].push_back(DTypeName(dtype));
  }
  json["skipped"] =
      std::vector<std::string>(source.tensors->skipped().begin(), source.tensors->skipped().end());
  json["masks"] = Json::array();
  json["skills"] = Json::array();
  if (file) {
    if (!file->masks().empty()) json["default_task"] = file->masks().default_task;
    for (const cmf::TaskMask& mask : file->masks().masks)
      json["masks"].push_back(MaskMetaJson(mask, file->masks()));
    json["sparse_index"] = file->sparse_index().size();
    for (const cmf::SkillRecord& skill : file->header().skills)
      json["skills"].push_back(cmf::SkillToJson(skill));
  }
  return json;
}

int TerminalColumns() {
  winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

// One line about the model, for people.
std::string ArchitectureLine(const ModelConfig& c) {
  return fmt::format(
      "{}: {} layers, hidden {}, feed-forward {}, {} heads over {} of {}, vocabulary {}, context {}",
      c.arch_name, c.num_layers, c.hidden_size, c.intermediate_size, c.num_attention_heads, c.num_kv_heads,
      c.head_dim, c.vocab_size, c.max_position_embeddings);
}

// What can be said without reading the weights.
void PrintIntegrity(const cmf::File& file) {
  std::string problem, unhashed;
  size_t signatures = 0;
  std::string signer;
  for (const cmf::Part& part : file.parts()) {
    if (const auto status = cmf::CheckSections(part); !status && problem.empty())
      problem = status.error().message;
    for (const std::string_view name : cmf::SectionsWithoutHash(part)) {
      if (unhashed.find(name) == unhashed.npos)
        unhashed += fmt::format("{}{}", unhashed.empty() ? "" : ", ", name);
    }
    const auto signature = cmf::ReadSignature(part.path);
    if (!signature || !*signature) continue;
    ++signatures;
    signer = (*signature)->public_key;
  }
  std::string_view state = "header and sections are intact, `cmforge verify` checks the weights too";
  if (!unhashed.empty()) {
    unhashed.insert(0, "no hash is recorded of: ");
    state = unhashed;
  }
  if (!problem.empty()) state = problem;
  fmt::print("  directory hash {}; {}\n", cmf::Hash64Hex(file.dir_hash()), state);
  if (signatures > 0) {
    fmt::print("  signed by {}{}; `cmforge verify` checks it\n", signer,
               signatures < file.parts().size()
                   ? fmt::format(" in {} of {} files", signatures, file.parts().size())
                   : "");
  }
}

void PrintSummary(const OpenedSource& source) {
  fmt::print("{}: {}", source.path, SourceFormatName(source.format));
  const cmf::File* file = source.cmf.get();
  if (file && file->parts().size() > 1) fmt::print(", {} shards", file->parts().size());
  if (file && !file->is_complete())
    fmt::print(", one shard of {}", file->header().shard ? file->header().shard->count : 0);
  if (file && file->is_skill_file()) fmt::print(", a standalone skill");
  fmt::print("\n");
  if (source.config) {
    const ModelConfig& c = *source.config;
    fmt::print("  {}\n", ArchitectureLine(c));
    if (c.moe) {
      fmt::print("  experts: {} of {} a token, {} wide\n", c.moe->top_k, c.moe->num_experts,
                 c.moe->intermediate_size);
    }
    fmt::print("  head: {}, norm: {}{}\n", c.tie_word_embeddings ? "the embedding" : "its own",
               c.norm_style == NormStyle::kUnknown ? "unknown, so no engine runs it"
               : c.norm_style == NormStyle::kPlain ? "w"
                                                   : "1 + w",
               c.mtp ? ", with a multi-token prediction head" : "");
  }
  uint64_t total = 0;
  for (const TensorInfo& tensor : source.tensors->tensors()) total += tensor.nbytes;
  fmt::print("{}", ChartText(MakeSizeChart(source), TerminalColumns(), StdoutHasColour()));
  fmt::print("\n  {} tensors, {}", source.tensors->tensors().size(), HumanBytes(static_cast<double>(total)));
  if (!source.tensors->skipped().empty())
    fmt::print(", {} skipped as not part of the text model", source.tensors->skipped().size());
  fmt::print("\n  tokenizer: {}", source.tokenizer_json().empty()
                                      ? "none"
                                      : HumanBytes(static_cast<double>(source.tokenizer_json().size())));
  if (source.chat) {
    fmt::print(", chat template: {}, end tokens: [{}]",
               source.chat->chat_template.empty() ? "none (ChatML)" : "yes",
               fmt::join(source.chat->eos_token_ids, ", "));
  }
  fmt::print("\n");
  if (!file) return;
  for (const cmf::TaskMask& mask : file->masks().masks) {
    fmt::print("  task '{}'{}: {:.0f}% masked, quality {}\n", mask.name,
               &mask == file->masks().Initial() ? " (default)" : "", mask.sparsity * 100,
               mask.is_measured() ? DumpJson(mask.quality) : "not measured");
  }
  for (const cmf::SkillRecord& skill : file->header().skills) {
    fmt::print("  skill '{}'{}: {} layers{}\n", skill.id, skill.name.empty() ? "" : " (" + skill.name + ")",
               skill.layers.size(), skill.selection ? ", routable" : "");
  }
  if (!file->sparse_index().empty()) fmt::print("  sparse index: {} entries\n", file->sparse_index().size());
  PrintIntegrity(*file);
}

Result<int> Info(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  if (source.format == SourceFormat::kCoremlPackage) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: a Core ML package: `cmforge coreml info` describes it", source.path));
  }
  if (!options.svg.empty()) {
    CMF_CHECK(CheckOutput(source, options.svg));
    const std::string picture = ChartSvg(
        MakeSizeChart(source), std::filesystem::path(source.path).filename().string(),
        source.config ? ArchitectureLine(*source.config) : std::string(SourceFormatName(source.format)));
    CMF_CHECK(WriteFileAtomically(options.svg, AsBytes(picture)));
  }
  if (cli.common.json) {
    PrintJson(DumpJson(InfoJson(source)));
    return kDone;
  }
  if (options.header) {
    const Json header = source.cmf      ? source.cmf->header().document
                        : source.config ? Json{{"arch", cmf::ArchToJson(*source.config)}}
                                        : Json::object();
    fmt::print("{}\n", DumpJson(header, 2));
    return kDone;
  }
  if (options.tensors) {
    for (const TensorInfo& tensor : source.tensors->tensors()) {
      fmt::print("{:<10} {:>20} {:>12}  {}\n", DTypeName(tensor.dtype), ShapeText(tensor.shape),
                 tensor.nbytes, tensor.name);
    }
    for (const std::string& name : source.tensors->skipped())
      fmt::print("{:<10} {:>20} {:>12}  {}\n", "skipped", "", "", name);
    return kDone;
  }
  PrintSummary(source);
  return kDone;
}

}  // namespace

void AddInfo(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("info", "Show what a model file holds", "cmforge info model.cmf --tensors");
  options->model.AddTo(command);
  command->add_flag("--tensors", options->tensors, "List every tensor");
  command->add_flag("--header", options->header, "Print the header JSON");
  command->add_option("--svg", options->svg, "Draw where the bytes are into this SVG file too");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Info(cli, *options); }; });
}

}  // namespace cmforge::cli
