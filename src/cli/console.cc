// Console on stderr.
#include "cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace cmforge::cli {
namespace {

bool ColourAllowed(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(fd) != 0 && !(no_color && *no_color) && !(term && std::string_view(term) == "dumb");
}

int TerminalWidth() {
  winsize size = {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

/// "1.2 MB/s", "34 tok/s"; nothing for things.
std::string RateText(ProgressUnit unit, double rate) {
  switch (unit) {
    case ProgressUnit::kBytes:
      return HumanBytes(rate) + "/s";
    case ProgressUnit::kTokens:
      return fmt::format("{:.{}f} tok/s", rate, rate < 9.95 ? 1 : 0);
    case ProgressUnit::kThings:
      break;
  }
  return "";
}

std::string Time(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

bool StdoutHasColour() { return ColourAllowed(STDOUT_FILENO); }
bool StdoutIsTerminal() { return ::isatty(STDOUT_FILENO) != 0; }

std::string HumanBytes(double bytes) {
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (bytes < 999.5) break;
    bytes /= 1000;
    unit = next;
  }
  return *unit == 'B' ? fmt::format("{:.0f} {}", bytes, unit)
                      : fmt::format("{:.{}f} {}", bytes, bytes < 99.95 ? 1 : 0, unit);
}

void PrintToStderr(std::string_view text) {
  // A reader that has gone is no reason to die: its signal is held back during the write and taken away after it.
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  errno = 0;
  const bool is_lost = std::fwrite(text.data(), 1, text.size(), stderr) != text.size();
  const bool is_gone = is_lost && errno == EPIPE;
  if (int signal = 0; is_gone && ::sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1)
    sigwait(&pipe, &signal);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void PrintError(std::string_view message) {
  PrintToStderr(fmt::format("cmforge: error: {}\n", OneLine(message)));
}

void OccupyStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is taken, which is this one. Only for reading: what is written is still refused.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", O_RDONLY);
  }
}

Console::Console(int verbosity)
    : verbosity_(verbosity),
      is_terminal_(::isatty(STDERR_FILENO) != 0),
      has_colour_(ColourAllowed(STDERR_FILENO)) {}

void Console::Progress(std::string_view what, int64_t done, int64_t total, ProgressUnit unit) {
  if (!is_terminal_ || verbosity_ < 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (what != what_) {
    ClearProgress();
    what_ = what;
    begun_ = now;
    drawn_ = {};
  }
  if (total > 0 && done >= total) return ClearProgress();
  if (now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string numbers;
  if (rate > 0) {  // nothing is known of the time before something was done
    numbers = RateText(unit, rate);
    if (total > 0) {
      numbers += fmt::format("{}{} left", numbers.empty() ? "" : ", ",
                             Time(static_cast<double>(total - done) / rate));
    }
  }
  const int room = TerminalWidth() - static_cast<int>(what.size() + numbers.size()) - 12;
  std::string bar;
  if (total > 0 && room >= 8) {
    const int width = std::min(room, 40);
    const auto filled =
        static_cast<int>(static_cast<double>(width) * static_cast<double>(done) / static_cast<double>(total));
    for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  }
  const std::string percent = total > 0 ? fmt::format(" {:3}%", done * 100 / total) : "";
  PrintToStderr(fmt::format("\r\033[K{} {}{} {}", what, bar, percent, numbers));
  is_drawn_ = true;
}

void Console::ClearProgress() {
  if (is_drawn_) PrintToStderr("\r\033[K");
  is_drawn_ = false;
}

void Console::Log(LogLevel level, std::string_view message) {
  if (verbosity_ < 0 || (level != LogLevel::kWarning && verbosity_ < 1)) return;
  ClearProgress();
  const bool warning = level == LogLevel::kWarning;
  const char* on = has_colour_ && warning ? "\033[33m" : "";
  PrintToStderr(fmt::format("{}cmforge: {}{}{}\n", on, warning ? "warning: " : "", OneLine(message),
                            *on ? "\033[0m" : ""));
}

}  // namespace cmforge::cli
