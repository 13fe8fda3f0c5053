// Opening files and sets of shards.
#include "cmf/file.h"

#include <algorithm>
#include <atomic>

#include "cmf/hash64.h"
#include "cmf/shards.h"
#include "quant/encoding.h"

namespace cmforge::cmf {
namespace {

Result<void> ParsePart(Part& part) {
  CMF_TRY(part.envelope, ReadEnvelope(part.bytes));
  CMF_TRY(part.header, ParseHeader(AsText(part.envelope.header.Of(part.bytes))));
  CMF_TRY(part.directory, ReadDirectory(part.envelope.directory.Of(part.bytes), part.envelope.data.size));
  return {};
}

/// What is wrong inside a file, with the file and what to do about it.
Error Damaged(Error error, const std::string& path) {
  if (error.name == "InvalidMagic") {
    error.message += ": name a .cmf file, a Hugging Face folder or a Core ML package";
  } else if (error.kind == ErrorKind::kCorrupt) {
    error.message += ": copy the file again, or convert the model again";
  }
  return std::move(error).In(path);
}

Result<Part> ReadPart(std::string path, MappedFile mapping, Bytes bytes) {
  Part part;
  part.path = std::move(path);
  part.mapping = std::move(mapping);
  part.bytes = bytes;
  if (auto status = ParsePart(part); !status) return Fail(Damaged(std::move(status).error(), part.path));
  return part;
}

Result<Part> OpenPart(const std::filesystem::path& path, MappedFile::Mode mode) {
  CMF_TRY(MappedFile mapping, MappedFile::Open(path, mode));
  const Bytes bytes = mapping.bytes();
  return ReadPart(path.string(), std::move(mapping), bytes);
}

// Opens the other shards of the set that `first_opened` is one of; the result begins with shard 1.
Result<std::vector<Part>> OpenSiblings(const std::filesystem::path& path, Part first_opened,
                                       MappedFile::Mode mode) {
  const ShardBlock shard = *first_opened.header.shard;
  const auto name = ParseShardName(path.filename().string());
  if (!name) {
    return Fail(ErrorKind::kNotFound, fmt::format("{}: this is shard {} of {}, but its name does not say how "
                                                  "the others are called: name it like {}",
                                                  path.string(), shard.no, shard.count,
                                                  FormatShardName("model", shard.no, shard.count)));
  }
  if (name->no != shard.no || name->count != shard.count) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: the header says shard {} of {}, the name says {} of {}: rename it",
                            path.string(), shard.no, shard.count, name->no, name->count),
                "Parse");
  }
  std::vector<Part> parts;
  for (int64_t no = 1; no <= shard.count; ++no) {
    if (no == shard.no) {
      parts.push_back(std::move(first_opened));  // NOLINT(bugprone-use-after-move): once
      continue;
    }
    const std::filesystem::path sibling = SiblingPath(path, no);
    auto part = OpenPart(sibling, mode);
    if (!part && part.error().kind == ErrorKind::kNotFound) {
      return Fail(ErrorKind::kNotFound, fmt::format("{}: shard {} of {} is missing: fetch the whole set",
                                                    sibling.string(), no, shard.count));
    }
    if (!part) return Fail(std::move(part).error());
    const auto& block = part->header.shard;
    if (!block || block->no != no || block->count != shard.count) {
      return Fail(
          ErrorKind::kCorrupt,
          fmt::format(
              "{}: the header says {}, the set needs shard {} of {}: fetch it again", sibling.string(),
              block ? fmt::format("shard {} of {}", block->no, block->count) : "that it is not a shard", no,
              shard.count),
          "Parse");
    }
    parts.push_back(std::move(*part));
  }
  // Shapes and, in sets of our own, exact bytes: the directory hash of every shard stands in shard 1.
  const std::vector<std::string>& hashes = parts[0].header.shard->dir_hashes;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].header.config != parts[0].header.config) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: belongs to another model than {}: fetch the whole set again",
                              parts[i].path, parts[0].path),
                  "Parse");
    }
    if (i < hashes.size() && hashes[i] != Hash64Hex(parts[i].directory_hash())) {
      return Fail(
          ErrorKind::kCorrupt,
          fmt::format(
              "{}: its directory hash is {}, {} was written with {}: they are shards of different models",
              parts[i].path, Hash64Hex(parts[i].directory_hash()), parts[0].path, hashes[i]),
          "Parse");
    }
  }
  return parts;
}

}  // namespace

std::vector<Section> Part::sections() const {
  std::vector<Section> present;
  for (const auto& [name, range] :
       {std::pair{"header", envelope.header}, std::pair{"directory", envelope.directory},
        std::pair{"data", envelope.data}, std::pair{"masks", envelope.masks},
        std::pair{"vocab", envelope.vocab}, std::pair{"index", envelope.index}}) {
    if (range.size > 0) present.push_back({name, range});
  }
  return present;
}

uint64_t Part::directory_hash() const { return Hash64(envelope.directory.Of(bytes)); }

