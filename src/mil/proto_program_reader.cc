// Program messages to the program.
#include "base/half.h"
#include "mil/proto.h"
#include "mil/proto_internal.h"

namespace cmforge::mil {
namespace {

Result<int64_t> ParseDimension(Bytes bytes) {
  int64_t dim = kUnknownDim;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number == 2) dim = kUnknownDim;
    if (f.number != 1) return {};
    dim = 0;
    return ForEachField(f.bytes, [&](const WireField& size) -> Result<void> {
      if (size.number != 1) return {};
      if (size.value > static_cast<uint64_t>(INT64_MAX)) {
        return Fail(ErrorKind::kCorrupt, fmt::format("dimension {} is too large", size.value));
      }
      dim = static_cast<int64_t>(size.value);
      return {};
    });
  }));
  return dim;
}

Result<TensorType> ParseTensorType(Bytes bytes) {
  TensorType type;
  uint64_t dtype = 0;
  int64_t rank = 0;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number == 1) dtype = f.value;
    if (f.number == 2) rank = static_cast<int64_t>(f.value);
    if (f.number == 3) {
      CMF_TRY(const int64_t dim, ParseDimension(f.bytes));
      type.shape.push_back(dim);
    }
    return {};
  }));
  const auto known = DataTypeFromNumber(dtype);
  if (!known) return Fail(ErrorKind::kUnsupported, fmt::format("element type number {} is not known", dtype));
  if (rank < 0) return Fail(ErrorKind::kUnsupported, "a tensor of unknown rank");
  if (rank != type.rank()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("a tensor type has rank {} but {} dimensions", rank, type.rank()));
  }
  type.dtype = *known;
  return type;
}

Result<Type> ParseType(Bytes bytes, ProtoBudget& budget, int depth);

Result<std::vector<Type>> ParseTypes(Bytes bytes, std::initializer_list<uint32_t> numbers,
                                     ProtoBudget& budget, int depth) {
  std::vector<Type> types;
  for (const uint32_t number : numbers) {
    CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
      if (f.number != number || f.type != WireType::kBytes) return {};
      CMF_TRY(Type type, ParseType(f.bytes, budget, depth + 1));
      types.push_back(std::move(type));
      return {};
    }));
  }
  return types;
}

Result<Type> ParseType(Bytes bytes, ProtoBudget& budget, int depth) {
  CMF_CHECK(budget.Take());
  if (depth > kMaxProtoDepth)
    return Fail(ErrorKind::kLimit, fmt::format("types nest deeper than {}", kMaxProtoDepth));
  std::optional<Type> type;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.type != WireType::kBytes) return {};
    switch (f.number) {
      case 1: {
        CMF_TRY(type, ParseTensorType(f.bytes));
        return {};
      }
      case 2: {
        CMF_TRY(auto parts, ParseTypes(f.bytes, {1}, budget, depth));
        if (parts.size() != 1) return Fail(ErrorKind::kCorrupt, "a list type without its element type");
        type = Type::List(std::move(parts[0]));
        return ForEachField(f.bytes, [&](const WireField& length) -> Result<void> {
          if (length.number != 2) return {};
          CMF_TRY(type->list_length, ParseDimension(length.bytes));
          return {};
        });
      }
      case 3: {
        CMF_TRY(auto parts, ParseTypes(f.bytes, {1}, budget, depth));
        type = Type::Tuple(std::move(parts));
        return {};
      }
      case 4: {
        CMF_TRY(auto parts, ParseTypes(f.bytes, {1, 2}, budget, depth));
        if (parts.size() != 2)
          return Fail(ErrorKind::kCorrupt, "a dictionary type without key and value types");
        type = Type::Dictionary(std::move(parts[0]), std::move(parts[1]));
        return {};
      }
      case 5: {
        CMF_TRY(auto parts, ParseTypes(f.bytes, {1}, budget, depth));
        if (parts.size() != 1 || !parts[0].is_tensor()) {
          return Fail(ErrorKind::kCorrupt, "a state type that does not wrap a tensor");
        }
        type = Type::State(std::move(parts[0].tensor));
        return {};
      }
      default:
        return {};
    }
  }));
  if (!type) return Fail(ErrorKind::kCorrupt, "a value without a type");
  return std::move(*type);
}

