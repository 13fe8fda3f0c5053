// MappedFile over mmap(2) and read(2).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/huge_memory.h"
#include "base/mapped_file.h"
#include "base/system_error.h"

namespace cmforge {
namespace {

constexpr const char* kBecameShorter = "the file became shorter while it was read: try again";

struct FileDescriptor {
  int fd = -1;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Error IrregularFile(const std::filesystem::path& path) {
  return {ErrorKind::kUsage, fmt::format("{}: not a regular file: name a file", path.string())};
}

Error OpenError(const std::filesystem::path& path, int error) {
  std::error_code ignored;
  if (error == ENOENT && std::filesystem::is_symlink(path, ignored)) {
    return {ErrorKind::kNotFound,
            fmt::format("{}: the link points to '{}', which does not exist: fetch that file again",
                        path.string(), std::filesystem::read_symlink(path, ignored).string())};
  }
  if (error == ENXIO) return IrregularFile(path);  // a socket
  const ErrorKind kind = error == ENOENT || error == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kIo;
  return {kind, fmt::format("{}: cannot open: {}", path.string(), SystemFault(error))};
}

}  // namespace

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  auto* data = const_cast<std::byte*>(bytes_.data());
  if (fd_ >= 0) {
    ::munmap(data, bytes_.size());
    ::close(fd_);
  } else {
    FreeHugeMemory(data, bytes_.size());
  }
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path, Mode mode) {
  // A pipe without a writer would hold a blocking open for ever; for regular files the flag means nothing.
  FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) return Fail(OpenError(path, errno));
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) return Fail(OpenError(path, errno));
  if (!S_ISREG(info.st_mode)) {
    return Fail(IrregularFile(path));
  }
  MappedFile result;
  result.path_ = path.string();
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return result;
  if (mode == Mode::kMap) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
    if (data == MAP_FAILED) {
      const bool is_limit = errno == ENOMEM;  // of address space
      return Fail(is_limit ? ErrorKind::kLimit : ErrorKind::kIo,
                  fmt::format("{}: cannot map {} bytes: {}{}", path.string(), size, SystemFault(errno),
                              is_limit ? ": raise the limit (`ulimit -v`)" : ""));
    }
    result.bytes_ = {static_cast<const std::byte*>(data), size};
    result.fd_ = std::exchange(file.fd, -1);
    return result;
  }
  auto* data = NewHugeMemory(size);
  result.bytes_ = {data, size};
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::read(file.fd, data + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Fail(ErrorKind::kIo, fmt::format("{}: {} of {} bytes read: {}", path.string(), done, size,
                                              n < 0 ? SystemFault(errno) : kBecameShorter));
    }
    done += static_cast<size_t>(n);
  }
  return result;
}

Result<void> MappedFile::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  CMF_TRY(const ByteRange range, ByteRange::Checked(offset, out.size(), bytes_.size(), path_));
  if (fd_ < 0) {
    const Bytes from = range.Of(bytes_);
    std::copy(from.begin(), from.end(), out.begin());
    return {};
  }
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Fail(ErrorKind::kIo, fmt::format("{}: cannot read byte {}: {}", path_, offset,
                                              n < 0 ? SystemFault(errno) : kBecameShorter));
    }
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return {};
}

void MappedFile::Prefetch(ByteRange range) const {
  if (fd_ < 0 || range.size == 0) return;
#ifdef RWF_NOWAIT
  // Asking walks over every page even if all are cached: where the first and the last are, the others are taken to be.
  const auto is_cached = [&](uint64_t offset) {
    char byte;
    const iovec one{&byte, 1};
    return ::preadv2(fd_, &one, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
  };
  if (is_cached(range.offset) && is_cached(range.end() - 1)) return;
#endif
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = range.offset & ~(page - 1);
  ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, range.end() - begin, MADV_WILLNEED);
}

void MappedFile::AdviseSequential(ByteRange range, bool sequential) const {
  if (fd_ < 0 || range.size == 0) return;
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = range.offset & ~(page - 1);
  auto* at = const_cast<std::byte*>(bytes_.data()) + begin;
  ::madvise(at, range.end() - begin, sequential ? MADV_SEQUENTIAL : MADV_NORMAL);
}

void MappedFile::Release(ByteRange range) const {
  if (fd_ < 0) return;
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = AlignUp(range.offset, page);
  const uint64_t end = range.end() & ~(page - 1);
  if (begin < end) ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

Result<std::string> ReadTextFile(const std::filesystem::path& path, uint64_t limit_bytes) {
  CMF_TRY(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > limit_bytes) {
    return Fail(ErrorKind::kLimit, fmt::format("{}: {} bytes, at most {} are read", path.string(),
                                               file.bytes().size(), limit_bytes));
  }
  return std::string(AsText(file.bytes()));
}

}  // namespace cmforge
