// Reading and writing .npy files.
#include "base/npy.h"

#include <array>
#include <charconv>

#include "base/atomic_file.h"
#include "base/half.h"
#include "base/mapped_file.h"

namespace cmforge {
namespace {

struct TypeRow {
  NpyType type;
  std::string_view code;  // without the byte order
  std::string_view name;
};

constexpr std::array kTypes = std::to_array<TypeRow>({
    {NpyType::kBool, "b1", "bool"},
    {NpyType::kI8, "i1", "int8"},
    {NpyType::kI16, "i2", "int16"},
    {NpyType::kI32, "i4", "int32"},
    {NpyType::kI64, "i8", "int64"},
    {NpyType::kU8, "u1", "uint8"},
    {NpyType::kU16, "u2", "uint16"},
    {NpyType::kU32, "u4", "uint32"},
    {NpyType::kU64, "u8", "uint64"},
    {NpyType::kF16, "f2", "float16"},
    {NpyType::kF32, "f4", "float32"},
    {NpyType::kF64, "f8", "float64"},
});

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxRank = 32;

const TypeRow& RowOf(NpyType type) { return kTypes[static_cast<size_t>(type)]; }

/// The header: a Python dictionary of three known keys.
class Header {
 public:
  explicit Header(std::string_view text) : text_(text) {}

  std::string descr;
  bool is_column_major = false;
  std::vector<int64_t> shape;

  Result<void> Parse() {
    bool has_descr = false, has_order = false, has_shape = false;
    CMF_CHECK(Expect('{'));
    while (!Accept('}')) {
      CMF_TRY(const std::string key, Text());
      CMF_CHECK(Expect(':'));
      if (key == "descr" && !has_descr) {
        has_descr = true;
        if (Peek() != '\'' && Peek() != '"')
          return Fail(ErrorKind::kUnsupported, "a structured element type");
        CMF_TRY(descr, Text());
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        is_column_major = AcceptWord("True");
        if (!is_column_major && !AcceptWord("False")) return Wrong("True or False");
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        CMF_CHECK(Shape());
      } else {
        return Fail(ErrorKind::kCorrupt, fmt::format("header key '{}' is not expected", key));
      }
      if (!Accept(',') && Peek() != '}') return Wrong("',' or '}'");
    }
    if (Peek() != '\0') return Wrong("the end of the header");
    if (has_descr && has_order && has_shape) return {};
    return Fail(ErrorKind::kCorrupt, "the header lacks descr, fortran_order or shape");
  }

