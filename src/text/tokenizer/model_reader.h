// Reads the `model` object of a tokenizer.json.
#pragma once

#include <memory>

#include "base/result.h"
#include "text/tokenizer/json_cursor.h"
#include "text/tokenizer/model.h"

namespace cmforge {

/// Takes the object at the cursor; `document_bytes` is a hint for the sizes of tables. Fails: kCorrupt (a
/// field missing or of the wrong kind, ids that are no numbers, merges of tokens that are not in the
/// vocabulary), kUnsupported (an unknown type), kLimit. The message begins with the field.
Result<std::unique_ptr<const TokenModel>> ReadModel(JsonCursor& cursor, size_t document_bytes);

}  // namespace cmforge
