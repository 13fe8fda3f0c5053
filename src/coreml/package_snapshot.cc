// Writing and reading snapshots; every size follows from the states, so one either fits exactly or is refused.
#include "coreml/package_snapshot.h"

#include <cstring>

#include "base/bytes.h"
#include "base/half.h"

namespace cmforge::coreml {
namespace {

constexpr char kMagic[8] = {'C', 'M', 'F', 'M', 'L', 'S', '\r', '\n'};
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  Le<uint32_t> version;
  Le<uint32_t> is_f16;
  Le<uint64_t> identity;
  Le<int64_t> position;
  Le<int64_t> context;
  Le<uint64_t> states;
  Le<uint64_t> total_bytes;
  Le<uint64_t> checksum;  // of everything behind the header
};
static_assert(sizeof(Header) == 64);

uint64_t ChecksumOf(Bytes bytes) {
  uint64_t sum = bytes.size();
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    sum = (sum ^ LoadLe<uint64_t>(bytes.data() + i)) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
  }
  for (; i < bytes.size(); ++i) sum = (sum ^ static_cast<uint64_t>(bytes[i])) * 0x100000001B3u;
  return sum;
}

tl::unexpected<Error> NotASnapshot(std::string_view why) {
  return Fail(ErrorKind::kCorrupt, fmt::format("sequence state: {}: it cannot be restored", why));
}

uint64_t CountOf(const Port& port) { return static_cast<uint64_t>(*ElementCount(port.type.shape)); }

}  // namespace

Result<std::vector<std::byte>> WriteSnapshot(const SnapshotInfo& info, const PartState& state) {
  const std::vector<Port>& ports = state.ports();
  std::vector<std::byte> out(sizeof(Header));
  std::vector<float> values;
  for (size_t i = 0; i < ports.size(); ++i) {
    const uint64_t count = CountOf(ports[i]);
    values.resize(count);
    CMF_CHECK(state.Get(i, values));
    size_t at = out.size();
    out.resize(at + 8 + count * (info.is_f16 ? 2 : 4));
    StoreLe<uint64_t>(out.data() + at, count);
    at += 8;
    for (const float v : values) {
      if (info.is_f16) {
        StoreLe<uint16_t>(out.data() + at, F32ToF16(v));
      } else {
        StoreLe<float>(out.data() + at, v);
      }
      at += info.is_f16 ? 2 : 4;
    }
  }
  Header header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.is_f16 = info.is_f16 ? 1 : 0;
  header.identity = info.identity;
  header.position = info.position;
  header.context = info.context;
  header.states = ports.size();
  header.total_bytes = out.size();
  header.checksum = ChecksumOf(Bytes(out).subspan(sizeof(Header)));
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

Result<SnapshotInfo> ReadSnapshot(Bytes snapshot, uint64_t identity, int64_t context_limit,
                                  PartState& state) {
  if (snapshot.size() < sizeof(Header)) return NotASnapshot(fmt::format("{} bytes", snapshot.size()));
  Header header;
  std::memcpy(&header, snapshot.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return NotASnapshot("not a saved sequence of a Core ML package");
  if (header.version != kVersion) {
    return Fail(ErrorKind::kUnsupported, fmt::format("sequence state: version {}, this build reads {}",
                                                     uint32_t{header.version}, kVersion));
  }
  if (header.identity != identity) {
    return Fail(ErrorKind::kUsage,
                fmt::format("sequence state: saved from model {:016x}, this one is {:016x}",
                            uint64_t{header.identity}, identity));
  }
  if (header.total_bytes != snapshot.size())
    return NotASnapshot(
        fmt::format("{} bytes, its header says {}", snapshot.size(), uint64_t{header.total_bytes}));
  Bytes rest = snapshot.subspan(sizeof(Header));
  if (header.checksum != ChecksumOf(rest)) return NotASnapshot("the checksum does not match");
  const SnapshotInfo info{identity, header.position, header.context, header.is_f16 == 1};
  const std::vector<Port>& ports = state.ports();
  if (info.context < 1 || info.context > context_limit || info.position < 0 || info.position > info.context ||
      header.is_f16 > 1 || header.states != ports.size()) {
    return NotASnapshot(
        fmt::format("position {} of {}, {} states", info.position, info.context, uint64_t{header.states}));
  }
  const size_t width = info.is_f16 ? 2 : 4;
  std::vector<float> values;
  for (size_t i = 0; i < ports.size(); ++i) {
    const uint64_t count = CountOf(ports[i]);
    if (rest.size() < 8 || LoadLe<uint64_t>(rest.data()) != count || (rest.size() - 8) / width < count)
      return NotASnapshot(fmt::format("state '{}' is of another size", ports[i].name));
    rest = rest.subspan(8);
    values.resize(count);
    for (uint64_t k = 0; k < count; ++k) {
      const std::byte* at = rest.data() + k * width;
      values[k] = info.is_f16 ? F16ToF32(LoadLe<uint16_t>(at)) : LoadLe<float>(at);
    }
    rest = rest.subspan(count * width);
    CMF_CHECK(state.Set(i, values));
  }
  if (!rest.empty()) return NotASnapshot(fmt::format("{} bytes too many", rest.size()));
  return info;
}

}  // namespace cmforge::coreml
