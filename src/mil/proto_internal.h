// Pieces that the readers and writers of the protobuf form share.
#pragma once

#include "mil/model.h"
#include "mil/wire.h"

namespace cmforge::mil {

/// Bounds what one file can make us allocate: every message counts, nesting is limited.
class ProtoBudget {
 public:
  Result<void> Take() {
    if (--left_ >= 0) return {};
    return Fail(ErrorKind::kLimit, "more than 2 million messages: this is no model we read");
  }

 private:
  int64_t left_ = 2'000'000;
};

inline constexpr int kMaxProtoDepth = 16;  // of types inside types and values inside values

Result<Program> ParseProgram(Bytes bytes, ProtoBudget& budget);
Result<Description> ParseDescription(Bytes bytes, ProtoBudget& budget);
[[nodiscard]] WireWriter WriteProgram(const Program& program);
/// `always_metadata`: an empty metadata message too.
[[nodiscard]] WireWriter WriteDescription(const Description& description, bool always_metadata);

/// Calls fn(field) for every field; stops at the first error.
template <class Fn>
Result<void> ForEachField(Bytes message, Fn&& fn) {
  WireReader reader(message);
  while (!reader.AtEnd()) {
    CMF_TRY(const WireField field, reader.Next());
    CMF_CHECK(fn(field));
  }
  return {};
}

/// One entry of a map field: key (1) and the bytes of the value (2).
struct MapEntry {
  std::string key;
  Bytes value;
};
Result<MapEntry> ParseMapEntry(Bytes bytes);

}  // namespace cmforge::mil
