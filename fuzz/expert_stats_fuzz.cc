// room: cmf
// Hostile expert statistics: what parses is written and parsed to the same counts.
#include <cstdlib>

#include "cmf/expert_stats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;  // NOLINT: a fuzz target
  const auto stats = cmf::ParseExpertStats({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!stats) return 0;
  const auto again = cmf::ParseExpertStats(cmf::DumpExpertStats(*stats), "fuzz");
  if (!again || again->counts != stats->counts) abort();
  return 0;
}
