// Small JSON documents (headers, configs, requests): duplicate keys refused and depth bounded, held as
// nlohmann::ordered_json so that unknown keys survive a rewrite. Integers beyond 64 bits become doubles,
// since tokenizer configs hold 1000000000000000019884624838656. Large documents are read with simdjson
// by whoever owns them.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace cmforge {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 128;

/// Fails: kCorrupt (name "Parse") with the reason ("key 'w' occurs twice", depth, syntax with its byte),
/// prefixed by `what`. A UTF-8 byte order mark and blanks around the document are accepted.
Result<Json> ParseJson(std::string_view text, std::string_view what);

/// One line of JSON; ill-formed UTF-8 inside strings becomes U+FFFD instead of an exception.
[[nodiscard]] std::string DumpJson(const Json& value, int indent = -1);

}  // namespace cmforge
