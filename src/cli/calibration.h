// Channel statistics for commands: from a text that the model reads, or from a file made before.
#pragma once

#include <string>

#include "cli/command.h"
#include "cli/model_argument.h"
#include "quant/channel_stats.h"

namespace cmforge::cli {

struct CalibrationText {
  std::string file;
  int64_t window = 0;  // tokens; 0: 512, or the model's own limit if that is less
  int64_t tokens = 0;  // only the first so many; 0: all
};

/// The model reads the text in --compute exact: the same bits whatever the threads.
/// Fails: as LoadModel, LoadTokenizer and Calibrate; kLimit for a window beyond the model's.
Result<ChannelStats> CalibrateOnText(const Cli& cli, const OpenedSource& source, const CalibrationText& text);

/// `file` may be a text, of which `tokens` are read, or statistics. Fails: as the above and ReadChannelStats.
Result<ChannelStats> LoadOrCalibrate(const Cli& cli, const OpenedSource& source, const std::string& file,
                                     int64_t tokens);

}  // namespace cmforge::cli