/// `values` (varints or bools) as elements of `dtype`, each checked to fit.
Result<void> StoreIntegers(const std::vector<int64_t>& values, DataType dtype, std::vector<std::byte>& out) {
  const int bits = dtype == DataType::kBool ? 1 : BitsOf(dtype);
  if (!IsInteger(dtype) && dtype != DataType::kBool) {
    return Fail(ErrorKind::kCorrupt, fmt::format("integers stored for a value of {}", DataTypeName(dtype)));
  }
  if (IsSubByte(dtype)) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{} values must be stored as packed bytes", DataTypeName(dtype)));
  }
  const size_t width = dtype == DataType::kBool ? 1 : static_cast<size_t>(bits) / 8;
  out.resize(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t v = values[i];
    const bool fits =
        bits == 64 || (IsSigned(dtype) ? v >= -(int64_t{1} << (bits - 1)) && v < int64_t{1} << (bits - 1)
                                       : v >= 0 && v < int64_t{1} << bits);
    if (!fits) return Fail(ErrorKind::kCorrupt, fmt::format("{} does not fit {}", v, DataTypeName(dtype)));
    std::memcpy(&out[i * width], &v, width);
  }
  return {};
}

/// `bytes` of f32 (width 4) or f64 (width 8) elements as elements of the float type `dtype`.
Result<void> StoreFloats(const std::vector<std::byte>& bytes, size_t width, DataType dtype,
                         std::vector<std::byte>& out) {
  if (dtype == (width == 4 ? DataType::kFloat32 : DataType::kFloat64)) {
    out = bytes;
    return {};
  }
  for (size_t at = 0; at < bytes.size(); at += width) {
    const double v = width == 4 ? static_cast<double>(LoadLe<float>(&bytes[at])) : LoadLe<double>(&bytes[at]);
    const size_t end = out.size();
    if (dtype == DataType::kFloat16) {
      out.resize(end + 2);
      StoreLe(&out[end], F32ToF16(static_cast<float>(v)));
    } else if (dtype == DataType::kFloat32) {
      out.resize(end + 4);
      StoreLe(&out[end], static_cast<float>(v));
    } else {
      return Fail(ErrorKind::kCorrupt, fmt::format("floats stored for a value of {}", DataTypeName(dtype)));
    }
  }
  return {};
}

Result<TensorData> ParseTensorValue(Bytes bytes, const TensorType& type) {
  TensorData data;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.type != WireType::kBytes || f.number < 1 || f.number > 7) return {};
    std::vector<int64_t> integers;
    std::vector<std::byte> raw;
    CMF_CHECK(ForEachField(f.bytes, [&](const WireField& v) -> Result<void> {
      if (v.number != 1) return {};
      switch (f.number) {
        case 1:
          return AppendFixed(v, 4, raw);
        case 6:
          return AppendFixed(v, 8, raw);
        case 4:
          data.strings.push_back(v.text());
          return {};
        case 7:
          raw.assign(v.bytes.begin(), v.bytes.end());
          return {};
        default:
          return AppendVarints(v, integers);
      }
    }));
    switch (f.number) {
      case 1:
        return StoreFloats(raw, 4, type.dtype, data.bytes);
      case 6:
        return StoreFloats(raw, 8, type.dtype, data.bytes);
      case 4:
        return {};
      case 7:
        data.bytes = std::move(raw);
        if (type.dtype == DataType::kBool) {
          for (std::byte& b : data.bytes) b = std::byte{b != std::byte{0}};
        }
        return {};
      default:
        return StoreIntegers(integers, type.dtype, data.bytes);
    }
  }));
  CMF_CHECK(CheckTensorData(type, data));
  return data;
}

Result<Value> ParseValue(Bytes bytes, ProtoBudget& budget, int depth);

Result<Value::Items> ParseItems(Bytes bytes, ProtoBudget& budget, int depth) {
  Value::Items items;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number != 1 || f.type != WireType::kBytes) return {};
    CMF_TRY(Value item, ParseValue(f.bytes, budget, depth + 1));
    items.push_back(std::move(item));
    return {};
  }));
  return items;
}

Result<Value::Entries> ParseEntries(Bytes bytes, ProtoBudget& budget, int depth) {
  Value::Entries entries;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number != 1 || f.type != WireType::kBytes) return {};
    std::optional<Value> key, value;
    CMF_CHECK(ForEachField(f.bytes, [&](const WireField& part) -> Result<void> {
      if (part.type != WireType::kBytes || part.number < 1 || part.number > 2) return {};
      CMF_TRY((part.number == 1 ? key : value), ParseValue(part.bytes, budget, depth + 1));
      return {};
    }));
    if (!key || !value) return Fail(ErrorKind::kCorrupt, "a dictionary entry without key or value");
    entries.emplace_back(std::move(*key), std::move(*value));
    return {};
  }));
  return entries;
}

