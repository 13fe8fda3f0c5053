// Plain tensors back into a family's own layout: the inverse of canonical_source.h. Names of LFM2, Laguna and MTP heads,
// fused projections of Phi-3 and Qwen3-Next, expert banks of Qwen3.5. Nothing is read here: the result says which rows
// of which plain tensors make up each tensor of the folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge {

/// Rows [begin, end) of a plain tensor; of no tensor: rows of zeros.
struct RowSlice {
  std::string tensor;
  int64_t begin = 0, end = 0;
};

/// A tensor of the folder: the slices one after another, each row filled up with zeros to `row_length`.
struct HfTensor {
  std::string name;
  Shape shape;
  std::vector<RowSlice> slices;
  int64_t row_length = 1;
};

/// What the tensors say about the model, where a config.json must say it too.
struct HfTraits {
  bool has_head = false, has_qkv_bias = false, has_o_bias = false, has_mlp_bias = false;
  bool has_qk_norm = false, has_four_norms = false;
  bool is_gate_per_channel = false;   // g_proj
  bool is_v_from_k = false;           // full layers without v_proj
  bool is_double_wide = false;        // layers that share keys and values have twice the width
  int64_t ffn_width = 0;              // of the dense layers, after filling up; 0 = none
  std::vector<int64_t> dense_layers;  // without router
  int64_t mtp_layers = 0;             // 0 = no head
};

[[nodiscard]] HfTraits HfTraitsOf(const TensorSource& tensors, const ModelConfig& config);

/// `family`: a row's name in the table of families. Skill tensors (`skill.*`) are left out. A folder knows one
/// feed-forward width: narrower layers (a defragmented model's) are filled up with neurons of zeros, which add nothing.
/// Fails: kUnsupported for layers that no folder can hold (experts missing in some layers), naming the tensor.
Result<std::vector<HfTensor>> LayOutForHf(const TensorSource& tensors, const ModelConfig& config,
                                          const HfTraits& traits, std::string_view family);

}  // namespace cmforge
