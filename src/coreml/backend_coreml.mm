// Core ML itself behind the runtime's interfaces (macOS 15 or later): one MLModel per function, one MLState per
// conversation. Compiled on Apple's systems only; everything above the interfaces is tested with the
// interpreter.
#import <CoreML/CoreML.h>
#import <Foundation/Foundation.h>

#include "base/half.h"
#include "coreml/backend.h"
#include "coreml/compute_units.h"

namespace cmforge::coreml {
namespace {

Error FromNs(NSError* error, const std::string& what) {
  const char* text = error ? error.localizedDescription.UTF8String : "no reason given";
  return {ErrorKind::kUnsupported, fmt::format("{}: Core ML: {}", what, text), {}};
}

NSString* Text(const std::string& text) { return [NSString stringWithUTF8String:text.c_str()]; }

NSArray<NSNumber*>* Numbers(const Shape& shape) {
  NSMutableArray<NSNumber*>* out = [NSMutableArray array];
  for (const int64_t dim : shape) [out addObject:@(dim)];
  return out;
}

Shape ShapeOf(NSArray<NSNumber*>* numbers) {
  Shape out;
  for (NSNumber* n in numbers) out.push_back(n.longLongValue);
  return out;
}

mil::DataType TypeOf(MLMultiArrayDataType type) {
  switch (type) {
    case MLMultiArrayDataTypeInt32:
      return mil::DataType::kInt32;
    case MLMultiArrayDataTypeFloat32:
      return mil::DataType::kFloat32;
    case MLMultiArrayDataTypeFloat16:
      return mil::DataType::kFloat16;
    default:
      return mil::DataType::kFloat64;
  }
}

/// Calls fn(row-major index, byte offset) for every element: rows may be padded.
template <class Fn>
void ForElements(const Shape& shape, NSArray<NSNumber*>* strides, size_t element_bytes, Fn&& fn) {
  const int64_t count = ElementCount(shape).value_or(0);
  std::vector<int64_t> at(shape.size(), 0), step;
  for (NSNumber* n in strides) step.push_back(n.longLongValue);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (size_t a = 0; a < shape.size(); ++a) offset += at[a] * step[a];
    fn(static_cast<size_t>(i), static_cast<size_t>(offset) * element_bytes);
    for (size_t a = shape.size(); a-- > 0;) {
      if (++at[a] < shape[a]) break;
      at[a] = 0;
    }
  }
}

void ReadFloats(MLMultiArray* array, std::span<float> out) {
  const Shape shape = ShapeOf(array.shape);
  const bool is_half = array.dataType == MLMultiArrayDataTypeFloat16;
  [array getBytesWithHandler:^(const void* bytes, NSInteger /*size*/) {
    const auto* data = static_cast<const std::byte*>(bytes);
    ForElements(shape, array.strides, is_half ? 2 : 4, [&](size_t i, size_t at) {
      out[i] = is_half ? F16ToF32(LoadLe<uint16_t>(data + at)) : LoadLe<float>(data + at);
    });
  }];
}

void WriteFloats(MLMultiArray* array, std::span<const float> values) {
  const Shape shape = ShapeOf(array.shape);
  const bool is_half = array.dataType == MLMultiArrayDataTypeFloat16;
  [array getMutableBytesWithHandler:^(void* bytes, NSInteger /*size*/, NSArray<NSNumber*>* strides) {
    auto* data = static_cast<std::byte*>(bytes);
    ForElements(shape, strides, is_half ? 2 : 4, [&](size_t i, size_t at) {
      if (is_half) {
        StoreLe<uint16_t>(data + at, F32ToF16(values[i]));
      } else {
        StoreLe<float>(data + at, values[i]);
      }
    });
  }];
}

std::vector<Port> PortsOf(NSDictionary<NSString*, MLFeatureDescription*>* features) {
  std::vector<Port> out;
  for (NSString* name in [features.allKeys sortedArrayUsingSelector:@selector(compare:)]) {
    MLMultiArrayConstraint* array = features[name].multiArrayConstraint;
    out.push_back({name.UTF8String, {TypeOf(array.dataType), ShapeOf(array.shape)}});
  }
  return out;
}

std::vector<Port> StatePortsOf(MLModel* model) {
  std::vector<Port> out;
  NSDictionary<NSString*, MLFeatureDescription*>* states = model.modelDescription.stateDescriptionsByName;
  for (NSString* name in [states.allKeys sortedArrayUsingSelector:@selector(compare:)]) {
    MLStateConstraint* state = states[name].stateConstraint;
    out.push_back({name.UTF8String, {TypeOf(state.dataType), ShapeOf(state.bufferShape)}});
  }
  return out;
}

class CoremlState : public PartState {
 public:
  CoremlState(MLState* state, std::vector<Port> ports) : state_(state), ports_(std::move(ports)) {}
  const std::vector<Port>& ports() const override { return ports_; }
  Result<void> Get(size_t port, std::span<float> out) const override {
    [state_ getMultiArrayForStateNamed:Text(ports_[port].name)
                               handler:^(MLMultiArray* array) {
                                 ReadFloats(array, out);
                               }];
    return {};
  }
  Result<void> Set(size_t port, std::span<const float> values) override {
    [state_ getMultiArrayForStateNamed:Text(ports_[port].name)
                               handler:^(MLMultiArray* array) {
                                 WriteFloats(array, values);
                               }];
    return {};
  }
  MLState* state() const { return state_; }

