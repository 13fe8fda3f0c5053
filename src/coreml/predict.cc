// Predictions from files.
#include "coreml/predict.h"

#include <algorithm>

#include "base/npy.h"
#include "base/system_error.h"
#include "coreml/interpreter/weight.h"

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

bool IsFloatPort(const Port& port) { return mil::IsFloat(port.type.dtype); }

Result<void> SetInput(Runner& runner, int index, const NpyArray& array) {
  const Port& port = runner.inputs()[static_cast<size_t>(index)];
  if (IsFloatPort(port)) {
    const std::vector<float> values = array.ToFloats();
    std::copy(values.begin(), values.end(), runner.InputFloats(index).begin());
    return {};
  }
  CMF_TRY(const std::vector<int32_t> values, array.ToInts());
  std::copy(values.begin(), values.end(), runner.InputInts(index).begin());
  return {};
}

/// The value an optional input has when it is left out.
void SetDefault(Runner& runner, int index, const mil::Feature& feature) {
  const mil::ArrayFeature* array = feature.array();
  const double value = array && array->default_value
                           ? std::visit([](auto v) { return static_cast<double>(v); }, *array->default_value)
                           : 0.0;
  if (IsFloatPort(runner.inputs()[static_cast<size_t>(index)])) {
    for (float& v : runner.InputFloats(index)) v = static_cast<float>(value);
  } else {
    for (int32_t& v : runner.InputInts(index)) v = static_cast<int32_t>(value);
  }
}

NpyArray OutputArray(const Runner& runner, int index, Precision precision) {
  const Port& port = runner.outputs()[static_cast<size_t>(index)];
  if (port.type.dtype == mil::DataType::kBool)
    return NpyArray::FromBools(port.type.shape, runner.OutputInts(index));
  if (!IsFloatPort(port)) return NpyArray::FromInts(port.type.shape, runner.OutputInts(index));
  if (port.type.dtype == mil::DataType::kFloat16 && precision == Precision::kF16) {
    return NpyArray::FromHalves(port.type.shape, runner.OutputFloats(index));
  }
  return NpyArray::FromFloats(port.type.shape, runner.OutputFloats(index));
}

Result<void> MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Fail(ErrorKind::kIo,
                fmt::format("{}: cannot be made: {}", folder.string(), SystemFault(error.value())));
  return {};
}

Result<void> ReadStates(const fs::path& folder, const Runner& runner, Precision precision, StateSet& states) {
  if (runner.states().empty()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: --state-in: the function has no states: leave it out", folder.string()));
  }
  for (const Port& port : runner.states()) {
    const fs::path file = folder / (port.name + ".npy");
    CMF_TRY(const NpyArray array, ReadNpy(file));
    if (array.shape != port.type.shape) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: shape {}, the state is {}: give what --state-out wrote with this model",
                              file.string(), ShapeText(array.shape), TypeText(port.type)));
    }
    std::vector<float>& values = states.Find(port.name)->values;
    values = array.ToFloats();
    if (precision == Precision::kF16) RoundToHalves(values.data(), static_cast<int64_t>(values.size()));
  }
  return {};
}

}  // namespace

Result<PredictResult> Predict(const PredictRequest& request) {
  CMF_TRY(mil::Package package, mil::OpenPackage(request.model, request.file_mode));
  CMF_TRY(const std::shared_ptr<const Interpreter> interpreter,
          Interpreter::Create(std::move(package), request.options));
  const std::string model = request.model.string();

  std::map<std::string, NpyArray> arrays;
  std::map<std::string, Shape> shapes;
  for (const auto& [name, file] : request.inputs) {
    CMF_TRY(arrays[name], ReadNpy(file));
    shapes[name] = arrays[name].shape;
  }
  CMF_TRY(Runner runner, interpreter->Plan(request.function, shapes));
  const std::string function =
      request.function.empty() ? interpreter->package().model.DefaultFunction() : request.function;
  const auto described = interpreter->package().model.description.Find(function);
  for (size_t i = 0; i < runner.inputs().size(); ++i) {
    const std::string& name = runner.inputs()[i].name;
    if (const auto array = arrays.find(name); array != arrays.end()) {
      if (auto status = SetInput(runner, static_cast<int>(i), array->second); !status) {
        return Fail(std::move(status).error().In(fmt::format("{}: input '{}'", model, name)));
      }
      continue;
    }
    const mil::Feature* feature = nullptr;
    for (const mil::Feature& one : *described->inputs) {
      if (one.name == name && one.is_optional) feature = &one;
    }
    if (!feature) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: function '{}': input '{}' ({}) is missing: give --input {}=FILE.npy",
                              model, function, name, TypeText(runner.inputs()[i].type), name));
    }
    SetDefault(runner, static_cast<int>(i), *feature);
  }

  StateSet states;
  CMF_CHECK(interpreter->AddStates(function, states));
  if (!request.state_in.empty()) {
    CMF_CHECK(ReadStates(request.state_in, runner, request.options.precision, states));
  }
  if (auto status = runner.Run(&states); !status) {
    Error error = std::move(status).error().In(model);
    if (error.kind == ErrorKind::kCorrupt) error.message += ": check the numbers of the inputs";
    return Fail(std::move(error));
  }

  PredictResult result;
  result.function = function;
  CMF_CHECK(MakeFolder(request.output_dir));
  for (size_t i = 0; i < runner.outputs().size(); ++i) {
    const Port& port = runner.outputs()[i];
    const fs::path file = request.output_dir / (port.name + ".npy");
    CMF_CHECK(WriteNpy(file, OutputArray(runner, static_cast<int>(i), request.options.precision)));
    result.outputs.push_back({port.name, file, port.type});
  }
  if (request.state_out.empty()) return result;
  CMF_CHECK(MakeFolder(request.state_out));
  for (const auto& [name, state] : states.all()) {
    const fs::path file = request.state_out / (name + ".npy");
    CMF_CHECK(WriteNpy(file, request.options.precision == Precision::kF16
                                 ? NpyArray::FromHalves(state.type.shape, state.values)
                                 : NpyArray::FromFloats(state.type.shape, state.values)));
    result.states.push_back({name, file, state.type});
  }
  return result;
}

}  // namespace cmforge::coreml