Result<void> ParseImmediate(Bytes bytes, Value& value, ProtoBudget& budget, int depth) {
  bool found = false;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.type != WireType::kBytes || f.number < 1 || f.number > 4) return {};
    static constexpr Type::Kind kKinds[] = {Type::Kind::kTensor, Type::Kind::kTuple, Type::Kind::kList,
                                            Type::Kind::kDictionary};
    if (value.type.kind != kKinds[f.number - 1]) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("a value of another kind than its type {}", TypeText(value.type)));
    }
    found = true;
    if (f.number == 1) {
      CMF_TRY(value.data, ParseTensorValue(f.bytes, value.type.tensor));
    } else if (f.number == 4) {
      CMF_TRY(value.data, ParseEntries(f.bytes, budget, depth));
    } else {
      CMF_TRY(value.data, ParseItems(f.bytes, budget, depth));
    }
    return {};
  }));
  if (!found) return Fail(ErrorKind::kCorrupt, "an immediate value without contents");
  return {};
}

Result<Value> ParseValue(Bytes bytes, ProtoBudget& budget, int depth) {
  CMF_CHECK(budget.Take());
  if (depth > kMaxProtoDepth)
    return Fail(ErrorKind::kLimit, fmt::format("values nest deeper than {}", kMaxProtoDepth));
  Value value;
  Bytes type, immediate, blob;
  bool has_immediate = false, has_blob = false;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number == 1) value.doc = f.text();
    if (f.number == 2) type = f.bytes;
    if (f.number == 3) immediate = f.bytes, has_immediate = true, has_blob = false;
    if (f.number == 5) blob = f.bytes, has_blob = true, has_immediate = false;
    return {};
  }));
  CMF_TRY(value.type, ParseType(type, budget, depth));
  if (has_immediate) {
    CMF_CHECK(ParseImmediate(immediate, value, budget, depth));
  } else if (has_blob) {
    if (!value.type.is_tensor() || !value.type.tensor.is_static()) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("a weight file entry for a value of {}", TypeText(value.type)));
    }
    BlobRef ref;
    CMF_CHECK(ForEachField(blob, [&](const WireField& f) -> Result<void> {
      if (f.number == 1) ref.file = f.text();
      if (f.number == 2) ref.offset = f.value;
      return {};
    }));
    value.data = std::move(ref);
  } else {
    return Fail(ErrorKind::kCorrupt, fmt::format("a value of {} without contents", TypeText(value.type)));
  }
  return value;
}

Result<NamedType> ParseNamedType(Bytes bytes, ProtoBudget& budget) {
  NamedType named;
  bool has_type = false;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number == 1) named.name = f.text();
    if (f.number != 2) return {};
    has_type = true;
    CMF_TRY(named.type, ParseType(f.bytes, budget, 0));
    return {};
  }));
  if (!IsIdentifier(named.name)) {
    return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is not a valid name", named.name));
  }
  if (!has_type) return Fail(ErrorKind::kCorrupt, fmt::format("'{}' has no type", named.name));
  return named;
}

/// An entry of a map. Of two with one key some readers take the first, some the last.
template <class V>
Result<void> AddEntry(NameMap<V>& map, std::string_view what, std::string name, V value) {
  const auto [it, is_new] = map.emplace(std::move(name), std::move(value));
  if (is_new) return {};
  return Fail(ErrorKind::kCorrupt, fmt::format("{} '{}' occurs twice", what, it->first));
}

Result<void> ParseAttribute(Bytes bytes, NameMap<Value>& attributes, ProtoBudget& budget) {
  CMF_TRY(MapEntry entry, ParseMapEntry(bytes));
  auto value = ParseValue(entry.value, budget, 0);
  if (!value) return Fail(std::move(value).error().In(fmt::format("attribute '{}'", entry.key)));
  return AddEntry(attributes, "attribute", std::move(entry.key), std::move(*value));
}

Result<std::vector<Argument>> ParseArguments(Bytes bytes, ProtoBudget& budget) {
  std::vector<Argument> arguments;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number != 1 || f.type != WireType::kBytes) return {};
    CMF_CHECK(budget.Take());
    std::optional<Argument> argument;
    CMF_CHECK(ForEachField(f.bytes, [&](const WireField& binding) -> Result<void> {
      if (binding.number == 1) argument = binding.text();
      if (binding.number == 2) {
        CMF_TRY(argument, ParseValue(binding.bytes, budget, 0));
      }
      return {};
    }));
    if (!argument) return Fail(ErrorKind::kCorrupt, "an argument without name or value");
    arguments.push_back(std::move(*argument));
    return {};
  }));
  return arguments;
}