 private:
  MLState* state_;
  std::vector<Port> ports_;
};

class CoremlFunction : public PartFunction {
 public:
  static Result<std::unique_ptr<PartFunction>> Make(MLModel* model,
                                                    const std::map<std::string, Shape>& shapes,
                                                    std::string what) {
    auto function = std::make_unique<CoremlFunction>();
    function->model_ = model;
    function->what_ = std::move(what);
    function->inputs_ = PortsOf(model.modelDescription.inputDescriptionsByName);
    function->outputs_ = PortsOf(model.modelDescription.outputDescriptionsByName);
    NSMutableDictionary<NSString*, MLFeatureValue*>* values = [NSMutableDictionary dictionary];
    bool is_reshaped = false;
    for (Port& port : function->inputs_) {
      if (const auto it = shapes.find(port.name); it != shapes.end()) {
        is_reshaped = is_reshaped || port.type.shape != it->second;
        port.type.shape = it->second;
      }
      const MLMultiArrayDataType type = port.type.dtype == mil::DataType::kInt32 ? MLMultiArrayDataTypeInt32
                                        : port.type.dtype == mil::DataType::kFloat16
                                            ? MLMultiArrayDataTypeFloat16
                                            : MLMultiArrayDataTypeFloat32;
      NSError* error = nil;
      MLMultiArray* array = [[MLMultiArray alloc] initWithShape:Numbers(port.type.shape)
                                                       dataType:type
                                                          error:&error];
      if (!array) return Fail(FromNs(error, function->what_));
      function->arrays_.push_back(array);
      values[Text(port.name)] = [MLFeatureValue featureValueWithMultiArray:array];
    }
    // Outputs that depend on a shape are described without one, or with that of the default input.
    for (Port& port : function->outputs_) {
      if (shapes.empty() || (!port.type.shape.empty() && !is_reshaped)) continue;
      const Shape& in = shapes.begin()->second;
      const int64_t width = port.type.shape.empty() ? mil::kUnknownDim : port.type.shape.back();
      port.type.shape = {in[0], in[1], width};
    }
    NSError* error = nil;
    function->provider_ = [[MLDictionaryFeatureProvider alloc] initWithDictionary:values error:&error];
    if (!function->provider_) return Fail(FromNs(error, function->what_));
    return std::unique_ptr<PartFunction>(std::move(function));
  }

  const std::vector<Port>& inputs() const override { return inputs_; }
  const std::vector<Port>& outputs() const override { return outputs_; }
  Result<void> SetFloats(size_t input, std::span<const float> values) override {
    WriteFloats(arrays_[input], values);
    return {};
  }
  Result<void> SetInts(size_t input, std::span<const int32_t> values) override {
    const Shape shape = inputs_[input].type.shape;
    [arrays_[input] getMutableBytesWithHandler:^(void* bytes, NSInteger /*size*/,
                                                 NSArray<NSNumber*>* strides) {
      auto* data = static_cast<std::byte*>(bytes);
      ForElements(shape, strides, 4, [&](size_t i, size_t at) { StoreLe<int32_t>(data + at, values[i]); });
    }];
    return {};
  }
  Result<void> Run(PartState* state) override {
    @autoreleasepool {
      NSError* error = nil;
      if (state) {
        MLState* own = static_cast<CoremlState*>(state)->state();
        result_ = [model_ predictionFromFeatures:provider_ usingState:own error:&error];
      } else {
        result_ = [model_ predictionFromFeatures:provider_ error:&error];
      }
      if (!result_) return Fail(FromNs(error, what_));
    }
    for (Port& port : outputs_)
      port.type.shape = ShapeOf([result_ featureValueForName:Text(port.name)].multiArrayValue.shape);
    return {};
  }
  Result<void> GetFloats(size_t output, std::span<float> out) const override {
    MLMultiArray* array = [result_ featureValueForName:Text(outputs_[output].name)].multiArrayValue;
    if (static_cast<size_t>(array.count) != out.size()) {
      return Fail(ErrorKind::kCorrupt, fmt::format("{}: output '{}' has {} numbers, {} are expected", what_,
                                                   outputs_[output].name, array.count, out.size()));
    }
    ReadFloats(array, out);
    return {};
  }

