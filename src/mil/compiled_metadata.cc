// metadata.json of compiled models: a summary for people and for loaders that look no further.
#include <set>

#include "mil/compiled.h"

namespace cmforge::mil {
namespace {

/// JSON in the compiler's layout: two spaces a level, " : ", empty containers over three lines.
class JsonText {
 public:
  void Open(char bracket) {
    out_ += bracket;
    ++depth_;
    is_first_ = true;
  }
  void Close(char bracket) {
    --depth_;
    out_ += is_first_ ? "\n\n" : "\n";
    Indent();
    out_ += bracket;
    is_first_ = false;
  }
  void Item() {
    out_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
    Indent();
  }
  void Key(std::string_view key) {
    Item();
    Quoted(key);
    out_ += " : ";
  }
  void Text(std::string_view key, std::string_view text) {
    Key(key);
    Quoted(text);
  }
  void Number(std::string_view key, int64_t number) {
    Key(key);
    out_ += std::to_string(number);
  }
  [[nodiscard]] std::string Take() { return std::move(out_); }

 private:
  void Indent() { out_.append(size_t{2} * static_cast<size_t>(depth_), ' '); }
  void Quoted(std::string_view text) {
    out_ += '"';
    for (const char c : text) {
      switch (c) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '/':
          out_ += "\\/";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        default:
          if (static_cast<unsigned char>(c) < 0x20) {
            out_ += fmt::format("\\u{:04x}", static_cast<int>(c));
          } else {
            out_ += c;
          }
      }
    }
    out_ += '"';
  }

  std::string out_;
  int depth_ = 0;
  bool is_first_ = true;
};

std::string_view LongName(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return "Float16";
    case DataType::kFloat32:
      return "Float32";
    case DataType::kFloat64:
      return "Double";
    case DataType::kBFloat16:
      return "BFloat16";
    case DataType::kInt8:
      return "Int8";
    case DataType::kInt16:
      return "Int16";
    case DataType::kInt32:
      return "Int32";
    case DataType::kInt64:
      return "Int64";
    case DataType::kInt4:
      return "Int4";
    case DataType::kUInt8:
      return "UInt8";
    case DataType::kUInt16:
      return "UInt16";
    case DataType::kUInt32:
      return "UInt32";
    case DataType::kUInt64:
      return "UInt64";
    case DataType::kUInt1:
      return "UInt1";
    case DataType::kUInt2:
      return "UInt2";
    case DataType::kUInt3:
      return "UInt3";
    case DataType::kUInt4:
      return "UInt4";
    case DataType::kUInt6:
      return "UInt6";
    default:
      return "";
  }
}

/// "Float16", or "Mixed (Float16, Int32)".
std::string Precisions(const std::set<std::string>& names) {
  if (names.size() == 1) return *names.begin();
  return fmt::format("Mixed ({})", fmt::join(names, ", "));
}

std::string Compute(const Function& function) {
  std::set<std::string> names;
  for (const Operation& op : function.body.operations) {
    for (const NamedType& output : op.outputs) {
      const std::string_view name = LongName(output.type.tensor.dtype);
      if (!name.empty()) names.emplace(name);
    }
  }
  return names.empty() ? "" : Precisions(names);
}

/// The kinds of weights in files: element types, and the widths of palettes.
std::string Storage(const Program& program) {
  std::set<std::string> names;
  const auto add = [&](const Operation& op, const std::string& parameter, const Value& value) {
    if (!value.blob()) return;
    const DataType dtype = value.type.tensor.dtype;
    const bool is_palette = op.type == "constexpr_lut_to_dense" && parameter == "indices";
    if (is_palette) names.insert(fmt::format("Palettized ({} bits)", BitsOf(dtype)));
    if (!is_palette || IsSubByte(dtype)) names.emplace(LongName(dtype));
  };
  for (const auto& [name, function] : program.functions) {
    for (const Operation& op : function.body.operations) {
      for (const auto& [attribute, value] : op.attributes) add(op, attribute, value);
      for (const auto& [parameter, arguments] : op.inputs) {
        for (const Argument& argument : arguments) {
          if (const auto* value = std::get_if<Value>(&argument)) add(op, parameter, *value);
        }
      }
    }
  }
  names.erase("");
  return names.empty() ? "" : Precisions(names);
}

