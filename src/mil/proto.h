// The protobuf form: the bytes of a .mlmodel file, of the description inside a compiled model, and of the
// program. Message layouts follow the public format (docs/formats/coreml.md lists the fields).
#pragma once

#include <string>

#include "mil/model.h"

namespace cmforge::mil {

/// Fails: kCorrupt (malformed bytes, a value whose size is not its type's, names that are no identifiers),
/// kUnsupported (no ML Program, nested blocks, tensors of unknown rank), kLimit (more than 2 million nodes).
Result<Model> ParseModel(Bytes bytes);
Result<Description> ParseDescription(Bytes bytes);

/// Deterministic: fields in ascending order, maps sorted by key.
[[nodiscard]] std::string SerializeModel(const Model& model);

/// Field 100 (metadata) is always written, as compiled models have it.
[[nodiscard]] std::string SerializeDescription(const Description& description);

}  // namespace cmforge::mil
