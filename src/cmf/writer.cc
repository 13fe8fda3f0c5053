// The streaming writer.
#include "cmf/writer.h"

#include <algorithm>
#include <array>

#include "base/page_buffer.h"
#include "cmf/hash64.h"
#include "cmf/manifest.h"
#include "cmf/sparse_index.h"
#include "quant/encoding.h"

namespace cmforge::cmf {
namespace {

constexpr uint64_t kHeaderSlack = 4096;  // what the header may grow by between Create and Finish
constexpr uint64_t kMaxManifest = uint64_t{1} << 30;
constexpr uint64_t kReadBack = uint64_t{1} << 20;  // at once
constexpr uint64_t kPageAlignedSize = 16384;       // from this size on a tensor starts on a page

// The header as long as it can get by what the writer itself fills in.
uint64_t HeaderBound(Header header) {
  header.section_hashes = {
      .masks = ~uint64_t{0}, .vocab = ~uint64_t{0}, .index = ~uint64_t{0}, .malformed = {}};
  header.quant_type = "Q4_BLOCK";
  return DumpHeader(header).size() + kHeaderSlack;
}

}  // namespace

uint32_t FeaturesOf(const Header& header, std::span<const DirectoryEntry> entries, bool has_masks) {
  uint32_t features = kTensorDir;
  if (has_masks) features |= kBinaryMasks;
  if (has_masks && header.config.num_loops > 1) features |= kLoopMasks;
  if (header.is_skill_file()) features |= kSkillFile;
  for (const DirectoryEntry& entry : entries) {
    if (entry.info.dtype == DType::kQ8TwoField || entry.info.dtype == DType::kVbit) features |= kQuant2F;
  }
  return features;
}

std::string QuantTypeOf(std::span<const DirectoryEntry> entries) {
  std::array<uint64_t, kCmfDTypeCount> bytes = {};
  for (const DirectoryEntry& entry : entries)
    bytes[static_cast<size_t>(entry.info.dtype)] += entry.info.nbytes;
  return std::string(
      QuantTypeWord(static_cast<DType>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin())));
}

Result<void> CheckPayload(std::string_view name, DType dtype, std::span<const int64_t> shape, Bytes payload) {
  const auto refuse = [&](std::string_view reason) {
    return Fail(ErrorKind::kUsage, fmt::format("tensor '{}': {}", name, reason));
  };
  const Encoding* encoding = FindEncoding(dtype);
  if (encoding == nullptr) {
    if (static_cast<int>(dtype) >= kCmfDTypeCount)
      return refuse(fmt::format("{} cannot be stored in a .cmf", DTypeName(dtype)));
    return {};  // a reserved dtype, copied from another file
  }
  if (const std::string reason = encoding->reason_against(shape); !reason.empty()) {
    return refuse(fmt::format("cannot be {}: {}", encoding->name, reason));
  }
  if (const auto size = encoding->payload_size(shape); size && *size != payload.size()) {
    return refuse(fmt::format("{} bytes, shape {} of {} needs {}", payload.size(), ShapeText(shape),
                              encoding->name, *size));
  }
  if (encoding->validate != nullptr) {
    if (auto status = encoding->validate(payload, shape); !status) {
      return Fail(std::move(status).error().In(fmt::format("tensor '{}'", name)));
    }
  }
  return {};
}

uint64_t PlaceTensor(uint64_t end, uint64_t nbytes) {
  return AlignUp(end, nbytes >= kPageAlignedSize ? kDataAlignment : kTensorAlignment);
}

Result<Writer> Writer::Prepare(const std::filesystem::path& target, Header header,
                               std::span<const std::string> names) {
  Writer writer;
  writer.path_ = target.string();
  for (const std::string& name : names) {
    if (!writer.expected_.insert(name).second) {
      return Fail(ErrorKind::kUsage, fmt::format("{}: tensor '{}' is declared twice", writer.path_, name));
    }
  }
  writer.data_off_ = AlignUp(kEnvelopeSize + HeaderBound(header) + DirectorySize(names), kDataAlignment);
  writer.header_ = std::move(header);
  writer.entries_.reserve(names.size());
  return writer;
}

