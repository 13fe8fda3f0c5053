// The models of a package as programs. Each takes the store its weights go to; functions built with one store
// share them.
#pragma once

#include "coreml/graphs/decoder_plan.h"
#include "coreml/graphs/weight_store.h"
#include "mil/model.h"

namespace cmforge::coreml {

/// main(input_ids [1, T]) -> hidden_states [1, T, H]; T is 1 or the batch size (enumerated shapes).
Result<mil::Model> EmbeddingsModel(const DecoderPlan& plan, WeightStore& weights);

/// main(hidden_states [1, 1, H]) -> logits1 ... logitsN [1, 1, part], of a final-normed hidden state.
Result<mil::Model> HeadModel(const DecoderPlan& plan, WeightStore& weights);

/// infer and prefill of one chunk of layers: (hidden_states [1, T, H], position_ids [T], causal_mask
/// [1, 1, T, context], current_pos [1], states) -> output_hidden_states [1, T, H], from the last chunk the
/// final-normed [1, 1, H] of the last token.
Result<mil::Model> ChunkModel(const DecoderPlan& plan, int64_t chunk, WeightStore& weights);

}  // namespace cmforge::coreml
