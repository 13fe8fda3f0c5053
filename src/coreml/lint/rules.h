// The rules by name, each with its level and remedy; docs/coreml.md lists them all. Where a rule is looked for says
// the file of its group.
#pragma once

#include <span>

#include "coreml/lint/lint.h"
#include "coreml/package_meta.h"
#include "mil/package.h"

namespace cmforge::coreml::lint {

struct Rule {
  std::string_view id;
  Severity severity = Severity::kNote;
  std::string_view remedy;
};

namespace rules {

#define CMF_RULE(name, id, level, remedy) \
  inline constexpr Rule name { id, Severity::level, remedy }

// ---- the program and its description
CMF_RULE(kProgram, "program", kError, "write the program again: no reader takes it");
CMF_RULE(kWeightFile, "weight-file", kError, mil::kModelRemedy);
CMF_RULE(kUnknownOperation, "unknown-operation", kNote,
         "look at this operation by other means: its types are not checked");
CMF_RULE(kDescription, "description", kError,
         "describe the inputs, outputs and states as the program has them");
CMF_RULE(kVersion, "version", kError, "raise the specification version and the functions' opset");
CMF_RULE(kOpenShape, "open-shape", kError, "describe the allowed shapes: enumerated ones or ranges");
CMF_RULE(kSubByteValue, "sub-byte-value", kError, "decode small integers with constexpr operations only");
CMF_RULE(kIntegerDivision, "integer-division", kError, "use floor_div, or cast to fp16 first");

// ---- arithmetic
CMF_RULE(kNotFinite, "not-finite", kError,
         "write a finite number; for weights: convert the model again, from a whole checkpoint");
CMF_RULE(kNativeSigmoid, "native-sigmoid", kWarning, "write 0.5 + 0.5 tanh(x / 2), for silu times x");
CMF_RULE(kGeluOverflow, "gelu-overflow", kWarning, "factor the cube: x (1 + 0.044715 x^2)");
CMF_RULE(kOmittedEpsilon, "omitted-epsilon", kWarning, "write epsilon");
CMF_RULE(kNormEpsilon, "norm-epsilon", kNote, "write epsilon, as the model's configuration has it");
CMF_RULE(kVanishingEpsilon, "vanishing-epsilon", kWarning, "choose an epsilon of at least 6e-8");
CMF_RULE(kSubnormalState, "subnormal-state", kWarning,
         "keep sqrt(d_k) times the state: scale the values in and the result by 1 / d_k out");
CMF_RULE(kEinsum, "einsum", kNote, "write it with matmul");

// ---- states
CMF_RULE(kStateType, "state-type", kError, "declare states as fp16 of a fixed shape");
CMF_RULE(kStateTrailing3, "state-trailing-3", kError, "put the short axis before the wide one");
CMF_RULE(kStateWidth, "state-width", kWarning, "pad the last axis to a multiple of 32");
CMF_RULE(kStateLength, "state-length", kNote, "make the number of positions a multiple of 32");
CMF_RULE(kStateDim1, "state-dim1", kWarning, "move the long axis behind axis 1");
CMF_RULE(kStateUnread, "state-unread", kError,
         "read the state in every function, be it one element of it times 0");
CMF_RULE(kStateUnwritten, "state-unwritten", kError, "store what the function computes with write_state");
CMF_RULE(kStatesDiffer, "states-differ", kError, "declare equal states: one object serves all functions");
CMF_RULE(kSingleHeadUpdates, "single-head-updates", kError,
         "concatenate keys and values and store them with one slice_update");
CMF_RULE(kLargeUpdate, "large-update", kWarning, "lower the batch size, or check on the device");
CMF_RULE(kFlexibleState, "flexible-state", kWarning, "fix the shapes: one function for each");
CMF_RULE(kMixedStates, "mixed-states", kNote, "check on M1 and A14, or give all states one shape");
CMF_RULE(kShortContext, "short-context", kWarning, "take a context of at least 256");
CMF_RULE(kLut4State, "lut4-state", kNote, "run a few hundred predictions on the device before shipping");
CMF_RULE(kCpuOnly, "cpu-only", kNote, "choose CPU and Neural Engine, or CPU and GPU");

// ---- devices
CMF_RULE(kCpuEdge, "cpu-edge", kNote, "keep these few and at the graph's edge");
CMF_RULE(kCpuBetween, "cpu-between", kWarning,
         "write it with elementwise operations, products and reductions, or move it to the graph's edge");
CMF_RULE(kFloat32, "float32", kWarning, "compute in fp16");
CMF_RULE(kRank, "rank", kWarning, "reshape to rank 5 or less");
CMF_RULE(kAxisLimit, "axis-limit", kWarning, "split the axis, as heads split their logits");
CMF_RULE(kLongAxis, "long-axis", kNote, "split the axis to be safe on older devices");
CMF_RULE(kRuntimeShape, "runtime-shape", kWarning, "fix the shapes, or enumerate them");

// ---- weights
CMF_RULE(kLinearInt8, "linear-int8", kError, "use a palette (LUT), or run it on the GPU");
CMF_RULE(kLinearInt4, "linear-int4", kError, "use a palette (LUT), or run it on the GPU");
CMF_RULE(kCompressedTable, "compressed-table", kWarning, "leave tables that are looked up in fp16");
CMF_RULE(kCompressedRouter, "compressed-router", kWarning, "leave the router in fp16");
CMF_RULE(kLutOneChannel, "lut-one-channel", kNote, "share a table among 8 channels");
CMF_RULE(kLutTwoChannels, "lut-two-channels", kNote, "share a table among 8 channels");
CMF_RULE(kLutThreeBits, "lut-three-bits", kNote, "take 4 bits: the same memory, less error");
CMF_RULE(kFoldableScale, "foldable-scale", kNote, "multiply the weights beforehand");
CMF_RULE(kRopeTable, "rope-table", kWarning, "shorten the context below 16384, or split the table");
CMF_RULE(kLargeModel, "large-model", kWarning, "split the layers into more chunks");
CMF_RULE(kLargeForPhones, "large-for-phones", kNote, "split the layers into more chunks for iOS");

// ---- the package folder
CMF_RULE(kMetaPlace, "meta-place", kError, "put the keys below model_info.parameters");
CMF_RULE(kMetaKey, "meta-key", kError, "write the key: ANEMLL's readers stop without it");
CMF_RULE(kMetaValue, "meta-value", kError, "correct the value");
CMF_RULE(kMetaTwice, "meta-twice", kError, "write the key once");
CMF_RULE(kMetaVariant, "meta-variant", kWarning, "leave the key out: it chooses another format");
CMF_RULE(kMetaWeights, "meta-weights", kNote, "write the bits that the weights have");
CMF_RULE(kMetaStates, "meta-states", kWarning, "list the states as the chunks declare them");
CMF_RULE(kSampling, "sampling", kNote, "give temperature, top_p and top_k together");
CMF_RULE(kWindowPrefix, "window-prefix", kWarning, "choose a prefix that does not begin with gemma3");
CMF_RULE(kFfnName, "ffn-name", kError, remedies::kChunkName);
CMF_RULE(kChunkFiles, "chunk-files", kError, "keep exactly the chunks of this package under that name");
CMF_RULE(kMissingPart, "missing-part", kError, remedies::kMissingPart);
CMF_RULE(kUnreadablePart, "unreadable-part", kError, mil::kModelRemedy);
CMF_RULE(kHeadSplitUnsaid, "head-split-unsaid", kWarning, "write split_lm_head: readers take 8 without it");
CMF_RULE(kHeadSizes, "head-sizes", kError, "list the widths of logits1, logits2, ... as the head has them");
CMF_RULE(kContract, "contract", kError, remedies::kContract);
CMF_RULE(kOutputShape, "output-shape", kError, "describe the output as fp16 of a fixed shape");
CMF_RULE(kFirstToken, "first-token", kError,
         "give the last token's normed state, or leave prefill_last_token_output out");
CMF_RULE(kStockPrefill, "stock-prefill", kNote,
         "run the last prompt token again through infer, as ANEMLL does");
CMF_RULE(kExtension, "extension", kNote, "run it with a runtime that knows the extension");
CMF_RULE(kNoTokenizer, "no-tokenizer", kWarning, "copy the checkpoint's tokenizer files");
CMF_RULE(kTokenizer, "tokenizer", kError, "copy the checkpoint's tokenizer files anew");
CMF_RULE(kEndOutside, "end-outside", kError, "write the id that the tokenizer has for the end of a text");
CMF_RULE(kNoEnd, "no-end", kWarning, "write eos_token_id at the top of config.json");

#undef CMF_RULE

}  // namespace rules

/// All of them, in the order of findings.
[[nodiscard]] std::span<const Rule* const> AllRules();

}  // namespace cmforge::coreml::lint
