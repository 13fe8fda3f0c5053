// Text to token ids and back, exactly as the Hugging Face library does it for the same tokenizer.json.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

struct TokenizeOptions {
  bool add_special = true;  // let the post-processor add its tokens (begin of text and the like)
  // Truncation and padding stored in the file are applied by the reference library but hardly ever wanted.
  bool apply_truncation_and_padding = false;
  // false: the spelling of a special token inside the text is plain text, as for messages of strangers.
  bool allow_special_in_text = true;
};

/// An entry of `added_tokens`: a string that is matched as a whole, before the model sees the text.
struct AddedToken {
  TokenId id = 0;  // the id in use; the one written in the file is not trusted (see Tokenizer)
  std::string content;
  bool single_word = false;  // only between characters that are not of a word
  bool lstrip = false;       // swallows white space on its left
  bool rstrip = false;       // and on its right
  bool normalized = true;    // matched in the normalized text, else in the raw one
  bool special = false;      // left out when special tokens are skipped in decoding
};

/// Decodes ids one at a time. The pieces, joined, are Decode() of all ids, except where a ByteFallback
/// decoder takes back bytes that looked complete (an ill-formed run of byte tokens): what was given out
/// stays. One thread at a time; keeps its tokenizer alive.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;

  /// The text that may be shown now: whole characters that later ids can't change. Often "" inside a
  /// character. An unknown id gives "".
  [[nodiscard]] virtual std::string Push(TokenId id) = 0;

  /// What was held back, to be called once at the end: an unfinished character becomes U+FFFD.
  [[nodiscard]] virtual std::string Finish() = 0;
};

/// A tokenizer.json, read once. Immutable: any thread may use it (calls share a cache of words inside).
///
/// Ids: an added token whose content is in the model's vocabulary has the vocabulary's id; the others are
/// numbered from the vocabulary's size on, in file order, whatever the file says.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Reads the text of a tokenizer.json; `what` names it in messages. `json` is not kept.
  /// Fails: kCorrupt (not JSON, a field missing or of the wrong kind, a merge of unknown tokens, a pattern
  /// that does not compile: its offset), kUnsupported (a component type or version we don't know), kLimit
  /// (nesting).
  static Result<std::shared_ptr<const Tokenizer>> FromJson(std::string_view json, std::string_view what);

  /// Fails: kUsage (text that is not UTF-8: the byte; an unknown character where the model has no unknown
  /// token; stored truncation that can't be applied), kLimit (a pattern that backtracks beyond all bounds).
  virtual Result<std::vector<TokenId>> Encode(std::string_view text,
                                              const TokenizeOptions& options = {}) const = 0;

  /// Two texts put together by the post-processor (one after the other when it has no form for pairs).
  virtual Result<std::vector<TokenId>> EncodePair(std::string_view first, std::string_view second,
                                                  const TokenizeOptions& options = {}) const = 0;

  /// Well-formed UTF-8 whatever the ids; ids outside the vocabulary are left out.
  [[nodiscard]] virtual std::string Decode(std::span<const TokenId> ids, bool skip_special = true) const = 0;

  [[nodiscard]] virtual std::unique_ptr<StreamDecoder> NewStream(bool skip_special = true) const = 0;

  /// The id of exactly this token (in the file's own spelling: "Ġthe", "▁the", "<|im_end|>").
  [[nodiscard]] virtual std::optional<TokenId> IdOf(std::string_view token) const = 0;

  /// The file's own spelling of an id; "" for an id that is not in the vocabulary.
  [[nodiscard]] virtual std::string_view TokenText(TokenId id) const = 0;

  /// True for an added token marked special.
  [[nodiscard]] virtual bool IsSpecial(TokenId id) const = 0;

  /// One more than the largest id, added tokens included; ids below it need not all be in use.
  [[nodiscard]] virtual TokenId vocab_size() const = 0;

  /// In file order, without empty ones.
  [[nodiscard]] virtual std::span<const AddedToken> added_tokens() const = 0;

  /// The ids that the post-processor puts before and after a single text: [<bos>] and [], most often. A chat
  /// template that writes its own begin token needs add_special = false when `prefix_ids` is not empty.
  [[nodiscard]] virtual std::span<const TokenId> prefix_ids() const = 0;
  [[nodiscard]] virtual std::span<const TokenId> suffix_ids() const = 0;
};

}  // namespace cmforge
