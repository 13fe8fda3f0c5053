// Names and the report.
#include "engine/profile.h"

namespace cmforge::engine {

std::string_view OperatorName(Operator op) {
  constexpr std::string_view kNames[kOperatorCount] = {
      "outside",      "other",          "embedding",         "norms and sums", "attention products",
      "attention",    "delta products", "delta conv, gates", "delta rule",     "short convolution",
      "feed-forward", "router",         "experts",           "shared expert",  "head"};
  return kNames[static_cast<size_t>(op)];
}

std::vector<Profile::Entry> Profile::Entries() const {
  std::vector<Entry> entries;
  for (size_t i = 1; i < kOperatorCount; ++i) {
    if (calls_[i] > 0) entries.push_back({static_cast<Operator>(i), calls_[i], seconds_[i]});
  }
  return entries;
}

}  // namespace cmforge::engine