 private:
  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char Peek() {
    SkipBlanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Accept(char c) {
    if (Peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  bool AcceptWord(std::string_view word) {
    SkipBlanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  Result<void> Wrong(std::string_view wanted) const {
    return Fail(ErrorKind::kCorrupt, fmt::format("header byte {}: {} should be there", at_, wanted));
  }
  Result<void> Expect(char c) {
    if (Accept(c)) return {};
    return Wrong(fmt::format("'{}'", c));
  }
  Result<std::string> Text() {
    const char quote = Peek();
    const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos)
      return Fail(ErrorKind::kCorrupt, fmt::format("header byte {}: no quoted text", at_));
    std::string text(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return text;
  }
  Result<void> Shape() {
    CMF_CHECK(Expect('('));
    while (!Accept(')')) {
      SkipBlanks();
      int64_t dim = -1;
      const auto parsed = std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (parsed.ec != std::errc() || dim < 0 || shape.size() == kMaxRank) return Wrong("a dimension");
      at_ = static_cast<size_t>(parsed.ptr - text_.data());
      shape.push_back(dim);
      if (!Accept(',') && Peek() != ')') return Wrong("',' or ')'");
    }
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// The same elements in row order.
std::vector<std::byte> ToRowOrder(Bytes columns, const std::vector<int64_t>& shape, size_t width) {
  std::vector<std::byte> rows(columns.size());
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  std::vector<int64_t> at(shape.size(), 0);
  int64_t from = 0;
  for (size_t to = 0; to < rows.size(); to += width) {
    std::memcpy(&rows[to], &columns[static_cast<size_t>(from) * width], width);
    for (size_t i = shape.size(); i-- > 0;) {
      from += strides[i];
      if (++at[i] < shape[i]) break;
      from -= strides[i] * shape[i];
      at[i] = 0;
    }
  }
  return rows;
}

template <class T, class Fn>
void ForEach(Bytes data, Fn&& fn) {
  for (size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T)) fn(LoadLe<T>(&data[at]));
}

/// fn(value) for every element, as the widest type of its kind.
template <class Fn>
void Visit(const NpyArray& array, Fn&& fn) {
  const Bytes data(array.data);
  switch (array.type) {
    case NpyType::kBool:
    case NpyType::kU8:
      return ForEach<uint8_t>(data, [&](uint8_t v) { fn(uint64_t{v}); });
    case NpyType::kI8:
      return ForEach<int8_t>(data, [&](int8_t v) { fn(int64_t{v}); });
    case NpyType::kI16:
      return ForEach<int16_t>(data, [&](int16_t v) { fn(int64_t{v}); });
    case NpyType::kI32:
      return ForEach<int32_t>(data, [&](int32_t v) { fn(int64_t{v}); });
    case NpyType::kI64:
      return ForEach<int64_t>(data, [&](int64_t v) { fn(v); });
    case NpyType::kU16:
      return ForEach<uint16_t>(data, [&](uint16_t v) { fn(uint64_t{v}); });
    case NpyType::kU32:
      return ForEach<uint32_t>(data, [&](uint32_t v) { fn(uint64_t{v}); });
    case NpyType::kU64:
      return ForEach<uint64_t>(data, [&](uint64_t v) { fn(v); });
    case NpyType::kF16:
      return ForEach<uint16_t>(data, [&](uint16_t v) { fn(double{F16ToF32(v)}); });
    case NpyType::kF32:
      return ForEach<float>(data, [&](float v) { fn(double{v}); });
    case NpyType::kF64:
      return ForEach<double>(data, [&](double v) { fn(v); });
  }
}

template <class T, class From, class Fn>
NpyArray Make(NpyType type, std::vector<int64_t> shape, std::span<const From> values, Fn&& convert) {
  NpyArray array{type, std::move(shape), {}};
  array.data.resize(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) StoreLe<T>(&array.data[i * sizeof(T)], convert(values[i]));
  return array;
}

}  // namespace

size_t NpyTypeBytes(NpyType type) { return static_cast<size_t>(RowOf(type).code[1] - '0'); }
std::string_view NpyTypeName(NpyType type) { return RowOf(type).name; }

int64_t NpyArray::count() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

std::vector<float> NpyArray::ToFloats() const {
  std::vector<float> out;
  out.reserve(data.size() / NpyTypeBytes(type));
  Visit(*this, [&](auto v) { out.push_back(static_cast<float>(v)); });
  return out;
}

Result<std::vector<int32_t>> NpyArray::ToInts() const {
  if (type == NpyType::kF16 || type == NpyType::kF32 || type == NpyType::kF64) {
    return Fail(ErrorKind::kUsage,
                fmt::format("the array is {}, integers are wanted: save it as int32", NpyTypeName(type)));
  }
  std::vector<int32_t> out;
  out.reserve(data.size() / NpyTypeBytes(type));
  std::string bad;
  Visit(*this, [&](auto v) {
    const auto narrow = static_cast<int32_t>(v);
    if (static_cast<decltype(v)>(narrow) != v || (narrow < 0) != (v < 0))
      bad = bad.empty() ? fmt::format("{}", v) : bad;
    out.push_back(narrow);
  });
  if (!bad.empty())
    return Fail(ErrorKind::kUsage,
                fmt::format("{} does not fit 32 bits: give numbers that int32 holds", bad));
  return out;
}

NpyArray NpyArray::FromFloats(std::vector<int64_t> shape, std::span<const float> values) {
  return Make<float>(NpyType::kF32, std::move(shape), values, [](float v) { return v; });
}
NpyArray NpyArray::FromHalves(std::vector<int64_t> shape, std::span<const float> values) {
  return Make<uint16_t>(NpyType::kF16, std::move(shape), values, [](float v) { return F32ToF16(v); });
}
NpyArray NpyArray::FromInts(std::vector<int64_t> shape, std::span<const int32_t> values) {
  return Make<int32_t>(NpyType::kI32, std::move(shape), values, [](int32_t v) { return v; });
}
NpyArray NpyArray::FromBools(std::vector<int64_t> shape, std::span<const int32_t> values) {
  return Make<uint8_t>(NpyType::kBool, std::move(shape), values,
                       [](int32_t v) { return static_cast<uint8_t>(v != 0); });
}

Result<NpyArray> ParseNpy(Bytes bytes) {
  // magic, version (2 bytes), header length (2 bytes in version 1, else 4), header, data
  if (bytes.size() < 10 || !AsText(bytes).starts_with(kMagic)) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{} bytes without the mark of an .npy file", bytes.size()));
  }
  const auto version = std::to_integer<int>(bytes[6]);
  if (version < 1 || version > 3)
    return Fail(ErrorKind::kUnsupported, fmt::format(".npy version {}, 1 to 3 are known", version));
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (bytes.size() < 8 + length_bytes) return Fail(ErrorKind::kCorrupt, "the header's length is cut off");
  const uint64_t length = version == 1 ? LoadLe<uint16_t>(&bytes[8]) : LoadLe<uint32_t>(&bytes[8]);
  CMF_TRY(const ByteRange range, ByteRange::Checked(8 + length_bytes, length, bytes.size(), "header"));
  Header header(AsText(range.Of(bytes)));
  CMF_CHECK(header.Parse());
  NpyArray array;
  array.shape = std::move(header.shape);
  const std::string_view descr = header.descr;
  const TypeRow* row = nullptr;
  for (const TypeRow& candidate : kTypes) {
    if (descr.size() == 3 && descr.substr(1) == candidate.code) row = &candidate;
  }
  const bool is_little =
      row && (descr[0] == '<' || descr[0] == '|' || (descr[0] == '>' && NpyTypeBytes(row->type) == 1));
  if (!is_little) return Fail(ErrorKind::kUnsupported, fmt::format("element type '{}' is not read", descr));
  array.type = row->type;
  uint64_t wanted = NpyTypeBytes(array.type);
  for (const int64_t dim : array.shape) {
    const auto product = CheckedMul(wanted, static_cast<uint64_t>(dim));
    if (!product || *product > static_cast<uint64_t>(INT64_MAX))
      return Fail(ErrorKind::kCorrupt, "a shape of too many elements");
    wanted = *product;
  }
  const Bytes data = bytes.subspan(range.end());
  if (data.size() != wanted) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} bytes of data, the shape wants {}", data.size(), wanted));
  }
  if (header.is_column_major && array.shape.size() > 1) {
    array.data = ToRowOrder(data, array.shape, NpyTypeBytes(array.type));
  } else {
    array.data.assign(data.begin(), data.end());
  }
  return array;
}

Result<NpyArray> ReadNpy(const std::filesystem::path& path) {
  CMF_TRY(const MappedFile file, MappedFile::Open(path));
  auto array = ParseNpy(file.bytes());
  if (!array) {
    Error error = std::move(array).error().In(path.string());
    error.message += error.kind == ErrorKind::kUnsupported
                         ? ": save it as numbers of 1 to 8 bytes, little-endian"
                         : ": write it again (numpy.save), or copy it again";
    return Fail(std::move(error));
  }
  return array;
}

std::vector<std::byte> SerializeNpy(const NpyArray& array) {
  const bool is_byte = NpyTypeBytes(array.type) == 1;
  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", is_byte ? '|' : '<',
                  RowOf(array.type).code, fmt::join(array.shape, ", "), array.shape.size() == 1 ? "," : "");
  // Data starts at a multiple of 64; the header ends with a new line.
  const size_t prefix = kMagic.size() + 4;
  header.append(AlignUp(prefix + header.size() + 1, 64) - prefix - header.size() - 1, ' ');
  header += '\n';
  std::string out(kMagic);
  out += '\x01';
  out += '\x00';
  out += static_cast<char>(header.size() & 0xFF);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  const Bytes head = AsBytes(out);
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), array.data.begin(), array.data.end());
  return bytes;
}

Result<void> WriteNpy(const std::filesystem::path& path, const NpyArray& array) {
  return WriteFileAtomically(path, SerializeNpy(array));
}

}  // namespace cmforge
