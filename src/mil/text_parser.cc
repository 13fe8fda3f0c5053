// Text to program: recursive descent over the grammar of facts in docs/formats/coreml.md, nesting bounded.
#include <charconv>

#include "base/half.h"
#include "mil/packed_bits.h"
#include "mil/text.h"
#include "mil/text_lexer.h"

namespace cmforge::mil {
namespace {

constexpr int kMaxDepth = 16;

/// Gathers the elements of one tensor literal in the element type's own form.
struct Elements {
  DataType dtype;
  TensorData data;
  std::vector<uint8_t> codes;  // sub-byte elements before they are packed
};

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}

  Result<Program> Parse() {
    CMF_CHECK(Advance());
    CMF_CHECK(ExpectWord("program"));
    CMF_CHECK(Expect("("));
    if (token_.kind != Token::Kind::kNumber || !token_.text.starts_with("1")) {
      return FailAt(token_, fmt::format("program version '{}', 1.x is known", token_.text),
                    ErrorKind::kUnsupported);
    }
    CMF_CHECK(Advance());
    CMF_CHECK(Expect(")"));
    Program program;
    if (token_.Is("[")) {
      CMF_TRY(program.attributes, Attributes());
    }
    CMF_CHECK(Expect("{"));
    while (!token_.Is("}")) CMF_CHECK(ParseFunction(program));
    CMF_CHECK(Advance());
    if (token_.kind != Token::Kind::kEnd) return Unexpected("the end of the text");
    if (program.functions.empty()) return FailAt(token_, "a program without functions");
    return program;
  }

 private:
  Result<void> Advance() {
    CMF_TRY(token_, lexer_.Next());
    return {};
  }
  tl::unexpected<Error> Unexpected(std::string_view wanted) {
    if (token_.kind == Token::Kind::kEnd)
      return FailAt(token_, fmt::format("the text ends where {} should be", wanted));
    return FailAt(token_, fmt::format("'{}' where {} should be", token_.text.substr(0, 40), wanted));
  }
  Result<void> Expect(std::string_view mark) {
    if (!token_.Is(mark)) return Unexpected(fmt::format("'{}'", mark));
    return Advance();
  }
  Result<void> ExpectWord(std::string_view word) {
    if (!token_.IsWord(word)) return Unexpected(fmt::format("'{}'", word));
    return Advance();
  }
  Result<std::string> Name(std::string_view what) {
    if (token_.kind != Token::Kind::kWord) return Unexpected(what);
    std::string name(token_.text);
    CMF_CHECK(Advance());
    return name;
  }
  /// fn() for each element of a list up to `close`, which is consumed; the opening mark already is.
  template <class Fn>
  Result<void> CommaList(std::string_view close, Fn&& fn) {
    if (token_.Is(close)) return Advance();
    while (true) {
      CMF_CHECK(fn());
      if (!token_.Is(",")) break;
      CMF_CHECK(Advance());
    }
    return Expect(close);
  }

  // ---- functions and statements

  Result<void> ParseFunction(Program& program) {
    CMF_CHECK(ExpectWord("func"));
    const Token at = token_;
    CMF_TRY(std::string name, Name("a function name"));
    CMF_CHECK(Expect("<"));
    const Token opset_at = token_;
    CMF_TRY(const std::string opset, Name("an opset"));
    CMF_CHECK(Expect(">"));
    Function function;
    const auto known = OpsetFromName(opset);
    if (!known)
      return FailAt(opset_at, fmt::format("opset '{}' is not known", opset), ErrorKind::kUnsupported);
    function.opset = *known;
    CMF_CHECK(Expect("("));
    CMF_CHECK(CommaList(")", [&]() -> Result<void> {
      CMF_TRY(NamedType input, ParseNamedType());
      function.inputs.push_back(std::move(input));
      return {};
    }));
    if (token_.Is("[")) {
      CMF_TRY(function.attributes, Attributes());
    }
    CMF_CHECK(Expect("{"));
    while (!token_.Is("}")) {
      CMF_TRY(Operation op, ParseStatement());
      function.body.operations.push_back(std::move(op));
    }
    CMF_CHECK(Advance());
    CMF_CHECK(Expect("->"));
    CMF_CHECK(Expect("("));
    CMF_CHECK(CommaList(")", [&]() -> Result<void> {
      CMF_TRY(std::string output, Name("the name of an output"));
      function.body.outputs.push_back(std::move(output));
      return {};
    }));
    CMF_CHECK(Expect(";"));
    if (!program.functions.emplace(std::move(name), std::move(function)).second) {
      return FailAt(at, fmt::format("function '{}' occurs twice", at.text));
    }
    return {};
  }

