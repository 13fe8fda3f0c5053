// The options that Metaspace has as pre-tokenizer and as decoder.
#pragma once

#include <string>

#include "base/result.h"
#include "text/tokenizer/component.h"

namespace cmforge {

enum class PrependScheme : uint8_t {
  kAlways,  // every stretch of text between added tokens begins with the replacement
  kFirst,   // only one that begins the whole text
  kNever,
};

struct MetaspaceOptions {
  std::string replacement;  // one character, U+2581 as a rule
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;

  /// Old files have `add_prefix_space` instead of `prepend_scheme`.
  static Result<MetaspaceOptions> From(const Component& component);
};

}  // namespace cmforge
