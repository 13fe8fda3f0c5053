// A sequence as bytes:
//
//   SnapshotHeader, gates, then for every visit that has state: SnapshotState, blocks of its cache,
//   convolution history and recurrent state as f32.
//
// Every size follows from the model and the position, so a snapshot either fits exactly or is refused.
#include <cstring>

#include "base/bytes.h"
#include "engine/sequence.h"
#include "kernels/elementwise.h"

namespace cmforge::engine {
namespace {

constexpr char kMagic[8] = {'C', 'M', 'F', 'S', 'E', 'Q', '\r', '\n'};
constexpr uint32_t kVersion = 3;

struct SnapshotHeader {
  char magic[8];
  Le<uint32_t> version;
  Le<uint32_t> kv_type;
  Le<uint64_t> identity;
  Le<int64_t> position;
  Le<int64_t> context_length;
  Le<uint64_t> visits;
  Le<uint64_t> gate_bytes;
  Le<uint64_t> total_bytes;  // of the whole snapshot
  Le<uint64_t> checksum;     // of all bytes, this field taken as 0
};
static_assert(sizeof(SnapshotHeader) == 72);

struct SnapshotState {
  Le<int64_t> first_page;
  Le<int64_t> pages;
  Le<uint64_t> conv;   // floats
  Le<uint64_t> delta;  // floats
  Le<int64_t> delta_filled;
};
static_assert(sizeof(SnapshotState) == 40);

uint64_t Mix(uint64_t sum, Bytes bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    sum = (sum ^ LoadLe<uint64_t>(bytes.data() + i)) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
  }
  for (; i < bytes.size(); ++i) sum = (sum ^ static_cast<uint64_t>(bytes[i])) * 0x100000001B3u;
  return sum;
}

/// Of `header` with its checksum taken as 0 and of what stands behind it in `snapshot`.
uint64_t Checksum(SnapshotHeader header, Bytes snapshot) {
  header.checksum = 0;
  std::byte front[sizeof(header)];
  std::memcpy(front, &header, sizeof(header));
  return Mix(Mix(snapshot.size(), front), snapshot.subspan(sizeof(header)));
}

void Append(std::vector<std::byte>& out, const void* data, size_t size) {
  const auto* from = static_cast<const std::byte*>(data);
  out.insert(out.end(), from, from + size);
}

tl::unexpected<Error> NotASnapshot(std::string_view why) {
  return Fail(ErrorKind::kCorrupt, fmt::format("sequence state: {}: it cannot be restored", why));
}

/// Takes `size` bytes off the front of `rest`.
Result<Bytes> Take(Bytes& rest, uint64_t size) {
  if (size > rest.size()) return NotASnapshot(fmt::format("{} bytes wanted, {} left", size, rest.size()));
  const Bytes taken = rest.first(size);
  rest = rest.subspan(size);
  return taken;
}

Result<void> TakeFloats(Bytes& rest, uint64_t stored, std::vector<float>& out) {
  if (stored != out.size())
    return NotASnapshot(fmt::format("{} state values, the model has {}", stored, out.size()));
  CMF_TRY(const Bytes bytes, Take(rest, stored * sizeof(float)));
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return {};
}

}  // namespace

