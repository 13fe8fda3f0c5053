// WriteCmf and WriteShards.
#include "cmf/rewrite.h"

#include <algorithm>

#include "cmf/hash64.h"
#include "cmf/shards.h"

namespace cmforge::cmf {
namespace {

constexpr size_t kMaxOpenShards = 512;  // all of them are open until the last is complete

// Copies payloads one by one; `done` and `total` count tensors' bytes as far as they are known.
class Copier {
 public:
  Copier(const Contents& contents, const RunControl& run) : contents_(contents), run_(run) {
    for (const std::string& name : contents.names) {
      if (const TensorInfo* info = contents.tensors->Find(name)) total_ += static_cast<int64_t>(info->nbytes);
    }
  }
  Result<void> Copy(std::span<const std::string> names, Writer& writer) {
    for (const std::string& name : names) {
      CMF_CHECK(run_.CheckCancelled());
      const TensorInfo* info = contents_.tensors->Find(name);
      CMF_TRY(const TensorView view, contents_.tensors->Read(name));
      CMF_CHECK(writer.Add(name, view.dtype, view.shape, view.bytes));
      done_ += info != nullptr ? static_cast<int64_t>(info->nbytes) : 0;
      run_.Report("writing", done_, total_);
    }
    return {};
  }

 private:
  const Contents& contents_;
  const RunControl& run_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

Contents ContentsOf(const File& file) {
  Contents contents;
  contents.header = file.header();
  contents.header.shard.reset();
  contents.tensors = &file;
  for (const TensorInfo& tensor : file.tensors()) contents.names.push_back(tensor.name);
  contents.masks = file.masks();
  contents.tokenizer_json = file.tokenizer_json();
  contents.sparse_index = !file.sparse_index().empty();
  return contents;
}

Result<WriteSummary> WriteCmf(const std::filesystem::path& target, const Contents& contents,
                              const RunControl& run) {
  CMF_TRY(Writer writer, Writer::Create(target, contents.header, contents.names));
  CMF_CHECK(Copier(contents, run).Copy(contents.names, writer));
  CMF_TRY(const WriteSummary summary, writer.Finish({.masks = &contents.masks,
                                                     .tokenizer_json = contents.tokenizer_json,
                                                     .sparse_index = contents.sparse_index}));
  CMF_CHECK(writer.Commit());
  return summary;
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
  CMF_TRY(const auto plan, PlanShards(tensors, max_gb));
  if (plan.size() > kMaxOpenShards) {
    return Fail(ErrorKind::kLimit, fmt::format("{} shards of {} GB, at most {} are written: raise the limit",
                                               plan.size(), max_gb, kMaxOpenShards));
  }
  std::string base = prefix.filename().string();
  if (base.ends_with(".cmf")) base.resize(base.size() - 4);
  const auto count = static_cast<int64_t>(plan.size());

  std::vector<std::filesystem::path> paths;
  std::vector<Writer> writers;
  std::vector<std::string> dir_hashes(plan.size(), Hash64Hex(0));
  Copier copier(contents, run);
  for (int64_t no = 1; no <= count; ++no) {
    Header header = contents.header;
    header.shard = ShardBlock{.no = no, .count = count, .dir_hashes = {}};
    if (no == 1) {
      header.shard->dir_hashes = dir_hashes;
    } else {  // what is common to all stands in shard 1 only (spec 10)
      header.chat.reset();
      header.sampling = {};
      header.skills.clear();
    }
    paths.push_back(prefix.parent_path() / FormatShardName(base, no, count));
    const auto& names = plan[static_cast<size_t>(no - 1)];
    CMF_TRY(Writer writer, Writer::Create(paths.back(), std::move(header), names));
    CMF_CHECK(copier.Copy(names, writer));
    writers.push_back(std::move(writer));
  }
  for (size_t i = writers.size(); i-- > 1;) {
    CMF_TRY(const WriteSummary summary, writers[i].Finish({}));
    dir_hashes[i] = Hash64Hex(summary.dir_hash);
  }
  writers[0].header().shard->dir_hashes = dir_hashes;
  CMF_TRY(const WriteSummary first, writers[0].Finish({.masks = &contents.masks,
                                                       .tokenizer_json = contents.tokenizer_json,
                                                       .sparse_index = contents.sparse_index}));
  static_cast<void>(first);
  for (Writer& writer : writers) CMF_CHECK(writer.Commit());
  return paths;
}

}  // namespace cmforge::cmf
