// The safetensors header, read with simdjson and distrusted; see safetensors.h for the layout.
#include "checkpoint/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_set>

#include "checkpoint/messages.h"

namespace cmforge {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr size_t kHeaderDepth = 8;  // the format needs 3

std::optional<DType> DTypeOf(std::string_view word) {
  static constexpr std::pair<std::string_view, DType> kWords[] = {
      {"F64", DType::kF64},        {"F32", DType::kF32},        {"F16", DType::kF16},  {"BF16", DType::kBF16},
      {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2}, {"I64", DType::kI64},  {"I32", DType::kI32},
      {"I16", DType::kI16},        {"I8", DType::kI8},          {"U64", DType::kU64},  {"U32", DType::kU32},
      {"U16", DType::kU16},        {"U8", DType::kU8},          {"BOOL", DType::kBool}};
  for (const auto& [name, dtype] : kWords) {
    if (name == word) return dtype;
  }
  return std::nullopt;
}

struct Entry {
  TensorInfo info;
  uint64_t begin = 0, end = 0;  // from the end of the header
};

tl::unexpected<Error> Bad(std::string_view what, std::string message) {
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}: download the file again", what, message));
}

/// One tensor's object. `where` names file and tensor.
Result<Entry> ReadEntry(std::string_view name, const simdjson::dom::element& value, std::string_view where) {
  simdjson::dom::object object;
  if (value.get(object)) return Bad(where, "its entry is not an object");
  Entry entry;
  entry.info.name = name;
  bool has_dtype = false, has_shape = false, has_offsets = false;
  for (const auto [key, field] : object) {
    bool* const seen = key == "dtype"          ? &has_dtype
                       : key == "shape"        ? &has_shape
                       : key == "data_offsets" ? &has_offsets
                                               : nullptr;
    if (seen == nullptr) return Bad(where, fmt::format("unknown key '{}'", Shown(key)));
    if (*seen) return Bad(where, fmt::format("key '{}' occurs twice", key));
    *seen = true;
    if (key == "dtype") {
      std::string_view word;
      if (field.get(word)) return Bad(where, "dtype is not a string");
      const auto dtype = DTypeOf(word);
      if (!dtype) {
        return Fail(
            ErrorKind::kUnsupported,
            fmt::format("{}: dtype '{}' is not one this build reads: save the model in F32, F16 or BF16",
                        where, Shown(word)));
      }
      entry.info.dtype = *dtype;
      continue;
    }
    simdjson::dom::array numbers;
    if (field.get(numbers)) return Bad(where, fmt::format("{} is not a list", key));
    std::vector<uint64_t> values;
    for (const auto number : numbers) {
      uint64_t v = 0;
      if (number.get(v) || v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Bad(where, fmt::format("{} holds something else than counts", key));
      }
      values.push_back(v);
    }
    if (key == "shape") {
      entry.info.shape.assign(values.begin(), values.end());
    } else {
      if (values.size() != 2 || values[0] > values[1])
        return Bad(where, "data_offsets is not a begin and an end");
      entry.begin = values[0];
      entry.end = values[1];
    }
  }
  if (!has_dtype || !has_shape || !has_offsets) {
    return Bad(where, fmt::format("{} is missing", !has_dtype   ? "dtype"
                                                   : !has_shape ? "shape"
                                                                : "data_offsets"));
  }
  const auto count = ElementCount(entry.info.shape);
  const auto bytes =
      count ? CheckedMul(static_cast<uint64_t>(*count), static_cast<uint64_t>(ElementBytes(entry.info.dtype)))
            : std::nullopt;
  const std::string type =
      fmt::format("shape {} of {}", ShapeText(entry.info.shape), DTypeName(entry.info.dtype));
  if (!bytes) return Bad(where, fmt::format("{} is beyond any file", type));
  if (entry.end - entry.begin != *bytes) {
    return Bad(where,
               fmt::format("{} needs {} bytes, data_offsets hold {}", type, *bytes, entry.end - entry.begin));
  }
  entry.info.nbytes = *bytes;
  return entry;
}