  Result<NamedType> ParseNamedType() {
    CMF_TRY(Type type, ParseType(0));
    CMF_TRY(std::string name, Name("the name of a value"));
    return NamedType{std::move(name), std::move(type)};
  }

  Result<Operation> ParseStatement() {
    Operation op;
    // An operation without outputs starts with its type and '('; every other one with the type of its output.
    CMF_TRY(const std::string first, Name("a statement"));
    if (token_.Is("(")) {
      op.type = first;
    } else {
      CMF_TRY(Type type, TypeAfterName(first, 0));
      CMF_TRY(std::string name, Name("the name of a value"));
      op.outputs.push_back({std::move(name), std::move(type)});
      while (token_.Is(",")) {
        CMF_CHECK(Advance());
        CMF_TRY(NamedType output, ParseNamedType());
        op.outputs.push_back(std::move(output));
      }
      CMF_CHECK(Expect("="));
      CMF_TRY(op.type, Name("the type of an operation"));
    }
    CMF_CHECK(Expect("("));
    CMF_CHECK(CommaList(")", [&]() -> Result<void> {
      const Token at = token_;
      CMF_TRY(std::string name, Name("the name of a parameter"));
      CMF_CHECK(Expect("="));
      CMF_TRY(auto arguments, Arguments());
      if (!op.inputs.emplace(std::move(name), std::move(arguments)).second) {
        return FailAt(at, fmt::format("parameter '{}' occurs twice", at.text));
      }
      return {};
    }));
    if (token_.Is("[")) {
      CMF_TRY(op.attributes, Attributes());
    }
    if (token_.Is("{"))
      return FailAt(token_, "control flow (nested blocks) is not supported", ErrorKind::kUnsupported);
    CMF_CHECK(Expect(";"));
    return op;
  }

  Result<std::vector<Argument>> Arguments() {
    std::vector<Argument> arguments;
    const auto one = [&]() -> Result<void> {
      CMF_TRY(const std::string word, Name("a value"));
      if (!token_.Is("(") && !token_.Is("<")) {
        arguments.emplace_back(word);
        return {};
      }
      CMF_TRY(Value value, LiteralAfterName(word));
      arguments.emplace_back(std::move(value));
      return {};
    };
    if (!token_.Is("(")) {
      CMF_CHECK(one());
      return arguments;
    }
    CMF_CHECK(Advance());
    CMF_CHECK(CommaList(")", one));
    return arguments;
  }

  Result<NameMap<Value>> Attributes() {
    NameMap<Value> attributes;
    CMF_CHECK(Expect("["));
    CMF_CHECK(CommaList("]", [&]() -> Result<void> {
      const Token at = token_;
      CMF_TRY(std::string name, Name("the name of an attribute"));
      CMF_CHECK(Expect("="));
      CMF_TRY(const std::string word, Name("a typed value"));
      CMF_TRY(Value value, LiteralAfterName(word));
      if (!attributes.emplace(std::move(name), std::move(value)).second) {
        return FailAt(at, fmt::format("attribute '{}' occurs twice", at.text));
      }
      return {};
    }));
    return attributes;
  }

  // ---- types

  Result<Type> ParseType(int depth) {
    CMF_TRY(const std::string name, Name("a type"));
    return TypeAfterName(name, depth);
  }

