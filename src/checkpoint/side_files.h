// What a checkpoint folder has besides weights and config.json.
#pragma once

#include <array>

namespace cmforge {

inline constexpr std::array kSideFiles = {"tokenizer.json",
                                          "tokenizer_config.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "vocab.json",
                                          "merges.txt",
                                          "tokenizer.model",
                                          "generation_config.json",
                                          "chat_template.jinja",
                                          "chat_template.json"};

}  // namespace cmforge
