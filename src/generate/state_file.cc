// State files.
#include "generate/state_file.h"

#include "base/atomic_file.h"
#include "base/mapped_file.h"

namespace cmforge {
namespace {

constexpr std::string_view kMagic = "CMFSTATE";
constexpr uint32_t kVersion = 2;

struct StateHeader {
  char magic[8];
  Le<uint32_t> version;
  Le<uint32_t> tokens;
  Le<uint64_t> checksum;  // of all bytes, this field taken as 0
};
static_assert(sizeof(StateHeader) == 24);

/// Every step can be undone, so no change of one word goes unnoticed.
uint64_t AddToChecksum(uint64_t sum, Bytes bytes) {
  const auto add = [&](uint64_t word) {
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
  };
  add(bytes.size());
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) add(LoadLe<uint64_t>(bytes.data() + i));
  for (; i < bytes.size(); ++i) add(static_cast<uint64_t>(bytes[i]));
  return sum;
}

uint64_t ChecksumOf(StateHeader header, Bytes tokens, Bytes snapshot) {
  header.checksum = 0;
  const uint64_t sum = AddToChecksum(0, std::as_bytes(std::span(&header, 1)));
  return AddToChecksum(AddToChecksum(sum, tokens), snapshot);
}

}  // namespace

Result<void> SaveState(const std::filesystem::path& path, const Sequence& sequence,
                       std::span<const TokenId> tokens) {
  CMF_TRY(const std::vector<std::byte> snapshot, sequence.Snapshot());
  StateHeader header = {};
  kMagic.copy(header.magic, sizeof(header.magic));
  header.version = kVersion;
  header.tokens = static_cast<uint32_t>(tokens.size());
  header.checksum = ChecksumOf(header, std::as_bytes(tokens), snapshot);
  CMF_TRY(AtomicFile file, AtomicFile::Create(path));
  CMF_CHECK(file.Write(std::as_bytes(std::span(&header, 1))));
  CMF_CHECK(file.Write(std::as_bytes(tokens)));
  CMF_CHECK(file.Write(snapshot));
  return file.Commit();
}

Result<SavedState> LoadState(const std::filesystem::path& path, const LanguageModel& model) {
  CMF_TRY(const MappedFile file, MappedFile::Open(path));
  const Bytes bytes = file.bytes();
  const auto broken = [&](std::string_view why) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}: save the state again", path.string(), why));
  };
  if (bytes.size() < sizeof(StateHeader)) return broken("too short to be a state file");
  const auto header = LoadLe<StateHeader>(bytes.data());
  if (std::string_view(header.magic, sizeof(header.magic)) != kMagic) return broken("not a state file");
  if (header.version != kVersion) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: state version {}, this program reads {}: save the state again",
                            path.string(), static_cast<uint32_t>(header.version), kVersion));
  }
  const uint64_t token_bytes = uint64_t{header.tokens} * sizeof(TokenId);
  if (token_bytes > bytes.size() - sizeof(StateHeader)) return broken("its tokens are cut short");
  const Bytes snapshot = bytes.subspan(sizeof(StateHeader) + token_bytes);
  if (header.checksum != ChecksumOf(header, bytes.subspan(sizeof(StateHeader), token_bytes), snapshot))
    return broken("its checksum does not match");
  SavedState state;
  state.tokens.resize(header.tokens);
  std::memcpy(state.tokens.data(), bytes.data() + sizeof(StateHeader), token_bytes);
  for (const TokenId token : state.tokens) {
    if (token < 0 || token >= model.config().vocab_size)
      return broken(fmt::format("token {} is not in the vocabulary", token));
  }
  auto sequence = model.RestoreSequence(snapshot);
  if (!sequence) return Fail(std::move(sequence).error().In(path.string()));
  state.sequence = std::move(*sequence);
  if (state.sequence->position() > static_cast<int64_t>(state.tokens.size()))
    return broken("fewer tokens than its position");
  return state;
}

}  // namespace cmforge