  Result<Type> TypeAfterName(const std::string& name, int depth) {
    if (depth > kMaxDepth)
      return FailAt(token_, fmt::format("types nest deeper than {}", kMaxDepth), ErrorKind::kLimit);
    if (name == "tensor") {
      CMF_CHECK(Expect("<"));
      CMF_TRY(const std::string element, Name("an element type"));
      CMF_TRY(const DataType dtype, ElementType(element));
      CMF_CHECK(Expect(","));
      CMF_CHECK(Expect("["));
      Shape shape;
      CMF_CHECK(CommaList("]", [&]() -> Result<void> {
        CMF_TRY(const int64_t dim, Dimension());
        shape.push_back(dim);
        return {};
      }));
      if (shape.size() > kMaxDepth)
        return FailAt(token_, fmt::format("a tensor of rank {}", shape.size()), ErrorKind::kLimit);
      CMF_CHECK(Expect(">"));
      return Type(dtype, std::move(shape));
    }
    if (name == "state") {
      CMF_CHECK(Expect("<"));
      const Token at = token_;
      CMF_TRY(Type wrapped, ParseType(depth + 1));
      if (!wrapped.is_tensor()) return FailAt(at, "a state wraps a tensor");
      CMF_CHECK(Expect(">"));
      return Type::State(std::move(wrapped.tensor));
    }
    if (name == "list") {
      CMF_CHECK(Expect("<"));
      CMF_TRY(Type element, ParseType(depth + 1));
      CMF_CHECK(Expect(","));
      CMF_TRY(const int64_t length, Dimension());
      CMF_CHECK(Expect(">"));
      return Type::List(std::move(element), length);
    }
    if (name == "tuple" || name == "dict") {
      std::vector<Type> parts;
      CMF_CHECK(Expect("<"));
      const Token at = token_;
      CMF_CHECK(CommaList(">", [&]() -> Result<void> {
        CMF_TRY(Type part, ParseType(depth + 1));
        parts.push_back(std::move(part));
        return {};
      }));
      if (name == "tuple") return Type::Tuple(std::move(parts));
      if (parts.size() != 2) return FailAt(at, "a dictionary type has two parts");
      return Type::Dictionary(std::move(parts[0]), std::move(parts[1]));
    }
    CMF_TRY(const DataType dtype, ElementType(name));
    return Type(dtype, {});
  }

  Result<DataType> ElementType(const std::string& name) {
    const auto dtype = DataTypeFromName(name);
    if (!dtype) return FailAt(token_, fmt::format("'{}' is no element type", name));
    return *dtype;
  }

  Result<int64_t> Dimension() {
    int64_t dim = kUnknownDim;
    if (!token_.Is("?")) {
      const char* end = token_.text.data() + token_.text.size();
      const auto parsed = std::from_chars(token_.text.data(), end, dim);
      if (token_.kind != Token::Kind::kNumber || parsed.ec != std::errc() || parsed.ptr != end || dim < 0) {
        return Unexpected("a dimension");
      }
    }
    CMF_CHECK(Advance());
    return dim;
  }

  // ---- values

  Result<Value> LiteralAfterName(const std::string& name, bool is_inside_blob = false) {
    CMF_TRY(Type type, TypeAfterName(name, 0));
    CMF_CHECK(Expect("("));
    Value value;
    if (token_.IsWord("BLOBFILE") && !is_inside_blob) {
      const Token at = token_;
      if (!type.is_tensor() || !type.tensor.is_static())
        return FailAt(at, "a weight file entry of no fixed size");
      CMF_TRY(value.data, Blob());
      value.type = std::move(type);
    } else {
      CMF_TRY(value, Contents(type, 0));
    }
    CMF_CHECK(Expect(")"));
    return value;
  }

