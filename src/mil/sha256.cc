// SHA-256 by OpenSSL.
#include "mil/sha256.h"

#include <openssl/evp.h>

namespace cmforge::mil {
namespace {

EVP_MD_CTX* Context(void* p) { return static_cast<EVP_MD_CTX*>(p); }

}  // namespace

void Sha256::Free::operator()(void* context) const { EVP_MD_CTX_free(Context(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(Context(context_.get()), EVP_sha256(), nullptr);
}

void Sha256::Add(Bytes bytes) { EVP_DigestUpdate(Context(context_.get()), bytes.data(), bytes.size()); }

Sha256Digest Sha256::Finish() {
  Sha256Digest digest{};
  EVP_DigestFinal_ex(Context(context_.get()), digest.data(), nullptr);
  return digest;
}

Sha256Digest Sha256Of(Bytes bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Finish();
}

std::string UuidOf(const Sha256Digest& digest) {
  std::array<uint8_t, 16> id{};
  std::copy_n(digest.begin(), id.size(), id.begin());
  id[6] = static_cast<uint8_t>((id[6] & 0x0F) | 0x80);
  id[8] = static_cast<uint8_t>((id[8] & 0x3F) | 0x80);
  std::string text;
  for (size_t i = 0; i < id.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", id[i]);
  }
  return text;
}

std::string Base64Of(const Sha256Digest& digest) {
  std::array<unsigned char, 48> text{};
  const int length = EVP_EncodeBlock(text.data(), digest.data(), static_cast<int>(digest.size()));
  return {reinterpret_cast<const char*>(text.data()), static_cast<size_t>(length)};
}

}  // namespace cmforge::mil
