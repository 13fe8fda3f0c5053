// InPlaceFile over pwrite(2), fsync(2) and flock(2).
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/system_error.h"
#include "cmf/in_place_file.h"

namespace cmforge::cmf {

Result<InPlaceFile> InPlaceFile::Open(const std::filesystem::path& path) {
  InPlaceFile file(path.string());
  file.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file.fd_ < 0) {
    const ErrorKind kind = errno == ENOENT || errno == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kIo;
    return Fail(kind, fmt::format("{}: cannot open for writing: {}", file.path_, SystemFault(errno)));
  }
  struct stat info = {};
  if (::fstat(file.fd_, &info) != 0 || !S_ISREG(info.st_mode))
    return Fail(ErrorKind::kUsage, fmt::format("{}: not a regular file: name a file", file.path_));
  if (::flock(file.fd_, LOCK_EX | LOCK_NB) != 0) {
    return Fail(ErrorKind::kIo,
                fmt::format("{}: another program is changing this file: try again later", file.path_));
  }
  return file;
}

InPlaceFile::InPlaceFile(std::string path) : path_(std::move(path)) {}

InPlaceFile::InPlaceFile(InPlaceFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      envelope_begun_(other.envelope_begun_) {}

InPlaceFile::~InPlaceFile() {
  if (fd_ >= 0) ::close(fd_);  // releases the lock
}

Result<void> InPlaceFile::WriteAt(uint64_t offset, Bytes bytes) {
  envelope_begun_ = envelope_begun_ || offset == 0;
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Fail(WriteError(n < 0 ? errno : EIO));
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<void> InPlaceFile::Sync() {
  if (::fsync(fd_) != 0) return Fail(WriteError(errno));
  return {};
}

void InPlaceFile::CutTo(uint64_t size) {
  struct stat status = {};
  if (::fstat(fd_, &status) != 0 || static_cast<uint64_t>(status.st_size) <= size) return;
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) return;  // a dead tail does no harm
}

Error InPlaceFile::WriteError(int error) const {
  return {ErrorKind::kIo, fmt::format("{}: writing failed: {}", path_, SystemFault(error))};
}

}  // namespace cmforge::cmf
