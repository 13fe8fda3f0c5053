// ReadHfConfigFiles: the texts of a folder that ParseHfConfig wants.
#include "base/mapped_file.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/messages.h"

namespace cmforge {
namespace {

constexpr uint64_t kMaxConfigBytes = 32 << 20;

/// Nothing when the file is not there; an LFS pointer in its place is an error.
Result<std::optional<std::string>> ReadIfThere(const std::filesystem::path& path) {
  auto text = ReadTextFile(path, kMaxConfigBytes);
  if (!text) {
    std::error_code ignored;
    const bool is_absent =
        text.error().kind == ErrorKind::kNotFound && !std::filesystem::is_symlink(path, ignored);
    if (is_absent) return std::nullopt;
    return Fail(std::move(text).error());
  }
  if (IsLfsPointer(AsBytes(*text))) return Fail(LfsPointerError(path.string()));
  return std::move(*text);
}

}  // namespace

Result<HfConfigFiles> ReadHfConfigFiles(const std::filesystem::path& folder,
                                        std::string_view tokenizer_json) {
  HfConfigFiles files;
  files.folder = folder.string();
  files.tokenizer_json = tokenizer_json;
  CMF_TRY(auto config, ReadIfThere(folder / "config.json"));
  if (!config) {
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: no config.json: name a Hugging Face checkpoint folder", files.folder));
  }
  files.config = std::move(*config);
  CMF_TRY(files.generation_config, ReadIfThere(folder / "generation_config.json"));
  CMF_TRY(files.tokenizer_config, ReadIfThere(folder / "tokenizer_config.json"));
  CMF_TRY(files.special_tokens_map, ReadIfThere(folder / "special_tokens_map.json"));
  CMF_TRY(files.chat_template, ReadIfThere(folder / "chat_template.jinja"));
  CMF_TRY(files.chat_template_json, ReadIfThere(folder / "chat_template.json"));
  return files;
}

}  // namespace cmforge
