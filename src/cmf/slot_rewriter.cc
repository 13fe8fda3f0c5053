// SlotRewriter: what a payload may grow to, and the two steps of a batch.
#include "cmf/slot_rewriter.h"

#include <algorithm>

#include "cmf/hash64.h"
#include "cmf/writer.h"

namespace cmforge::cmf {
namespace {

// Everything of the file that is alive, by where it begins.
std::vector<ByteRange> LiveRanges(const Part& part) {
  std::vector<ByteRange> ranges;
  const Envelope& envelope = part.envelope;
  for (const ByteRange& section :
       {envelope.header, envelope.directory, envelope.masks, envelope.vocab, envelope.index}) {
    if (section.size > 0) ranges.push_back(section);
  }
  for (const DirectoryEntry& entry : part.directory) {
    if (entry.info.nbytes > 0) ranges.push_back({envelope.data.offset + entry.offset, entry.info.nbytes});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  return ranges;
}

// From every tensor's first byte to whatever lies next, or to the end of the data.
std::vector<uint64_t> SlotsOf(const Part& part) {
  const std::vector<ByteRange> live = LiveRanges(part);
  std::vector<uint64_t> reach(live.size() + 1);  // the furthest end among the ranges before
  for (size_t i = 0; i < live.size(); ++i) reach[i + 1] = std::max(reach[i], live[i].end());
  std::vector<uint64_t> slots;
  for (const DirectoryEntry& entry : part.directory) {
    const uint64_t begin = part.envelope.data.offset + entry.offset;
    const auto here = std::lower_bound(live.begin(), live.end(), begin,
                                       [](const ByteRange& r, uint64_t at) { return r.offset < at; });
    uint64_t slot = 0;
    if (here != live.end() && entry.info.nbytes > 0 &&
        reach[static_cast<size_t>(here - live.begin())] <= begin) {
      uint64_t end = part.envelope.data.end();
      if (here + 1 != live.end()) end = std::min(end, (here + 1)->offset);
      if (end - begin >= entry.info.nbytes) slot = end - begin;  // else something begins inside of it
    }
    slots.push_back(slot);
  }
  return slots;
}

}  // namespace

SlotRewriter::SlotRewriter(const Part& part, Header header, InPlaceSink& sink)
    : part_(part), sink_(sink), header_(std::move(header)), entries_(part.directory), slots_(SlotsOf(part)) {
  by_name_.reserve(part.directory.size());
  for (size_t i = 0; i < part.directory.size(); ++i) by_name_.emplace(part.directory[i].info.name, i);
  front_end_ = part.bytes.size();
  const Envelope& envelope = part.envelope;
  for (const ByteRange& section : {envelope.data, envelope.masks, envelope.vocab, envelope.index}) {
    if (section.size > 0) front_end_ = std::min(front_end_, section.offset);
  }
  front_end_ = std::max(front_end_, kEnvelopeSize);
  // What a killed run left behind the living end is dead, and is used again.
  file_end_ = envelope.data.end();
  for (const ByteRange& range : LiveRanges(part)) file_end_ = std::max(file_end_, range.end());
  live_end_ = file_end_;
  directory_hash_ = part.directory_hash();
}

uint64_t SlotRewriter::SlotSize(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? 0 : slots_[it->second];
}

Result<void> SlotRewriter::Replace(std::string_view name, DType dtype, Bytes payload) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end() || payload.size() > slots_[it->second]) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: tensor '{}': {} bytes, its slot has {}: write another file", part_.path,
                            name, payload.size(), SlotSize(name)));
  }
  if (auto status = CheckPayload(name, dtype, entries_[it->second].info.shape, payload); !status)
    return Fail(std::move(status).error().In(part_.path));
  pending_.push_back({it->second, dtype, {payload.begin(), payload.end()}});
  pending_bytes_ += payload.size();
  return pending_bytes_ >= batch_size_ ? Flush() : Result<void>();
}

void SlotRewriter::set_header(Header header) {
  header_ = std::move(header);
  header_changed_ = true;
}

Result<SlotRewriter::Tables> SlotRewriter::Pack(std::span<const DirectoryEntry> entries) const {
  Tables tables;
  CMF_TRY(tables.directory, PackDirectory(entries));
  Header header = header_;
  header.quant_type = QuantTypeOf(entries);
  if (header.shard && static_cast<size_t>(header.shard->no) <= header.shard->dir_hashes.size()) {
    header.shard->dir_hashes[static_cast<size_t>(header.shard->no - 1)] = Hash64Hex(Hash64(tables.directory));
  }
  tables.header = DumpHeader(header);
  tables.features = FeaturesOf(header, entries, part_.envelope.masks.size > 0);
  return tables;
}

Result<void> SlotRewriter::SwitchTo(const Tables& tables, uint64_t at, ByteRange data) {
  Envelope envelope = part_.envelope;
  envelope.required_features = tables.features;
  envelope.header = {at, tables.header.size()};
  envelope.directory = {envelope.header.end(), tables.directory.size()};
  envelope.data = data;
  envelope.header_hash = Hash64(AsBytes(tables.header));
  envelope.directory_hash = Hash64(tables.directory);
  CMF_CHECK(sink_.WriteAt(envelope.header.offset, AsBytes(tables.header)));
  CMF_CHECK(sink_.WriteAt(envelope.directory.offset, tables.directory));
  CMF_CHECK(sink_.Sync());
  live_end_ = std::max(live_end_, std::max(envelope.directory.end(), data.end()));
  const EnvelopeBytes packed = PackEnvelope(envelope);
  CMF_CHECK(sink_.WriteAt(0, std::as_bytes(std::span(&packed, 1))));
  CMF_CHECK(sink_.Sync());
  directory_hash_ = envelope.directory_hash;
  return {};
}

Result<void> SlotRewriter::Flush() {
  if (pending_.empty() && !header_changed_) return {};
  const ByteRange data = part_.envelope.data;
  std::vector<DirectoryEntry> staged = entries_, settled = entries_;
  for (const Pending& pending : pending_) {
    DirectoryEntry& entry = settled[pending.entry];
    entry.info.dtype = pending.dtype;
    entry.info.nbytes = pending.payload.size();
    entry.hash = Hash64(pending.payload);
    staged[pending.entry] = entry;
  }
  CMF_TRY(const Tables home, Pack(settled));
  // Where the tables stay: between envelope and data, or behind the file when they have outgrown that space.
  const bool fits = home.size() <= front_end_ - kEnvelopeSize;
  const uint64_t home_at = fits ? kEnvelopeSize : AlignUp(file_end_, kTensorAlignment);
  const uint64_t home_end = std::max(file_end_, home_at + home.size());

  uint64_t tail = AlignUp(std::max(live_end_, home_end), kDataAlignment);
  for (const Pending& pending : pending_) {
    CMF_CHECK(sink_.WriteAt(tail, pending.payload));
    staged[pending.entry].offset = tail - data.offset;
    tail = AlignUp(tail + pending.payload.size(), kTensorAlignment);
  }
  CMF_TRY(const Tables away, Pack(staged));
  CMF_CHECK(SwitchTo(away, tail, pending_.empty() ? data : ByteRange{data.offset, tail - data.offset}));

  for (const Pending& pending : pending_) {
    CMF_CHECK(sink_.WriteAt(data.offset + settled[pending.entry].offset, pending.payload));
  }
  CMF_CHECK(SwitchTo(home, home_at, data));
  entries_ = std::move(settled);
  live_end_ = home_end;
  pending_.clear();
  pending_bytes_ = 0;
  header_changed_ = false;
  return {};
}

}  // namespace cmforge::cmf
