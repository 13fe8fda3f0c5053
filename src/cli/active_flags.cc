// Expert statistics as a restriction of a run.
#include "cli/active_flags.h"

namespace cmforge::cli {

void ActiveFlags::AddTo(CLI::App* command) {
  CLI::Option* stats = command->add_option("--moe-mask-stats", expert_stats,
                                           "Let tokens choose only the experts that these statistics "
                                           "(`cmforge moe-stats`) cover");
  command->add_option("--cover", cover, "Share of the recorded choices that the experts must cover")
      ->needs(stats)
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

Result<std::shared_ptr<const ActiveSet>> ActiveFlags::Make(const OpenedSource& source,
                                                           std::shared_ptr<const ActiveSet> task) const {
  if (expert_stats.empty()) return task;
  CMF_CHECK(RequireTensors(source));
  if (!source.config) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: a bare tensor file has no experts to select", source.path));
  }
  CMF_TRY(const cmf::ExpertStats stats, LoadExpertStats(expert_stats));
  CMF_TRY(const cmf::ExpertSelection selection,
          cmf::SelectExperts(stats, cover, *source.tensors, *source.config));
  auto active = task ? std::make_shared<ActiveSet>(*task) : std::make_shared<ActiveSet>();
  CMF_CHECK(cmf::RestrictExperts(*active, selection, *source.config));
  return std::shared_ptr<const ActiveSet>(std::move(active));
}

Result<cmf::ExpertStats> LoadExpertStats(const std::string& path) {
  CMF_TRY(const std::string text, ReadTextFile(path, uint64_t{64} << 20));
  return cmf::ParseExpertStats(text, path);
}

}  // namespace cmforge::cli
