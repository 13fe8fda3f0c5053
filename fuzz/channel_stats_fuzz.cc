// room: checkpoint
// A hostile file of channel statistics: what is read is finite, and is written and read to the same numbers.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "checkpoint/channel_stats_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;  // NOLINT: a fuzz target
  static const auto path =
      std::filesystem::temp_directory_path() / fmt::format("channel_stats_fuzz.{}", getpid());
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<long>(size));
  const auto stats = ReadChannelStats(path);
  std::filesystem::remove(path);
  if (!stats) return 0;
  for (const auto* part : {&stats->mean_square, &stats->row_weight}) {
    for (const auto& [name, values] : *part) {
      for (const float value : values) {
        if (!std::isfinite(value) || value < 0) abort();
      }
    }
  }
  if (!WriteChannelStats(path, *stats)) abort();
  const auto again = ReadChannelStats(path);
  std::filesystem::remove(path);
  if (!again || again->mean_square != stats->mean_square || again->row_weight != stats->row_weight ||
      again->tokens != stats->tokens)
    abort();
  return 0;
}
