// Model and description messages, both ways.
#include "mil/proto.h"
#include "mil/proto_internal.h"

namespace cmforge::mil {
namespace {

constexpr uint32_t kMlProgram = 502;

Result<Shape> ParseShape(Bytes bytes) {
  Shape shape;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    return f.number == 1 ? AppendVarints(f, shape) : Result<void>{};
  }));
  return shape;
}

Result<SizeRange> ParseSizeRange(Bytes bytes) {
  SizeRange range{0, 0};
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number == 1) range.lower = f.value;
    if (f.number == 2) range.upper = static_cast<int64_t>(f.value);
    return {};
  }));
  return range;
}

Result<ArrayFeature> ParseArray(Bytes bytes, ProtoBudget& budget) {
  ArrayFeature array;
  uint64_t dtype = 0;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1:
        return AppendVarints(f, array.shape);
      case 2:
        dtype = f.value;
        return {};
      case 21:
        return ForEachField(f.bytes, [&](const WireField& s) -> Result<void> {
          if (s.number != 1) return {};
          CMF_CHECK(budget.Take());
          CMF_TRY(Shape shape, ParseShape(s.bytes));
          array.enumerated_shapes.push_back(std::move(shape));
          return {};
        });
      case 31:
        return ForEachField(f.bytes, [&](const WireField& s) -> Result<void> {
          if (s.number != 1) return {};
          CMF_CHECK(budget.Take());
          CMF_TRY(const SizeRange range, ParseSizeRange(s.bytes));
          array.shape_range.push_back(range);
          return {};
        });
      case 41:
        array.default_value = static_cast<int32_t>(f.value);
        return {};
      case 51:
        array.default_value = std::bit_cast<float>(static_cast<uint32_t>(f.value));
        return {};
      case 61:
        array.default_value = std::bit_cast<double>(f.value);
        return {};
      default:
        return {};
    }
  }));
  array.dtype = static_cast<ArrayDataType>(dtype);
  if (dtype > UINT32_MAX || !ElementTypeOf(array.dtype)) {
    return Fail(ErrorKind::kUnsupported, fmt::format("array type number {} is not known", dtype));
  }
  return array;
}

Result<Feature> ParseFeature(Bytes bytes, ProtoBudget& budget) {
  CMF_CHECK(budget.Take());
  Feature feature;
  Bytes type;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    if (f.number == 1) feature.name = f.text();
    if (f.number == 2) feature.doc = f.text();
    if (f.number == 3) type = f.bytes;
    return {};
  }));
  WireWriter opaque;  // the type without what we keep in fields of our own
  bool is_array = false;
  auto status = ForEachField(type, [&](const WireField& f) -> Result<void> {
    if (f.number == 1000) {
      feature.is_optional = f.value != 0;
    } else if (f.number == 5 && f.type == WireType::kBytes) {
      CMF_TRY(feature.type, ParseArray(f.bytes, budget));
      is_array = true;
    } else if (f.number == 8 && f.type == WireType::kBytes) {
      return ForEachField(f.bytes, [&](const WireField& wrapped) -> Result<void> {
        if (wrapped.number != 1) return {};
        CMF_TRY(feature.type, ParseArray(wrapped.bytes, budget));
        is_array = feature.is_state = true;
        return {};
      });
    } else if (f.type == WireType::kBytes) {
      opaque.Blob(f.number, f.bytes);
    }
    return {};
  });
  if (!status) return Fail(std::move(status).error().In(fmt::format("feature '{}'", feature.name)));
  if (!is_array) feature.type = OpaqueFeature{opaque.bytes()};
  return feature;
}

Result<void> AppendFeature(const WireField& field, std::vector<Feature>& out, ProtoBudget& budget) {
  CMF_TRY(Feature feature, ParseFeature(field.bytes, budget));
  out.push_back(std::move(feature));
  return {};
}

Result<Metadata> ParseMetadata(Bytes bytes) {
  Metadata metadata;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1:
        metadata.short_description = f.text();
        return {};
      case 2:
        metadata.version = f.text();
        return {};
      case 3:
        metadata.author = f.text();
        return {};
      case 4:
        metadata.license = f.text();
        return {};
      case 100: {
        CMF_TRY(MapEntry entry, ParseMapEntry(f.bytes));
        metadata.user_defined[std::move(entry.key)] = std::string(AsText(entry.value));
        return {};
      }
      default:
        return {};
    }
  }));
  return metadata;
}

Result<FunctionDescription> ParseFunctionDescription(Bytes bytes, ProtoBudget& budget) {
  FunctionDescription function;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1:
        function.name = f.text();
        return {};
      case 2:
        return AppendFeature(f, function.inputs, budget);
      case 3:
        return AppendFeature(f, function.outputs, budget);
      case 6:
        return AppendFeature(f, function.states, budget);
      default:
        return {};
    }
  }));
  return function;
}

WireWriter WriteArray(const ArrayFeature& array) {
  WireWriter out;
  out.PackedVarints(1, array.shape);
  out.Varint(2, static_cast<uint32_t>(array.dtype));
  if (!array.enumerated_shapes.empty()) {
    WireWriter shapes;
    for (const Shape& shape : array.enumerated_shapes) {
      WireWriter one;
      one.PackedVarints(1, shape);
      shapes.Message(1, one);
    }
    out.Message(21, shapes);
  }
  if (!array.shape_range.empty()) {
    WireWriter ranges;
    for (const SizeRange& range : array.shape_range) {
      WireWriter one;
      one.VarintOrNothing(1, range.lower);
      one.VarintOrNothing(2, static_cast<uint64_t>(range.upper));
      ranges.Message(1, one);
    }
    out.Message(31, ranges);
  }
  if (array.default_value) {
    if (const auto* i = std::get_if<int32_t>(&*array.default_value)) {
      out.Varint(41, static_cast<uint64_t>(int64_t{*i}));
    } else if (const auto* f = std::get_if<float>(&*array.default_value)) {
      out.Fixed32(51, std::bit_cast<uint32_t>(*f));
    } else {
      out.Fixed64(61, std::bit_cast<uint64_t>(std::get<double>(*array.default_value)));
    }
  }
  return out;
}

