// Grafting: the tensors in which a donor checkpoint differs from a .cmf file's backbone, in the backbone's own
// encodings. They become a skill of that file, or a specialist of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "cmf/append.h"
#include "cmf/file.h"

namespace cmforge {

struct GraftOptions {
  std::optional<std::pair<int64_t, int64_t>>
      layers;            // first and last; absent: all, and what lies outside layers
  double min_delta = 0;  // leave out tensors whose change |d - b| / |b|, both as encoded, is at most this
};

struct Graft {
  /// Named as in the backbone, encoded when read, in the donor's order.
  std::shared_ptr<const TensorSource> tensors;
  std::vector<int64_t> layers;  // that hold them, ascending
  int64_t unchanged = 0;        // donor tensors that are the backbone's
};

/// A folder with config.json, a folder with one .safetensors file (a delta), or a file that OpenSource reads.
Result<std::shared_ptr<const TensorSource>> OpenDonor(const std::filesystem::path& path,
                                                      const RunControl& control);

/// Fails: kUsage (a donor tensor of another shape than the backbone's: both named; none in common; nothing
/// changed), kUnsupported (the backbone's encoding cannot be written), as the encoders.
Result<Graft> PlanGraft(const cmf::File& backbone, const std::shared_ptr<const TensorSource>& donor,
                        const GraftOptions& options, const std::shared_ptr<ThreadPool>& pool,
                        const RunControl& control);

/// The same tensors as replacements of skill `id`.
[[nodiscard]] std::shared_ptr<const TensorSource> AsSkillTensors(std::shared_ptr<const TensorSource> tensors,
                                                                 std::string_view id);

/// What an append needs to put the skill into the file, in the place of an older one of the same id.
/// `tensors`: from AsSkillTensors, must outlive the append.
[[nodiscard]] cmf::AppendEdits SkillEdits(const cmf::File& file, const TensorSource& tensors,
                                          cmf::SkillRecord record);
/// The same for taking one out. Fails: kNotFound naming the skills there are.
Result<cmf::AppendEdits> SkillRemovalEdits(const cmf::File& file, std::string_view id);

}  // namespace cmforge
