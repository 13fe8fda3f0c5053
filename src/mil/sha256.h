// SHA-256, for content sharing, for identifiers derived from content, and for the hash in compiled models.
#pragma once

#include <array>
#include <memory>

#include "base/bytes.h"

namespace cmforge::mil {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  void Add(Bytes bytes);
  [[nodiscard]] Sha256Digest Finish();  // once

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

[[nodiscard]] Sha256Digest Sha256Of(Bytes bytes);

/// A UUID in its usual text form (version 8: made of a hash) from the first bytes of a digest.
[[nodiscard]] std::string UuidOf(const Sha256Digest& digest);

[[nodiscard]] std::string Base64Of(const Sha256Digest& digest);

}  // namespace cmforge::mil
