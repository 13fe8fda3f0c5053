// Preloaded into the program by tests: the FAULT_AT-th call that changes a file (write, pwrite, ftruncate, fsync, linkat,
// rename, unlink) does what FAULT says: "kill", "term" and "hup" send the process that signal, "full" fails as a full disk does,
// "touch" gives the file FAULT_PATH another time of change, "empty" takes all its bytes.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<int> calls{0};

// True when this call shall fail.
bool Strike() {
  const char* at = std::getenv("FAULT_AT");
  const char* what = std::getenv("FAULT");
  if (at == nullptr || what == nullptr || ++calls != std::atoi(at)) return false;
  if (std::strcmp(what, "full") == 0) {
    errno = ENOSPC;
    return true;
  }
  if (std::strcmp(what, "touch") == 0) {
    const timespec times[] = {{12345, 0}, {12345, 0}};
    if (::utimensat(AT_FDCWD, std::getenv("FAULT_PATH"), times, 0) != 0) std::abort();
    return false;
  }
  if (std::strcmp(what, "empty") == 0) {
    if (::truncate(std::getenv("FAULT_PATH"), 0) != 0) std::abort();
    return false;
  }
  ::kill(::getpid(), std::strcmp(what, "kill") == 0  ? SIGKILL
                     : std::strcmp(what, "hup") == 0 ? SIGHUP
                                                     : SIGTERM);
  return false;
}

template <class Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  if (Strike()) return -1;
  return Next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite")(fd, bytes, size, offset);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off_t offset) {
  return pwrite(fd, bytes, size, offset);
}
int ftruncate(int fd, off_t size) {
  if (Strike()) return -1;
  return Next<int (*)(int, off_t)>("ftruncate")(fd, size);
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }
int fsync(int fd) {
  if (Strike()) return -1;
  return Next<int (*)(int)>("fsync")(fd);
}
int linkat(int from_fd, const char* from, int to_fd, const char* to, int flags) {
  if (Strike()) return -1;
  return Next<int (*)(int, const char*, int, const char*, int)>("linkat")(from_fd, from, to_fd, to, flags);
}
int rename(const char* from, const char* to) {
  if (Strike()) return -1;
  return Next<int (*)(const char*, const char*)>("rename")(from, to);
}
int unlink(const char* path) {
  if (Strike()) return -1;
  return Next<int (*)(const char*)>("unlink")(path);
}

}  // extern "C"
