// The text of meta.yaml.
#pragma once

#include <string>

#include "coreml/compression.h"
#include "coreml/graphs/decoder_plan.h"

namespace cmforge::coreml {

/// ANEMLL's format that these packages are written in.
inline constexpr std::string_view kAnemllVersion = "0.3.5";

struct MetaInput {
  const DecoderPlan* plan = nullptr;
  const Compression* compression = nullptr;
  double ffn_average = 0;  // bits of mixed palettes, as they came out
  std::string name, prefix;
  std::string embeddings, lm_head, ffn;  // file names, of the first chunk
  RecommendedSampling sampling;
};

/// Every key of the specification that applies, under model_info.parameters where readers look.
[[nodiscard]] std::string MetaText(const MetaInput& input);

}  // namespace cmforge::coreml
