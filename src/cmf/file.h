// cmf::File: a .cmf file, or a set of shards, opened for reading. Opening validates structure (spec 1.2) and
// touches the metadata only: no page of the weight blob, whatever its size. Tensors are read in place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "cmf/directory.h"
#include "cmf/envelope.h"
#include "cmf/header.h"
#include "cmf/masks.h"
#include "cmf/sparse_index.h"
#include "model/tensor_source.h"

namespace cmforge::cmf {

struct Section {
  std::string_view name;  // "header", "directory", "data", "masks", "vocab", "index"
  ByteRange range;
};

/// One physical file.
struct Part {
  std::string path;
  MappedFile mapping;  // empty when opened from memory
  Bytes bytes;         // the whole file
  Envelope envelope;
  Header header;
  std::vector<DirectoryEntry> directory;

  /// The present sections, in the order of the envelope.
  [[nodiscard]] std::vector<Section> sections() const;
  /// hash64 of the directory bytes: computed, not what the envelope claims.
  [[nodiscard]] uint64_t directory_hash() const;
};

/// Where a tensor lies.
struct TensorPlace {
  int32_t part = 0;     // index into parts()
  uint64_t offset = 0;  // from the start of that file
  uint64_t hash = 0;    // as recorded in the directory
};

class File final : public TensorSource {
 public:
  enum class Shards {
    kWholeSet,  // any shard's name opens all of them; a missing one is an error
    kThisFile,  // only the named file, even if it is one shard of many
  };

  /// Fails: kNotFound (no file; a missing shard, named), kIo, kCorrupt or kUnsupported with the spec's error
  /// names, checked in the order size, magic, version, features, section bounds, data alignment, header,
  /// directory, masks, sparse index; kCorrupt when shards do not belong together. Messages begin with the
  /// path.
  static Result<File> Open(const std::filesystem::path& path, MappedFile::Mode mode = MappedFile::Mode::kMap,
                           Shards shards = Shards::kWholeSet);

  /// A file in memory; `bytes` must outlive the result. A shard is opened as kThisFile.
  static Result<File> OpenBytes(Bytes bytes, std::string name);

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File() override;

  // TensorSource: tensors of all parts in file order, names verbatim (skill.* included).
  [[nodiscard]] std::span<const TensorInfo> tensors() const override;
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override;
  /// In place. A payload whose size depends on its data (vbit, q1s, q1t) is validated the first time it is
  /// read. Hashes are not checked: that is Verify's work.
  Result<TensorView> Read(std::string_view name) const override;
  [[nodiscard]] std::string_view path() const override;  // of the first part

  /// `tensor` must come from this file.
  [[nodiscard]] const TensorPlace& PlaceOf(const TensorInfo& tensor) const;

  /// Of the first part, which holds what is common to all.
  [[nodiscard]] const Header& header() const;
  [[nodiscard]] const ModelConfig& config() const { return header().config; }
  [[nodiscard]] const std::optional<ChatBundle>& chat() const { return header().chat; }
  [[nodiscard]] Bytes tokenizer_json() const;  // verbatim; empty = none
  [[nodiscard]] const MaskCatalog& masks() const;
  [[nodiscard]] const std::vector<SparseIndexEntry>& sparse_index() const;
  [[nodiscard]] MaskGeometry mask_geometry() const { return MaskGeometry::Of(config()); }
  [[nodiscard]] uint32_t required_features() const;
  /// hash64 of the (first part's) directory bytes, computed: what a standalone skill is bound to.
  [[nodiscard]] uint64_t dir_hash() const;
  /// A standalone skill (SKILL_FILE): to be applied to its base, not run.
  [[nodiscard]] bool is_skill_file() const;

  /// The physical files, shard 1 first (under kThisFile and OpenBytes: one).
  [[nodiscard]] std::span<const Part> parts() const;
  /// False for one shard of several opened alone.
  [[nodiscard]] bool is_complete() const;

 private:
  struct State;
  explicit File(std::unique_ptr<State> state);
  static Result<File> Assemble(std::vector<Part> parts);

  std::unique_ptr<State> state_;
};

}  // namespace cmforge::cmf
