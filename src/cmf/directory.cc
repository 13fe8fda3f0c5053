// The directory section <-> entries; every number is checked before it is used.
#include "cmf/directory.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "cmf/envelope.h"
#include "quant/encoding.h"

namespace cmforge::cmf {
namespace {

constexpr uint64_t kCounts = 16;  // [count u64][pool_off u64]

// Names may share bytes of the pool, so 56 bytes of record can claim 64 KiB of name. Real files are far below
// this.
constexpr uint64_t kNameSlack = uint64_t{16} << 20;

// No encoding packs more than 8 weights into a byte; this also keeps later products of sizes inside 64 bits.
constexpr int64_t kMaxElementsPerByte = 8;

Result<void> CheckPayload(const DirectoryEntry& entry, uint64_t data_size) {
  const TensorInfo& info = entry.info;
  const auto where = [&] { return fmt::format("tensor '{}'", info.name); };
  if (entry.offset % kTensorAlignment != 0) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: offset {} is not a multiple of {}", where(), entry.offset, kTensorAlignment),
                "Bounds");
  }
  if (entry.offset > data_size || info.nbytes > data_size - entry.offset) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("{}: bytes {} + {} leave the data of {}", where(), entry.offset, info.nbytes, data_size),
        "Bounds");
  }
  const auto elements = ElementCount(info.shape);
  if (!elements || static_cast<uint64_t>(*elements / kMaxElementsPerByte) > info.nbytes) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: shape {} does not fit into its {} bytes", where(), ShapeText(info.shape),
                            info.nbytes),
                "Bounds");
  }
  const Encoding* encoding = FindEncoding(info.dtype);
  if (encoding == nullptr) return {};  // a reserved dtype: opens, cannot be decoded
  if (const std::string reason = encoding->reason_against(info.shape); !reason.empty()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: cannot be {}: {}", where(), DTypeName(info.dtype), reason), "Parse");
  }
  if (const auto needed = encoding->payload_size(info.shape); needed && *needed != info.nbytes) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: {} bytes stored, shape {} of {} needs {}", where(), info.nbytes,
                            ShapeText(info.shape), DTypeName(info.dtype), *needed),
                "Bounds");
  }
  return {};
}

}  // namespace

Result<std::vector<DirectoryEntry>> ReadDirectory(Bytes section, uint64_t data_size) {
  const auto parse_error = [](std::string message) {
    return Fail(ErrorKind::kCorrupt, fmt::format("directory: {}", message), "Parse");
  };
  if (section.size() < kCounts)
    return parse_error(fmt::format("{} bytes, the counts alone need {}", section.size(), kCounts));
  const auto count = LoadLe<uint64_t>(section.data());
  const auto pool_off = LoadLe<uint64_t>(section.data() + 8);
  if (count > (section.size() - kCounts) / sizeof(DirRecord)) {
    return parse_error(fmt::format("{} records do not fit into {} bytes", count, section.size()));
  }
  if (pool_off < kCounts + count * sizeof(DirRecord) || pool_off > section.size()) {
    return parse_error(fmt::format("the name pool at {} is not between the {} records and the end at {}",
                                   pool_off, count, section.size()));
  }
  const std::string_view pool = AsText(section.subspan(pool_off));

  std::vector<DirectoryEntry> entries(count);
  std::unordered_set<std::string_view> names;
  names.reserve(count);
  uint64_t name_bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    DirRecord record;
    std::memcpy(&record, section.data() + kCounts + i * sizeof(DirRecord), sizeof(record));
    if (record.name_off > pool.size() || record.name_len > pool.size() - record.name_off) {
      return parse_error(fmt::format("record {}: name bytes {} + {} leave the pool of {}", i,
                                     uint32_t{record.name_off}, uint16_t{record.name_len}, pool.size()));
    }
    const std::string_view name = pool.substr(record.name_off, record.name_len);
    if (!IsUtf8(name)) return parse_error(fmt::format("record {}: the name is not UTF-8", i));
    if (!names.insert(name).second) return parse_error(fmt::format("tensor '{}' occurs twice", name));
    if (name_bytes += name.size(); name_bytes > section.size() + kNameSlack) {
      return Fail(ErrorKind::kLimit,
                  fmt::format("directory: the names overlap and make more than {} bytes",
                              section.size() + kNameSlack),
                  "Parse");
    }
    if (record.ndim > kMaxDims) {
      return parse_error(
          fmt::format("tensor '{}': {} dimensions, at most {} are possible", name, record.ndim, kMaxDims));
    }
    if (record.dtype >= kCmfDTypeCount) {
      return Fail(ErrorKind::kUnsupported,
                  fmt::format("directory: tensor '{}': dtype id {} is unknown: use a newer version", name,
                              record.dtype),
                  "Parse");
    }
    DirectoryEntry& entry = entries[i];
    entry.info.name = name;
    entry.info.dtype = static_cast<DType>(record.dtype);
    entry.info.shape.assign(record.shape, record.shape + record.ndim);
    entry.info.nbytes = record.nbytes;
    entry.offset = record.off;
    entry.hash = record.hash;
    CMF_CHECK(CheckPayload(entry, data_size));
  }
  return entries;
}

