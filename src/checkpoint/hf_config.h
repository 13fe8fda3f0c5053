// A Hugging Face folder's configuration files -> what the model is, how it chats, how it likes to be sampled.
// Nested (`text_config`) and flat files, fields that moved between versions, and null, which means absent.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

/// The texts to read; only `config` must be there. Nothing is opened by the parser itself.
struct HfConfigFiles {
  std::string folder;                             // for messages
  std::string config;                             // config.json
  std::optional<std::string> generation_config;   // generation_config.json
  std::optional<std::string> tokenizer_config;    // tokenizer_config.json
  std::optional<std::string> special_tokens_map;  // special_tokens_map.json
  std::optional<std::string> chat_template;       // chat_template.jinja
  std::optional<std::string> chat_template_json;  // chat_template.json: {"chat_template": "..."}
  std::string_view tokenizer_json;  // only its added_tokens are looked at, for ids of eos and others
};

struct HfConfig {
  ModelConfig model;  // arch_name is the top-level model_type
  ChatBundle chat;    // eos: every id that a file of the folder names, in the order found
  RecommendedSampling sampling;
  std::string model_type;       // the one that decides the rules: text_config's where there is one
  bool known_family = true;     // false: read by the common rules, its tensors must all be of known kinds
  bool is_multimodal = false;   // the text model is a part of a larger one
  bool tie_is_default = false;  // no file says whether the head is tied
  // What the tensors must hold beyond what they say themselves.
  bool wants_qkv_bias = false, wants_o_bias = false, wants_mlp_bias = false, wants_qk_norm = false,
       wants_four_norms = false;
  std::string dtype;                  // as written: "bfloat16"; empty if absent
  std::vector<std::string> warnings;  // complete lines, "file: fact: consequence"
};

/// Fails: kCorrupt (config.json is not JSON; a key is missing, of the wrong kind or out of range: file and
/// key named), kUnsupported (a family, activation, rope kind or weight quantization that we do not run, by
/// name). Broken side files are warnings.
Result<HfConfig> ParseHfConfig(const HfConfigFiles& files);

/// Reads what is there of those files. Fails: kNotFound without config.json, kIo, kLimit (absurdly large).
/// `tokenizer_json` is handed in, since its owner has it mapped already.
Result<HfConfigFiles> ReadHfConfigFiles(const std::filesystem::path& folder,
                                        std::string_view tokenizer_json = {});

/// The ids of tokenizer.json's `added_tokens`, without reading its vocabulary. Nothing when the text is not
/// that kind of JSON.
[[nodiscard]] std::vector<std::pair<std::string, TokenId>> AddedTokens(std::string_view tokenizer_json);

}  // namespace cmforge
