// Append: the in-place file behind EmitAppend, over pwrite(2), fsync(2) and flock(2).
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system_error.h"
#include "cmf/append.h"
#include "cmf/shards.h"

namespace cmforge::cmf {
namespace {

class InPlaceFile : public AppendSink {
 public:
  static Result<InPlaceFile> Open(const std::filesystem::path& path) {
    InPlaceFile file(path.string());
    file.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file.fd_ < 0) {
      const ErrorKind kind = errno == ENOENT || errno == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kIo;
      return Fail(kind, fmt::format("{}: cannot open for writing: {}", file.path_, SystemFault(errno)));
    }
    if (::flock(file.fd_, LOCK_EX | LOCK_NB) != 0) {
      return Fail(ErrorKind::kIo,
                  fmt::format("{}: another program is changing this file: try again later", file.path_));
    }
    return file;
  }
  InPlaceFile(InPlaceFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  InPlaceFile& operator=(InPlaceFile&&) = delete;
  ~InPlaceFile() override {
    if (fd_ >= 0) ::close(fd_);  // releases the lock
  }

  Result<void> WriteAt(uint64_t offset, Bytes bytes) override {
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
  Result<void> Sync() override {
    if (::fsync(fd_) != 0) return Fail(WriteError(errno));
    return {};
  }
  /// Gives the disk back what a failed append has written, as long as the envelope does not know of it.
  void CutOff(uint64_t old_size) {
    if (!envelope_begun_ && ::ftruncate(fd_, static_cast<off_t>(old_size)) != 0)
      return;  // a dead tail does no harm
  }

 private:
  explicit InPlaceFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Error WriteError(int error) const {
    return {ErrorKind::kIo, fmt::format("{}: appending failed: {}", path_, SystemFault(error))};
  }

  std::string path_;
  int fd_ = -1;
  bool envelope_begun_ = false;
};

// Names must stay unique over a whole set, and only shard 1 is edited.
Result<void> CheckOtherShards(const File& file, const AppendEdits& edits) {
  for (const auto* names : {&edits.add, &edits.remove}) {
    for (const std::string& name : *names) {
      const TensorInfo* info = file.Find(name);
      if (info == nullptr || file.PlaceOf(*info).part == 0) continue;
      return Fail(
          ErrorKind::kUnsupported,
          fmt::format("{}: tensor '{}' lies in {}: only shard 1 grows in place: use unshard first",
                      file.path(), name, file.parts()[static_cast<size_t>(file.PlaceOf(*info).part)].path));
    }
  }
  return {};
}

}  // namespace

Result<void> Append(const std::filesystem::path& path, const AppendEdits& edits, const RunControl& run) {
  std::filesystem::path first = path;
  {
    CMF_TRY(const File named, File::Open(path, MappedFile::Mode::kMap, File::Shards::kThisFile));
    if (!named.is_complete()) first = SiblingPath(path, 1);
  }
  CMF_TRY(InPlaceFile target, InPlaceFile::Open(first));
  CMF_TRY(const File file, File::Open(first));  // after the lock: nobody else changes it now
  CMF_CHECK(CheckOtherShards(file, edits));
  auto status = EmitAppend(file.parts()[0], edits, target, run);
  if (!status) target.CutOff(file.parts()[0].bytes.size());
  return status;
}

}  // namespace cmforge::cmf
