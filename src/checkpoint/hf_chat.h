// How a checkpoint chats and likes to be sampled: templates, stop ids, recommended sampling, from all the
// files that may say so. Whatever is broken here costs a warning, never the model.
#pragma once

#include "base/json.h"
#include "checkpoint/hf_config.h"

namespace cmforge {

/// Fills `result.chat` and `result.sampling`, adds warnings. `outer` is config.json, `text` its text model's
/// part (may be the same object).
///   template  chat_template.jinja unless blank, else tokenizer_config's (a string, or "default" of a list),
///   else
///             chat_template.json's
///   eos       ids of generation_config, config, text_config, and those of the eos_token that
///   tokenizer_config or
///             special_tokens_map name
///   bos, pad  config, text_config, generation_config, then the tokens by name; the first that says something
void ReadChat(const HfConfigFiles& files, const Json& outer, const Json& text, HfConfig& result);

}  // namespace cmforge
