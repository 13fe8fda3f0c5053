// Lines of JSON.
#include "cmf/manifest.h"

#include "base/json.h"
#include "cmf/hash64.h"

namespace cmforge::cmf {
namespace {

constexpr size_t kCheckDigits = 16;

std::optional<DirectoryEntry> ParseLine(std::string_view line) {
  if (line.size() <= kCheckDigits) return std::nullopt;
  const std::string_view check = line.substr(line.size() - kCheckDigits);
  line.remove_suffix(kCheckDigits + 1);
  if (check != Hash64Hex(Hash64(AsBytes(line)))) return std::nullopt;
  const auto json = ParseJson(line, "manifest");
  if (!json || !json->is_object()) return std::nullopt;
  const auto count = [&](const char* key) -> std::optional<uint64_t> {
    const auto it = json->find(key);
    return it != json->end() && it->is_number_unsigned() ? std::optional(it->get<uint64_t>()) : std::nullopt;
  };
  const auto name = json->find("name"), shape = json->find("shape"), hash = json->find("hash");
  const auto dtype = count("dtype"), off = count("off"), nbytes = count("nbytes");
  if (name == json->end() || !name->is_string() || shape == json->end() || !shape->is_array() ||
      hash == json->end() || !hash->is_string() || !dtype || *dtype >= kCmfDTypeCount || !off || !nbytes)
    return std::nullopt;
  DirectoryEntry entry;
  entry.info.name = name->get<std::string>();
  entry.info.dtype = static_cast<DType>(*dtype);
  for (const Json& dimension : *shape) {
    if (!dimension.is_number_unsigned() || dimension.get<uint64_t>() > INT64_MAX) return std::nullopt;
    entry.info.shape.push_back(dimension.get<int64_t>());
  }
  entry.info.nbytes = *nbytes;
  entry.offset = *off;
  const auto value = ParseHash64Hex(hash->get<std::string>());
  if (!value) return std::nullopt;
  entry.hash = *value;
  return entry;
}

}  // namespace

std::string ManifestHead(uint64_t data_off, uint64_t key) {
  return DumpJson(Json{{"data_off", data_off}, {"key", Hash64Hex(key)}}) + "\n";
}

std::string ManifestLine(const DirectoryEntry& entry) {
  const std::string body = DumpJson(Json{{"name", entry.info.name},
                                         {"dtype", static_cast<unsigned>(entry.info.dtype)},
                                         {"shape", entry.info.shape},
                                         {"off", entry.offset},
                                         {"nbytes", entry.info.nbytes},
                                         {"hash", Hash64Hex(entry.hash)}});
  return fmt::format("{} {}\n", body, Hash64Hex(Hash64(AsBytes(body))));
}

std::vector<DirectoryEntry> ReadManifest(std::string_view text, uint64_t data_off, uint64_t key) {
  std::vector<DirectoryEntry> entries;
  const std::string head = ManifestHead(data_off, key);
  if (!text.starts_with(head)) return entries;
  text.remove_prefix(head.size());
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    auto entry = ParseLine(text.substr(0, end));
    if (!entry) break;
    entries.push_back(std::move(*entry));
    text.remove_prefix(end + 1);
  }
  return entries;
}

}  // namespace cmforge::cmf
