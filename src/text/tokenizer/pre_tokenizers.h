// The pre-tokenizers of tokenizer.json: they cut normalized text into the pieces that the model sees.
#pragma once

#include <memory>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/piece.h"

namespace cmforge {

/// Immutable: any thread may use it.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  /// Hands the pieces of `in` (not empty) to `sink` in order; none of them is empty. A piece lives until
  /// `sink` returns. Fails: kLimit (a pattern that backtracks without end); what `sink` returns.
  virtual Result<void> Split(const Piece& in, PatternScratch& scratch, PieceSink sink) const = 0;
};

/// A list of pre-tokenizers, each splitting the pieces of the one before; empty for `null`.
class PreTokenizerChain {
 public:
  /// Sequences are flattened. Fails: kCorrupt, kUnsupported naming component and field.
  static Result<PreTokenizerChain> FromJson(const Json& json);

  /// True when the last step spells bytes in the byte-level alphabet. Run(spell_bytes = false) then hands out
  /// the bytes themselves, for a model that can take them.
  [[nodiscard]] bool ends_in_bytes() const { return ends_in_bytes_; }

  Result<void> Run(const Piece& in, PatternScratch& scratch, bool spell_bytes, PieceSink sink) const {
    if (in.text.empty()) return {};
    return RunFrom(0, in, scratch, spell_bytes, sink);
  }

 private:
  Result<void> RunFrom(size_t step, const Piece& in, PatternScratch& scratch, bool spell_bytes,
                       PieceSink sink) const;

  std::vector<std::unique_ptr<const PreTokenizer>> steps_;
  bool ends_in_bytes_ = false;
};

}  // namespace cmforge
