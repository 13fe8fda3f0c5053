// cmforge diff: what differs between two models, in a few lines for people and in full for scripts.
#include <cstdio>
#include <map>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cmf/hash64.h"
#include "convert/compare.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument a, b;
  bool values = false, exit_code = false;
};

constexpr size_t kMostShown = 24;  // lines of one kind, without --verbose

ComparedModel Compared(const OpenedSource& source) {
  ComparedModel model;
  model.tensors = source.tensors.get();
  model.config = source.config ? &*source.config : nullptr;
  model.chat = source.chat ? &*source.chat : nullptr;
  model.sampling = &source.sampling;
  model.tokenizer_json = AsBytes(source.tokenizer_json());
  model.file = source.cmf.get();
  return model;
}

Json TensorJson(const TensorInfo& info, uint64_t hash) {
  return {{"name", info.name},
          {"dtype", DTypeName(info.dtype)},
          {"shape", info.shape},
          {"hash", cmf::Hash64Hex(hash)}};
}

std::string WhatChanged(const TensorChange& change) {
  return change.a.shape != change.b.shape ? "shape" : change.a.dtype != change.b.dtype ? "encoding" : "bytes";
}

Json ChangesJson(const std::vector<TensorChange>& changes) {
  Json list = Json::array();
  for (const TensorChange& change : changes) {
    Json json = {{"name", change.a.name},
                 {"what", change.a.name == change.b.name ? WhatChanged(change) : "name"},
                 {"a", TensorJson(change.a, change.hash_a)},
                 {"b", TensorJson(change.b, change.hash_b)}};
    if (change.relative_error) json["relative_error"] = *change.relative_error;
    if (change.max_abs) json["max_abs"] = *change.max_abs;
    list.push_back(std::move(json));
  }
  return list;
}

// Values are JSON texts already.
Json ValuesJson(const std::vector<ValueChange>& changes) {
  Json list = Json::array();
  const auto value = [](const std::string& text) {
    if (text.empty()) return Json(nullptr);
    auto parsed = ParseJson(text, "value");
    return parsed ? *parsed : Json(text);
  };
  for (const ValueChange& change : changes)
    list.push_back({{"key", change.key}, {"a", value(change.a)}, {"b", value(change.b)}});
  return list;
}

Json NamesJson(const NameChanges& names) {
  return {
      {"same", names.same}, {"changed", names.changed}, {"only_a", names.only_a}, {"only_b", names.only_b}};
}

Json DiffJson(const ModelDiff& diff, const OpenedSource& a, const OpenedSource& b) {
  Json json = {
      {"a", a.path}, {"b", b.path}, {"identical", diff.identical()}, {"arch", ValuesJson(diff.arch)}};
  Json only_a = Json::array(), only_b = Json::array();
  for (const TensorInfo& info : diff.only_a) only_a.push_back(info.name);
  for (const TensorInfo& info : diff.only_b) only_b.push_back(info.name);
  json["tensors"] = {{"same", diff.same_tensors},
                     {"changed", ChangesJson(diff.changed)},
                     {"renamed", ChangesJson(diff.renamed)},
                     {"only_a", std::move(only_a)},
                     {"only_b", std::move(only_b)}};
  json["skills"] = NamesJson(diff.skills);
  json["masks"] = NamesJson(diff.masks);
  json["masks"]["bits"] = Json::array();
  for (const MaskChange& mask : diff.mask_changes) {
    json["masks"]["bits"].push_back({{"name", mask.name},
                                     {"neurons", mask.neurons},
                                     {"heads", mask.heads},
                                     {"gates", mask.gates},
                                     {"experts", mask.experts},
                                     {"meta", mask.meta}});
  }
  json["other"] = ValuesJson(diff.other);
  return json;
}

// Lines of one kind under a title, the long tail counted only.
class Section {
 public:
  Section(const Cli& cli, std::string title) : is_full_(cli.common.verbosity > 0), title_(std::move(title)) {}
  ~Section() {
    if (lines_ > kMostShown && !is_full_)
      fmt::print("  ... {} more: --verbose shows all\n", lines_ - kMostShown);
  }
  void Line(const std::string& text) {
    if (lines_ == 0) fmt::print("{}\n", title_);
    if (++lines_ <= kMostShown || is_full_) fmt::print("  {}\n", text);
  }

 private:
  bool is_full_;
  std::string title_;
  size_t lines_ = 0;
};

// "model.layers.*.mlp.up_proj.weight": names that differ in a number alone share a line.
std::string Pattern(std::string_view name) {
  std::string pattern;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool begins_number = (i == 0 || name[i - 1] == '.') && name[i] >= '0' && name[i] <= '9';
    if (!begins_number) {
      pattern += name[i];
      continue;
    }
    while (i + 1 < name.size() && name[i + 1] != '.') ++i;
    pattern += '*';
  }
  return pattern;
}

std::string Short(const std::string& text) {
  constexpr size_t kMost = 60;
  if (text.empty()) return "-";
  return text.size() <= kMost ? text : text.substr(0, kMost) + fmt::format("... ({} bytes)", text.size());
}

