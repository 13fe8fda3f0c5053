// What is in a Core ML model or an ANEMLL package folder: `cmforge coreml info`.
#pragma once

#include "base/json.h"
#include "coreml/package_meta.h"
#include "mil/package.h"

namespace cmforge::coreml {

struct FeatureInfo {
  std::string name;
  std::string type;                   // "fp16"
  Shape shape;                        // the default one
  std::vector<Shape> enumerated;      // all allowed ones, or none
  std::vector<mil::SizeRange> range;  // per dimension, or none
};

struct FunctionInfo {
  std::string name;
  std::string opset;  // "ios18"
  std::vector<FeatureInfo> inputs, outputs, states;
  std::map<std::string, int64_t> operations;  // by type, constants not counted
};

/// Constants of one form, over all functions; what functions share counts once.
struct WeightFormInfo {
  std::string form;  // "fp16", "lut4", "lut4 groups 8", "int8 blockwise", "sparse"
  int64_t tensors = 0;
  int64_t elements = 0;  // after decoding
  uint64_t bytes = 0;    // in weight files and in the program
};

struct ModelInfo {
  std::filesystem::path path;
  std::string form;  // "mlpackage", "mlmodelc", "mlmodel"
  int64_t specification_version = 0;
  std::string default_function;
  std::vector<FunctionInfo> functions;
  std::vector<WeightFormInfo> weights;  // largest first
  uint64_t weight_file_bytes = 0;
  mil::Metadata metadata;
};

struct PackageInfo {
  std::filesystem::path path;
  std::optional<PackageMeta> meta;  // of an ANEMLL folder
  std::vector<ModelInfo> models;    // one; or embeddings, chunks, lm_head
};

Result<ModelInfo> DescribeModel(const mil::Package& package);

/// Any of the forms. Fails: as mil::OpenPackage, ReadPackageMeta and FindParts.
Result<PackageInfo> ReadInfo(const std::filesystem::path& path,
                             MappedFile::Mode mode = MappedFile::Mode::kMap);

[[nodiscard]] Json ToJson(const PackageInfo& info);

}  // namespace cmforge::coreml
