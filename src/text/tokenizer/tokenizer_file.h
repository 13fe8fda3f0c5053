// The parts of a tokenizer.json, read and checked one by one.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/tokenizer/decoders.h"
#include "text/tokenizer/length_rules.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizers.h"

namespace cmforge {

struct TokenizerFile {
  std::vector<AddedToken> added_tokens;  // as written, ids included
  NormalizerChain normalizer;
  PreTokenizerChain pre_tokenizer;
  PostProcessor post_processor;
  TokenDecoder decoder;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  std::unique_ptr<const TokenModel> model;
};

/// Fails: kCorrupt, kUnsupported, kLimit; the message begins with the part ("normalizer: ...").
Result<TokenizerFile> ReadTokenizerFile(std::string_view json);

}  // namespace cmforge
