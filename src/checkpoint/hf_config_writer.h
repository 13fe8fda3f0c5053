// ModelConfig -> config.json, generation_config.json and tokenizer_config.json of a Hugging Face folder: the inverse of
// hf_config.h. Every key is written out, since a family's own library has defaults for absent ones.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/hf_families.h"
#include "checkpoint/hf_layout.h"
#include "model/model_config.h"

namespace cmforge {

/// The model_type a text-only folder of that family has: "gemma3" is the multimodal one's, "gemma3_text" its text part's.
[[nodiscard]] std::string TextModelType(std::string_view family);

/// config.json of a text-only model. What the family cannot say is not in it: whoever writes it parses it back and
/// compares. `dtype`: "bfloat16", "float16" or "float32".
[[nodiscard]] std::string HfConfigText(const ModelConfig& config, const HfTraits& traits,
                                       const HfFamily& family, std::string_view model_type,
                                       const ChatBundle* chat, std::string_view dtype);

[[nodiscard]] std::string HfGenerationConfigText(const ChatBundle& chat, const RecommendedSampling& sampling);

/// `special_tokens`: names and texts, "eos_token" and "<|im_end|>".
[[nodiscard]] std::string HfTokenizerConfigText(
    const ChatBundle& chat, const std::vector<std::pair<std::string, std::string>>& special_tokens,
    int64_t max_length);

}  // namespace cmforge
