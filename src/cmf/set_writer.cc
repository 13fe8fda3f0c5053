// SetWriter: a Writer for each shard.
#include "cmf/set_writer.h"

#include "cmf/hash64.h"
#include "cmf/shards.h"

namespace cmforge::cmf {
namespace {

constexpr size_t kMaxOpenShards = 512;  // all of them are open until the last is complete

}  // namespace

Result<SetWriter> SetWriter::Create(const std::filesystem::path& target, const Header& header,
                                    const SetPlan& plan, const Resumption* resumption) {
  if (plan.groups.size() > kMaxOpenShards) {
    return Fail(ErrorKind::kLimit, fmt::format("{}: {} shards, at most {} are written: raise the limit",
                                               target.string(), plan.groups.size(), kMaxOpenShards));
  }
  SetWriter set;
  std::string base = target.filename().string();
  if (base.ends_with(".cmf")) base.resize(base.size() - 4);
  const auto count = static_cast<int64_t>(plan.groups.size());
  for (int64_t no = 1; no <= count; ++no) {
    const std::vector<std::string>& names = plan.groups[static_cast<size_t>(no - 1)];
    Header own = header;
    own.shard.reset();
    if (plan.is_set) {
      own.shard = ShardBlock{.no = no, .count = count, .dir_hashes = {}};
      if (no == 1) own.shard->dir_hashes.assign(plan.groups.size(), Hash64Hex(0));
    }
    if (no > 1) {  // what is common to all stands in shard 1 only (spec 10)
      own.chat.reset();
      own.sampling = {};
      own.skills.clear();
    }
    set.paths_.push_back(plan.is_set ? target.parent_path() / FormatShardName(base, no, count) : target);
    CMF_TRY(Writer writer, resumption != nullptr
                               ? Writer::Resume(set.paths_.back(), std::move(own), names, *resumption)
                               : Writer::Create(set.paths_.back(), std::move(own), names));
    for (const std::string& name : names) set.writer_of_.emplace(name, set.writers_.size());
    set.writers_.push_back(std::move(writer));
  }
  return set;
}

const DirectoryEntry* SetWriter::TakenOver(std::string_view name) const {
  const auto found = writer_of_.find(std::string(name));
  return found == writer_of_.end() ? nullptr : writers_[found->second].TakenOver(name);
}

Result<void> SetWriter::Add(std::string_view name, DType dtype, std::span<const int64_t> shape, Bytes payload,
                            std::optional<uint64_t> recorded_hash) {
  const auto found = writer_of_.find(std::string(name));
  // A name of no group is the first writer's to refuse.
  Writer& writer = writers_[found == writer_of_.end() ? 0 : found->second];
  return writer.Add(name, dtype, shape, payload, recorded_hash);
}

Result<WriteSummary> SetWriter::Finish(const TailSections& tail) {
  WriteSummary total;
  std::vector<std::string> dir_hashes(writers_.size(), Hash64Hex(0));
  // One word for all, or joining the shards would not give the bytes of the one file.
  std::vector<DirectoryEntry> entries;
  for (const Writer& writer : writers_)
    entries.insert(entries.end(), writer.entries().begin(), writer.entries().end());
  for (Writer& writer : writers_) {
    if (!IsQuantTypeWord(writer.header().quant_type)) writer.header().quant_type = QuantTypeOf(entries);
  }
  for (size_t i = writers_.size(); i-- > 0;) {  // shard 1 last: it lists the directory hashes of the others
    if (i == 0 && writers_.size() > 1) writers_[0].header().shard->dir_hashes = dir_hashes;
    CMF_TRY(const WriteSummary summary, writers_[i].Finish(i == 0 ? tail : TailSections{}));
    dir_hashes[i] = Hash64Hex(summary.dir_hash);
    total.bytes += summary.bytes;
    total.tensors += summary.tensors;
    total.dir_hash = summary.dir_hash;
  }
  return total;
}

Result<void> SetWriter::Commit() {
  for (Writer& writer : writers_) CMF_CHECK(writer.Commit());
  return {};
}

}  // namespace cmforge::cmf
