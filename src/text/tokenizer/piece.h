// What flows from the normalizer through the pre-tokenizers to the model.
#pragma once

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace cmforge {

/// A part of the text on its way to the model. Well-formed UTF-8.
struct Piece {
  std::string_view text;
  // So many bytes at the front come from the first character of the whole original text: Metaspace with
  // `prepend_scheme: first` asks for it.
  size_t from_start = 0;

  [[nodiscard]] Piece Sub(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), from_start > begin ? std::min(from_start, end) - begin : 0};
  }
};

/// A reference to a callable that takes pieces; valid while the callable lives.
class PieceSink {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, PieceSink>>>
  PieceSink(F&& take)  // NOLINT: a lambda is meant to be passed
      : object_(const_cast<void*>(static_cast<const void*>(&take))),
        call_([](void* object, const Piece& piece) -> Result<void> {
          return (*static_cast<std::remove_reference_t<F>*>(object))(piece);
        }) {}

  Result<void> operator()(const Piece& piece) const { return call_(object_, piece); }

 private:
  void* object_;
  Result<void> (*call_)(void*, const Piece&);
};

}  // namespace cmforge
