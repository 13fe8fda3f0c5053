// What a package's weights become: the form of each part, how palettes are fitted, and which matrices of the
// decoder get the next width when an average is asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coreml/graphs/weight_form.h"
#include "quant/channel_stats.h"

namespace cmforge::coreml {

enum class PaletteMethod : uint8_t {
  kKmeans,      // least squared error of the weights
  kActivation,  // errors weighed by the mean square of the channel they meet, and by ChannelStats::row_weight
};

struct Compression {
  WeightForm embeddings, ffn, lmhead;
  std::optional<double> ffn_mixed;  // bits on average; ffn.bits is the narrower width
  PaletteMethod method = PaletteMethod::kKmeans;
  const ChannelStats* statistics = nullptr;  // kActivation: must outlive the use

  [[nodiscard]] bool is_any() const {
    return embeddings.is_compressed() || ffn.is_compressed() || lmhead.is_compressed();
  }
  [[nodiscard]] std::string_view method_name() const {
    return method == PaletteMethod::kActivation ? "activation" : "kmeans";
  }
};

/// A mixed average chooses the narrower width where none was given.
/// Fails: kUsage (an average without two widths around it, a decoder of scaled integers: what to give
/// instead).
Result<void> ResolveMixed(Compression& options);

/// One matrix at two widths.
struct PaletteCandidate {
  std::string name;
  int64_t numbers = 0;
  double error_low = 0, error_high = 0;  // sum of importance * (w - w')^2
};

struct WiderChoice {
  std::vector<std::string> names;  // of the matrices that get the wider palette
  double average = 0;              // bits that all of them then have
};

/// Ranks by error saved per extra bit and takes whole matrices, best first, as long as the average stays
/// within
/// `average`; one that would pass it is left out and smaller ones behind it are still tried.
[[nodiscard]] WiderChoice ChooseWider(std::vector<PaletteCandidate> candidates, int low, int high,
                                      double average);

}  // namespace cmforge::coreml
