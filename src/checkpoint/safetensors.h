// Safetensors files: tensors read in place from the mapping, after every number of the header was checked.
//
//   [header length u64][header: JSON object, may end in blanks][tensor bytes ...]
//   header: {"__metadata__": {string: string}, NAME: {"dtype", "shape", "data_offsets": [begin, end)}, ...}
//
// Offsets count from the end of the header. The tensors must cover the bytes behind the header exactly: no
// overlap (so no aliasing), no gap, nothing left over.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/name_table.h"
#include "model/tensor_source.h"

namespace cmforge {

/// Longest header read, as in the format's definition.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// What a header says, in the order of the data. Immutable.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;
  std::vector<uint64_t> offsets;                              // of each tensor, from the start of the file
  std::vector<std::pair<std::string, std::string>> metadata;  // as in the file
};

/// Checks and reads the header of a whole file; touches no tensor bytes. `what` names the file in messages.
/// Fails: kCorrupt (not safetensors, a Git LFS pointer, an absurd length, duplicate names, overlaps, gaps,
/// sizes that contradict shapes, truncated data: tensor and bytes named), kUnsupported (dtype we do not
/// know), kLimit (header longer than kMaxSafetensorsHeader).
Result<SafetensorsHeader> ParseSafetensors(Bytes file, std::string_view what);

/// One .safetensors file, or a checkpoint folder: model.safetensors, else the shards that
/// model.safetensors.index.json names. Names are those of the files.
class SafetensorsSource : public TensorSource {
 public:
  /// Fails: kNotFound (nothing there; a shard that the index names: with the number of tensors it should
  /// hold), kCorrupt (as ParseSafetensors; an index that names a tensor its file lacks, or a file outside the
  /// folder; a tensor in two files), kIo. Opening maps the files and reads their headers only.
  static Result<std::shared_ptr<const SafetensorsSource>> Open(
      const std::filesystem::path& path, MappedFile::Mode mode = MappedFile::Mode::kMap);

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override;
  /// The bytes start at a multiple of the element size: a view into the mapping, or a copy where the file
  /// has them at an odd place.
  Result<TensorView> Read(std::string_view name) const override;
  [[nodiscard]] std::string_view path() const override { return path_; }

  [[nodiscard]] std::span<const MappedFile> files() const { return files_; }
  /// `__metadata__` of the first file.
  [[nodiscard]] std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }

 private:
  struct Place {
    uint32_t file;
    uint64_t offset;
  };

  /// `file_of`: the index of the folder, tensor -> file; empty for a single file.
  Result<void> Add(MappedFile file, const std::string& shard, const NameTable<std::string>& file_of);

  std::string path_;
  std::vector<MappedFile> files_;
  std::vector<TensorInfo> tensors_;
  std::vector<Place> places_;  // parallel to tensors_
  NameTable<uint32_t> by_name_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace cmforge