  Result<BlobRef> Blob() {
    BlobRef ref;
    CMF_CHECK(Advance());
    CMF_CHECK(Expect("("));
    bool has_path = false, has_offset = false;
    CMF_CHECK(CommaList(")", [&]() -> Result<void> {
      const Token at = token_;
      CMF_TRY(const std::string key, Name("path or offset"));
      CMF_CHECK(Expect("="));
      CMF_TRY(const std::string word, Name("a typed value"));
      CMF_TRY(const Value value, LiteralAfterName(word, /*is_inside_blob=*/true));
      if (const std::string* path = StringOf(value); key == "path" && path) {
        ref.file = *path;
        has_path = true;
      } else if (const auto offset = IntegersOf(value); key == "offset" && offset && offset->size() == 1) {
        ref.offset = static_cast<uint64_t>((*offset)[0]);
        has_offset = true;
      } else {
        return FailAt(at, "a weight file entry has a path (string) and an offset (uint64)");
      }
      return {};
    }));
    if (!has_path || !has_offset) return FailAt(token_, "a weight file entry needs path and offset");
    return ref;
  }

  Result<Value> Contents(const Type& type, int depth) {
    if (depth > kMaxDepth)
      return FailAt(token_, fmt::format("values nest deeper than {}", kMaxDepth), ErrorKind::kLimit);
    Value value;
    value.type = type;
    switch (type.kind) {
      case Type::Kind::kState:
        return FailAt(token_, "a state has no literal");
      case Type::Kind::kTensor:
        return Tensor(type.tensor);
      case Type::Kind::kList: {
        Value::Items items;
        CMF_CHECK(Expect("["));
        CMF_CHECK(CommaList("]", [&]() -> Result<void> {
          CMF_TRY(Value item, Contents(type.parts[0], depth + 1));
          items.push_back(std::move(item));
          return {};
        }));
        value.data = std::move(items);
        return value;
      }
      case Type::Kind::kTuple: {
        Value::Items items;
        const Token at = token_;
        CMF_CHECK(Expect("("));
        CMF_CHECK(CommaList(")", [&]() -> Result<void> {
          if (items.size() == type.parts.size())
            return FailAt(token_, "more values than the tuple's type has");
          CMF_TRY(Value item, Contents(type.parts[items.size()], depth + 1));
          items.push_back(std::move(item));
          return {};
        }));
        if (items.size() != type.parts.size()) return FailAt(at, "fewer values than the tuple's type has");
        value.data = std::move(items);
        return value;
      }
      case Type::Kind::kDictionary: {
        Value::Entries entries;
        CMF_CHECK(Expect("{"));
        CMF_CHECK(CommaList("}", [&]() -> Result<void> {
          CMF_CHECK(Expect("{"));
          CMF_TRY(Value key, Contents(type.parts[0], depth + 1));
          CMF_CHECK(Expect(","));
          CMF_TRY(Value mapped, Contents(type.parts[1], depth + 1));
          entries.emplace_back(std::move(key), std::move(mapped));
          return Expect("}");
        }));
        value.data = std::move(entries);
        return value;
      }
    }
    return FailAt(token_, "a value of no known kind");
  }

  /// Dimensions the type leaves open are taken from the literal (shape lists in attributes).
  Result<Value> Tensor(TensorType type) {
    const Token at = token_;
    Elements elements{type.dtype, {}, {}};
    CMF_CHECK(Nested(type.shape, 0, elements));
    if (IsSubByte(type.dtype)) elements.data.bytes = PackBits(elements.codes, BitsOf(type.dtype));
    if (auto status = CheckTensorData(type, elements.data); !status)
      return FailAt(at, status.error().message);
    Value value;
    value.type = std::move(type);
    value.data = std::move(elements.data);
    return value;
  }

  Result<void> Nested(Shape& shape, size_t axis, Elements& elements) {
    if (axis == shape.size()) return Scalar(elements);
    const Token at = token_;
    int64_t count = 0;
    CMF_CHECK(Expect("["));
    CMF_CHECK(CommaList("]", [&]() -> Result<void> {
      ++count;
      return Nested(shape, axis + 1, elements);
    }));
    if (shape[axis] == kUnknownDim) shape[axis] = count;
    if (shape[axis] == count) return {};
    return FailAt(at, fmt::format("{} elements where the type has {}", count, shape[axis]));
  }