std::string CamelCase(std::string_view name) {
  std::string out;
  bool is_upper = false;
  for (const char c : name) {
    if (c == '_') {
      is_upper = true;
      continue;
    }
    out += is_upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    is_upper = false;
  }
  return out;
}

/// The operation set whose definition of `op` is in force: every one was written anew for iOS 18; before that
/// only some were. (Seen in files; the compiler's own table is not public.)
std::string VersionPrefix(std::string_view op, Opset opset) {
  static const std::set<std::string_view> ios16 = {"relu",
                                                   "tanh",
                                                   "sigmoid",
                                                   "silu",
                                                   "gelu",
                                                   "softplus",
                                                   "softmax",
                                                   "exp",
                                                   "exp2",
                                                   "sqrt",
                                                   "erf",
                                                   "sin",
                                                   "cos",
                                                   "abs",
                                                   "square",
                                                   "sign",
                                                   "floor",
                                                   "ceil",
                                                   "round",
                                                   "clip",
                                                   "matmul",
                                                   "einsum",
                                                   "reduce_sum",
                                                   "reduce_mean",
                                                   "reduce_max",
                                                   "reduce_min",
                                                   "reduce_sum_square",
                                                   "reduce_l2_norm",
                                                   "reduce_log_sum_exp",
                                                   "topk",
                                                   "gather_nd"};
  static const std::set<std::string_view> ios15 = {"tile",   "concat",   "stack",    "split", "shape",
                                                   "fill",   "select",   "range_1d", "pad",   "band_part",
                                                   "cumsum", "identity", "one_hot"};
  if (opset >= Opset::kIos18) return "Ios18.";
  if (op.starts_with("constexpr_")) return "Ios16.";
  if (opset == Opset::kIos15 || ios15.contains(op)) return "";
  if (opset == Opset::kIos16 || ios16.contains(op)) return "Ios16.";
  return "Ios17.";
}

void Histogram(JsonText& json, const Function& function) {
  std::map<std::string, std::pair<std::string, int64_t>> counts;  // camel-case name -> key, count
  for (const Operation& op : function.body.operations) {
    if (op.type == "const") continue;
    const std::string name = CamelCase(op.type);
    auto& entry = counts[name];
    entry.first = VersionPrefix(op.type, function.opset) + name;
    if (VersionPrefix(op.type, function.opset).empty())
      entry.first[0] = static_cast<char>(entry.first[0] - 'a' + 'A');
    ++entry.second;
  }
  json.Key("mlProgramOperationTypeHistogram");
  json.Open('{');
  for (const auto& [name, entry] : counts) json.Number(entry.first, entry.second);
  json.Close('}');
}

std::string RangeText(const SizeRange& range) {
  if (range.upper == static_cast<int64_t>(range.lower)) return std::to_string(range.lower);
  return range.upper < 0 ? fmt::format("{}...", range.lower)
                         : fmt::format("{}...{}", range.lower, range.upper);
}

void Schema(JsonText& json, std::string_view key, const std::vector<Feature>& features) {
  json.Key(key);
  json.Open('[');
  for (const Feature& feature : features) {
    const ArrayFeature* array = feature.array();
    if (!array) continue;
    const std::string_view dtype = LongName(*ElementTypeOf(array->dtype));
    const std::string_view kind = feature.is_state ? "State" : "MultiArray";
    const bool is_flexible = !array->enumerated_shapes.empty() || !array->shape_range.empty();
    json.Item();
    json.Open('{');
    if (!feature.is_state) json.Text("hasShapeFlexibility", is_flexible ? "1" : "0");
    json.Text("isOptional", feature.is_optional ? "1" : "0");
    if (!array->enumerated_shapes.empty()) {
      std::vector<std::string> dims, lists;
      for (const Shape& shape : array->enumerated_shapes) {
        dims.push_back(fmt::format("{}", fmt::join(shape, " × ")));
        lists.push_back(ShapeText(shape));
      }
      json.Text("shapeFlexibility", fmt::format("{}", fmt::join(dims, " | ")));
      json.Text("enumeratedShapes", fmt::format("[{}]", fmt::join(lists, ", ")));
    } else if (is_flexible) {
      std::vector<std::string> dims, lists;
      for (const SizeRange& range : array->shape_range) {
        dims.push_back(RangeText(range));
        lists.push_back(fmt::format("[{}, {}]", range.lower, range.upper));
      }
      json.Text("shapeFlexibility", fmt::format("{}", fmt::join(dims, " × ")));
      json.Text("shapeRange", fmt::format("[{}]", fmt::join(lists, ", ")));
    }
    json.Text("dataType", dtype);
    json.Text("formattedType", fmt::format("{} ({}{}{})", kind, dtype, array->shape.empty() ? "" : " ",
                                           fmt::join(array->shape, " × ")));
    json.Text("shortDescription", feature.doc);
    json.Text("shape", ShapeText(array->shape));
    json.Text("name", feature.name);
    json.Text("type", kind);
    json.Close('}');
  }
  json.Close(']');
}