Result<Operation> ParseOperation(Bytes bytes, ProtoBudget& budget) {
  CMF_CHECK(budget.Take());
  Operation op;
  const auto parse = [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1:
        op.type = f.text();
        return {};
      case 2: {
        CMF_TRY(MapEntry entry, ParseMapEntry(f.bytes));
        auto arguments = ParseArguments(entry.value, budget);
        if (!arguments)
          return Fail(std::move(arguments).error().In(fmt::format("parameter '{}'", entry.key)));
        return AddEntry(op.inputs, "parameter", std::move(entry.key), std::move(*arguments));
      }
      case 3: {
        CMF_TRY(NamedType output, ParseNamedType(f.bytes, budget));
        op.outputs.push_back(std::move(output));
        return {};
      }
      case 4:
        return Fail(ErrorKind::kUnsupported, "control flow (nested blocks) is not supported");
      case 5:
        return ParseAttribute(f.bytes, op.attributes, budget);
      default:
        return {};
    }
  };
  auto status = ForEachField(bytes, parse);
  if (status && op.type.empty()) status = Fail(ErrorKind::kCorrupt, "no type");
  if (!status) {
    if (op.outputs.empty()) {  // its name may stand behind the fault
      (void)ForEachField(bytes, [&](const WireField& f) -> Result<void> {
        return f.number == 3 && op.outputs.empty() ? parse(f) : Result<void>{};
      });
    }
    const std::string where = op.outputs.empty() ? "" : fmt::format(" '{}'", op.outputs[0].name);
    return Fail(
        std::move(status).error().In(fmt::format("operation {}{}", op.type.empty() ? "?" : op.type, where)));
  }
  return op;
}

Result<Block> ParseBlock(Bytes bytes, ProtoBudget& budget) {
  Block block;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1:
        return Fail(ErrorKind::kUnsupported, "a function's block with inputs of its own");
      case 2:
        block.outputs.push_back(f.text());
        return {};
      case 3: {
        CMF_TRY(Operation op, ParseOperation(f.bytes, budget));
        block.operations.push_back(std::move(op));
        return {};
      }
      case 4:
        return ParseAttribute(f.bytes, block.attributes, budget);
      default:
        return {};
    }
  }));
  return block;
}

Result<Function> ParseFunction(Bytes bytes, ProtoBudget& budget) {
  Function function;
  std::string opset;
  NameMap<Bytes> blocks;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1: {
        CMF_TRY(NamedType input, ParseNamedType(f.bytes, budget));
        function.inputs.push_back(std::move(input));
        return {};
      }
      case 2:
        opset = f.text();
        return {};
      case 3: {
        CMF_TRY(MapEntry entry, ParseMapEntry(f.bytes));
        return AddEntry(blocks, "block", std::move(entry.key), entry.value);
      }
      case 4:
        return ParseAttribute(f.bytes, function.attributes, budget);
      default:
        return {};
    }
  }));
  const auto known = OpsetFromName(opset);
  if (!known) return Fail(ErrorKind::kUnsupported, fmt::format("opset '{}' is not known", opset));
  function.opset = *known;
  const auto block = blocks.find(opset);
  if (block == blocks.end()) {
    return Fail(ErrorKind::kCorrupt, fmt::format("no block for the function's opset {}", opset));
  }
  if (blocks.size() > 1) {
    return Fail(ErrorKind::kUnsupported, fmt::format("{} specializations of one function", blocks.size()));
  }
  CMF_TRY(function.body, ParseBlock(block->second, budget));
  return function;
}

}  // namespace

Result<MapEntry> ParseMapEntry(Bytes bytes) {
  MapEntry entry;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number == 1) entry.key = f.text();
    if (f.number == 2) entry.value = f.bytes;
    return {};
  }));
  return entry;
}

Result<Program> ParseProgram(Bytes bytes, ProtoBudget& budget) {
  Program program;
  program.version = 0;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1:
        program.version = static_cast<int64_t>(f.value);
        return {};
      case 2: {
        CMF_TRY(MapEntry entry, ParseMapEntry(f.bytes));
        if (!IsIdentifier(entry.key)) {
          return Fail(ErrorKind::kCorrupt, fmt::format("'{}' is not a valid function name", entry.key));
        }
        auto function = ParseFunction(entry.value, budget);
        if (!function) return Fail(std::move(function).error().In(fmt::format("function '{}'", entry.key)));
        return AddEntry(program.functions, "function", std::move(entry.key), std::move(*function));
      }
      case 3:
        program.doc = f.text();
        return {};
      case 4:
        return ParseAttribute(f.bytes, program.attributes, budget);
      default:
        return {};
    }
  }));
  if (program.version != 1) {
    return Fail(ErrorKind::kUnsupported, fmt::format("program version {}, 1 is known", program.version));
  }
  if (program.functions.empty()) return Fail(ErrorKind::kCorrupt, "a program without functions");
  return program;
}

}  // namespace cmforge::mil
