// Reading and writing of weight files.
#include "mil/blob_file.h"

#include <array>

namespace cmforge::mil {
namespace {

struct BlobHeader {
  Le<uint32_t> count;
  Le<uint32_t> version;  // 2
  uint8_t reserved[56] = {};
};
static_assert(sizeof(BlobHeader) == 64);

struct EntryHeader {
  Le<uint32_t> mark;          // kBlobMark
  Le<uint32_t> type;          // code of the table below
  Le<uint64_t> size;          // bytes of data
  Le<uint64_t> data_offset;   // in the file
  Le<uint64_t> padding_bits;  // unused high bits of the last byte, sub-byte types only
  uint8_t reserved[32] = {};
};
static_assert(sizeof(EntryHeader) == 64);

constexpr uint32_t kVersion = 2;

// Position = code - 1.
constexpr std::array kCodes = {
    DataType::kFloat16,      DataType::kFloat32,   DataType::kUInt8, DataType::kInt8,  DataType::kBFloat16,
    DataType::kInt16,        DataType::kUInt16,    DataType::kInt4,  DataType::kUInt1, DataType::kUInt2,
    DataType::kUInt4,        DataType::kUInt3,     DataType::kUInt6, DataType::kInt32, DataType::kUInt32,
    DataType::kFloat8E4M3FN, DataType::kFloat8E5M2};

template <class T>
Bytes StructBytes(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

std::optional<uint32_t> BlobCodeOf(DataType type) {
  for (uint32_t i = 0; i < kCodes.size(); ++i) {
    if (kCodes[i] == type) return i + 1;
  }
  return std::nullopt;
}

std::optional<DataType> TypeOfBlobCode(uint32_t code) {
  if (code < 1 || code > kCodes.size()) return std::nullopt;
  return kCodes[code - 1];
}

uint64_t BlobEntry::count() const {
  const auto bits = static_cast<uint64_t>(BitsOf(dtype));
  return bits >= 8 ? data.size() / (bits / 8) : (data.size() * 8 - padding_bits) / bits;
}

Result<BlobFile> BlobFile::FromBytes(Bytes bytes) {
  BlobFile blob;
  blob.bytes_ = bytes;
  if (bytes.size() < sizeof(BlobHeader)) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} bytes, a weight file has at least {}", bytes.size(), sizeof(BlobHeader)));
  }
  const auto header = LoadLe<BlobHeader>(bytes.data());
  if (header.version != kVersion) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("weight file version {}, {} is known", uint32_t{header.version}, kVersion));
  }
  return blob;
}

Result<BlobFile> BlobFile::Open(const std::filesystem::path& path, MappedFile::Mode mode) {
  CMF_TRY(MappedFile file, MappedFile::Open(path, mode));
  auto blob = FromBytes(file.bytes());
  if (!blob) return Fail(std::move(blob).error().In(path.string()));
  blob->file_ = std::move(file);
  return blob;
}

uint32_t BlobFile::declared_entries() const { return LoadLe<BlobHeader>(bytes_.data()).count; }

Result<BlobEntry> BlobFile::Entry(uint64_t offset) const {
  const auto fail = [&](std::string what) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}{}entry at {}: {}", path(), path().empty() ? "" : ": ", offset, what));
  };
  if (offset % kBlobAlignment != 0 || offset < sizeof(BlobHeader))
    return fail("no multiple of 64 behind the header");
  if (offset > bytes_.size() || bytes_.size() - offset < sizeof(EntryHeader)) {
    return fail(fmt::format("outside the file of {} bytes", bytes_.size()));
  }
  const auto header = LoadLe<EntryHeader>(bytes_.data() + offset);
  if (header.mark != kBlobMark) {
    return fail(fmt::format("mark 0x{:08x} where 0x{:08x} should be", uint32_t{header.mark}, kBlobMark));
  }
  const auto dtype = TypeOfBlobCode(header.type);
  if (!dtype) return fail(fmt::format("type code {} is not known", uint32_t{header.type}));
  if (header.padding_bits > 7 || (header.size == 0 && header.padding_bits != 0)) {
    return fail(fmt::format("{} padding bits", uint64_t{header.padding_bits}));
  }
  const auto range = ByteRange::Checked(header.data_offset, header.size, bytes_.size(), "data");
  if (!range) return fail(range.error().message);
  return BlobEntry{offset, *dtype, header.padding_bits, range->Of(bytes_)};
}

