// The post-processors of tokenizer.json: they put special tokens around one text or two.
#pragma once

#include <span>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/model_config.h"

namespace cmforge {

/// Immutable. Only what changes ids is kept: offsets and type ids are no concern of ours.
class PostProcessor {
 public:
  /// `null` gives the one that adds nothing. Of a Sequence's parts all act, one after the other.
  /// Fails: kCorrupt, kUnsupported naming component and field.
  static Result<PostProcessor> FromJson(const Json& json);

  /// `second` null: a single text. Without `add_special` the texts are only put together, in the order of the
  /// template. Once a step has joined two texts, the steps after it see one.
  [[nodiscard]] std::vector<TokenId> Apply(const std::vector<TokenId>& first,
                                           const std::vector<TokenId>* second, bool add_special) const;

  /// How many ids Apply adds.
  [[nodiscard]] size_t AddedCount(bool is_pair) const;

  /// What Apply puts before and after a single text.
  [[nodiscard]] const std::vector<TokenId>& prefix() const { return prefix_; }
  [[nodiscard]] const std::vector<TokenId>& suffix() const { return suffix_; }

 private:
  // A text, or special ids in its place.
  struct Item {
    enum class Kind : uint8_t { kFirst, kSecond, kIds } kind;
    std::vector<TokenId> ids;
  };
  using Template = std::vector<Item>;
  struct Step {
    Template single, pair;
  };

  static Result<void> AddSteps(const Json& json, std::vector<Step>& steps);
  static Result<Template> ReadTemplate(const class Component& component, const char* key);

  std::vector<Step> steps_;
  std::vector<TokenId> prefix_, suffix_;
};

}  // namespace cmforge
