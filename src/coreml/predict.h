// One prediction from .npy files to .npy files: `cmforge coreml predict`.
#pragma once

#include "coreml/interpreter.h"

namespace cmforge::coreml {

struct PredictRequest {
  std::filesystem::path model;                          // .mlpackage, .mlmodelc or .mlmodel
  std::string function;                                 // "": the default one
  std::map<std::string, std::filesystem::path> inputs;  // by name; optional inputs may be left out
  std::filesystem::path output_dir;                     // made when it is not there
  std::filesystem::path state_in, state_out;            // folders of NAME.npy; "": zeros, and not written
  InterpreterOptions options;
  MappedFile::Mode file_mode = MappedFile::Mode::kMap;
};

struct PredictedArray {
  std::string name;
  std::filesystem::path file;
  mil::TensorType type;
};

struct PredictResult {
  std::string function;  // that was executed
  std::vector<PredictedArray> outputs, states;
};

/// Outputs are written in their declared types; floats as float32 under Precision::kF32, as are states.
/// Fails: kNotFound (a model, file, function or input), kUsage (a missing input, a shape or type that does
/// not fit: both named), and as Interpreter and Runner.
Result<PredictResult> Predict(const PredictRequest& request);

}  // namespace cmforge::coreml
