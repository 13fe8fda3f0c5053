// Summaries of models.
#include "coreml/info.h"

#include <algorithm>
#include <set>

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

std::vector<FeatureInfo> Features(const std::vector<mil::Feature>& features) {
  std::vector<FeatureInfo> out;
  for (const mil::Feature& feature : features) {
    FeatureInfo info{feature.name, "other", {}, {}, {}};
    if (const mil::ArrayFeature* array = feature.array()) {
      info.type = DataTypeName(*ElementTypeOf(array->dtype));
      info.shape = array->shape;
      info.enumerated = array->enumerated_shapes;
      info.range = array->shape_range;
    }
    out.push_back(std::move(info));
  }
  return out;
}

/// An array that the description gives no shape, as compilers leave it for outputs, has that of the
/// program; -1 where that depends on the input.
void FillShapes(std::vector<FeatureInfo>& features, const mil::Block& body) {
  for (const mil::Operation& op : body.operations) {
    for (const mil::NamedType& made : op.outputs) {
      for (FeatureInfo& feature : features) {
        if (feature.name == made.name && feature.shape.empty() && made.type.is_tensor())
          feature.shape = made.type.tensor.shape;
      }
    }
  }
}

/// Sums constants by form, each place of a weight file once.
class WeightCounter {
 public:
  explicit WeightCounter(const mil::Package& package) : package_(package) {}

  void Count(const mil::Operation& op) {
    if (op.outputs.empty() || (op.type != "const" && !op.type.starts_with("constexpr_"))) return;
    uint64_t bytes = 0;
    bool is_new = false;
    const mil::TensorType* first = nullptr;
    std::string groups;
    const auto add = [&](const std::string& parameter, const mil::Value& value) {
      if (parameter == "name" || !value.type.is_tensor() || value.type.tensor.dtype == mil::DataType::kString)
        return;
      const mil::TensorType& type = value.type.tensor;
      const auto count = ElementCount(type.shape);
      const auto size = count ? mil::StorageBytes(type.dtype, *count) : std::nullopt;
      if (!size) return;
      if (!first || parameter == "indices" || parameter == "data" || parameter == "quantized_data")
        first = &type;
      if (parameter == "lut" && type.shape.size() > 2 &&
          op.outputs[0].type.tensor.shape.size() + 2 == type.shape.size()) {
        const Shape& dense = op.outputs[0].type.tensor.shape;
        for (size_t i = 0; i + 2 < type.shape.size(); ++i) {
          if (type.shape[i] > 1) groups += fmt::format(" groups {}", dense[i] / type.shape[i]);
        }
      }
      if (const mil::BlobRef* blob = value.blob()) {
        if (!seen_.insert({blob->file, blob->offset}).second) return;
        files_.insert(blob->file);
      } else if (op.type == "const" && *size < 64) {
        return;  // parameters of operations
      }
      is_new = true;
      bytes += *size;
    };
    for (const auto& [name, value] : op.attributes) add(name, value);
    for (const auto& [parameter, arguments] : op.inputs) {
      for (const mil::Argument& argument : arguments) {
        if (const auto* value = std::get_if<mil::Value>(&argument)) add(parameter, *value);
      }
    }
    if (!is_new || !first) return;
    WeightFormInfo& form = forms_[FormName(op.type, first->dtype) + groups];
    ++form.tensors;
    form.elements += ElementCount(op.outputs[0].type.tensor.shape).value_or(0);
    form.bytes += bytes;
  }

  [[nodiscard]] std::vector<WeightFormInfo> Forms() const {
    std::vector<WeightFormInfo> out;
    for (const auto& [name, form] : forms_) {
      out.push_back(form);
      out.back().form = name;
    }
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return out;
  }
  Result<uint64_t> FileBytes() const {
    uint64_t total = 0;
    for (const std::string& name : files_) {
      CMF_TRY(const mil::BlobFile* file, package_.weights->File(name));
      total += file->bytes().size();
    }
    return total;
  }

 private:
  static std::string FormName(const std::string& op, mil::DataType dtype) {
    if (op == "const") return std::string(DataTypeName(dtype));
    if (op == "constexpr_lut_to_dense") return fmt::format("lut{}", mil::BitsOf(dtype));
    if (op == "constexpr_blockwise_shift_scale" || op == "constexpr_affine_dequantize") {
      return fmt::format("{} scaled", DataTypeName(dtype));
    }
    if (op == "constexpr_cast") return fmt::format("{} cast", DataTypeName(dtype));
    return "sparse";
  }

  const mil::Package& package_;
  std::set<std::pair<std::string, uint64_t>> seen_;
  std::set<std::string> files_;
  std::map<std::string, WeightFormInfo> forms_;
};

