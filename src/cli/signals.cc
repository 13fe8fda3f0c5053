// Signal handlers; only async-signal-safe calls inside them.
#include "cli/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <new>

#include "base/unfinished.h"

namespace cmforge::cli {
namespace {

std::atomic<bool> interrupted{false};
char mapped_file[1024] = "a model file";

void OnInterrupt(int) {
  if (interrupted.exchange(true)) ::_exit(130);
}

void Say(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void OnBusError(int) {
  Say("cmforge: error: ");
  Say(mapped_file);
  Say(": the file became shorter, or its disk failed, while it was read: restore it, or use --no-mmap\n");
  RemoveUnfinished();
  ::_exit(6);
}

void OnOutOfMemory() {
  Say("cmforge: error: out of memory: raise the limit, close other programs, or use a smaller model or "
      "context\n");
  ::_exit(7);
}

void Install(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void InstallSignalHandlers() {
  Install(SIGINT, OnInterrupt, 0);  // no SA_RESTART: a blocking read returns
  Install(SIGTERM, OnInterrupt, 0);
  struct sigaction hangup = {};  // a closed terminal stops the work, unless nohup asked otherwise
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    Install(SIGHUP, OnInterrupt, 0);
  Install(SIGBUS, OnBusError, 0);
  std::set_new_handler(OnOutOfMemory);
  Install(SIGXFSZ, SIG_IGN, 0);  // a file-size limit is then an error of writing, with its message
}

std::atomic<bool>& Interrupted() { return interrupted; }

void NameMappedFile(std::string_view path) {
  const size_t n = path.size() < sizeof(mapped_file) - 1 ? path.size() : sizeof(mapped_file) - 1;
  std::memcpy(mapped_file, path.data(), n);
  mapped_file[n] = '\0';
}

}  // namespace cmforge::cli
