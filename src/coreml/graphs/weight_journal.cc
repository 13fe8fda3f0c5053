// The file of compressed weights.
#include "coreml/graphs/weight_journal.h"

#include <bit>

#include "mil/sha256.h"

namespace cmforge::coreml {
namespace {

constexpr std::string_view kMagic = "cmfwork1";
constexpr uint32_t kMark = 0x54574643;
constexpr uint32_t kMostKeyBytes = 4096;

struct RecordHeader {
  Le<uint32_t> mark;
  Le<uint32_t> key_bytes;
  Le<uint64_t> table_bytes, code_bytes;
  Le<uint64_t> error, energy;  // bits of doubles
  Le<uint64_t> count;
  uint8_t hash[32];
};
static_assert(sizeof(RecordHeader) == 80);
constexpr size_t kHashed = offsetof(RecordHeader, hash);
constexpr uint64_t kHeadBytes = 8 + sizeof(mil::Sha256Digest);

mil::Sha256Digest HashOf(const RecordHeader& header, Bytes behind) {
  mil::Sha256 hash;
  hash.Add(std::as_bytes(std::span(&header, 1)).first(kHashed));
  hash.Add(behind);
  return hash.Finish();
}

}  // namespace

Result<WeightJournal> WeightJournal::Open(const std::filesystem::path& path, std::string_view identity,
                                          bool resume) {
  WeightJournal journal;
  CMF_TRY(journal.file_, AtomicFile::TakeUp(path, "", resume,
                                            [](const AtomicFile& file) { return file.BeginsWith(kMagic); }));
  const mil::Sha256Digest digest = mil::Sha256Of(AsBytes(identity));
  std::vector<std::byte> head(kHeadBytes);
  std::ranges::copy(AsBytes(kMagic), head.begin());
  std::ranges::copy(std::as_bytes(std::span(digest)), head.begin() + kMagic.size());
  std::vector<std::byte> found(kHeadBytes);
  if (resume && journal.file_.size() >= kHeadBytes) CMF_CHECK(journal.file_.ReadAt(0, found));
  if (found == head) {
    CMF_CHECK(journal.TakeOver());
  } else {
    CMF_CHECK(journal.file_.CutTo(0));
    CMF_CHECK(journal.file_.Write(head));
  }
  return journal;
}

Result<void> WeightJournal::TakeOver() {
  const uint64_t end = file_.size();
  uint64_t at = kHeadBytes;
  while (end - at >= sizeof(RecordHeader)) {
    RecordHeader header;
    CMF_CHECK(file_.ReadAt(at, std::as_writable_bytes(std::span(&header, 1))));
    uint64_t left = end - at - sizeof header;
    if (header.mark != kMark || header.key_bytes > kMostKeyBytes || header.key_bytes > left) break;
    left -= header.key_bytes;
    if (header.table_bytes > left || header.code_bytes > left - header.table_bytes) break;
    std::string key(header.key_bytes, '\0');
    CMF_CHECK(file_.ReadAt(at + sizeof header, std::as_writable_bytes(std::span(key))));
    const uint64_t size = sizeof header + header.key_bytes + header.table_bytes + header.code_bytes;
    records_[key] = {at, size, true};
    at += size;
  }
  return file_.CutTo(at);
}

Result<std::optional<EncodedWeight>> WeightJournal::Find(const std::string& key) const {
  const auto it = records_.find(key);
  if (it == records_.end()) return std::nullopt;
  std::vector<std::byte> bytes(it->second.size);
  CMF_CHECK(file_.ReadAt(it->second.offset, bytes));
  const auto header = LoadLe<RecordHeader>(bytes.data());
  const Bytes behind = Bytes(bytes).subspan(sizeof header);
  const mil::Sha256Digest hash = HashOf(header, behind);
  if (!std::equal(hash.begin(), hash.end(), header.hash)) return std::nullopt;
  if (it->second.is_old) ++resumed_;
  EncodedWeight weight;
  const auto* tables = behind.data() + header.key_bytes;
  weight.tables.assign(tables, tables + header.table_bytes);
  weight.codes.assign(tables + header.table_bytes, tables + header.table_bytes + header.code_bytes);
  weight.error = std::bit_cast<double>(uint64_t{header.error});
  weight.energy = std::bit_cast<double>(uint64_t{header.energy});
  weight.count = static_cast<int64_t>(uint64_t{header.count});
  return weight;
}

Result<void> WeightJournal::Add(const std::string& key, const EncodedWeight& weight) {
  RecordHeader header{kMark,
                      static_cast<uint32_t>(key.size()),
                      weight.tables.size(),
                      weight.codes.size(),
                      std::bit_cast<uint64_t>(weight.error),
                      std::bit_cast<uint64_t>(weight.energy),
                      static_cast<uint64_t>(weight.count),
                      {}};
  std::vector<std::byte> behind;
  behind.reserve(key.size() + weight.tables.size() + weight.codes.size());
  for (const Bytes part : {AsBytes(key), Bytes(weight.tables), Bytes(weight.codes)})
    behind.insert(behind.end(), part.begin(), part.end());
  const mil::Sha256Digest hash = HashOf(header, behind);
  std::ranges::copy(hash, header.hash);
  const uint64_t offset = file_.size();
  CMF_CHECK(file_.Write(std::as_bytes(std::span(&header, 1))));
  CMF_CHECK(file_.Write(behind));
  records_[key] = {offset, sizeof header + behind.size(), false};
  return {};
}

}  // namespace cmforge::coreml
