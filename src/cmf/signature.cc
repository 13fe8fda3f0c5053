// SHA-256, Ed25519 and the .sig file, over OpenSSL.
#include "cmf/signature.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/page_buffer.h"
#include "cmf/json_fields.h"
#include "cmf/signing_key.h"

namespace cmforge::cmf {
namespace {

constexpr std::string_view kAlgorithm = "ed25519-sha256";
constexpr size_t kKeySize = 32;
constexpr size_t kSignatureSize = 64;
constexpr uint64_t kMaxSignatureFile = 64 << 10;
constexpr uint64_t kStep = uint64_t{1} << 20;  // read and hashed between two looks at `cancelled`

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

const unsigned char* Data(Bytes bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }
unsigned char* Out(std::span<std::byte> bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

Error CryptoError(std::string_view what) {
  return {ErrorKind::kInternal, fmt::format("signature: {} failed in the crypto library", what)};
}

bool VerifyEd25519(Bytes public_key, Bytes message, Bytes signature) {
  const Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Data(public_key), public_key.size()),
                EVP_PKEY_free);
  const DigestContext context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  return key && context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), Data(signature), signature.size(), Data(message), message.size()) ==
             1;
}

}  // namespace

struct Sha256::Context {
  DigestContext digest{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  EVP_DigestInit_ex(context_->digest.get(), EVP_sha256(), nullptr);
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::Update(Bytes bytes) { EVP_DigestUpdate(context_->digest.get(), bytes.data(), bytes.size()); }

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  EVP_DigestFinal_ex(context_->digest.get(), Out(digest), nullptr);
  return digest;
}

std::string HexOf(Bytes bytes) {
  std::string hex;
  for (const std::byte byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return hex;
}

std::optional<std::vector<std::byte>> BytesOfHex(std::string_view hex) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (hex.size() % 2 != 0) return std::nullopt;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const auto digit = [&](size_t at) {
      return kDigits.find(static_cast<char>(hex[at] >= 'A' && hex[at] <= 'F' ? hex[at] + 32 : hex[at]));
    };
    if (digit(i) == kDigits.npos || digit(i + 1) == kDigits.npos) return std::nullopt;
    bytes.push_back(static_cast<std::byte>(digit(i) << 4 | digit(i + 1)));
  }
  return bytes;
}

std::filesystem::path SignaturePath(const std::filesystem::path& file) {
  std::filesystem::path path = file;
  path += ".sig";
  return path;
}

Result<std::optional<Signature>> ReadSignature(const std::filesystem::path& file) {
  const std::filesystem::path path = SignaturePath(file);
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored)))
    return std::optional<Signature>();
  CMF_TRY(const std::string text, ReadTextFile(path, kMaxSignatureFile));
  CMF_TRY(const Json json, ParseJson(text, path.string()));
  Signature signature;
  std::string algorithm;
  JsonFields fields(json, path.string());
  fields.Require({"alg", "pubkey", "sha256", "sig"});
  fields.Read("alg", algorithm);
  fields.Read("pubkey", signature.public_key);
  fields.Read("sha256", signature.sha256);
  fields.Read("sig", signature.sig);
  CMF_CHECK(fields.status());
  if (algorithm != kAlgorithm) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: algorithm '{}', only {} is known", path.string(), algorithm, kAlgorithm),
                "Parse");
  }
  for (const auto& [what, hex, size] : {std::tuple{"pubkey", &signature.public_key, kKeySize},
                                        std::tuple{"sha256", &signature.sha256, kKeySize},
                                        std::tuple{"sig", &signature.sig, kSignatureSize}}) {
    const auto bytes = BytesOfHex(*hex);
    if (!bytes || bytes->size() != size) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("{}: key '{}': not {} hex digits", path.string(), what, 2 * size), "Parse");
    }
    *hex = HexOf(*bytes);
  }
  return std::optional<Signature>(std::move(signature));
}

Result<void> CheckPublicKey(std::string_view key) {
  const auto bytes = BytesOfHex(key);
  if (bytes && bytes->size() == kKeySize) return {};
  return Fail(ErrorKind::kUsage,
              fmt::format("'{}' is not a public key: give {} hex digits", key, 2 * kKeySize));
}

Result<void> CheckSignature(const Signature& signature, const Sha256Digest& digest,
                            std::string_view required_key) {
  const auto key = BytesOfHex(signature.public_key), sig = BytesOfHex(signature.sig);
  if (!required_key.empty()) {
    CMF_CHECK(CheckPublicKey(required_key));
    const auto required = BytesOfHex(required_key);
    if (required != key) {
      return Fail(ErrorKind::kCorrupt,
                  fmt::format("signed by {}, not by {}", signature.public_key, HexOf(*required)));
    }
  }
  if (signature.sha256 != HexOf(digest)) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("the file's SHA-256 is {}, {} was signed: the file was changed after signing",
                            HexOf(digest), signature.sha256));
  }
  if (!key || !sig || sig->size() != kSignatureSize || !VerifyEd25519(*key, digest, *sig)) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("not made by the key {} for this file", signature.public_key));
  }
  return {};
}

Result<Sha256Digest> HashFile(const std::filesystem::path& file, const RunControl& run) {
  CMF_TRY(const MappedFile mapped, MappedFile::Open(file));
  const uint64_t size = mapped.bytes().size();
  mapped.AdviseSequential({0, size});
  PageBuffer buffer(std::min(kStep, size));
  Sha256 sha;
  for (uint64_t at = 0; at < size; at += kStep) {
    CMF_CHECK(run.CheckCancelled());
    const auto piece = buffer.first(std::min(kStep, size - at));
    CMF_CHECK(mapped.ReadAt(at, piece));  // copying costs less than faulting pages in
    sha.Update(piece);
    run.Report("hashing", static_cast<int64_t>(at + piece.size()), static_cast<int64_t>(size),
               ProgressUnit::kBytes);
  }
  return sha.Finish();
}

Result<Signature> SignFile(const std::filesystem::path& file, const std::filesystem::path& key_path,
                           const RunControl& run) {
  CMF_CHECK(MappedFile::Open(file));  // no key is made for a file that is not there
  CMF_TRY(const std::vector<std::byte> seed, ReadOrCreateKey(key_path, run));
  CMF_TRY(const Sha256Digest digest, HashFile(file, run));
  const Key key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, Data(seed), seed.size()),
                EVP_PKEY_free);
  const DigestContext context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::array<std::byte, kKeySize> public_key;
  std::array<std::byte, kSignatureSize> signature;
  size_t key_size = public_key.size(), signature_size = signature.size();
  if (!key || !context || EVP_PKEY_get_raw_public_key(key.get(), Out(public_key), &key_size) != 1 ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), Out(signature), &signature_size, Data(digest), digest.size()) != 1) {
    return Fail(CryptoError("signing"));
  }
  Signature result{HexOf(public_key), HexOf(digest), HexOf(signature)};
  const Json json = {
      {"alg", kAlgorithm}, {"pubkey", result.public_key}, {"sha256", result.sha256}, {"sig", result.sig}};
  CMF_CHECK(WriteFileAtomically(SignaturePath(file), AsBytes(DumpJson(json, 2) + "\n")));
  return result;
}

}  // namespace cmforge::cmf
