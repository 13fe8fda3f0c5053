// EmitAppend, the write sequence of an append-only edit, and Append, which applies it.
#include "cmf/append.h"

#include <algorithm>
#include <unordered_set>

#include "cmf/hash64.h"
#include "cmf/shards.h"
#include "cmf/verify.h"
#include "cmf/writer.h"

namespace cmforge::cmf {
namespace {

// Writes at the tail, one thing after the other, zeros between.
class Tail {
 public:
  Tail(InPlaceSink& sink, uint64_t end) : sink_(sink), end_(end) {}

  Result<void> AlignTo(uint64_t position) {
    const std::vector<std::byte> zeros(position - end_);
    return Put(zeros);
  }
  Result<void> Put(Bytes bytes) {
    if (bytes.empty()) return {};
    CMF_CHECK(sink_.WriteAt(end_, bytes));
    end_ += bytes.size();
    return {};
  }
  Result<ByteRange> PutSection(Bytes bytes) {
    const ByteRange range{end_, bytes.size()};
    CMF_CHECK(Put(bytes));
    return range;
  }
  [[nodiscard]] uint64_t end() const { return end_; }

 private:
  InPlaceSink& sink_;
  uint64_t end_;
};

// The old entries without those that are dropped or replaced. Fails when a name to drop is not there.
Result<std::vector<DirectoryEntry>> RemainingEntries(const Part& part, const AppendEdits& edits) {
  std::unordered_set<std::string_view> gone(edits.remove.begin(), edits.remove.end());
  std::unordered_set<std::string_view> absent = gone;
  gone.insert(edits.add.begin(), edits.add.end());
  std::vector<DirectoryEntry> entries;
  for (const DirectoryEntry& entry : part.directory) {
    absent.erase(entry.info.name);
    if (!gone.contains(entry.info.name)) entries.push_back(entry);
  }
  if (!absent.empty()) {
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: tensor '{}': not in this file", part.path, *absent.begin()));
  }
  return entries;
}

// Names must stay unique over a whole set, and only shard 1 is edited.
Result<void> CheckOtherShards(const File& file, const AppendEdits& edits) {
  for (const auto* names : {&edits.add, &edits.remove}) {
    for (const std::string& name : *names) {
      const TensorInfo* info = file.Find(name);
      if (info == nullptr || file.PlaceOf(*info).part == 0) continue;
      return Fail(
          ErrorKind::kUnsupported,
          fmt::format("{}: tensor '{}' lies in {}: only shard 1 grows in place: use unshard first",
                      file.path(), name, file.parts()[static_cast<size_t>(file.PlaceOf(*info).part)].path));
    }
  }
  return {};
}

}  // namespace

Result<void> EmitAppend(const Part& part, const AppendEdits& edits, InPlaceSink& sink,
                        const RunControl& run) {
  CMF_TRY(std::vector<DirectoryEntry> entries, RemainingEntries(part, edits));
  Envelope envelope = part.envelope;
  Header header = edits.header.value_or(part.header);
  Tail tail(sink, part.bytes.size());

  const uint64_t data_off =
      envelope.data.size > 0 ? envelope.data.offset : AlignUp(tail.end(), kDataAlignment);
  for (size_t i = 0; i < edits.add.size(); ++i) {
    CMF_CHECK(run.CheckCancelled());
    const std::string& name = edits.add[i];
    CMF_TRY(const TensorView view, edits.tensors->Read(name));
    if (auto status = CheckPayload(name, view.dtype, view.shape, view.bytes); !status) {
      return Fail(std::move(status).error().In(part.path));
    }
    const uint64_t at =
        PlaceTensor(std::max(tail.end(), data_off), view.bytes.size());  // data_off is on a page
    CMF_CHECK(tail.AlignTo(at));
    CMF_CHECK(tail.Put(view.bytes));
    entries.push_back({{name, view.dtype, view.shape, view.bytes.size()}, at - data_off, Hash64(view.bytes)});
    envelope.data = {data_off, tail.end() - data_off};
    run.Report("appending", static_cast<int64_t>(i + 1), static_cast<int64_t>(edits.add.size()));
  }

  CMF_TRY(const std::vector<std::byte> directory, PackDirectory(entries));
  CMF_TRY(envelope.directory, tail.PutSection(directory));
  envelope.directory_hash = Hash64(directory);
  if (header.shard && static_cast<size_t>(header.shard->no) <= header.shard->dir_hashes.size()) {
    header.shard->dir_hashes[static_cast<size_t>(header.shard->no - 1)] = Hash64Hex(envelope.directory_hash);
  }

  header.section_hashes = part.header.section_hashes;
  header.section_hashes.malformed.clear();
  if (edits.masks) {
    const MaskGeometry geometry = MaskGeometry::Of(header.config);
    const bool had_index = envelope.index.size > 0;
    envelope.masks = envelope.index = {};
    header.section_hashes.masks = header.section_hashes.index = std::nullopt;
    if (!edits.masks->empty()) {
      CMF_TRY(const std::vector<std::byte> masks, PackMasks(*edits.masks, geometry));
      CMF_TRY(envelope.masks, tail.PutSection(masks));
      header.section_hashes.masks = Hash64(masks);
      if (had_index) {
        CMF_TRY(const std::vector<SparseIndexEntry> index, BuildSparseIndex(*edits.masks, geometry));
        const std::vector<std::byte> section = PackSparseIndex(index);
        CMF_TRY(envelope.index, tail.PutSection(section));
        header.section_hashes.index = Hash64(section);
      }
    }
  }
  const std::string text = DumpHeader(header);
  CMF_TRY(envelope.header, tail.PutSection(AsBytes(text)));
  envelope.header_hash = Hash64(AsBytes(text));
  envelope.required_features = FeaturesOf(header, entries, envelope.masks.size > 0);

  CMF_CHECK(sink.Sync());
  const EnvelopeBytes packed = PackEnvelope(envelope);
  CMF_CHECK(sink.WriteAt(0, std::as_bytes(std::span(&packed, 1))));
  return sink.Sync();
}

Result<void> Append(const std::filesystem::path& path, const AppendEdits& edits, const RunControl& run) {
  std::filesystem::path first = path;
  {
    CMF_TRY(const File named, File::Open(path, MappedFile::Mode::kMap, File::Shards::kThisFile));
    if (!named.is_complete()) first = SiblingPath(path, 1);
  }
  CMF_TRY(InPlaceFile target, InPlaceFile::Open(first));
  CMF_TRY(const File file, File::Open(first));  // after the lock: nobody else changes it now
  CMF_CHECK(CheckOtherShards(file, edits));
  CMF_CHECK(CheckSections(file.parts()[0]));  // what is written anew from them gets hashes of its own
  auto status = EmitAppend(file.parts()[0], edits, target, run);
  if (!status && !target.envelope_begun()) target.CutTo(file.parts()[0].bytes.size());
  return status;
}

}  // namespace cmforge::cmf