Result<Writer> Writer::Create(const std::filesystem::path& target, Header header,
                              std::span<const std::string> names) {
  CMF_TRY(Writer writer, Prepare(target, std::move(header), names));
  CMF_TRY(writer.file_, AtomicFile::Create(target));
  CMF_CHECK(writer.file_.PadTo(writer.data_off_));
  return writer;
}

Result<Writer> Writer::Resume(const std::filesystem::path& target, Header header,
                              std::span<const std::string> names, const Resumption& resumption) {
  CMF_TRY(Writer writer, Prepare(target, std::move(header), names));
  CMF_TRY(writer.manifest_,
          AtomicFile::TakeUp(target, ".manifest", resumption.keep,
                             [](const AtomicFile& file) { return file.BeginsWith(kManifestMagic); }));
  AtomicFile& manifest = *writer.manifest_;
  // A part may hold anything: it is ours when the manifest beside it is, which is why that never is empty from here on.
  const bool is_ours = manifest.size() > 0;
  auto part =
      AtomicFile::TakeUp(target, ".part", resumption.keep, [&](const AtomicFile&) { return is_ours; });
  if (!part) {
    if (!is_ours) manifest.Discard();
    return Fail(std::move(part).error());
  }
  writer.file_ = std::move(*part);
  if (resumption.go_on && manifest.size() <= kMaxManifest) {
    std::vector<std::byte> text(manifest.size());
    CMF_CHECK(manifest.ReadAt(0, text));
    CMF_CHECK(writer.TakeOver(ReadManifest(AsText(text), writer.data_off_, resumption.key)));
  }
  // Behind the last whole payload lies what was being written, in the head perhaps a header that was not to be; no hash
  // vouches for the padding between payloads.
  CMF_CHECK(manifest.CutTo(kManifestMagic.size()));
  CMF_CHECK(manifest.WriteAt(0, AsBytes(kManifestMagic)));
  CMF_CHECK(writer.file_.CutTo(writer.entries_.empty() ? 0 : writer.data_off_ + writer.data_end_));
  if (!writer.entries_.empty()) CMF_CHECK(writer.file_.WriteAt(0, std::vector<std::byte>(writer.data_off_)));
  CMF_CHECK(writer.file_.PadTo(writer.data_off_));
  std::string lines = ManifestHead(writer.data_off_, resumption.key);
  for (const DirectoryEntry& entry : writer.entries_) lines += ManifestLine(entry);
  CMF_CHECK(manifest.WriteAt(0, AsBytes(lines)));
  return writer;
}

// Entries are taken over as long as they are what this file would hold at that place.
Result<void> Writer::TakeOver(std::span<const DirectoryEntry> entries) {
  PageBuffer piece(kReadBack);
  for (const DirectoryEntry& entry : entries) {
    const uint64_t nbytes = entry.info.nbytes;
    if (!expected_.contains(entry.info.name) || entry.offset != PlaceTensor(data_end_, nbytes) ||
        file_.size() < data_off_ + entry.offset || nbytes > file_.size() - data_off_ - entry.offset)
      break;
    Hash64Stream hash;
    for (uint64_t at = 0; at < nbytes; at += kReadBack) {
      const auto out = piece.first(std::min(kReadBack, nbytes - at));
      CMF_CHECK(file_.ReadAt(data_off_ + entry.offset + at, out));
      hash.Update(out);
    }
    if (hash.Finish() != entry.hash) break;
    if (const uint64_t padding = entry.offset - data_end_; padding > 0)
      CMF_CHECK(file_.WriteAt(data_off_ + data_end_, std::vector<std::byte>(padding)));
    expected_.erase(entry.info.name);
    taken_over_.emplace(entry.info.name, entries_.size());
    data_end_ = entry.offset + nbytes;
    entries_.push_back(entry);
  }
  return {};
}

const DirectoryEntry* Writer::TakenOver(std::string_view name) const {
  const auto found = taken_over_.find(std::string(name));
  return found == taken_over_.end() ? nullptr : &entries_[found->second];
}

