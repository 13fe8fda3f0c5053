// Program text and binary description of compiled models.
#include "mil/compiled.h"

#include <set>

#include "mil/proto.h"
#include "mil/sha256.h"
#include "mil/text.h"

namespace cmforge::mil {
namespace {

constexpr uint32_t kMlProgramKind = 502;
constexpr std::string_view kEngine = "generic";

// The compiler whose layout we follow; the samples under tests/data/mil are its output.
constexpr const char* kBuildInfo[][2] = {{"coremlc-component-MIL", "3600.16.1"},
                                         {"coremlc-version", "3600.25.1"}};

template <class T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void PutText(std::string& out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out += text;
}

Value IntegerList(const Shape& shape) {
  std::vector<int32_t> numbers;
  for (const int64_t dim : shape) numbers.push_back(static_cast<int32_t>(dim));
  return Int32s(numbers);
}

/// A tuple of two pairs, each of a string and a value: how shape information is written.
Value TwoPairs(const char* first, Value a, const char* second, Value b) {
  const auto pair = [](const char* key, Value value) {
    Value out;
    out.type = Type::Tuple({Type(DataType::kString, {}), value.type});
    out.data = Value::Items{String(key), std::move(value)};
    return out;
  };
  Value out;
  Value::Items items{pair(first, std::move(a)), pair(second, std::move(b))};
  out.type = Type::Tuple({items[0].type, items[1].type});
  out.data = std::move(items);
  return out;
}

Value Map(Type value_type, Value::Entries entries) {
  Value out;
  out.type = Type::Dictionary(Type(DataType::kString, {}), std::move(value_type));
  out.data = std::move(entries);
  return out;
}

const Type kShapeList = Type(DataType::kInt32, {kUnknownDim});

/// Eight hexadecimal digits that tell one combination of input shapes from another. The compiler's own digits
/// come from a hash that is not public; any distinct ones name the combinations.
std::string ShapesKey(const Value::Entries& shapes) {
  Sha256 hash;
  for (const auto& [name, shape] : shapes) {
    hash.Add(AsBytes(*StringOf(name)));
    hash.Add(Bytes(shape.tensor()->bytes));
  }
  const Sha256Digest digest = hash.Finish();
  return fmt::format("{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
}

}  // namespace

std::optional<Value> FlexibleShapes(const std::vector<Feature>& inputs) {
  NameMap<const ArrayFeature*> ranged, enumerated;
  for (const Feature& feature : inputs) {
    const ArrayFeature* array = feature.array();
    if (array && !array->enumerated_shapes.empty()) enumerated[feature.name] = array;
    if (array && array->enumerated_shapes.empty() && !array->shape_range.empty())
      ranged[feature.name] = array;
  }
  Value::Entries defaults;
  for (const auto* group : {&ranged, &enumerated}) {
    for (const auto& [name, array] : *group) defaults.emplace_back(String(name), IntegerList(array->shape));
  }
  if (!ranged.empty()) {
    Value::Entries ranges;
    for (const auto& [name, array] : ranged) {
      Value::Items pairs;
      for (const SizeRange& range : array->shape_range) {
        pairs.push_back(IntegerList({static_cast<int64_t>(range.lower), range.upper}));
      }
      Value list;
      list.type = Type::List(Type(DataType::kInt32, {2}));
      list.data = std::move(pairs);
      ranges.emplace_back(String(name), std::move(list));
    }
    return TwoPairs("DefaultShapes", Map(kShapeList, std::move(defaults)), "RangeDims",
                    Map(Type::List(Type(DataType::kInt32, {2})), std::move(ranges)));
  }
  if (enumerated.empty()) return std::nullopt;
  // The i-th shapes of all inputs belong together.
  size_t count = 0;
  for (const auto& [name, array] : enumerated) count = std::max(count, array->enumerated_shapes.size());
  std::map<std::string, Value::Entries> by_key;
  for (size_t i = 0; i < count; ++i) {
    Value::Entries shapes;
    for (const auto& [name, array] : enumerated) {
      const auto& all = array->enumerated_shapes;
      shapes.emplace_back(String(name), IntegerList(all[std::min(i, all.size() - 1)]));
    }
    std::string key = ShapesKey(shapes);
    by_key[std::move(key)] = std::move(shapes);
  }
  Value::Entries combinations;
  for (auto& [key, shapes] : by_key)
    combinations.emplace_back(String(key), Map(kShapeList, std::move(shapes)));
  return TwoPairs("DefaultShapes", Map(kShapeList, std::move(defaults)), "EnumeratedShapes",
                  Map(Type::Dictionary(Type(DataType::kString, {}), kShapeList), std::move(combinations)));
}

std::string CompiledProgramText(const Model& model) {
  Program program = model.program;
  std::map<std::string, std::string> build_info;
  if (const auto it = program.attributes.find("buildInfo"); it != program.attributes.end()) {
    if (const auto* entries = std::get_if<Value::Entries>(&it->second.data)) {
      for (const auto& [key, text] : *entries) {
        const std::string *k = StringOf(key), *v = StringOf(text);
        if (k && v) build_info[*k] = *v;
      }
    }
  }
  for (const auto& [key, text] : kBuildInfo) build_info[key] = text;
  program.attributes["buildInfo"] = StringMap(build_info);
  for (auto& [name, function] : program.functions) {
    const auto view = model.description.Find(name);
    if (auto shapes = view ? FlexibleShapes(*view->inputs) : std::nullopt) {
      function.attributes[std::string(kFlexibleShapesAttribute)] = std::move(*shapes);
    }
  }
  return PrintProgram(program);
}

std::string CompiledDescription(const Model& model) {
  std::string out;
  const std::string description = SerializeDescription(model.description);
  Put<uint32_t>(out, kMlProgramKind);
  Put(out, static_cast<uint32_t>(model.specification_version));
  out.append(20, '\0');
  PutText(out, kEngine);
  Put(out, static_cast<uint8_t>(model.specification_version));
  out.append(31, '\0');
  PutText(out, description);
  for (size_t i = 0; i < model.program.functions.size(); ++i) {
    Put<uint32_t>(out, kMlProgramKind);
    out.append(12, '\0');
  }
  return out;
}

Result<CompiledHeader> ParseCompiledDescription(Bytes bytes) {
  CompiledHeader header;
  const auto size = [&](uint64_t at, std::string_view what) -> Result<uint64_t> {
    if (bytes.size() < at || bytes.size() - at < 8) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{} bytes: the {} is missing", bytes.size(), what));
    }
    return LoadLe<uint64_t>(bytes.data() + at);
  };
  CMF_TRY(const uint64_t engine_size, size(0x1C, "envelope"));
  const auto kind = LoadLe<uint32_t>(bytes.data());
  if (kind != kMlProgramKind) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("the model is of kind {}, only ML Programs ({}) are read", kind, kMlProgramKind));
  }
  header.specification_version = LoadLe<uint32_t>(bytes.data() + 4);
  CMF_TRY(const ByteRange engine, ByteRange::Checked(0x24, engine_size, bytes.size(), "engine name"));
  CMF_TRY(const uint64_t length, size(engine.end() + 32, "description"));
  CMF_TRY(const ByteRange range, ByteRange::Checked(engine.end() + 40, length, bytes.size(), "description"));
  auto description = ParseDescription(range.Of(bytes));
  if (!description) return Fail(std::move(description).error().In("description"));
  header.description = std::move(*description);
  return header;
}

std::string CompiledAnalytics(const Model& model, const std::string& class_name) {
  std::string out;
  const auto section = [&](std::string_view name,
                           std::initializer_list<std::pair<std::string_view, std::string>> pairs) {
    PutText(out, name);
    Put<uint64_t>(out, pairs.size());
    for (const auto& [key, value] : pairs) {
      PutText(out, key);
      PutText(out, value);
    }
  };
  section("NeuralNetworkModelDetails", {{"containsCustomLayer", "0"}, {"modelDimension", "0"}});
  section("SpecificationDetails",
          {{"modelHash", Base64Of(Sha256Of(AsBytes(SerializeModel(model))))}, {"modelName", class_name}});
  return out;
}

}  // namespace cmforge::mil