uint64_t DirectorySize(std::span<const std::string> names) {
  uint64_t size = kCounts + names.size() * sizeof(DirRecord);
  for (const std::string& name : names) size += name.size();
  return size;
}

Result<std::vector<std::byte>> PackDirectory(std::span<const DirectoryEntry> entries) {
  const uint64_t pool_off = kCounts + entries.size() * sizeof(DirRecord);
  std::vector<std::byte> section(pool_off);
  StoreLe<uint64_t>(section.data(), entries.size());
  StoreLe<uint64_t>(section.data() + 8, pool_off);
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [info, offset, hash] = entries[i];
    const auto refuse = [&](std::string_view reason) {
      return Fail(ErrorKind::kUsage, fmt::format("tensor '{}': {}", info.name, reason));
    };
    if (info.name.size() > std::numeric_limits<uint16_t>::max())
      return refuse("the name is longer than 65535 bytes");
    if (!IsUtf8(info.name)) return refuse("the name is not UTF-8");
    if (!names.insert(info.name).second) return refuse("the name occurs twice");
    if (info.shape.size() > kMaxDims)
      return refuse(fmt::format("{} dimensions, at most {} are possible", info.shape.size(), kMaxDims));
    if (static_cast<int>(info.dtype) >= kCmfDTypeCount)
      return refuse(fmt::format("{} cannot be stored in a .cmf", DTypeName(info.dtype)));
    const uint64_t name_off = section.size() - pool_off;
    if (name_off > std::numeric_limits<uint32_t>::max()) {
      return Fail(ErrorKind::kLimit, fmt::format("directory: the names make more than {} bytes",
                                                 std::numeric_limits<uint32_t>::max()));
    }
    DirRecord record{};
    record.name_off = static_cast<uint32_t>(name_off);
    record.name_len = static_cast<uint16_t>(info.name.size());
    record.dtype = static_cast<uint8_t>(info.dtype);
    record.ndim = static_cast<uint8_t>(info.shape.size());
    for (size_t d = 0; d < info.shape.size(); ++d) {
      if (info.shape[d] < 0 || info.shape[d] > int64_t{std::numeric_limits<uint32_t>::max()}) {
        return refuse(fmt::format("dimension {} does not fit into 32 bits", info.shape[d]));
      }
      record.shape[d] = static_cast<uint32_t>(info.shape[d]);
    }
    record.off = offset;
    record.nbytes = info.nbytes;
    record.hash = hash;
    std::memcpy(section.data() + kCounts + i * sizeof(DirRecord), &record, sizeof(record));
    const Bytes name = AsBytes(info.name);
    section.insert(section.end(), name.begin(), name.end());
  }
  return section;
}

}  // namespace cmforge::cmf