Result<void> Writer::Add(std::string_view name, DType dtype, std::span<const int64_t> shape, Bytes payload,
                         std::optional<uint64_t> recorded_hash) {
  if (expected_.erase(std::string(name)) == 0) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: tensor '{}' was not declared or is added twice", path_, name));
  }
  if (auto status = CheckPayload(name, dtype, shape, payload); !status)
    return Fail(std::move(status).error().In(path_));
  DirectoryEntry entry;
  entry.info = {std::string(name), dtype, Shape(shape.begin(), shape.end()), payload.size()};
  entry.offset = PlaceTensor(data_end_, payload.size());
  entry.hash = Hash64(payload);
  if (recorded_hash && entry.hash != *recorded_hash) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format(
            "{}: tensor '{}': the source's bytes have hash {}, {} is recorded there: they were changed: "
            "`cmforge verify` the source",
            path_, name, Hash64Hex(entry.hash), Hash64Hex(*recorded_hash)));
  }
  CMF_CHECK(file_.PadTo(data_off_ + entry.offset));
  CMF_CHECK(file_.WriteAt(data_off_ + entry.offset, payload));
  data_end_ = entry.offset + payload.size();
  if (manifest_) CMF_CHECK(manifest_->Write(AsBytes(ManifestLine(entry))));
  entries_.push_back(std::move(entry));
  return {};
}

Result<WriteSummary> Writer::Finish(const TailSections& tail) {
  Envelope envelope;
  if (data_end_ > 0) envelope.data = {data_off_, data_end_};

  header_.section_hashes = {};
  const auto put_section = [&](Bytes bytes, ByteRange& range, std::optional<uint64_t>& hash) -> Result<void> {
    range = {file_.size(), bytes.size()};
    hash = Hash64(bytes);
    return file_.Write(bytes);
  };
  const MaskGeometry geometry = MaskGeometry::Of(header_.config);
  const bool has_masks = tail.masks != nullptr && !tail.masks->empty();
  if (has_masks) {
    CMF_TRY(const std::vector<std::byte> section, PackMasks(*tail.masks, geometry));
    CMF_CHECK(put_section(section, envelope.masks, header_.section_hashes.masks));
  }
  if (!tail.tokenizer_json.empty()) {
    CMF_CHECK(put_section(tail.tokenizer_json, envelope.vocab, header_.section_hashes.vocab));
  }
  if (has_masks && tail.sparse_index) {
    CMF_TRY(const std::vector<SparseIndexEntry> index, BuildSparseIndex(*tail.masks, geometry));
    CMF_CHECK(put_section(PackSparseIndex(index), envelope.index, header_.section_hashes.index));
  }

  if (!IsQuantTypeWord(header_.quant_type)) header_.quant_type = QuantTypeOf(entries_);
  CMF_TRY(const std::vector<std::byte> directory, PackDirectory(entries_));
  WriteSummary summary;
  summary.dir_hash = Hash64(directory);
  if (header_.shard && !header_.shard->dir_hashes.empty()) {
    header_.shard->dir_hashes[static_cast<size_t>(header_.shard->no - 1)] = Hash64Hex(summary.dir_hash);
  }
  const std::string header = DumpHeader(header_);
  envelope.required_features = FeaturesOf(header_, entries_, has_masks);
  envelope.header = {kEnvelopeSize, header.size()};
  envelope.directory = {envelope.header.end(), directory.size()};
  envelope.header_hash = Hash64(AsBytes(header));
  envelope.directory_hash = summary.dir_hash;
  if (envelope.directory.end() > data_off_) {
    return Fail(ErrorKind::kInternal, fmt::format("{}: header and directory need {} bytes, {} were reserved",
                                                  path_, envelope.directory.end(), data_off_));
  }
  const EnvelopeBytes packed = PackEnvelope(envelope);
  CMF_CHECK(file_.WriteAt(0, std::as_bytes(std::span(&packed, 1))));
  CMF_CHECK(file_.WriteAt(envelope.header.offset, AsBytes(header)));
  CMF_CHECK(file_.WriteAt(envelope.directory.offset, directory));
  finished_ = true;
  summary.bytes = file_.size();
  summary.tensors = static_cast<int64_t>(entries_.size());
  return summary;
}

Result<void> Writer::Commit() {
  if (!finished_)
    return Fail(ErrorKind::kInternal, fmt::format("{}: committed before it was finished", path_));
  CMF_CHECK(file_.Commit());
  if (manifest_) manifest_->Discard();
  return {};
}

}  // namespace cmforge::cmf
