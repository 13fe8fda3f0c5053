// The decoders of tokenizer.json: they turn token strings back into text, one token at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace cmforge {

/// One decoder on its way through a sequence of tokens. One thread at a time.
class DecoderState {
 public:
  using Tokens = std::vector<std::string>;

  virtual ~DecoderState() = default;
  [[nodiscard]] virtual std::unique_ptr<DecoderState> Clone() const = 0;

  /// Takes the next token and appends what it becomes for certain: no token, one or more.
  virtual void Push(std::string token, Tokens& out) = 0;

  /// Appends what would still come if the sequence ended now.
  virtual void Finish(Tokens& out) const { (void)out; }
};

/// The decoder of a file, immutable: any thread may use it.
class TokenDecoder {
 public:
  /// `null` joins tokens with blanks. Sequences are flattened. Fails: kCorrupt, kUnsupported naming component
  /// and field, kLimit (more than 64 steps).
  static Result<TokenDecoder> FromJson(const Json& json);

  /// A sequence of tokens being decoded. One thread at a time.
  class Run {
   public:
    explicit Run(const TokenDecoder& decoder);

    /// Appends the text that `token` makes certain.
    void Push(std::string_view token, std::string& out);

    /// The text that would still come if the sequence ended now.
    [[nodiscard]] std::string Tail() const;

   private:
    std::vector<std::unique_ptr<DecoderState>> states_;
    DecoderState::Tokens now_, next_;
  };

 private:
  // States at the very beginning of a sequence, cloned for each run.
  std::vector<std::shared_ptr<const DecoderState>> start_;
};

}  // namespace cmforge
