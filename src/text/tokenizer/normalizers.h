// The normalizers of tokenizer.json: they rewrite a stretch of text before it is cut into pieces.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/piece.h"

namespace cmforge {

/// Immutable: any thread may use it.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  /// Returns `in` itself where nothing changes, else a piece that lies in `buffer` (which held no part of
  /// `in`; overwritten). Fails: kLimit (a pattern that backtracks without end).
  virtual Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch& scratch) const = 0;
};

/// A list of normalizers run one after the other; empty for `null`.
class NormalizerChain {
 public:
  /// Sequences are flattened. Fails: kCorrupt, kUnsupported naming component and field.
  static Result<NormalizerChain> FromJson(const Json& json);

  [[nodiscard]] bool empty() const { return steps_.empty(); }

  /// As Normalizer::Apply, with two buffers.
  Result<Piece> Apply(Piece in, std::string (&buffers)[2], PatternScratch& scratch) const;

 private:
  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

}  // namespace cmforge