void Availability(JsonText& json, int64_t specification) {
  const char* const systems[] = {"macOS", "tvOS", "visionOS", "watchOS", "iOS", "macCatalyst"};
  // Versions of those systems, by specification version from 6 on.
  const char* const versions[][6] = {{"12.0", "15.0", "1.0", "8.0", "15.0", "15.0"},
                                     {"13.0", "16.0", "1.0", "9.0", "16.0", "16.0"},
                                     {"14.0", "17.0", "1.0", "10.0", "17.0", "17.0"},
                                     {"15.0", "18.0", "2.0", "11.0", "18.0", "18.0"},
                                     {"26.0", "26.0", "26.0", "26.0", "26.0", "26.0"}};
  const auto row = static_cast<size_t>(std::clamp<int64_t>(specification, 6, 10) - 6);
  json.Key("availability");
  json.Open('{');
  for (size_t i = 0; i < std::size(systems); ++i) json.Text(systems[i], versions[row][i]);
  json.Close('}');
}

}  // namespace

std::string CompiledMetadata(const Model& model, const std::string& class_name) {
  const Description& description = model.description;
  const std::string main = model.DefaultFunction();
  const auto function = model.program.functions.find(main);
  const auto view = description.Find(main);
  JsonText json;
  json.Open('[');
  json.Item();
  json.Open('{');
  json.Text("metadataOutputVersion", "3.0");
  const Metadata& metadata = description.metadata;
  if (!metadata.short_description.empty()) json.Text("shortDescription", metadata.short_description);
  if (!metadata.author.empty()) json.Text("author", metadata.author);
  if (!metadata.license.empty()) json.Text("license", metadata.license);
  if (!metadata.version.empty()) json.Text("version", metadata.version);
  if (const std::string storage = Storage(model.program); !storage.empty())
    json.Text("storagePrecision", storage);
  if (view) Schema(json, "outputSchema", *view->outputs);
  json.Key("modelParameters");
  json.Open('[');
  json.Close(']');
  json.Number("specificationVersion", model.specification_version);
  if (function != model.program.functions.end()) {
    Histogram(json, function->second);
    json.Text("computePrecision", Compute(function->second));
  }
  json.Text("isUpdatable", model.is_updatable ? "1" : "0");
  if (view) Schema(json, "stateSchema", *view->states);
  Availability(json, model.specification_version);
  json.Key("modelType");
  json.Open('{');
  json.Text("name", "MLModelType_mlProgram");
  json.Close('}');
  json.Key("userDefinedMetadata");
  json.Open('{');
  for (const auto& [key, text] : metadata.user_defined) json.Text(key, text);
  json.Close('}');
  if (view) Schema(json, "inputSchema", *view->inputs);
  if (!description.functions.empty()) {
    json.Text("defaultFunctionName", main);
    json.Key("functions");
    json.Open('[');
    for (const FunctionDescription& described : description.functions) {
      json.Item();
      json.Open('{');
      Schema(json, "inputSchema", described.inputs);
      const auto body = model.program.functions.find(described.name);
      if (body != model.program.functions.end()) json.Text("computePrecision", Compute(body->second));
      json.Text("name", described.name);
      Schema(json, "outputSchema", described.outputs);
      Schema(json, "stateSchema", described.states);
      if (body != model.program.functions.end()) Histogram(json, body->second);
      json.Close('}');
    }
    json.Close(']');
  }
  json.Text("generatedClassName", class_name);
  json.Text("method", "predict");
  json.Close('}');
  json.Close(']');
  return json.Take();
}

}  // namespace cmforge::mil
