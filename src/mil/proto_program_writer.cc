// The program to its messages.
#include "mil/proto_internal.h"

namespace cmforge::mil {
namespace {

WireWriter WriteDimension(int64_t dim) {
  WireWriter size, out;
  if (dim == kUnknownDim) {
    out.Message(2, size);
  } else {
    size.VarintOrNothing(1, static_cast<uint64_t>(dim));
    out.Message(1, size);
  }
  return out;
}

WireWriter WriteTensorType(const TensorType& type) {
  WireWriter out;
  out.Varint(1, static_cast<uint64_t>(type.dtype));
  out.VarintOrNothing(2, type.shape.size());
  for (const int64_t dim : type.shape) out.Message(3, WriteDimension(dim));
  return out;
}

WireWriter WriteType(const Type& type) {
  WireWriter inner, out;
  switch (type.kind) {
    case Type::Kind::kTensor:
      out.Message(1, WriteTensorType(type.tensor));
      break;
    case Type::Kind::kList:
      inner.Message(1, WriteType(type.parts[0]));
      inner.Message(2, WriteDimension(type.list_length));
      out.Message(2, inner);
      break;
    case Type::Kind::kTuple:
      for (const Type& part : type.parts) inner.Message(1, WriteType(part));
      out.Message(3, inner);
      break;
    case Type::Kind::kDictionary:
      inner.Message(1, WriteType(type.parts[0]));
      inner.Message(2, WriteType(type.parts[1]));
      out.Message(4, inner);
      break;
    case Type::Kind::kState:
      inner.Message(1, WriteType(type.tensor));
      out.Message(5, inner);
      break;
  }
  return out;
}

WireWriter WriteTensorValue(const Value& value) {
  const TensorData& data = *value.tensor();
  const DataType dtype = value.type.tensor.dtype;
  WireWriter list, out;
  uint32_t field = 7;
  switch (dtype) {
    case DataType::kFloat32:
      field = 1;
      break;
    case DataType::kInt16:
    case DataType::kUInt16:
    case DataType::kInt32:
      field = 2;
      break;
    case DataType::kBool:
      field = 3;
      break;
    case DataType::kString:
      field = 4;
      break;
    case DataType::kInt64:
    case DataType::kUInt64:
      field = 5;
      break;
    case DataType::kFloat64:
      field = 6;
      break;
    default:
      break;
  }
  if (field == 2 || field == 3 || field == 5) {
    list.PackedVarints(1, IntegersOf(value).value_or(std::vector<int64_t>{}));
  } else if (field == 4) {
    for (const std::string& text : data.strings) list.Text(1, text);
  } else if (!data.bytes.empty()) {
    list.Blob(1, data.bytes);
  }
  out.Message(field, list);
  return out;
}

WireWriter WriteValue(const Value& value) {
  WireWriter out, immediate, inner;
  out.TextOrNothing(1, value.doc);
  out.Message(2, WriteType(value.type));
  if (const BlobRef* blob = value.blob()) {
    inner.Text(1, blob->file);
    inner.VarintOrNothing(2, blob->offset);
    out.Message(5, inner);
    return out;
  }
  if (value.tensor()) {
    immediate.Message(1, WriteTensorValue(value));
  } else if (const auto* items = std::get_if<Value::Items>(&value.data)) {
    for (const Value& item : *items) inner.Message(1, WriteValue(item));
    immediate.Message(value.type.kind == Type::Kind::kTuple ? 2 : 3, inner);
  } else {
    for (const auto& [key, mapped] : std::get<Value::Entries>(value.data)) {
      WireWriter entry;
      entry.Message(1, WriteValue(key));
      entry.Message(2, WriteValue(mapped));
      inner.Message(1, entry);
    }
    immediate.Message(4, inner);
  }
  out.Message(3, immediate);
  return out;
}

WireWriter WriteNamedType(const NamedType& named) {
  WireWriter out;
  out.Text(1, named.name);
  out.Message(2, WriteType(named.type));
  return out;
}

void WriteAttributes(WireWriter& out, uint32_t number, const NameMap<Value>& attributes) {
  for (const auto& [name, value] : attributes) {
    WireWriter entry;
    entry.Text(1, name);
    entry.Message(2, WriteValue(value));
    out.Message(number, entry);
  }
}

WireWriter WriteOperation(const Operation& op) {
  WireWriter out;
  out.Text(1, op.type);
  for (const auto& [name, arguments] : op.inputs) {
    WireWriter list, entry;
    for (const Argument& argument : arguments) {
      WireWriter binding;
      if (const auto* value_name = std::get_if<std::string>(&argument)) {
        binding.Text(1, *value_name);
      } else {
        binding.Message(2, WriteValue(std::get<Value>(argument)));
      }
      list.Message(1, binding);
    }
    entry.Text(1, name);
    entry.Message(2, list);
    out.Message(2, entry);
  }
  for (const NamedType& output : op.outputs) out.Message(3, WriteNamedType(output));
  WriteAttributes(out, 5, op.attributes);
  return out;
}

WireWriter WriteFunction(const Function& function) {
  WireWriter out, block, entry;
  for (const NamedType& input : function.inputs) out.Message(1, WriteNamedType(input));
  out.Text(2, OpsetCoreMlName(function.opset));
  for (const std::string& output : function.body.outputs) block.Text(2, output);
  for (const Operation& op : function.body.operations) block.Message(3, WriteOperation(op));
  WriteAttributes(block, 4, function.body.attributes);
  entry.Text(1, OpsetCoreMlName(function.opset));
  entry.Message(2, block);
  out.Message(3, entry);
  WriteAttributes(out, 4, function.attributes);
  return out;
}

}  // namespace

WireWriter WriteProgram(const Program& program) {
  WireWriter out;
  out.Varint(1, static_cast<uint64_t>(program.version));
  for (const auto& [name, function] : program.functions) {
    WireWriter entry;
    entry.Text(1, name);
    entry.Message(2, WriteFunction(function));
    out.Message(2, entry);
  }
  out.TextOrNothing(3, program.doc);
  WriteAttributes(out, 4, program.attributes);
  return out;
}

}  // namespace cmforge::mil
