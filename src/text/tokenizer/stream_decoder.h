// Decoding ids one at a time for someone who watches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer/decoders.h"

namespace cmforge {

/// `text_of` gives what the decoder sees of an id, or nothing; it keeps alive whatever `decoder` belongs to.
[[nodiscard]] std::unique_ptr<StreamDecoder> NewStreamDecoder(
    const TokenDecoder& decoder, std::function<std::optional<std::string_view>(TokenId)> text_of);

}  // namespace cmforge
