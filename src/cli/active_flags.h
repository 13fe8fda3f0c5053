// Which parts of a model's weights take part in a run.
#pragma once

#include <memory>
#include <string>

#include "cli/command.h"
#include "cmf/expert_stats.h"
#include "model/language_model.h"
#include "open/open_source.h"

namespace cmforge::cli {

struct ActiveFlags {
  std::string expert_stats;  // a file of counts; empty: every expert may be chosen
  double cover = 0.95;

  void AddTo(CLI::App* command);

  /// What a task mask (null: none) and the flags restrict together; null when nothing is restricted.
  Result<std::shared_ptr<const ActiveSet>> Make(const OpenedSource& source,
                                                std::shared_ptr<const ActiveSet> task) const;
};

/// Expert statistics from a file. Fails: as ReadTextFile and ParseExpertStats.
Result<cmf::ExpertStats> LoadExpertStats(const std::string& path);

}  // namespace cmforge::cli