struct File::State {
  std::vector<Part> parts;
  std::vector<TensorInfo> tensors;
  std::vector<TensorPlace> places;  // beside `tensors`
  std::unordered_map<std::string_view, size_t> by_name;
  MaskCatalog masks;
  std::vector<SparseIndexEntry> index;
  // Whether a payload whose structure depends on its data has been validated; set once, by any thread.
  std::unique_ptr<std::atomic<bool>[]> validated;
};

File::File(std::unique_ptr<State> state) : state_(std::move(state)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

Result<File> File::Assemble(std::vector<Part> parts) {
  auto state = std::make_unique<State>();
  state->parts = std::move(parts);
  size_t count = 0;
  for (const Part& part : state->parts) count += part.directory.size();
  state->tensors.reserve(count);
  state->places.reserve(count);
  state->by_name.reserve(count);
  state->validated = std::make_unique<std::atomic<bool>[]>(count);
  for (size_t p = 0; p < state->parts.size(); ++p) {
    const Part& part = state->parts[p];
    for (const DirectoryEntry& entry : part.directory) {
      state->tensors.push_back(entry.info);
      state->places.push_back(
          {static_cast<int32_t>(p), part.envelope.data.offset + entry.offset, entry.hash});
      const auto [it, is_new] = state->by_name.emplace(state->tensors.back().name, state->tensors.size() - 1);
      if (!is_new) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("{}: tensor '{}' is also in {}", part.path, entry.info.name,
                                state->parts[static_cast<size_t>(state->places[it->second].part)].path),
                    "Parse");
      }
    }
  }
  const Part& first = state->parts[0];
  const MaskGeometry geometry = MaskGeometry::Of(first.header.config);
  if (first.envelope.masks.size > 0) {
    auto masks = ReadMasks(first.envelope.masks.Of(first.bytes), geometry);
    if (!masks) return Fail(Damaged(std::move(masks).error(), first.path));
    state->masks = std::move(*masks);
  }
  if (first.envelope.index.size > 0) {
    auto index = ReadSparseIndex(first.envelope.index.Of(first.bytes));
    if (!index) return Fail(Damaged(std::move(index).error(), first.path));
    state->index = std::move(*index);
  }
  return File(std::move(state));
}

Result<File> File::Open(const std::filesystem::path& path, MappedFile::Mode mode, Shards shards) {
  CMF_TRY(Part part, OpenPart(path, mode));
  std::vector<Part> parts;
  if (shards == Shards::kWholeSet && part.header.shard && part.header.shard->count > 1) {
    CMF_TRY(parts, OpenSiblings(path, std::move(part), mode));
  } else {
    parts.push_back(std::move(part));
  }
  return Assemble(std::move(parts));
}

Result<File> File::OpenBytes(Bytes bytes, std::string name) {
  CMF_TRY(Part part, ReadPart(std::move(name), MappedFile(), bytes));
  std::vector<Part> parts;
  parts.push_back(std::move(part));
  return Assemble(std::move(parts));
}

std::span<const TensorInfo> File::tensors() const { return state_->tensors; }

const TensorInfo* File::Find(std::string_view name) const {
  const auto it = state_->by_name.find(name);
  return it == state_->by_name.end() ? nullptr : &state_->tensors[it->second];
}

Result<TensorView> File::Read(std::string_view name) const {
  const TensorInfo* info = Find(name);
  if (info == nullptr)
    return Fail(ErrorKind::kNotFound, fmt::format("{}: tensor '{}': not in this file", path(), name));
  const auto index = static_cast<size_t>(info - state_->tensors.data());
  const TensorPlace& place = state_->places[index];
  const Part& part = state_->parts[static_cast<size_t>(place.part)];
  const Bytes bytes = part.bytes.subspan(place.offset, info->nbytes);
  const Encoding* encoding = FindEncoding(info->dtype);
  if (encoding != nullptr && encoding->validate != nullptr &&
      !state_->validated[index].load(std::memory_order_acquire)) {
    if (auto status = encoding->validate(bytes, info->shape); !status) {
      return Fail(std::move(status).error().In(fmt::format("{}: tensor '{}'", part.path, name)));
    }
    state_->validated[index].store(true, std::memory_order_release);
  }
  return TensorView{info->dtype, info->shape, bytes, nullptr};
}

std::string_view File::path() const { return state_->parts[0].path; }

const TensorPlace& File::PlaceOf(const TensorInfo& tensor) const {
  return state_->places[static_cast<size_t>(&tensor - state_->tensors.data())];
}

const Header& File::header() const { return state_->parts[0].header; }

Bytes File::tokenizer_json() const { return state_->parts[0].envelope.vocab.Of(state_->parts[0].bytes); }

const MaskCatalog& File::masks() const { return state_->masks; }

const std::vector<SparseIndexEntry>& File::sparse_index() const { return state_->index; }

uint32_t File::required_features() const { return state_->parts[0].envelope.required_features; }

uint64_t File::dir_hash() const { return state_->parts[0].directory_hash(); }

bool File::is_skill_file() const {
  return (required_features() & kSkillFile) != 0 || header().is_skill_file();
}

std::span<const Part> File::parts() const { return state_->parts; }

bool File::is_complete() const {
  const auto& shard = header().shard;
  return !shard || static_cast<size_t>(shard->count) == state_->parts.size();
}

}  // namespace cmforge::cmf
