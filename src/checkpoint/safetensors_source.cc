// SafetensorsSource: one file, or the shards of a folder joined by their index.
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "checkpoint/messages.h"
#include "checkpoint/safetensors.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr size_t kIndexDepth = 16;

/// True also for a link that points nowhere: then opening it says so.
bool IsThere(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found && !error;
}

/// "weight_map" of an index: tensor -> file, and how many tensors each file should hold.
struct ShardIndex {
  NameTable<std::string> file_of;
  std::map<std::string, int64_t> tensors_in;
};

Result<ShardIndex> ReadIndex(const fs::path& path) {
  CMF_TRY(const MappedFile file, MappedFile::Open(path));
  const std::string what = path.string();
  const auto bad = [&](std::string message) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}: download the index again", what, message));
  };
  if (IsLfsPointer(file.bytes())) return Fail(LfsPointerError(what));
  const std::string_view text = AsText(file.bytes());
  if (text.size() > kMaxSafetensorsHeader) {
    return Fail(ErrorKind::kLimit,
                fmt::format("{}: {} bytes, at most {} are read", what, text.size(), kMaxSafetensorsHeader));
  }
  simdjson::dom::parser parser;
  simdjson::dom::object object, map;
  simdjson::error_code error = parser.allocate(text.size() + simdjson::SIMDJSON_PADDING, kIndexDepth);
  if (!error) error = parser.parse(text.data(), text.size()).get(object);
  if (error) return bad(fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  if (object["weight_map"].get(map)) return bad("weight_map is missing or not an object");
  ShardIndex index;
  for (const auto [name, value] : map) {
    std::string_view shard;
    if (value.get(shard)) return bad(fmt::format("weight_map: '{}' has no file name", Shown(name)));
    const fs::path relative(shard);
    const bool leaves =
        relative.empty() || relative.is_absolute() ||
        std::any_of(relative.begin(), relative.end(), [](const fs::path& p) { return p == ".."; });
    if (leaves || shard.find('\0') != shard.npos) {
      return bad(fmt::format("weight_map: '{}' lies in '{}', outside the folder", Shown(name), Shown(shard)));
    }
    if (!index.file_of.emplace(name, shard).second) {
      return bad(fmt::format("weight_map: tensor '{}' occurs twice", Shown(name)));
    }
    ++index.tensors_in[std::string(shard)];
  }
  if (index.file_of.empty()) return bad("weight_map is empty");
  return index;
}

/// What a folder without weights holds instead, as a hint.
std::string WhatIsThere(const fs::path& folder) {
  std::error_code error;
  int shards = 0;
  std::string other;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") && name.starts_with("model-")) ++shards;
    if (name == "adapter_model.safetensors")
      other = "an adapter is there: merge it into its base model first";
    if (name.starts_with("pytorch_model") && name.ends_with(".bin")) {
      other = fmt::format("{} is there: save the model as safetensors first", name);
    }
    if (name.ends_with(".gguf")) other = fmt::format("{} is there: name that file", Shown(name));
  }
  if (shards > 0)
    return fmt::format("{} there: fetch the index",
                       shards == 1 ? "1 shard is" : fmt::format("{} shards are", shards));
  return other.empty() ? "fetch the weights" : other;
}

}  // namespace

Result<std::shared_ptr<const SafetensorsSource>> SafetensorsSource::Open(const fs::path& path,
                                                                         MappedFile::Mode mode) {
  auto source = std::make_shared<SafetensorsSource>();
  source->path_ = path.string();
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || IsThere(path / kSingleFile)) {
    const fs::path file = fs::is_directory(path, ignored) ? path / kSingleFile : path;
    CMF_TRY(MappedFile mapped, MappedFile::Open(file, mode));
    CMF_CHECK(source->Add(std::move(mapped), "", {}));
    return source;
  }
  if (!IsThere(path / kIndexFile)) {
    return Fail(ErrorKind::kNotFound, fmt::format("{}: neither {} nor {}: {}", path.string(), kSingleFile,
                                                  kIndexFile, WhatIsThere(path)));
  }
  CMF_TRY(const ShardIndex index, ReadIndex(path / kIndexFile));
  for (const auto& [shard, count] : index.tensors_in) {
    auto mapped = MappedFile::Open(path / shard, mode);
    if (!mapped) {
      Error error = std::move(mapped).error();
      error.message +=
          fmt::format("; {} says that it holds {} tensor{}", kIndexFile, count, count == 1 ? "" : "s");
      return Fail(std::move(error));
    }
    CMF_CHECK(source->Add(std::move(*mapped), shard, index.file_of));
  }
  for (const auto& [name, shard] : index.file_of) {
    if (source->Find(name) == nullptr) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: tensor '{}' is not in this file, though {} says so: fetch it again",
                              (path / shard).string(), Shown(name), kIndexFile));
    }
  }
  return source;
}

Result<void> SafetensorsSource::Add(MappedFile file, const std::string& shard,
                                    const NameTable<std::string>& file_of) {
  CMF_TRY(SafetensorsHeader header, ParseSafetensors(file.bytes(), file.path()));
  if (files_.empty()) metadata_ = std::move(header.metadata);
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    TensorInfo& info = header.tensors[i];
    // A copy of a tensor that the index places in another file is not the one to use.
    const auto placed = file_of.find(info.name);
    if (placed != file_of.end() && placed->second != shard) continue;
    if (const auto other = by_name_.find(info.name); other != by_name_.end()) {
      return Fail(
          ErrorKind::kCorrupt,
          fmt::format("{}: tensor '{}' is also in {}, and the index names neither: download the index again",
                      file.path(), Shown(info.name), files_[places_[other->second].file].path()));
    }
    by_name_.emplace(info.name, static_cast<uint32_t>(tensors_.size()));
    places_.push_back({static_cast<uint32_t>(files_.size()), header.offsets[i]});
    tensors_.push_back(std::move(info));
  }
  files_.push_back(std::move(file));
  return {};
}

const TensorInfo* SafetensorsSource::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<TensorView> SafetensorsSource::Read(std::string_view name) const {
  const TensorInfo* info = Find(name);
  if (info == nullptr)
    return Fail(ErrorKind::kNotFound, fmt::format("{}: no tensor '{}'", path_, Shown(name)));
  const Place place = places_[static_cast<size_t>(info - tensors_.data())];
  TensorView view{info->dtype, info->shape, files_[place.file].bytes().subspan(place.offset, info->nbytes),
                  nullptr};
  if (reinterpret_cast<uintptr_t>(view.bytes.data()) % static_cast<uintptr_t>(ElementBytes(info->dtype)) !=
      0) {
    auto copy = std::make_shared<std::vector<std::byte>>(view.bytes.begin(), view.bytes.end());
    view.bytes = *copy;
    view.owner = std::move(copy);
  }
  return view;
}

}  // namespace cmforge
