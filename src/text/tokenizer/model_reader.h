// Reads the `model` object of a tokenizer.json.
#pragma once

#include <simdjson.h>

#include <memory>

#include "base/result.h"
#include "text/tokenizer/model.h"

namespace cmforge {

/// `object` is consumed. Fails: kCorrupt (a field missing or of the wrong kind, ids that are no numbers,
/// merges of tokens that are not in the vocabulary), kUnsupported (an unknown type), kLimit.
Result<std::unique_ptr<const TokenModel>> ReadModel(simdjson::ondemand::object object, size_t document_bytes);

}  // namespace cmforge