struct Group {
  int64_t count = 0;
  double relative_sum = 0, max_abs = 0;
  int64_t measured = 0;
};

void PrintChanges(const Cli& cli, const ModelDiff& diff) {
  std::map<std::string, Group> groups;
  for (const TensorChange& change : diff.changed) {
    const std::string how =
        change.a.shape != change.b.shape
            ? fmt::format("{} -> {}", ShapeText(change.a.shape), ShapeText(change.b.shape))
        : change.a.dtype != change.b.dtype
            ? fmt::format("{} -> {}", DTypeName(change.a.dtype), DTypeName(change.b.dtype))
            : "other bytes";
    Group& group = groups[fmt::format("{}: {}", Pattern(change.a.name), how)];
    ++group.count;
    if (!change.relative_error) continue;
    ++group.measured;
    group.relative_sum += *change.relative_error;
    group.max_abs = std::max(group.max_abs, *change.max_abs);
  }
  Section section(
      cli, fmt::format("tensors that changed: {}, {} are the same", diff.changed.size(), diff.same_tensors));
  for (const auto& [what, group] : groups) {
    std::string line = group.count > 1 ? fmt::format("{}, {} tensors", what, group.count) : what;
    if (group.measured > 0) {
      line += fmt::format(", {:.3g}% apart, at most {:.3g}",
                          100 * group.relative_sum / static_cast<double>(group.measured), group.max_abs);
    }
    section.Line(line);
  }
}

void PrintNames(const Cli& cli, const char* what, const NameChanges& names, const OpenedSource& a,
                const OpenedSource& b) {
  Section section(cli, what);
  for (const std::string& name : names.changed) section.Line(fmt::format("'{}' differs", name));
  for (const std::string& name : names.only_a) section.Line(fmt::format("'{}' only in {}", name, a.path));
  for (const std::string& name : names.only_b) section.Line(fmt::format("'{}' only in {}", name, b.path));
}

void PrintDiff(const Cli& cli, const ModelDiff& diff, const OpenedSource& a, const OpenedSource& b) {
  if (diff.identical()) {
    fmt::print("{} and {} are the same model: {} tensors\n", a.path, b.path, diff.same_tensors);
    return;
  }
  {
    Section section(cli, "architecture");
    for (const ValueChange& change : diff.arch)
      section.Line(fmt::format("{}: {} -> {}", change.key, Short(change.a), Short(change.b)));
  }
  if (diff.changed.empty()) fmt::print("{} tensors are the same\n", diff.same_tensors);
  PrintChanges(cli, diff);
  {
    Section section(cli, "the same payload under another name");
    for (const TensorChange& change : diff.renamed)
      section.Line(fmt::format("{} -> {}", change.a.name, change.b.name));
  }
  for (const auto& [list, path] : {std::pair{&diff.only_a, &a.path}, std::pair{&diff.only_b, &b.path}}) {
    Section section(cli, fmt::format("only in {}: {}", *path, list->size()));
    for (const TensorInfo& info : *list)
      section.Line(fmt::format("{} {} {}", info.name, DTypeName(info.dtype), ShapeText(info.shape)));
  }
  PrintNames(cli, "skills", diff.skills, a, b);
  PrintNames(cli, "masks", diff.masks, a, b);
  for (const MaskChange& mask : diff.mask_changes) {
    fmt::print("  '{}': {} neurons, {} heads, {} layer gates, {} experts differ{}\n", mask.name, mask.neurons,
               mask.heads, mask.gates, mask.experts, mask.meta ? ", and what is said about it" : "");
  }
  Section section(cli, "besides");
  for (const ValueChange& change : diff.other)
    section.Line(fmt::format("{}: {} -> {}", change.key, Short(change.a), Short(change.b)));
}

Result<int> Diff(const Cli& cli, const Options& options) {
  CMF_TRY(const OpenedSource a, options.a.Open(cli));
  CMF_TRY(const OpenedSource b, options.b.Open(cli));
  CMF_CHECK(RequireTensors(a));
  CMF_CHECK(RequireTensors(b));
  const auto pool = cli.common.MakePool();
  CMF_TRY(const ModelDiff diff,
          CompareModels(Compared(a), Compared(b), {.values = options.values}, *pool, cli.Control()));
  if (cli.common.json) {
    PrintJson(DumpJson(DiffJson(diff, a, b)));
  } else if (cli.common.verbosity >= 0) {
    PrintDiff(cli, diff, a, b);
  }
  return options.exit_code && !diff.identical() ? kNotRight : kDone;
}

}  // namespace

void AddDiff(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("diff", "Show what differs between two models",
                              "cmforge diff model-q8.cmf model-q4.cmf --values");
  command->add_option("A", options->a.path, "A .cmf file, a Hugging Face folder or a .safetensors file")
      ->required();
  command->add_option("B", options->b.path, "The other one")->required();
  command->add_flag("--values", options->values,
                    "Decode tensors that changed and say how far apart they are");
  command->add_flag("--exit-code", options->exit_code, "Exit with 1 when they differ");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Diff(cli, *options); }; });
}

}  // namespace cmforge::cli
