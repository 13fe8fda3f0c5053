// The flags of `coreml convert` that say how weights are stored.
#pragma once

#include <string>

#include "cli/command.h"
#include "coreml/compression.h"

namespace cmforge::cli {

struct CompressionFlags {
  std::string lut_embeddings = "none", lut_ffn = "none", lut_lmhead = "none";
  std::string quant_embeddings = "none", quant_ffn = "none", quant_lmhead = "none";
  std::string lut_method = "kmeans", calibrate;
  std::optional<double> lut_ffn_mixed;

  void AddTo(CLI::App* command);

  /// Without statistics: those of `calibrate` are the caller's to get, where the method needs them.
  /// Fails: kUsage (a bad form; two forms for one part; flags that nothing would use), kUnsupported (fisher).
  Result<coreml::Compression> Parse() const;
};

}  // namespace cmforge::cli
