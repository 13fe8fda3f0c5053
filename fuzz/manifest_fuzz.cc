// room: cmf
// A hostile manifest beside an interrupted conversion, as it is and with sound checks behind its lines: entries that are
// taken are written and read to the same.
#include <cstdlib>

#include "cmf/hash64.h"
#include "cmf/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cmforge;  // NOLINT: a fuzz target
  constexpr uint64_t kDataOff = 4096, kKey = 0x0123456789abcdef;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)cmf::ReadManifest(text, kDataOff, kKey);
  std::string sound = cmf::ManifestHead(kDataOff, kKey);
  for (size_t at = 0; at < text.size();) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    sound += fmt::format("{} {}\n", line, cmf::Hash64Hex(cmf::Hash64(AsBytes(line))));
    at += line.size() + 1;
  }
  const auto entries = cmf::ReadManifest(sound, kDataOff, kKey);
  std::string again = cmf::ManifestHead(kDataOff, kKey);
  for (const auto& entry : entries) again += cmf::ManifestLine(entry);
  if (cmf::ReadManifest(again, kDataOff, kKey).size() != entries.size()) abort();
  return 0;
}
