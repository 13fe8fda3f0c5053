// Reading and writing of package manifests.
#include "mil/manifest.h"

#include <cstdio>

#include "base/json.h"
#include "base/mapped_file.h"

namespace cmforge::mil {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kManifestLimit = 16 << 20;

Result<std::string> TextField(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it != object.end() && it->is_string()) return it->get<std::string>();
  return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is missing or no text", key));
}

Result<void> CheckVersion(const std::string& text) {
  int major = -1, minor = -1, patch = -1, used = 0;
  const int parts = std::sscanf(text.c_str(), "%9d.%9d.%9d%n", &major, &minor, &patch, &used);
  if (parts != 3 || static_cast<size_t>(used) != text.size()) {
    return Fail(ErrorKind::kCorrupt, fmt::format("fileFormatVersion '{}' is no version", text));
  }
  if (major == 1 && minor == 0 && patch == 0) return {};
  if (major < 1 && minor >= 0 && patch >= 0 && major >= 0) return {};
  return Fail(ErrorKind::kUnsupported, fmt::format("fileFormatVersion {}, 1.0.0 is known", text));
}

/// The file or folder of one item, checked to lie below `data` and to exist.
Result<fs::path> ItemPath(const fs::path& data, const std::string& text) {
  const fs::path relative = fs::path(text).lexically_normal();
  bool is_inside =
      !text.empty() && relative.is_relative() && relative != "." && text.find('\0') == std::string::npos;
  for (const fs::path& part : relative) is_inside = is_inside && part != "..";
  if (!is_inside) return Fail(ErrorKind::kCorrupt, fmt::format("path '{}' leaves the package", text));
  std::error_code error;
  const fs::path resolved = fs::canonical(data / relative, error);  // links that circle fail here
  if (error == std::errc::no_such_file_or_directory) {
    return Fail(ErrorKind::kNotFound, fmt::format("'{}' is listed, but not there", text));
  }
  if (error) return Fail(ErrorKind::kCorrupt, fmt::format("path '{}': {}", text, error.message()));
  const fs::path whole = fs::canonical(data, error);
  const auto [mismatch, ignored] =
      std::mismatch(resolved.begin(), resolved.end(), whole.begin(), whole.end());
  if (mismatch == resolved.end()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("path '{}' is a circle: it contains the package itself", text));
  }
  return data / relative;
}

}  // namespace

Result<fs::path> ModelFileOf(const fs::path& package) {
  const fs::path file = package / "Manifest.json";
  const auto read = [&]() -> Result<fs::path> {
    CMF_TRY(const std::string text, ReadTextFile(file, kManifestLimit));
    CMF_TRY(const Json json, ParseJson(text, file.string()));
    const auto parse = [&]() -> Result<fs::path> {
      if (!json.is_object()) return Fail(ErrorKind::kCorrupt, "no JSON object");
      CMF_TRY(const std::string version, TextField(json, "fileFormatVersion"));
      CMF_CHECK(CheckVersion(version));
      CMF_TRY(const std::string root, TextField(json, "rootModelIdentifier"));
      const auto items = json.find("itemInfoEntries");
      if (items == json.end() || !items->is_object())
        return Fail(ErrorKind::kCorrupt, "'itemInfoEntries' is missing");
      fs::path model;
      for (const auto& [id, item] : items->items()) {
        const auto check = [&, &entry = item]() -> Result<fs::path> {
          if (!entry.is_object()) return Fail(ErrorKind::kCorrupt, "no JSON object");
          for (const char* key : {"author", "description", "name"}) CMF_CHECK(TextField(entry, key));
          CMF_TRY(const std::string path, TextField(entry, "path"));
          return ItemPath(package / "Data", path);
        };
        auto path = check();
        if (!path) return Fail(std::move(path).error().In(fmt::format("item '{}'", id)));
        if (id == root) model = *path;
      }
      if (model.empty()) return Fail(ErrorKind::kCorrupt, fmt::format("root model '{}' is not listed", root));
      if (!fs::is_regular_file(model)) {
        return Fail(ErrorKind::kCorrupt, fmt::format("root model '{}' is no file", model.string()));
      }
      return model;
    };
    auto model = parse();
    if (!model) return Fail(std::move(model).error().In(file.string()));
    return model;
  };
  return read();
}

std::string ManifestText(const std::string& model_id, const std::string& weights_id, bool has_weights) {
  const auto item = [](const char* description, const char* name) {
    return Json{{"author", "com.apple.CoreML"},
                {"description", description},
                {"name", name},
                {"path", std::string("com.apple.CoreML/") + name}};
  };
  Json entries = Json::object();
  if (has_weights && weights_id < model_id) entries[weights_id] = item("CoreML Model Weights", "weights");
  entries[model_id] = item("CoreML Model Specification", "model.mlmodel");
  if (has_weights && weights_id > model_id) entries[weights_id] = item("CoreML Model Weights", "weights");
  const Json manifest{{"fileFormatVersion", "1.0.0"},
                      {"itemInfoEntries", std::move(entries)},
                      {"rootModelIdentifier", model_id}};
  return DumpJson(manifest, 4) + "\n";
}

}  // namespace cmforge::mil
