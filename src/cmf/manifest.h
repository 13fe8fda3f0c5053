// The manifest beside a file that is being written, FILE.manifest: which payloads of FILE.part are complete, so that an
// interrupted conversion goes on where it was.
//
//   {"data_off":N,"key":"16 hex digits"}
//   {"name":...,"dtype":id,"shape":[...],"off":N,"nbytes":N,"hash":"16 hex digits"} CHECK     a line for each payload;
//   CHECK is the hash64 of the JSON before it, 16 hex digits
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cmf/directory.h"

namespace cmforge::cmf {

/// What every manifest begins with.
inline constexpr std::string_view kManifestMagic = R"({"data_off":)";

/// The first line, ended. `key` stands for everything that decides the bytes of the file.
[[nodiscard]] std::string ManifestHead(uint64_t data_off, uint64_t key);
[[nodiscard]] std::string ManifestLine(const DirectoryEntry& entry);

/// The entries of a manifest with exactly that head, as far as its lines are whole and sound: what follows a torn or
/// strange line is not used. Nothing of another head's.
[[nodiscard]] std::vector<DirectoryEntry> ReadManifest(std::string_view text, uint64_t data_off,
                                                       uint64_t key);

}  // namespace cmforge::cmf