  Result<void> Scalar(Elements& elements) {
    const DataType dtype = elements.dtype;
    std::vector<std::byte>& bytes = elements.data.bytes;
    const auto append = [&bytes](const auto& v) {
      const auto raw = std::as_bytes(std::span(&v, 1));
      bytes.insert(bytes.end(), raw.begin(), raw.end());
    };
    if (dtype == DataType::kString) {
      if (token_.kind != Token::Kind::kString) return Unexpected("a string");
      elements.data.strings.push_back(Unescaped(token_.text));
    } else if (dtype == DataType::kBool) {
      if (!token_.IsWord("true") && !token_.IsWord("false")) return Unexpected("true or false");
      bytes.push_back(std::byte{token_.IsWord("true")});
    } else if (IsFloat(dtype)) {
      CMF_TRY(const double v, FloatToken());
      switch (dtype) {
        case DataType::kFloat16:
          append(F32ToF16(static_cast<float>(v)));
          break;
        case DataType::kBFloat16:
          append(F32ToBf16(static_cast<float>(v)));
          break;
        case DataType::kFloat32:
          append(static_cast<float>(v));
          break;
        case DataType::kFloat64:
          append(v);
          break;
        default: {
          const auto code = Float8Code(dtype, v);
          if (!code) return Unexpected(fmt::format("a {} number", DataTypeName(dtype)));
          append(*code);
        }
      }
    } else {
      CMF_TRY(const uint64_t v, IntegerToken(dtype));
      if (IsSubByte(dtype)) {
        elements.codes.push_back(static_cast<uint8_t>(v));
      } else {
        const auto raw = std::as_bytes(std::span(&v, 1));
        bytes.insert(bytes.end(), raw.begin(), raw.begin() + BitsOf(dtype) / 8);
      }
    }
    return Advance();
  }

  Result<double> FloatToken() {
    std::string_view text = token_.text;
    const bool is_negative = text.starts_with("-");
    if (is_negative || text.starts_with("+")) text.remove_prefix(1);
    double value = 0;
    std::from_chars_result parsed{};
    const char* end = text.data() + text.size();
    if (text.starts_with("0x") || text.starts_with("0X")) {
      parsed = std::from_chars(text.data() + 2, end, value, std::chars_format::hex);
    } else {
      parsed = std::from_chars(text.data(), end, value);
    }
    const bool is_number =
        token_.kind == Token::Kind::kNumber || token_.IsWord("inf") || token_.IsWord("nan");
    if (!is_number || parsed.ec != std::errc() || parsed.ptr != end) return Unexpected("a number");
    return is_negative ? -value : value;
  }

  /// The two's complement bits of an integer that fits `dtype`.
  Result<uint64_t> IntegerToken(DataType dtype) {
    const std::string_view text = token_.text;
    const char* end = text.data() + text.size();
    const int bits = BitsOf(dtype);
    const auto no_fit = [&] { return Unexpected(fmt::format("a number that fits {}", DataTypeName(dtype))); };
    if (token_.kind != Token::Kind::kNumber) return no_fit();
    if (IsSigned(dtype)) {
      int64_t v = 0;
      const auto parsed = std::from_chars(text.data(), end, v);
      const int64_t limit = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
      if (parsed.ec != std::errc() || parsed.ptr != end || v > limit || v < -limit - 1) return no_fit();
      return static_cast<uint64_t>(v);
    }
    uint64_t v = 0;
    const auto parsed = std::from_chars(text.data(), end, v);
    if (parsed.ec != std::errc() || parsed.ptr != end || (bits < 64 && v >> bits != 0)) return no_fit();
    return v;
  }

  Lexer lexer_;
  Token token_;
};

}  // namespace

Result<Program> ParseProgramText(std::string_view text) { return Parser(text).Parse(); }

}  // namespace cmforge::mil
