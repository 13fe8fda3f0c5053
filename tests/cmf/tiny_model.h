// A file of a few kilobytes with everything a .cmf can have, for tests that damage it byte by byte.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cmf/rewrite.h"
#include "quant/encoding.h"

namespace cmforge::cmf {

/// Tensors in memory.
class MemorySource : public TensorSource {
 public:
  void Add(std::string name, DType dtype, Shape shape, std::vector<std::byte> bytes) {
    tensors_.push_back({std::move(name), dtype, std::move(shape), bytes.size()});
    bytes_.push_back(std::move(bytes));
  }
  /// Any bytes will do for f32, f16, bf16, u8, q8_row, q4_block: sizes come from the table of encodings.
  void AddPattern(std::string name, DType dtype, Shape shape, unsigned seed = 1) {
    std::vector<std::byte> bytes(*FindEncoding(dtype)->payload_size(shape));
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>((seed = seed * 1103515245 + 12345) >> 24 & 0x3F);
    Add(std::move(name), dtype, std::move(shape), std::move(bytes));
  }
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    for (const TensorInfo& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  Result<TensorView> Read(std::string_view name) const override {
    const TensorInfo* info = Find(name);
    if (info == nullptr)
      return Fail(ErrorKind::kNotFound, fmt::format("memory: tensor '{}': not there", name));
    return TensorView{info->dtype, info->shape, bytes_[static_cast<size_t>(info - tensors_.data())], nullptr};
  }
  [[nodiscard]] std::string_view path() const override { return "memory"; }

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
};

inline ModelConfig TinyConfig() {
  ModelConfig config;
  config.arch_name = "tiny";
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_layers = 2;
  config.num_attention_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  config.vocab_size = 10;
  config.max_position_embeddings = 64;
  config.layer_types.assign(2, LayerKind::kFullAttention);
  config.norm_style = NormStyle::kPlain;
  return config;
}

inline TaskMask TinyMask(std::string name, uint32_t id) {
  TaskMask mask;
  mask.name = std::move(name);
  mask.task_id = id;
  mask.sparsity = 0.5;
  mask.priority = id == 0 ? MaskPriority::kFallback : MaskPriority::kNormal;
  mask.bits.ffn = {{0xF0, 0x01}, {0x0F, 0x0A}};
  mask.bits.heads = {{0x01}, {0x03}};
  mask.bits.layer_gates = {0x03};
  return mask;
}

/// Everything at once; `tensors` is filled and must outlive the result.
inline Contents TinyContents(MemorySource& tensors) {
  tensors.AddPattern("model.embed_tokens.weight", DType::kQ8Row, {10, 8});
  tensors.AddPattern("model.norm.weight", DType::kF16, {8}, 2);
  tensors.AddPattern("model.layers.0.mlp.down_proj.weight", DType::kQ4Block, {8, 12}, 3);
  tensors.AddPattern("model.layers.1.mlp.down_proj.weight", DType::kBF16, {8, 12}, 4);
  tensors.AddPattern("skill.sql.model.norm.weight", DType::kF32, {8}, 5);
  Contents contents;
  contents.header.config = TinyConfig();
  contents.header.provenance = {{"tool", "test"}};
  contents.header.chat = ChatBundle{"{{ x }}", {7}, std::nullopt, 3};
  contents.header.sampling.temperature = 0.5;
  SkillRecord skill;
  skill.id = "sql";
  skill.name = "SQL";
  skill.layers = {1};
  skill.selection = SkillSelection{};
  skill.selection->rank = 1;
  skill.selection->mean.assign(8, 0.5f);
  skill.selection->basis.assign(8, 0.25f);
  contents.header.skills.push_back(skill);
  contents.tensors = &tensors;
  for (const TensorInfo& tensor : tensors.tensors()) contents.names.push_back(tensor.name);
  contents.masks.default_task = "general";
  contents.masks.masks = {TinyMask("general", 0), TinyMask("sql", 1)};
  contents.tokenizer_json = AsBytes(R"({"model":{}})");
  contents.sparse_index = true;
  return contents;
}

}  // namespace cmforge::cmf
