// Options of Metaspace.
#include "text/tokenizer/metaspace.h"

#include "text/tokenizer/utf8.h"

namespace cmforge {

Result<MetaspaceOptions> MetaspaceOptions::From(const Component& component) {
  MetaspaceOptions options;
  CMF_TRY(const uint32_t replacement, component.Character("replacement"));
  utf8::Append(options.replacement, replacement);
  CMF_TRY(options.split, component.Bool("split", true));
  if (component.Find("prepend_scheme")) {
    CMF_TRY(const std::string scheme, component.String("prepend_scheme"));
    if (scheme == "always") {
      options.prepend = PrependScheme::kAlways;
    } else if (scheme == "first") {
      options.prepend = PrependScheme::kFirst;
    } else if (scheme == "never") {
      options.prepend = PrependScheme::kNever;
    } else {
      return component.Wrong(fmt::format("unknown prepend_scheme '{}'", scheme.substr(0, 100)));
    }
  }
  CMF_TRY(const bool adds_prefix, component.Bool("add_prefix_space", true));
  if (!adds_prefix) {
    if (component.Find("prepend_scheme") && options.prepend != PrependScheme::kNever) {
      return component.Wrong("'add_prefix_space' contradicts 'prepend_scheme'");
    }
    options.prepend = PrependScheme::kNever;
  }
  return options;
}

}  // namespace cmforge