WireWriter WriteFeature(const Feature& feature) {
  WireWriter out, type, state;
  out.TextOrNothing(1, feature.name);
  out.TextOrNothing(2, feature.doc);
  std::string type_bytes;
  if (const ArrayFeature* array = feature.array()) {
    if (feature.is_state) {
      state.Message(1, WriteArray(*array));
      type.Message(8, state);
    } else {
      type.Message(5, WriteArray(*array));
    }
  } else {
    type_bytes = std::get<OpaqueFeature>(feature.type).type_bytes;
  }
  type.VarintOrNothing(1000, feature.is_optional);
  out.Text(3, type_bytes + type.bytes());
  return out;
}

WireWriter WriteMetadata(const Metadata& metadata) {
  WireWriter out;
  out.TextOrNothing(1, metadata.short_description);
  out.TextOrNothing(2, metadata.version);
  out.TextOrNothing(3, metadata.author);
  out.TextOrNothing(4, metadata.license);
  for (const auto& [key, text] : metadata.user_defined) {
    WireWriter entry;
    entry.Text(1, key);
    entry.Text(2, text);
    out.Message(100, entry);
  }
  return out;
}

}  // namespace

Result<Description> ParseDescription(Bytes bytes, ProtoBudget& budget) {
  Description out;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1:
        return AppendFeature(f, out.inputs, budget);
      case 10:
        return AppendFeature(f, out.outputs, budget);
      case 11:
        out.predicted_feature = f.text();
        return {};
      case 12:
        out.predicted_probabilities = f.text();
        return {};
      case 13:
        return AppendFeature(f, out.states, budget);
      case 20: {
        CMF_CHECK(budget.Take());
        CMF_TRY(FunctionDescription function, ParseFunctionDescription(f.bytes, budget));
        out.functions.push_back(std::move(function));
        return {};
      }
      case 21:
        out.default_function = f.text();
        return {};
      case 100: {
        CMF_TRY(out.metadata, ParseMetadata(f.bytes));
        return {};
      }
      default:
        return {};
    }
  }));
  return out;
}

WireWriter WriteDescription(const Description& description, bool always_metadata) {
  WireWriter out;
  for (const Feature& feature : description.inputs) out.Message(1, WriteFeature(feature));
  for (const Feature& feature : description.outputs) out.Message(10, WriteFeature(feature));
  out.TextOrNothing(11, description.predicted_feature);
  out.TextOrNothing(12, description.predicted_probabilities);
  for (const Feature& feature : description.states) out.Message(13, WriteFeature(feature));
  for (const FunctionDescription& function : description.functions) {
    WireWriter message;
    message.Text(1, function.name);
    for (const Feature& feature : function.inputs) message.Message(2, WriteFeature(feature));
    for (const Feature& feature : function.outputs) message.Message(3, WriteFeature(feature));
    for (const Feature& feature : function.states) message.Message(6, WriteFeature(feature));
    out.Message(20, message);
  }
  out.TextOrNothing(21, description.default_function);
  if (always_metadata || !(description.metadata == Metadata{}))
    out.Message(100, WriteMetadata(description.metadata));
  return out;
}

Result<Model> ParseModel(Bytes bytes) {
  ProtoBudget budget;
  Model model;
  bool has_program = false;
  uint32_t other_kind = 0;
  CMF_CHECK(ForEachField(bytes, [&](const WireField& f) -> Result<void> {
    switch (f.number) {
      case 1:
        model.specification_version = static_cast<int64_t>(f.value);
        return {};
      case 2: {
        auto description = ParseDescription(f.bytes, budget);
        if (!description) return Fail(std::move(description).error().In("description"));
        model.description = std::move(*description);
        return {};
      }
      case 10:
        model.is_updatable = f.value != 0;
        return {};
      case kMlProgram: {
        auto program = ParseProgram(f.bytes, budget);
        if (!program) return Fail(std::move(program).error().In("program"));
        model.program = std::move(*program);
        has_program = true;
        return {};
      }
      default:
        if (f.number >= 200) other_kind = f.number;
        return {};
    }
  }));
  if (!has_program) {
    if (other_kind) {
      return Fail(
          ErrorKind::kUnsupported,
          fmt::format("the model is of kind {}, only ML Programs ({}) are read", other_kind, kMlProgram));
    }
    return Fail(ErrorKind::kCorrupt, "no program: this is not a Core ML model");
  }
  return model;
}

Result<Description> ParseDescription(Bytes bytes) {
  ProtoBudget budget;
  return ParseDescription(bytes, budget);
}

std::string SerializeModel(const Model& model) {
  WireWriter out;
  out.Varint(1, static_cast<uint64_t>(model.specification_version));
  out.Message(2, WriteDescription(model.description, false));
  out.VarintOrNothing(10, model.is_updatable);
  out.Message(kMlProgram, WriteProgram(model.program));
  return out.bytes();
}

std::string SerializeDescription(const Description& description) {
  return WriteDescription(description, true).bytes();
}

}  // namespace cmforge::mil
