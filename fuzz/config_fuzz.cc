// room: checkpoint
// Hostile configuration files. The first byte says which of the folder's files the rest is; a config that
// passes must be one that an engine can allocate for without looking twice.
#include <cstdlib>
#include <string>

#include "checkpoint/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  cmforge::HfConfigFiles files;
  files.config =
      R"({"model_type":"llama","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":1,"vocab_size":9,)"
      R"("intermediate_size":8,"max_position_embeddings":8})";
  switch (data[0] % 5) {
    case 0:
      files.config = text;
      break;
    case 1:
      files.generation_config = text;
      break;
    case 2:
      files.tokenizer_config = text;
      break;
    case 3:
      files.special_tokens_map = R"({"eos_token":"a"})";
      files.tokenizer_json = text;
      break;
    case 4:
      files.chat_template_json = text;
      break;
  }
  const auto config = cmforge::ParseHfConfig(files);
  if (!config) return 0;
  const cmforge::ModelConfig& model = config->model;
  const bool is_sound =
      model.num_layers >= 1 && model.layer_types.size() == static_cast<size_t>(model.num_layers) &&
      model.num_kv_heads >= 1 && model.num_attention_heads % model.num_kv_heads == 0 && model.head_dim >= 1 &&
      model.hidden_size >= 1 && model.vocab_size >= 1 && model.intermediate_size >= 1 &&
      model.rope.theta > 0 && model.norm_style != cmforge::NormStyle::kUnknown &&
      (!model.moe || (model.moe->top_k >= 1 && model.moe->top_k <= model.moe->num_experts));
  if (!is_sound) abort();
  return 0;
}
