// AtomicFile over POSIX calls. Where the file system can (O_TMPFILE), the file has no name at all until Commit(),
// so not even a killed process leaves something behind.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "base/atomic_file.h"
#include "base/links.h"
#include "base/system_error.h"
#include "base/unfinished.h"

namespace cmforge {
namespace {

std::filesystem::path Folder(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(is_unnamed_, other.is_unnamed_);
  std::swap(is_kept_, other.is_kept_);
  return *this;
}

AtomicFile::~AtomicFile() {
  if (!is_kept_) Discard();
  if (fd_ >= 0) ::close(fd_);
}

void AtomicFile::Discard() {
  if (fd_ < 0) return;
  std::error_code ignored;
  if (!is_unnamed_) std::filesystem::remove(temporary_, ignored);
  ForgetUnfinished(temporary_);
  ::close(std::exchange(fd_, -1));  // after the removal: a lock holds until nobody can find the file
}

Error AtomicFile::WriteError(int error) const {
  return {ErrorKind::kIo,
          fmt::format("{}: writing failed after {} bytes: {}", target_.string(), size_, SystemFault(error))};
}

namespace {

// Resolves links, so that they stay, and refuses what a rename would do harm to.
Result<std::filesystem::path> RealTarget(const std::filesystem::path& target) {
  std::error_code ignored;
  std::filesystem::path real = FollowLinks(target);
  if (std::filesystem::is_directory(real, ignored)) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: is a folder: name a file to write", target.string()));
  }
  if (std::filesystem::exists(real, ignored) && !std::filesystem::is_regular_file(real, ignored)) {
    // A rename would put a file in the place of the device or pipe.
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: not a regular file: name a file to write", target.string()));
  }
  return real;
}

Error CreateError(const std::filesystem::path& target, int error) {
  return {error == ENOENT || error == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kIo,
          fmt::format("{}: cannot create: {}", target.string(), SystemFault(error))};
}

// A process that is killed leaves the temporary name behind: between that and the real one, or at any time where files
// must have a name.
void RemoveLeftovers(const std::filesystem::path& target) {
  std::error_code ignored;
  const std::string wanted = target.filename().string();
  std::vector<std::filesystem::path> leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(Folder(target), ignored)) {
    if (IsLeftover(entry.path().filename().string(), wanted) && !entry.is_directory(ignored))
      leftovers.push_back(entry.path());
  }
  for (const auto& path : leftovers) std::filesystem::remove(path, ignored);
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::filesystem::path& target) {
  static std::atomic<int> counter{0};  // only makes names of one process differ
  AtomicFile file;
  CMF_TRY(file.target_, RealTarget(target));
  RemoveLeftovers(file.target_);
  file.temporary_ = file.target_;
  file.temporary_ += fmt::format(".tmp-{}-{}", ::getpid(), counter.fetch_add(1));
#ifdef O_TMPFILE
  file.fd_ = ::open(Folder(file.target_).c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
  file.is_unnamed_ = file.fd_ >= 0;
#endif
  if (file.fd_ < 0) file.fd_ = ::open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.fd_ < 0) return Fail(CreateError(target, errno));
  if (!file.is_unnamed_) ListUnfinished(file.temporary_);
  return file;
}

Result<AtomicFile> AtomicFile::TakeUp(const std::filesystem::path& target, std::string_view suffix, bool keep,
                                      const std::function<bool(const AtomicFile&)>& is_ours) {
  AtomicFile file;
  CMF_TRY(file.target_, RealTarget(target));
  file.temporary_ = file.target_;
  file.temporary_ += suffix;
  file.is_kept_ = true;  // it may be another's, until it is locked and looked at
  file.fd_ = ::open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file.fd_ < 0) return Fail(CreateError(target, errno));
  if (::flock(file.fd_, LOCK_EX | LOCK_NB) != 0) {
    return Fail(ErrorKind::kIo,
                fmt::format("{}: another program is writing it: wait for it, or name another file",
                            file.temporary_.string()));
  }
  struct stat info = {};
  if (::fstat(file.fd_, &info) != 0) return Fail(CreateError(target, errno));
  file.size_ = static_cast<uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || (file.size_ > 0 && !is_ours(file))) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: {} would grow under this name, and the file here is not what an interrupted run "
                    "leaves: move it away, or give the output another name",
                    file.temporary_.string(), target.string()));
  }
  file.is_kept_ = keep;
  if (!keep) ListUnfinished(file.temporary_);
  return file;
}

bool AtomicFile::BeginsWith(std::string_view text) const {
  std::vector<std::byte> head(std::min<uint64_t>(size_, text.size()));
  return ReadAt(0, head) && text.starts_with(AsText(head));
}

Result<void> AtomicFile::WriteAt(uint64_t offset, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Fail(WriteError(n < 0 ? errno : EIO));
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  size_ = std::max(size_, offset);
  return {};
}

Result<void> AtomicFile::Write(Bytes bytes) { return WriteAt(size_, bytes); }

Result<void> AtomicFile::PadTo(uint64_t offset) {
  if (offset <= size_) return {};
  // A hole reads as zeros and costs no disk; the next write or the truncate makes it real.
  if (::ftruncate(fd_, static_cast<off_t>(offset)) != 0) return Fail(WriteError(errno));
  size_ = offset;
  return {};
}

Result<void> AtomicFile::CutTo(uint64_t size) {
  if (size >= size_) return {};
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) return Fail(WriteError(errno));
  size_ = size;
  return {};
}

Result<void> AtomicFile::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Fail(ErrorKind::kIo, fmt::format("{}: cannot read back byte {}", temporary_.string(), offset));
    }
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<void> AtomicFile::Commit() {
  if (::fsync(fd_) != 0) return Fail(WriteError(errno));
  if (is_unnamed_) {
    // A link cannot replace an existing file, a rename can: so first a temporary name, then the real one.
    const std::string self = fmt::format("/proc/self/fd/{}", fd_);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return Fail(WriteError(errno));
    is_unnamed_ = false;
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return Fail(WriteError(errno));
  ForgetUnfinished(temporary_);
  ::close(std::exchange(fd_, -1));
  if (const int fd = ::open(Folder(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);  // makes the new name survive a power cut; some file systems refuse, which is harmless
    ::close(fd);
  }
  return {};
}

Result<void> WriteFileAtomically(const std::filesystem::path& target, Bytes bytes) {
  CMF_TRY(AtomicFile file, AtomicFile::Create(target));
  CMF_CHECK(file.Write(bytes));
  return file.Commit();
}

}  // namespace cmforge
