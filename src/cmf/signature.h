// Detached signatures (spec 8.2): `FILE.sig` is JSON {alg, pubkey, sha256, sig}, Ed25519 over the 32 bytes of
// the file's SHA-256. The container itself is never rewritten.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/progress.h"
#include "base/result.h"

namespace cmforge::cmf {

using Sha256Digest = std::array<std::byte, 32>;

/// SHA-256 of bytes that come in pieces, in order.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();
  void Update(Bytes bytes);
  Sha256Digest Finish();  // once

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

[[nodiscard]] std::string HexOf(Bytes bytes);  // lower case

struct Signature {
  std::string public_key;  // 64 hex digits
  std::string sha256;      // 64 hex digits
  std::string sig;         // 128 hex digits
};

/// `FILE.sig`; links are not followed to find it: the signature lies beside the name that was given.
[[nodiscard]] std::filesystem::path SignaturePath(const std::filesystem::path& file);

/// Nothing when there is none. Fails: kCorrupt (not JSON, another alg, malformed hex), kIo.
Result<std::optional<Signature>> ReadSignature(const std::filesystem::path& file);

/// Checks digest, signature and, when `required_key` is not empty, the signer. Fails: kCorrupt saying which.
Result<void> CheckSignature(const Signature& signature, const Sha256Digest& digest,
                            std::string_view required_key);

/// Fails: kUsage unless `key` is 64 hex digits.
Result<void> CheckPublicKey(std::string_view key);

/// SHA-256 of a file of any kind. Fails: kNotFound, kIo, kCancelled.
Result<Sha256Digest> HashFile(const std::filesystem::path& file, const RunControl& run = {});

/// Signs a file of any kind with the key in `key` (signing_key.h; created when there is none) and writes
/// `FILE.sig` atomically. Fails: as ReadOrCreateKey, kNotFound, kIo, kCancelled.
Result<Signature> SignFile(const std::filesystem::path& file, const std::filesystem::path& key,
                           const RunControl& run = {});

}  // namespace cmforge::cmf
