// Key files with POSIX permissions.
#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/mapped_file.h"
#include "base/system_error.h"
#include "cmf/signature.h"
#include "cmf/signing_key.h"

namespace cmforge::cmf {
namespace {

constexpr size_t kSeedSize = 32;
constexpr uint64_t kMaxKeyFile = 4096;

Result<std::vector<std::byte>> CreateKey(const std::filesystem::path& path) {
  std::vector<std::byte> seed(kSeedSize);
  if (RAND_priv_bytes(reinterpret_cast<unsigned char*>(seed.data()), static_cast<int>(seed.size())) != 1) {
    return Fail(ErrorKind::kInternal, "key: the crypto library has no random bytes");
  }
  const std::string text = HexOf(seed) + "\n";
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);  // O_EXCL does not follow links
  const auto fail = [&](int error) {
    return Fail(ErrorKind::kIo,
                fmt::format("{}: cannot create the key: {}", path.string(), SystemFault(error)));
  };
  if (fd < 0) return fail(errno);
  const bool written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  const int error = written ? 0 : errno;
  ::close(fd);
  if (!written) {
    ::unlink(path.c_str());
    return fail(error);
  }
  return seed;
}

}  // namespace

Result<std::vector<std::byte>> ReadOrCreateKey(const std::filesystem::path& path, const RunControl& run) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 && errno == ENOENT) return CreateKey(path);
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    run.Warn(fmt::format("{}: others may read this private key: chmod 600 it", path.string()));
  }
  CMF_TRY(const std::string text, ReadTextFile(path, kMaxKeyFile));
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const size_t end = text.find_last_not_of(" \t\r\n");
  const auto seed =
      begin == text.npos ? std::nullopt : BytesOfHex(std::string_view(text).substr(begin, end - begin + 1));
  if (!seed || seed->size() != kSeedSize) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: not a signing key: {} hex digits are needed", path.string(), 2 * kSeedSize));
  }
  return *seed;
}

}  // namespace cmforge::cmf
