// The commands around whole files. Only main needs to know a command, so that a new one compiles main and
// itself; older ones stand in command.h.
#pragma once

#include "cli/command.h"

namespace cmforge::cli {

void AddSign(Cli& cli);
void AddShard(Cli& cli);
void AddUnshard(Cli& cli);
void AddCompact(Cli& cli);
void AddDiff(Cli& cli);
void AddExport(Cli& cli);
void AddDefrag(Cli& cli);
void AddCalibrate(Cli& cli);

}  // namespace cmforge::cli