 private:
  MLModel* model_ = nil;
  std::string what_;
  std::vector<Port> inputs_, outputs_;
  std::vector<MLMultiArray*> arrays_;
  MLDictionaryFeatureProvider* provider_ = nil;
  id<MLFeatureProvider> result_ = nil;
};

class CoremlPart : public Part {
 public:
  /// `is_temporary`: the compiled model was made for this part and goes with it.
  CoremlPart(NSURL* compiled, bool is_temporary, MLComputeUnits units, std::string what)
      : url_(compiled), is_temporary_(is_temporary), units_(units), what_(std::move(what)) {}
  ~CoremlPart() override {
    first_ = nil;
    if (is_temporary_) [NSFileManager.defaultManager removeItemAtURL:url_ error:nil];
  }
  CoremlPart(const CoremlPart&) = delete;
  CoremlPart& operator=(const CoremlPart&) = delete;

  Result<std::unique_ptr<PartFunction>> Function(const std::string& name,
                                                 const std::map<std::string, Shape>& shapes) const override {
    CMF_TRY(MLModel * model, Load(name));
    return CoremlFunction::Make(model, shapes, what_);
  }
  Result<std::unique_ptr<PartState>> NewState() const override {
    if (!first_) return Fail(ErrorKind::kInternal, what_ + ": a state before a function");
    return std::make_unique<CoremlState>([first_ newState], StatePortsOf(first_));
  }
  std::vector<Port> States() const override { return first_ ? StatePortsOf(first_) : std::vector<Port>(); }

 private:
  Result<MLModel*> Load(const std::string& name) const {
    MLModelConfiguration* configuration = [[MLModelConfiguration alloc] init];
    configuration.computeUnits = units_;
    if (!name.empty()) configuration.functionName = Text(name);
    NSError* error = nil;
    MLModel* model = [MLModel modelWithContentsOfURL:url_ configuration:configuration error:&error];
    if (!model) return Fail(FromNs(error, what_));
    if (!first_) first_ = model;
    return model;
  }

  NSURL* url_;
  bool is_temporary_;
  MLComputeUnits units_;
  std::string what_;
  mutable MLModel* first_ = nil;
};

class CoremlBackendImpl : public Backend {
 public:
  explicit CoremlBackendImpl(MLComputeUnits units) : units_(units) {}
  std::string_view name() const override { return "Core ML"; }
  bool rounds_to_f16() const override { return true; }
  Result<std::unique_ptr<Part>> Open(const std::filesystem::path& part) const override {
    NSURL* url = [NSURL fileURLWithPath:Text(part.string())];
    const bool is_source = part.extension() == ".mlpackage";
    if (is_source) {
      NSError* error = nil;
      url = [MLModel compileModelAtURL:url error:&error];
      if (!url) return Fail(FromNs(error, part.string()));
    }
    return std::make_unique<CoremlPart>(url, is_source, units_, part.string());
  }

 private:
  MLComputeUnits units_;
};

}  // namespace

Result<std::shared_ptr<const Backend>> CoremlBackend(ComputeUnits units) {
  CMF_CHECK(CheckComputeUnits(units));
  const MLComputeUnits all[] = {MLComputeUnitsCPUAndNeuralEngine, MLComputeUnitsCPUAndGPU, MLComputeUnitsAll,
                                MLComputeUnitsCPUOnly};
  return std::shared_ptr<const Backend>(std::make_shared<CoremlBackendImpl>(all[static_cast<size_t>(units)]));
}

}  // namespace cmforge::coreml
