// The files of a compiled model as bytes (layouts in docs/formats/coreml.md).
#pragma once

#include <string>

#include "mil/model.h"

namespace cmforge::mil {

/// model.mil: the program with the compiler's build information and the allowed input shapes.
[[nodiscard]] std::string CompiledProgramText(const Model& model);

/// coremldata.bin: an envelope around the description.
[[nodiscard]] std::string CompiledDescription(const Model& model);
struct CompiledHeader {
  int64_t specification_version = 0;
  Description description;
};
/// Fails: kCorrupt, kUnsupported (no ML Program).
Result<CompiledHeader> ParseCompiledDescription(Bytes bytes);

/// metadata.json. `class_name`: the stem of the model's file.
[[nodiscard]] std::string CompiledMetadata(const Model& model, const std::string& class_name);

/// analytics/coremldata.bin.
[[nodiscard]] std::string CompiledAnalytics(const Model& model, const std::string& class_name);

/// The allowed input shapes as the function attribute model.mil holds, or nothing when all are fixed.
[[nodiscard]] std::optional<Value> FlexibleShapes(const std::vector<Feature>& inputs);
inline constexpr std::string_view kFlexibleShapesAttribute = "FlexibleShapeInformation";

}  // namespace cmforge::mil