Json FeaturesJson(const std::vector<FeatureInfo>& features) {
  Json out = Json::array();
  for (const FeatureInfo& feature : features) {
    Json one{{"name", feature.name}, {"type", feature.type}, {"shape", feature.shape}};
    if (!feature.enumerated.empty()) one["enumerated_shapes"] = feature.enumerated;
    if (!feature.range.empty()) {
      Json ranges = Json::array();
      for (const mil::SizeRange& range : feature.range) ranges.push_back({range.lower, range.upper});
      one["shape_range"] = std::move(ranges);
    }
    out.push_back(std::move(one));
  }
  return out;
}

Json ModelJson(const ModelInfo& model) {
  Json functions = Json::array(), weights = Json::array(), user = Json::object();
  for (const FunctionInfo& function : model.functions) {
    functions.push_back({{"name", function.name},
                         {"opset", function.opset},
                         {"inputs", FeaturesJson(function.inputs)},
                         {"outputs", FeaturesJson(function.outputs)},
                         {"states", FeaturesJson(function.states)},
                         {"operations", function.operations}});
  }
  for (const WeightFormInfo& form : model.weights) {
    weights.push_back(
        {{"form", form.form}, {"tensors", form.tensors}, {"elements", form.elements}, {"bytes", form.bytes}});
  }
  for (const auto& [key, text] : model.metadata.user_defined) user[key] = text;
  return {{"path", model.path.string()},
          {"form", model.form},
          {"specification_version", model.specification_version},
          {"default_function", model.default_function},
          {"functions", std::move(functions)},
          {"weights", std::move(weights)},
          {"weight_file_bytes", model.weight_file_bytes},
          {"author", model.metadata.author},
          {"version", model.metadata.version},
          {"metadata", std::move(user)}};
}

Json MetaJson(const PackageMeta& meta) {
  Json out{{"name", meta.name},
           {"version", meta.version},
           {"architecture", meta.architecture},
           {"context_length", meta.context_length},
           {"batch_size", meta.batch_size},
           {"num_chunks", meta.num_chunks},
           {"model_prefix", meta.model_prefix},
           {"split_lm_head", meta.split_lm_head},
           {"recurrent_state", meta.recurrent_state},
           {"prefill_last_token_output", meta.prefill_last_token_output},
           {"weights", meta.weights}};
  if (meta.vocab_size) out["vocab_size"] = *meta.vocab_size;
  if (meta.local_cache_length) out["local_cache_length"] = *meta.local_cache_length;
  if (meta.per_layer_inputs) out["per_layer_inputs"] = *meta.per_layer_inputs;
  Json states = Json::array();
  for (const StateMeta& state : meta.states) {
    states.push_back(
        {{"name", state.name}, {"shape", state.shape}, {"dtype", state.dtype}, {"layers", state.layers}});
  }
  out["states"] = std::move(states);
  return out;
}

}  // namespace

Result<ModelInfo> DescribeModel(const mil::Package& package) {
  static constexpr const char* kForms[] = {"mlpackage", "mlmodelc", "mlmodel"};
  ModelInfo info;
  info.path = package.path;
  info.form = kForms[static_cast<size_t>(package.form)];
  info.specification_version = package.model.specification_version;
  info.default_function = package.model.DefaultFunction();
  info.metadata = package.model.description.metadata;
  WeightCounter counter(package);
  for (const auto& [name, function] : package.model.program.functions) {
    FunctionInfo one;
    one.name = name;
    one.opset = OpsetTag(function.opset);
    if (const auto view = package.model.description.Find(name)) {
      one.inputs = Features(*view->inputs);
      one.outputs = Features(*view->outputs);
      one.states = Features(*view->states);
      FillShapes(one.outputs, function.body);
    }
    for (const mil::Operation& op : function.body.operations) {
      if (op.type != "const") ++one.operations[op.type];
      counter.Count(op);
    }
    info.functions.push_back(std::move(one));
  }
  info.weights = counter.Forms();
  CMF_TRY(info.weight_file_bytes, counter.FileBytes());
  return info;
}

Result<PackageInfo> ReadInfo(const fs::path& path, MappedFile::Mode mode) {
  PackageInfo info;
  info.path = path;
  std::error_code error;
  CMF_CHECK(CheckIsModelOrPackage(path));
  std::vector<fs::path> models{path};
  if (fs::exists(path / "meta.yaml", error)) {
    CMF_TRY(info.meta, ReadPackageMeta(path));
    CMF_TRY(PackageParts parts, FindParts(path, *info.meta));
    models = {parts.embeddings};
    models.insert(models.end(), parts.chunks.begin(), parts.chunks.end());
    models.push_back(parts.lm_head);
  }
  for (const fs::path& model : models) {
    CMF_TRY(const mil::Package package, mil::OpenPackage(model, mode));
    CMF_TRY(ModelInfo one, DescribeModel(package));
    info.models.push_back(std::move(one));
  }
  return info;
}

Json ToJson(const PackageInfo& info) {
  Json models = Json::array();
  for (const ModelInfo& model : info.models) models.push_back(ModelJson(model));
  Json out{{"path", info.path.string()}};
  if (info.meta) out["meta"] = MetaJson(*info.meta);
  out["models"] = std::move(models);
  return out;
}

}  // namespace cmforge::coreml
