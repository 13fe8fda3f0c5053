// A package folder as a LanguageModel: the runtime contract of ANEMLL packages and its extensions, over any
// backend.
//
//   plain transformers    full batches of a prompt through prefill, the rest through infer; any position can be
//                         returned to, since later ones are masked and written again
//   recurrent packages    (recurrent_state, or a block-shifting local cache) every position once and in order;
//                         the state goes back only to 0 or to a snapshot
//
// Logits of one position only come from prefill (its last), so a step that wants all rows runs infer alone.
#pragma once

#include "coreml/backend.h"
#include "coreml/package_meta.h"
#include "coreml/state_check.h"
#include "model/language_model.h"

namespace cmforge::coreml {

struct PackageModelOptions {
  std::shared_ptr<const Backend> backend;  // required
  ModelConfig config;                      // of the package's config.json; sizes are taken from the parts
};

/// The sequence has the package's context: longer requests are refused, shorter ones bound it earlier. Steps of
/// one model take turns. Fails: as PackagePartsRunner::Open.
Result<std::shared_ptr<LanguageModel>> OpenPackageModel(const std::filesystem::path& folder,
                                                        const PackageMeta& meta, PackageModelOptions options);

/// Bytes of weights that one decoded token reads: those of the chunks and the head, and of the embeddings one
/// row, which does not count.
Result<uint64_t> PackageWeightBytes(const std::filesystem::path& folder, const PackageMeta& meta);

/// The states of a sequence of such a model, for comparisons; nothing for other sequences.
Result<std::vector<NamedState>> StatesOf(const Sequence& sequence);

}  // namespace cmforge::coreml