Result<Bytes> BlobFile::Tensor(uint64_t offset, const TensorType& type) const {
  CMF_TRY(const BlobEntry entry, Entry(offset));
  const auto count = type.is_static() ? ElementCount(type.shape) : std::nullopt;
  const auto wanted = count ? StorageBytes(type.dtype, *count) : std::nullopt;
  if (entry.dtype == type.dtype && wanted == entry.data.size()) return entry.data;
  return Fail(ErrorKind::kCorrupt,
              fmt::format("{}{}entry at {}: {} bytes of {} stored, {} bytes of {} wanted", path(),
                          path().empty() ? "" : ": ", offset, entry.data.size(), DataTypeName(entry.dtype),
                          wanted.value_or(0), TypeText(type)));
}

Result<std::vector<BlobEntry>> BlobFile::Entries() const {
  std::vector<BlobEntry> entries;
  uint64_t at = sizeof(BlobHeader);
  // Every entry takes 64 bytes of file at least, so a lying count ends with the file.
  for (uint32_t i = 0; i < declared_entries(); ++i) {
    CMF_TRY(BlobEntry entry, Entry(at));
    const auto end = static_cast<uint64_t>(entry.data.data() + entry.data.size() - bytes_.data());
    at = AlignUp(std::max(end, at + sizeof(EntryHeader)), kBlobAlignment);
    entries.push_back(entry);
  }
  return entries;
}

Result<BlobWriter> BlobWriter::Create(const std::filesystem::path& path) {
  BlobWriter writer;
  CMF_TRY(writer.file_, AtomicFile::Create(path));
  CMF_CHECK(writer.file_.Write(StructBytes(BlobHeader{0, kVersion, {}})));
  return writer;
}

Result<uint64_t> BlobWriter::Add(DataType dtype, int64_t count, Bytes bytes) {
  CMF_CHECK(Begin(dtype, count));
  CMF_CHECK(Append(bytes));
  return End();
}

Result<void> BlobWriter::Begin(DataType dtype, int64_t count) {
  const auto code = BlobCodeOf(dtype);
  const auto size = StorageBytes(dtype, count);
  if (!code || !size) {
    return Fail(ErrorKind::kUsage,
                fmt::format("a weight file cannot hold {} elements of {}", count, DataTypeName(dtype)));
  }
  before_ = file_.size();
  offset_ = AlignUp(before_, kBlobAlignment);
  left_ = *size;
  const auto unused = *size * 8 - static_cast<uint64_t>(count) * static_cast<uint64_t>(BitsOf(dtype));
  const EntryHeader header{kBlobMark, *code, *size, offset_ + sizeof(EntryHeader), unused, {}};
  CMF_CHECK(file_.PadTo(offset_));
  CMF_CHECK(file_.Write(StructBytes(header)));
  hash_ = Sha256();
  const Le<uint64_t> identity[3] = {*code, *size, unused};
  hash_.Add(StructBytes(identity));
  return {};
}

Result<void> BlobWriter::Append(Bytes bytes) {
  if (bytes.size() > left_) {
    return Fail(ErrorKind::kUsage, fmt::format("{} bytes more than the tensor has", bytes.size() - left_));
  }
  left_ -= bytes.size();
  hash_.Add(bytes);
  return file_.Write(bytes);
}

Result<uint64_t> BlobWriter::End() {
  if (left_ > 0) return Fail(ErrorKind::kUsage, fmt::format("{} bytes of the tensor are missing", left_));
  const auto [known, is_new] = known_.emplace(hash_.Finish(), offset_);
  if (is_new) {
    ++entries_;
  } else {
    CMF_CHECK(file_.CutTo(before_));
  }
  return known->second;
}

Result<void> BlobWriter::Commit() {
  CMF_CHECK(file_.WriteAt(0, StructBytes(BlobHeader{entries_, kVersion, {}})));
  return file_.Commit();
}

}  // namespace cmforge::mil
