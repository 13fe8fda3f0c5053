// One .cmf file, or a set of shards (spec 10), behind one writer: payloads go to the shard that their name belongs to, and
// no file appears before all of them are complete.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cmf/writer.h"

namespace cmforge::cmf {

/// Which names go where. One group and `is_set` false: an ordinary file.
struct SetPlan {
  std::vector<std::vector<std::string>> groups;
  bool is_set = false;  // named and marked as shards, be it one alone
};

class SetWriter {
 public:
  /// `target`: the file; of a set the prefix ("models/qwen3", a suffix ".cmf" is taken off). `header`: of the whole model;
  /// what is common to all goes to shard 1 only. Fails: as Writer::Create; kLimit for more shards than may be open at once.
  static Result<SetWriter> Create(const std::filesystem::path& target, const Header& header,
                                  const SetPlan& plan, const Resumption* resumption = nullptr);

  /// As Writer::TakenOver.
  [[nodiscard]] const DirectoryEntry* TakenOver(std::string_view name) const;

  /// As Writer::Add.
  Result<void> Add(std::string_view name, DType dtype, std::span<const int64_t> shape, Bytes payload,
                   std::optional<uint64_t> recorded_hash = std::nullopt);

  /// Everything but the renames. The summary is of all files; its dir_hash is the first one's.
  Result<WriteSummary> Finish(const TailSections& tail);
  Result<void> Commit();

  [[nodiscard]] const std::vector<std::filesystem::path>& paths() const { return paths_; }

 private:
  SetWriter() = default;

  std::vector<std::filesystem::path> paths_;
  std::vector<Writer> writers_;
  std::unordered_map<std::string, size_t> writer_of_;
};

}  // namespace cmforge::cmf
