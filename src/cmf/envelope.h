// The envelope (spec 1): the 128 bytes at offset 0 that say where everything else lies. Sections are found
// through it alone, never by assuming an order.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace cmforge::cmf {

inline constexpr uint64_t kEnvelopeSize = 128;
inline constexpr uint64_t kDataAlignment = 4096;  // of the weight blob in the file
inline constexpr uint64_t kTensorAlignment = 64;  // of a tensor in the blob
inline constexpr std::string_view kMagic{"CMF\x01", 4};
inline constexpr uint32_t kVersion = 2;

/// Bits of `required_features` (spec 1.1).
enum Feature : uint32_t {
  kTensorDir = 1u << 0,    // always set
  kBinaryMasks = 1u << 1,  // a masks section is present
  kQuant2F = 1u << 2,      // q8_2f or vbit tensors; written, never demanded
  kDeltaMasks = 1u << 3,   // reserved: refused
  kHotPacks = 1u << 4,     // reserved: refused
  kLoopMasks = 1u << 5,    // mask rows are per visit, pass-major
  kSkillFile = 1u << 6,    // a standalone skill: not runnable (spec 9.1)
};
inline constexpr uint32_t kKnownFeatures = kTensorDir | kBinaryMasks | kQuant2F | kLoopMasks | kSkillFile;

/// As on disk.
struct SectionField {
  Le<uint64_t> offset;  // from the start of the file
  Le<uint64_t> length;  // 0 = absent, whatever the offset says
};
struct EnvelopeBytes {
  std::array<char, 4> magic;
  Le<uint32_t> version;
  Le<uint32_t> flags;  // written 0, ignored when read
  Le<uint32_t> required_features;
  SectionField header;          // JSON, spec 2
  SectionField directory;       // spec 3
  SectionField data;            // spec 4; a multiple of 4096
  SectionField masks;           // spec 5
  SectionField vocab;           // spec 6
  SectionField index;           // spec 7
  Le<uint64_t> header_hash;     // hash64 of the header JSON, 0 = absent (spec 8.1)
  Le<uint64_t> directory_hash;  // hash64 of the directory, 0 = absent
};
static_assert(sizeof(EnvelopeBytes) == kEnvelopeSize && alignof(EnvelopeBytes) == 1);

/// Checked: every section lies inside the file; an absent one is {0, 0}.
struct Envelope {
  uint32_t required_features = kTensorDir;
  ByteRange header, directory, data, masks, vocab, index;
  uint64_t header_hash = 0;
  uint64_t directory_hash = 0;
};

/// Reads and validates the envelope of a whole file, in this order: size (Bounds), InvalidMagic,
/// UnsupportedVersion, UnsupportedFeature (naming the bits), section bounds (header and directory must not be
/// empty), alignment of the data. Messages do not name the file.
Result<Envelope> ReadEnvelope(Bytes file);

[[nodiscard]] EnvelopeBytes PackEnvelope(const Envelope& envelope);

/// "TENSOR_DIR, BINARY_MASKS", unknown bits as "bit 20".
[[nodiscard]] std::string FeatureNames(uint32_t features);

}  // namespace cmforge::cmf
