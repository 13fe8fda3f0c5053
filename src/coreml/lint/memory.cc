// Estimates of memory.
#include "coreml/lint/memory.h"

#include <set>

#include "coreml/stored_form.h"

namespace cmforge::coreml::lint {
namespace {

constexpr uint64_t kParameterBytes = 64;  // smaller constants are parameters of operations

/// Bits that an index takes once loaded: 0.47 GB with 2 bits, 0.81 with 3, 0.84 with 4 for the same layers.
double LoadedBits(int64_t index_bits) {
  if (index_bits <= 2) return 4 * 0.47 / 0.84;
  return index_bits <= 4 ? 4 : 8;
}

double LoadedBytes(const StoredForm& form) {
  const auto elements = static_cast<double>(form.elements());
  switch (form.kind) {
    case StoredForm::Kind::kDense:
      return elements * static_cast<double>(form.bits) / 8;
    case StoredForm::Kind::kPalette:
      return elements * LoadedBits(form.bits) / 8 + static_cast<double>(form.table_bytes);
    case StoredForm::Kind::kScaled:
    case StoredForm::Kind::kSparse:
      return static_cast<double>(form.stored_bytes);
  }
  return 0;
}

/// Calls `visit` for every weight that is no table, places in files once. A palette behind a scale is one weight.
template <class Visit>
void ForEachWeight(const FunctionView& function, std::set<std::pair<std::string, uint64_t>>& seen,
                   Visit visit) {
  for (const mil::Operation& op : function.operations()) {
    const auto form = FormOf(function, op);
    if (!form || form->stored_bytes < kParameterBytes || IsTable(function, op)) continue;
    const auto& users = function.Users(op.outputs[0].name);
    if (!users.empty() && IsConstantOperation(*users[0].op)) continue;  // counted with what it feeds
    if (form->place && !seen.insert({form->place->file, form->place->offset}).second) continue;
    visit(*form);
  }
}

}  // namespace

uint64_t WiredBytes(const FunctionView& function) {
  double bytes = 0;
  std::set<std::pair<std::string, uint64_t>> seen;
  ForEachWeight(function, seen, [&](const StoredForm& form) { bytes += LoadedBytes(form); });
  return static_cast<uint64_t>(bytes);
}

uint64_t StoredBytes(const ModelSubject& model) {
  uint64_t bytes = 0;
  std::set<std::pair<std::string, uint64_t>> seen;
  for (const FunctionView& function : model.functions)
    ForEachWeight(function, seen, [&](const StoredForm& form) { bytes += form.stored_bytes; });
  return bytes;
}

}  // namespace cmforge::coreml::lint
