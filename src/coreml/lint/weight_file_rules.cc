// Weight files against what a program takes from them. That an entry is there and has the right size is told with the
// operation that wants it (program_rules.cc).
#include <set>

#include "coreml/lint/subject.h"

namespace cmforge::coreml::lint {
namespace {

struct User {
  const FunctionView* function = nullptr;
  const mil::Operation* op = nullptr;
};

/// By offset: the first that uses the entry there.
using Entries = std::map<uint64_t, User>;

/// Readers that list a file know the entries that its header counts, and no others.
void CheckCounted(const ModelSubject& model, const std::string& name, const mil::BlobFile& file,
                  const Entries& used, Findings& findings) {
  std::optional<std::set<uint64_t>> counted;  // nothing: entries do not follow one another as usual
  if (const auto entries = file.Entries()) {
    counted.emplace();
    for (const mil::BlobEntry& entry : *entries) counted->insert(entry.offset);
  }
  uint64_t index = 0, outside = 0;
  const std::pair<const uint64_t, User>* first = nullptr;
  for (const auto& entry : used) {
    if (counted ? counted->contains(entry.first) : index++ < file.declared_entries()) continue;
    if (outside++ == 0) first = &entry;
  }
  if (!first) return;
  findings.Add(rules::kWeightFile, model, *first->second.function, *first->second.op,
               fmt::format("{}: its header counts {} entries, the one at {} is behind them, as {} of the {} "
                           "that are used",
                           name, file.declared_entries(), first->first, outside, used.size()));
}

}  // namespace

void CheckWeightFiles(const ModelSubject& model, Findings& findings) {
  std::map<std::string, Entries> used;  // by file
  for (const FunctionView& function : model.functions) {
    for (const mil::Operation& op : function.operations()) {
      ForEachValue(op, [&](const auto&, const mil::Value& value) {
        if (const mil::BlobRef* blob = value.blob())
          used[blob->file].try_emplace(blob->offset, User{&function, &op});
      });
    }
  }
  for (auto& [name, entries] : used) {
    const auto file = model.package->weights->File(name);
    if (!file) continue;
    std::erase_if(entries, [&](const auto& entry) { return !(*file)->Entry(entry.first); });
    CheckCounted(model, name, **file, entries, findings);
    for (const auto& [offset, user] : entries) {
      if ((*file)->Entry(offset)->data.empty())
        findings.Add(rules::kWeightFile, model, *user.function, *user.op,
                     fmt::format("{}: entry at {}: it holds no numbers", name, offset));
    }
  }
}

}  // namespace cmforge::coreml::lint
