// Program to text.
#include <cmath>

#include "mil/ops.h"
#include "mil/text.h"

namespace cmforge::mil {
namespace {

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// C99 hexadecimal, normalized and without trailing zeros: 0x1.8p-3.
std::string HexFloat(double value) {
  if (std::isnan(value)) return "nan";
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return sign + "inf";
  if (value == 0) return sign + "0x0p+0";
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // [0.5, 1)
  auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));  // the leading one is bit 52
  mantissa &= (uint64_t{1} << 52) - 1;
  std::string digits = fmt::format("{:013x}", mantissa);
  digits.erase(digits.find_last_not_of('0') + 1);
  return fmt::format("{}0x1{}{}p{:+}", sign, digits.empty() ? "" : ".", digits, exponent - 1);
}

class Printer {
 public:
  std::string Print(const Program& program) {
    out_ = "program(1.3)\n";
    if (!program.attributes.empty()) {
      Attributes(program.attributes);
      out_ += '\n';
    }
    out_ += "{\n";
    for (const auto& [name, function] : program.functions) PrintFunction(name, function);
    out_ += '}';
    return std::move(out_);
  }

 private:
  void PrintFunction(const std::string& name, const Function& function) {
    out_ += fmt::format("    func {}<{}>(", name, OpsetTag(function.opset));
    NamedTypes(function.inputs);
    out_ += ')';
    if (!function.attributes.empty()) {
      out_ += ' ';
      Attributes(function.attributes);
    }
    out_ += " {\n";
    for (const Operation& op : function.body.operations) PrintOperation(op);
    out_ += fmt::format("        }} -> ({});\n", fmt::join(function.body.outputs, ", "));
  }

  void PrintOperation(const Operation& op) {
    out_ += "            ";
    NamedTypes(op.outputs);
    out_ += fmt::format("{}{}(", op.outputs.empty() ? "" : " = ", op.type);
    bool first = true;
    for (const auto& [name, arguments] : op.inputs) {
      out_ += fmt::format("{}{} = ", first ? "" : ", ", name);
      first = false;
      Arguments(arguments, arguments.size() != 1 || IsVariadicParameter(op.type, name));
    }
    out_ += ')';
    if (!op.attributes.empty()) Attributes(op.attributes);
    out_ += ";\n";
  }

  void NamedTypes(const std::vector<NamedType>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      out_ += fmt::format("{}{} {}", i ? ", " : "", TypeText(values[i].type), values[i].name);
    }
  }

  void Arguments(const std::vector<Argument>& arguments, bool is_variadic) {
    if (is_variadic) out_ += '(';
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (i) out_ += ", ";
      if (const auto* name = std::get_if<std::string>(&arguments[i])) {
        out_ += *name;
      } else {
        Literal(std::get<Value>(arguments[i]));
      }
    }
    if (is_variadic) out_ += ')';
  }

  void Attributes(const NameMap<Value>& attributes) {
    out_ += '[';
    bool first = true;
    for (const auto& [name, value] : attributes) {
      out_ += fmt::format("{}{} = ", first ? "" : ", ", name);
      first = false;
      Literal(value);
    }
    out_ += ']';
  }

  void Literal(const Value& value) {
    out_ += TypeText(value.type) + '(';
    if (const BlobRef* blob = value.blob()) {
      out_ +=
          fmt::format("BLOBFILE(path = string({}), offset = uint64({}))", Quoted(blob->file), blob->offset);
    } else {
      Contents(value);
    }
    out_ += ')';
  }

  void Contents(const Value& value) {
    if (value.tensor()) return Tensor(value);
    if (const auto* items = std::get_if<Value::Items>(&value.data)) {
      const bool is_tuple = value.type.kind == Type::Kind::kTuple;
      out_ += is_tuple ? '(' : '[';
      for (size_t i = 0; i < items->size(); ++i) {
        if (i) out_ += ", ";
        Contents((*items)[i]);
      }
      out_ += is_tuple ? ')' : ']';
    } else if (const auto* entries = std::get_if<Value::Entries>(&value.data)) {
      out_ += '{';
      for (size_t i = 0; i < entries->size(); ++i) {
        out_ += i ? ", {" : "{";
        Contents((*entries)[i].key);
        out_ += ", ";
        Contents((*entries)[i].value);
        out_ += '}';
      }
      out_ += '}';
    }
  }

  void Tensor(const Value& value) {
    std::vector<std::string> elements = value.tensor()->strings;
    for (std::string& text : elements) text = Quoted(text);
    const DataType dtype = value.type.tensor.dtype;
    if (const auto integers = IntegersOf(value)) {
      for (const int64_t v : *integers) {
        if (dtype == DataType::kBool) {
          elements.push_back(v ? "true" : "false");
        } else {
          elements.push_back(dtype == DataType::kUInt64 ? std::to_string(static_cast<uint64_t>(v))
                                                        : std::to_string(v));
        }
      }
    } else if (const auto floats = FloatsOf(value)) {
      for (const double v : *floats) elements.push_back(HexFloat(v));
    }
    size_t next = 0;
    Nested(elements, value.type.tensor.shape, 0, next);
  }

  void Nested(const std::vector<std::string>& elements, const Shape& shape, size_t axis, size_t& next) {
    if (axis == shape.size()) {
      if (next < elements.size()) out_ += elements[next++];
      return;
    }
    out_ += '[';
    for (int64_t i = 0; i < shape[axis]; ++i) {
      if (i) out_ += ", ";
      Nested(elements, shape, axis + 1, next);
    }
    out_ += ']';
  }

  std::string out_;
};

}  // namespace

std::string PrintProgram(const Program& program) { return Printer().Print(program); }

}  // namespace cmforge::mil
