// The private key of a signer: a file with a 32-byte Ed25519 seed as 64 hex digits, readable by its owner
// alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/progress.h"
#include "base/result.h"

namespace cmforge::cmf {

/// Reads the seed; without a file, makes one (permissions 0600, never through a link). Warns when others may
/// read it. Fails: kCorrupt (not 64 hex digits), kIo.
Result<std::vector<std::byte>> ReadOrCreateKey(const std::filesystem::path& path, const RunControl& run);

/// Nothing when `hex` is not an even number of hex digits (either case).
[[nodiscard]] std::optional<std::vector<std::byte>> BytesOfHex(std::string_view hex);

}  // namespace cmforge::cmf
