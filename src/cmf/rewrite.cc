// WriteCmf and WriteShards.
#include "cmf/rewrite.h"

#include <algorithm>

#include "cmf/set_writer.h"
#include "cmf/shards.h"
#include "cmf/verify.h"

namespace cmforge::cmf {
namespace {

// Copies payloads one by one; `done` and `total` count tensors' bytes as far as they are known.
class Copier {
 public:
  Copier(const Contents& contents, const RunControl& run) : contents_(contents), run_(run) {
    for (const std::string& name : contents.names) {
      if (const TensorInfo* info = contents.tensors->Find(name)) total_ += static_cast<int64_t>(info->nbytes);
    }
  }
  /// The sections of the source that the header and the rest are taken from.
  Result<void> CheckSource() const {
    if (contents_.origin == nullptr) return {};
    for (const Part& part : contents_.origin->parts()) CMF_CHECK(CheckSections(part));
    return {};
  }
  Result<void> Copy(SetWriter& writer) {
    for (const std::string& name : contents_.names) {
      CMF_CHECK(run_.CheckCancelled());
      const TensorInfo* info = contents_.tensors->Find(name);
      CMF_TRY(const TensorView view, contents_.tensors->Read(name));
      CMF_CHECK(writer.Add(name, view.dtype, view.shape, view.bytes, RecordedHash(name, view)));
      done_ += info != nullptr ? static_cast<int64_t>(info->nbytes) : 0;
      run_.Report("writing", done_, total_, ProgressUnit::kBytes);
    }
    return {};
  }

 private:
  // The hash a payload has in the origin, when it lies there.
  [[nodiscard]] std::optional<uint64_t> RecordedHash(std::string_view name, const TensorView& view) const {
    const TensorInfo* info = contents_.origin == nullptr ? nullptr : contents_.origin->Find(name);
    if (info == nullptr || info->nbytes != view.bytes.size()) return std::nullopt;
    const TensorPlace& place = contents_.origin->PlaceOf(*info);
    const Part& part = contents_.origin->parts()[static_cast<size_t>(place.part)];
    return view.bytes.data() == part.bytes.data() + place.offset ? std::optional(place.hash) : std::nullopt;
  }

  const Contents& contents_;
  const RunControl& run_;
  int64_t done_ = 0, total_ = 0;
};

Result<std::pair<WriteSummary, std::vector<std::filesystem::path>>> WriteSet(
    const std::filesystem::path& target, const Contents& contents, const SetPlan& plan,
    const RunControl& run) {
  Copier copier(contents, run);
  CMF_CHECK(copier.CheckSource());
  CMF_TRY(SetWriter writer, SetWriter::Create(target, contents.header, plan));
  CMF_CHECK(copier.Copy(writer));
  CMF_TRY(const WriteSummary summary, writer.Finish({.masks = &contents.masks,
                                                     .tokenizer_json = contents.tokenizer_json,
                                                     .sparse_index = contents.sparse_index}));
  CMF_CHECK(run.CheckCancelled());
  CMF_CHECK(writer.Commit());
  return std::pair(summary, writer.paths());
}

}  // namespace

Contents ContentsOf(const File& file) {
  Contents contents;
  contents.header = file.header();
  contents.header.shard.reset();
  // Some writers spell out that a file is no shard; joined shards must give the same bytes.
  if (contents.header.document.is_object()) contents.header.document.erase("shard");
  contents.tensors = contents.origin = &file;
  contents.names = CanonicalOrder(file.tensors());
  contents.masks = file.masks();
  contents.tokenizer_json = file.tokenizer_json();
  contents.sparse_index = !file.sparse_index().empty();
  return contents;
}

Result<WriteSummary> WriteCmf(const std::filesystem::path& target, const Contents& contents,
                              const RunControl& run) {
  CMF_TRY(const auto written, WriteSet(target, contents, {.groups = {contents.names}, .is_set = false}, run));
  return written.first;
}

Result<std::vector<std::filesystem::path>> WriteShards(const std::filesystem::path& prefix,
                                                       const Contents& contents, double max_gb,
                                                       const RunControl& run) {
  std::vector<TensorInfo> tensors;
  for (const std::string& name : contents.names) {
    const TensorInfo* info = contents.tensors->Find(name);
    if (info == nullptr)
      return Fail(ErrorKind::kNotFound,
                  fmt::format("{}: tensor '{}': not in the source", contents.tensors->path(), name));
    tensors.push_back(*info);
  }
  CMF_TRY(auto plan, PlanShards(tensors, max_gb));
  CMF_TRY(const auto written, WriteSet(prefix, contents, {.groups = std::move(plan), .is_set = true}, run));
  return written.second;
}

}  // namespace cmforge::cmf
