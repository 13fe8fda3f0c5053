// Forms of constants.
#include "coreml/stored_form.h"

#include <algorithm>

namespace cmforge::coreml {
namespace {

using mil::Operation;

/// A parameter's value where it is one: bound (iOS 18) or an attribute (before).
const mil::Value* ValueOf(const Operation& op, std::string_view parameter) {
  const auto attribute = op.attributes.find(parameter);
  if (attribute != op.attributes.end()) return &attribute->second;
  const auto it = op.inputs.find(parameter);
  return it == op.inputs.end() || it->second.empty() ? nullptr : std::get_if<mil::Value>(&it->second[0]);
}

uint64_t BytesOf(const mil::Value& value) {
  if (!value.type.is_tensor()) return 0;
  const auto count = ElementCount(value.type.tensor.shape);
  return count ? mil::StorageBytes(value.type.tensor.dtype, *count).value_or(0) : 0;
}

/// Channels of axis 0 that share a table; 0 when all do.
int64_t ChannelsPerTable(const Shape& dense, const mil::Value* lut) {
  if (!lut || lut->type.tensor.shape.size() != dense.size() + 2 || dense.empty()) return 0;
  const int64_t groups = lut->type.tensor.shape[0];
  return groups > 1 && dense[0] % groups == 0 ? dense[0] / groups : 0;
}

}  // namespace

std::optional<StoredForm> FormOf(const FunctionView& function, const Operation& op) {
  if (!IsConstantOperation(op) || op.outputs.size() != 1 || !op.outputs[0].type.is_tensor())
    return std::nullopt;
  StoredForm form;
  form.dense = op.outputs[0].type.tensor;
  const char* main = "val";
  if (op.type == "constexpr_lut_to_dense") {
    form.kind = StoredForm::Kind::kPalette;
    main = "indices";
  } else if (op.type == "constexpr_blockwise_shift_scale" || op.type == "constexpr_affine_dequantize") {
    form.kind = StoredForm::Kind::kScaled;
    main = op.type == "constexpr_affine_dequantize" ? "quantized_data" : "data";
    // A palette with a scale behind it; nothing goes deeper.
    if (const Operation* source = function.MakerOf(op, main)) {
      if (function.MakerOf(*source, "data")) return std::nullopt;
      auto inner = FormOf(function, *source);
      const mil::Value* scale = ValueOf(op, "scale");
      if (!inner || !scale) return inner;
      inner->table_bytes += BytesOf(*scale);
      inner->stored_bytes += BytesOf(*scale);
      return inner;
    }
  } else if (op.type == "constexpr_cast") {
    main = "source_val";
  } else if (op.type != "const") {
    form.kind = StoredForm::Kind::kSparse;
    main = op.inputs.contains("indices_nonzero_data") ? "indices_nonzero_data" : "nonzero_data";
  }
  const mil::Value* value = ValueOf(op, main);
  if (!value || !value->type.is_tensor() || value->type.tensor.dtype == mil::DataType::kString)
    return std::nullopt;
  form.dtype = value->type.tensor.dtype;
  form.bits = mil::BitsOf(form.dtype);
  form.place = value->blob();
  if (form.kind == StoredForm::Kind::kPalette) {
    const mil::Value* lut = ValueOf(op, "lut");
    form.channels_per_table = ChannelsPerTable(form.dense.shape, lut);
    if (lut && form.dtype == mil::DataType::kUInt8 && lut->type.tensor.rank() == 1) {
      form.bits = 0;  // iOS 16 packs indices into bytes; the table tells their width
      for (int64_t entries = lut->type.tensor.shape[0]; entries > 1; entries /= 2) ++form.bits;
    }
  }
  for (const char* parameter : {"lut", "scale", "offset", "zero_point"}) {
    if (const mil::Value* table = ValueOf(op, parameter)) form.table_bytes += BytesOf(*table);
  }
  form.stored_bytes = BytesOf(*value) + form.table_bytes;
  for (const char* parameter : {"mask", "indices_mask", "data_mask"}) {
    if (const mil::Value* mask = ValueOf(op, parameter)) form.stored_bytes += BytesOf(*mask);
  }
  return form;
}

bool IsTable(const FunctionView& function, const Operation& op) {
  if (op.outputs.size() != 1) return false;
  const auto& users = function.Users(op.outputs[0].name);
  return !users.empty() && std::all_of(users.begin(), users.end(), [](const FunctionView::Use& use) {
    return use.op->type.starts_with("gather") && use.parameter == "x";
  });
}

}  // namespace cmforge::coreml
