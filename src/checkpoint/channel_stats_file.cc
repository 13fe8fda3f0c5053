// Reading and writing channel statistics.
#include "checkpoint/channel_stats_file.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "base/atomic_file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace cmforge {
namespace {

constexpr std::string_view kFormat = "cmforge-channel-stats";
constexpr std::string_view kRows = ".rows";

}  // namespace

Result<void> WriteChannelStats(const std::filesystem::path& path, const ChannelStats& stats) {
  Json header = {{"__metadata__", {{"format", kFormat}, {"tokens", std::to_string(stats.tokens)}}}};
  uint64_t end = 0;
  const auto describe = [&](const std::string& name, const std::vector<float>& values) {
    const uint64_t bytes = values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", {values.size()}}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  for (const auto& [name, mean] : stats.mean_square) describe(name, mean);
  for (const auto& [name, weight] : stats.row_weight) describe(name + std::string(kRows), weight);
  std::string text = DumpJson(header);
  text.resize(AlignUp(text.size(), 8), ' ');
  CMF_TRY(AtomicFile file, AtomicFile::Create(path));
  const Le<uint64_t> length(text.size());
  CMF_CHECK(file.Write(std::as_bytes(std::span(&length, 1))));
  CMF_CHECK(file.Write(AsBytes(text)));
  for (const auto* part : {&stats.mean_square, &stats.row_weight}) {
    for (const auto& [name, values] : *part) CMF_CHECK(file.Write(std::as_bytes(std::span(values))));
  }
  return file.Commit();
}

bool LooksLikeChannelStats(Bytes file) {
  return file.size() > 9 && LoadLe<Le<uint64_t>>(file.data()) <= kMaxSafetensorsHeader &&
         file[8] == std::byte{'{'};
}

Result<ChannelStats> ReadChannelStats(const std::filesystem::path& path) {
  CMF_TRY(const auto source, SafetensorsSource::Open(path));
  const auto broken = [&](std::string_view what) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: {}: make the statistics with `cmforge calibrate`", path.string(), what));
  };
  ChannelStats stats;
  stats.origin = path.string();
  bool is_ours = false;
  for (const auto& [key, value] : source->metadata()) {
    is_ours = is_ours || (key == "format" && value == kFormat);
    if (key == "tokens") std::from_chars(value.data(), value.data() + value.size(), stats.tokens);
  }
  if (!is_ours) return broken("no channel statistics");
  for (const TensorInfo& info : source->tensors()) {
    if (info.dtype != DType::kF32 || info.shape.size() != 1)
      return broken(fmt::format("'{}' is no vector of float32", info.name));
    CMF_TRY(const TensorView view, source->Read(info.name));
    std::vector<float>& values = info.name.ends_with(kRows)
                                     ? stats.row_weight[info.name.substr(0, info.name.size() - kRows.size())]
                                     : stats.mean_square[info.name];
    values.resize(view.bytes.size() / sizeof(float));
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
    for (const float value : values) {
      if (!(value >= 0) || std::isinf(value))
        return broken(fmt::format("'{}' holds {}, statistics are 0 or more", info.name, value));
    }
  }
  return stats;
}

}  // namespace cmforge