Result<std::vector<std::pair<std::string, std::string>>> ReadMetadata(const simdjson::dom::element& value,
                                                                      std::string_view what) {
  simdjson::dom::object object;
  if (value.get(object)) return Bad(what, "__metadata__ is not an object");
  std::vector<std::pair<std::string, std::string>> metadata;
  for (const auto [key, field] : object) {
    std::string_view text;
    if (field.get(text)) return Bad(what, fmt::format("__metadata__: '{}' is not a string", Shown(key)));
    metadata.emplace_back(key, text);
  }
  return metadata;
}

/// The tensors must cover the data exactly. `entries` are sorted by their place.
Result<void> CheckCover(std::span<const Entry> entries, uint64_t data_size, std::string_view what) {
  uint64_t covered = 0;
  const Entry* last = nullptr;
  for (const Entry& entry : entries) {
    const std::string name = Shown(entry.info.name);
    if (entry.begin < covered) {
      return Bad(what,
                 fmt::format("tensors '{}' and '{}' both claim bytes {} to {}: one of them would be an alias",
                             Shown(last->info.name), name, entry.begin, std::min(entry.end, covered)));
    }
    if (entry.begin > covered) {
      return Bad(what,
                 fmt::format("{} bytes before tensor '{}' belong to no tensor", entry.begin - covered, name));
    }
    if (entry.end > data_size) {
      return Bad(what, fmt::format("tensor '{}': {} bytes wanted, {} are there: the file is cut short", name,
                                   entry.end - entry.begin, data_size - std::min(entry.begin, data_size)));
    }
    covered = entry.end;
    last = &entry;
  }
  if (covered != data_size) {
    return Bad(what, fmt::format("{} bytes after the last tensor belong to no tensor", data_size - covered));
  }
  return {};
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensors(Bytes file, std::string_view what) {
  if (IsLfsPointer(file)) return Fail(LfsPointerError(what));
  if (file.size() < kLengthBytes) {
    return Bad(what, fmt::format("{} bytes are too few for a safetensors file", file.size()));
  }
  const auto length = LoadLe<uint64_t>(file.data());
  const uint64_t behind = file.size() - kLengthBytes;
  if (length > behind) {
    return Bad(
        what,
        fmt::format("header: its length field says {} bytes, the file has {} behind it: not a safetensors "
                    "file, or cut short",
                    length, behind));
  }
  if (length > kMaxSafetensorsHeader) {
    return Fail(ErrorKind::kLimit,
                fmt::format("{}: header: {} bytes, at most {} are read: split the model into shards", what,
                            length, kMaxSafetensorsHeader));
  }
  const std::string_view text = AsText(file.subspan(kLengthBytes, length));
  if (!text.starts_with('{')) return Bad(what, "header: does not begin with '{'");

  // simdjson may look at a few bytes behind the text; where the file ends before that it gets a copy.
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  simdjson::error_code error = parser.allocate(text.size() + simdjson::SIMDJSON_PADDING, kHeaderDepth);
  const bool needs_copy = behind - length < simdjson::SIMDJSON_PADDING;
  if (!error) error = parser.parse(text.data(), text.size(), needs_copy).get(object);
  if (error) return Bad(what, fmt::format("header: not valid JSON: {}", simdjson::error_message(error)));

  SafetensorsHeader header;
  std::vector<Entry> entries;
  std::unordered_set<std::string_view> names;
  bool has_metadata = false;
  for (const auto [key, value] : object) {
    if (key == "__metadata__") {
      if (has_metadata) return Bad(what, "header: __metadata__ occurs twice");
      has_metadata = true;
      CMF_TRY(header.metadata, ReadMetadata(value, what));
      continue;
    }
    if (!names.insert(key).second)
      return Bad(what, fmt::format("header: tensor '{}' occurs twice", Shown(key)));
    CMF_TRY(Entry entry, ReadEntry(key, value, fmt::format("{}: tensor '{}'", what, Shown(key))));
    entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  CMF_CHECK(CheckCover(entries, behind - length, what));
  for (Entry& entry : entries) {
    header.offsets.push_back(kLengthBytes + length + entry.begin);
    header.tensors.push_back(std::move(entry.info));
  }
  return header;
}

}  // namespace cmforge
