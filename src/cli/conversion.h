// What convert and requant share: the flags that choose encodings, the input made from any source, and the closing table.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "convert/converter.h"
#include "open/open_source.h"

namespace cmforge::cli {

struct EncodingFlags {
  std::string quant;  // empty: not given
  std::vector<std::string> tensor_quant;
  std::optional<double> mean_bits;
  std::string moe_stats;
  std::string encoder = "standard";

  /// `default_quant` is only shown; empty: none.
  void AddTo(CLI::App* command, const std::string& default_quant);

  /// `routing` is filled from --moe-stats and must outlive the options. Fails: as the parsers; kUsage for flags that
  /// nothing would use, and for router counts of another model.
  Result<ConvertOptions> Parse(const OpenedSource& source, RoutingCounts& routing) const;

  /// For a file's provenance: program and encodings.
  [[nodiscard]] Json Provenance() const;
};

struct MaskFlags {
  std::string folder;         // of keep-sets; empty: the source's own masks
  bool sparse_index = false;  // write the deprecated index of the masks
};

/// What `convert` may do besides choosing encodings.
struct ConversionExtras {
  bool no_tokenizer = false;
  MaskFlags masks;
  double shard_max_gb = 0;  // 0: one file
  std::string defrag;       // folder with baked weights and a keep-set; empty: none
  bool resume = false;
  std::string identity;  // of the command line, for --resume
};

/// Writes `source` to `output` with the chosen encodings. A .cmf keeps its header, masks and skills.
Result<ConvertReport> ConvertSource(const Cli& cli, const OpenedSource& source, const EncodingFlags& flags,
                                    const ConversionExtras& extras, const std::string& output);

/// The closing table, or with --json an object: tensors and bytes by encoding, fallbacks once each.
void PrintReport(const Cli& cli, const ConvertReport& report, const OpenedSource& source,
                 const std::string& output);

}  // namespace cmforge::cli