Result<std::vector<std::byte>> EngineSequence::Snapshot() const {
  std::vector<std::byte> out(sizeof(SnapshotHeader));
  out.reserve(out.size() + state_bytes() + states_.size() * sizeof(SnapshotState));
  Append(out, gates_.data(), gates_.size());
  for (const LayerState& state : states_) {
    SnapshotState head;
    head.first_page = state.kv.first_page();
    head.pages = state.kv.page_count();
    head.conv = state.conv.size();
    head.delta = state.delta.size();
    head.delta_filled = state.delta_filled;
    Append(out, &head, sizeof(head));
    for (int64_t i = 0; i < state.kv.page_count(); ++i) {
      Append(out, state.kv.pages()[i], static_cast<size_t>(state.kv.block_bytes()));
    }
    Append(out, state.conv.data(), state.conv.size() * sizeof(float));
    Append(out, state.delta.data(), state.delta.size() * sizeof(float));
  }
  SnapshotHeader header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.kv_type = static_cast<uint32_t>(kv_);
  header.identity = model_->identity;
  header.position = position_;
  header.context_length = context_length_;
  header.visits = states_.size();
  header.gate_bytes = gates_.size();
  header.total_bytes = out.size();
  header.checksum = 0;
  std::memcpy(out.data(), &header, sizeof(header));
  header.checksum = Checksum(header, out);
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

Result<std::unique_ptr<Sequence>> EngineSequence::Restore(std::shared_ptr<const SequenceModel> model,
                                                          std::span<const std::byte> snapshot) {
  Bytes rest = snapshot;
  CMF_TRY(const Bytes header_bytes, Take(rest, sizeof(SnapshotHeader)));
  SnapshotHeader header;
  std::memcpy(&header, header_bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) return NotASnapshot("not a saved sequence");
  if (header.version != kVersion) {
    return Fail(ErrorKind::kUnsupported, fmt::format("sequence state: version {}, this build reads {}",
                                                     uint32_t{header.version}, kVersion));
  }
  if (header.identity != model->identity) {
    return Fail(ErrorKind::kUsage,
                fmt::format("sequence state: saved from model {:016x}, this one is {:016x}",
                            uint64_t{header.identity}, model->identity));
  }
  if (header.total_bytes != snapshot.size()) {
    return NotASnapshot(
        fmt::format("{} bytes, its header says {}", snapshot.size(), uint64_t{header.total_bytes}));
  }
  if (header.checksum != Checksum(header, snapshot)) return NotASnapshot("the checksum does not match");
  const Network& network = *model->network;
  const int64_t position = header.position, context = header.context_length;
  if (header.kv_type > static_cast<uint32_t>(KvType::kQ8) || context < 1 ||
      context > network.config.max_position_embeddings || position < 0 || position > context) {
    return NotASnapshot(
        fmt::format("position {} of {}, cache type {}", position, context, uint32_t{header.kv_type}));
  }
  const auto visits = static_cast<uint64_t>(network.visits());
  if (header.visits != visits)
    return NotASnapshot(fmt::format("{} layers, the model has {}", uint64_t{header.visits}, visits));
  if (header.gate_bytes > visits)
    return NotASnapshot(fmt::format("{} bytes of gates", uint64_t{header.gate_bytes}));

  CMF_TRY(auto sequence, Make(std::move(model), context, static_cast<KvType>(uint32_t{header.kv_type})));
  sequence->position_ = position;
  CMF_TRY(const Bytes gates, Take(rest, header.gate_bytes));
  sequence->gates_.resize(gates.size());
  if (!gates.empty()) std::memcpy(sequence->gates_.data(), gates.data(), gates.size());
  for (LayerState& state : sequence->states_) {
    CMF_TRY(const Bytes head_bytes, Take(rest, sizeof(SnapshotState)));
    SnapshotState head;
    std::memcpy(&head, head_bytes.data(), sizeof(head));
    const int64_t first = head.first_page, pages = head.pages;
    const int64_t all = (position + kPagePositions - 1) / kPagePositions;
    const bool is_empty = pages == 0;
    if (first < 0 || pages < 0 || first > all || pages > all - first ||
        (pages > 0 && state.kv.block_bytes() == 0) ||
        (!is_empty && (first + pages != all || (state.kv.window() == 0 && first != 0)))) {
      return NotASnapshot(fmt::format("cache blocks {} + {} at position {}", first, pages, position));
    }
    if (!is_empty) {
      const auto size = static_cast<uint64_t>(pages) * static_cast<uint64_t>(state.kv.block_bytes());
      if (size > rest.size())
        return NotASnapshot(fmt::format("{} bytes of cache wanted, {} left", size, rest.size()));
      state.kv.Restore(first, pages);
      if (!state.kv.CanRewindTo(position))
        return NotASnapshot("a window lacks positions that are still seen");
      for (int64_t i = 0; i < pages; ++i) {
        CMF_TRY(const Bytes block, Take(rest, static_cast<uint64_t>(state.kv.block_bytes())));
        std::memcpy(state.kv.MutableBlock(i), block.data(), block.size());
      }
    }
    CMF_CHECK(TakeFloats(rest, head.conv, state.conv));
    CMF_CHECK(TakeFloats(rest, head.delta, state.delta));
    if (head.delta_filled < 0 || head.delta_filled >= (state.delta.empty() ? 1 : kDeltaChunk))
      return NotASnapshot(fmt::format("{} tokens in an unfinished chunk", int64_t{head.delta_filled}));
    state.delta_filled = head.delta_filled;
  }
  if (!rest.empty()) return NotASnapshot(fmt::format("{} bytes too many", rest.size()));
  return std::unique_ptr<Sequence>(std::move(sequence));
}

}  // namespace cmforge::engine
