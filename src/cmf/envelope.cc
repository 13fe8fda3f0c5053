// ReadEnvelope: the checks of spec 1.2 in a fixed order, each with the spec's name.
#include "cmf/envelope.h"

#include <vector>

namespace cmforge::cmf {
namespace {

struct NamedBit {
  uint32_t bit;
  std::string_view name;
};
constexpr NamedBit kFeatureNames[] = {{kTensorDir, "TENSOR_DIR"}, {kBinaryMasks, "BINARY_MASKS"},
                                      {kQuant2F, "QUANT_2F"},     {kDeltaMasks, "DELTA_MASKS"},
                                      {kHotPacks, "HOT_PACKS"},   {kLoopMasks, "LOOP_MASKS"},
                                      {kSkillFile, "SKILL_FILE"}};

Result<ByteRange> ReadSection(const SectionField& field, uint64_t file_size, std::string_view what) {
  if (field.length == 0) return ByteRange{};
  return ByteRange::Checked(field.offset, field.length, file_size, what);
}

SectionField Pack(const ByteRange& range) { return {range.size == 0 ? 0 : range.offset, range.size}; }

}  // namespace

std::string FeatureNames(uint32_t features) {
  std::vector<std::string> names;
  for (uint32_t bit = 0; bit < 32; ++bit) {
    if ((features >> bit & 1u) == 0) continue;
    std::string name = fmt::format("bit {}", bit);
    for (const NamedBit& known : kFeatureNames) {
      if (known.bit == 1u << bit) name = known.name;
    }
    names.push_back(std::move(name));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<Envelope> ReadEnvelope(Bytes file) {
  if (file.size() < kEnvelopeSize) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("envelope: the file has {} bytes, the envelope alone needs {}", file.size(),
                            kEnvelopeSize),
                "Bounds");
  }
  EnvelopeBytes raw;
  std::memcpy(&raw, file.data(), sizeof(raw));
  if (std::string_view(raw.magic.data(), raw.magic.size()) != kMagic) {
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format(
            "envelope: not a CMF v2 file: it begins with bytes {:08x}, not with 434d4601 (InvalidMagic)",
            __builtin_bswap32(LoadLe<uint32_t>(file.data()))),
        "InvalidMagic");
  }
  if (raw.version != kVersion) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format(
            "envelope: format version {}, only {} is read (UnsupportedVersion): convert the model again",
            uint32_t{raw.version}, kVersion),
        "UnsupportedVersion");
  }
  Envelope envelope;
  envelope.required_features = raw.required_features;
  if (const uint32_t unknown = envelope.required_features & ~kKnownFeatures; unknown != 0) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("envelope: the file needs features this program does not know: {} "
                            "(UnsupportedFeature): use a newer version",
                            FeatureNames(unknown)),
                "UnsupportedFeature");
  }
  const uint64_t size = file.size();
  CMF_TRY(envelope.header, ReadSection(raw.header, size, "header"));
  CMF_TRY(envelope.directory, ReadSection(raw.directory, size, "directory"));
  CMF_TRY(envelope.data, ReadSection(raw.data, size, "data"));
  CMF_TRY(envelope.masks, ReadSection(raw.masks, size, "masks"));
  CMF_TRY(envelope.vocab, ReadSection(raw.vocab, size, "vocab"));
  CMF_TRY(envelope.index, ReadSection(raw.index, size, "index"));
  for (const auto& [range, what] :
       {std::pair{envelope.header, "header"}, std::pair{envelope.directory, "directory"}}) {
    if (range.size == 0)
      return Fail(ErrorKind::kCorrupt, fmt::format("envelope: the {} section is empty", what), "Bounds");
  }
  if (envelope.data.size > 0 && envelope.data.offset % kDataAlignment != 0) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("envelope: data begins at {}, which is not a multiple of {}",
                            envelope.data.offset, kDataAlignment),
                "Bounds");
  }
  envelope.header_hash = raw.header_hash;
  envelope.directory_hash = raw.directory_hash;
  return envelope;
}

EnvelopeBytes PackEnvelope(const Envelope& envelope) {
  EnvelopeBytes raw;
  std::memcpy(raw.magic.data(), kMagic.data(), kMagic.size());
  raw.version = kVersion;
  raw.flags = 0;
  raw.required_features = envelope.required_features;
  raw.header = Pack(envelope.header);
  raw.directory = Pack(envelope.directory);
  raw.data = Pack(envelope.data);
  raw.masks = Pack(envelope.masks);
  raw.vocab = Pack(envelope.vocab);
  raw.index = Pack(envelope.index);
  raw.header_hash = envelope.header_hash;
  raw.directory_hash = envelope.directory_hash;
  return raw;
}

}  // namespace cmforge::cmf
