// Getting channel statistics.
#include "cli/calibration.h"

#include <algorithm>

#include "checkpoint/channel_stats_file.h"
#include "cli/input.h"
#include "generate/calibration.h"

namespace cmforge::cli {
namespace {

constexpr int64_t kUsualWindow = 512;
constexpr size_t kFewTokens = 64;

}  // namespace

Result<ChannelStats> CalibrateOnText(const Cli& cli, const OpenedSource& source,
                                     const CalibrationText& text) {
  CMF_TRY(const MappedFile file, MappedFile::Open(text.file));
  CMF_CHECK(CheckUtf8(AsText(file.bytes()), text.file));
  if (AsText(file.bytes()).find('\0') != std::string_view::npos) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{}: has bytes of zero: a text has none, and what `cmforge calibrate` wrote has more "
                    "than this file: give a text, or make the statistics again",
                    text.file));
  }
  CMF_CHECK(RequireTensors(source));
  CMF_CHECK(CheckRunnable(source));
  CMF_TRY(const int64_t most, ContextLength(*source.config, text.window));
  CalibrationOptions options;
  options.window = text.window > 0 ? text.window : std::min(kUsualWindow, most);
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  CMF_TRY(std::vector<TokenId> ids, tokenizer->Encode(AsText(file.bytes())));
  if (text.tokens > 0 && static_cast<int64_t>(ids.size()) > text.tokens)
    ids.resize(static_cast<size_t>(text.tokens));
  if (ids.empty()) return Fail(ErrorKind::kUsage, fmt::format("{}: no tokens: give a text", text.file));
  CMF_CHECK(CheckTokenIds(ids, *source.config));
  if (ids.size() < kFewTokens) {
    cli.Control().Warn(fmt::format("{}: {} tokens: statistics of so few mean little: give a longer text",
                                   text.file, ids.size()));
  }
  ComputeFlags compute;
  compute.compute = "exact";
  CMF_TRY(const auto model, LoadModel(cli, source, compute));
  CMF_TRY(ChannelStats stats, Calibrate(*model, *source.tensors, ids, options, cli.Control()));
  stats.origin = text.file;
  return stats;
}

Result<ChannelStats> LoadOrCalibrate(const Cli& cli, const OpenedSource& source, const std::string& file,
                                     int64_t tokens) {
  CMF_TRY(const MappedFile bytes, MappedFile::Open(file));
  if (LooksLikeChannelStats(bytes.bytes())) return ReadChannelStats(file);
  return CalibrateOnText(cli, source, {file, 0, tokens});
}

}  // namespace cmforge::cli
