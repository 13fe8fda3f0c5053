// What a person sees on stderr: a progress bar with rate and time left (on a terminal only), warnings,
// errors.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "base/progress.h"

namespace cmforge::cli {

class Console {
 public:
  explicit Console(int verbosity);

  /// Redraws at most ten times a second. `total` 0 means unknown.
  void Progress(std::string_view what, int64_t done, int64_t total, ProgressUnit unit);
  void Log(LogLevel level, std::string_view message);
  void ClearProgress();

  [[nodiscard]] bool has_colour() const { return has_colour_; }

 private:
  int verbosity_;
  bool is_terminal_;
  bool has_colour_;
  bool is_drawn_ = false;
  std::string what_;
  std::chrono::steady_clock::time_point begun_, drawn_;
};

/// True when text on stdout may be coloured (a terminal, no NO_COLOR, not TERM=dumb).
[[nodiscard]] bool StdoutHasColour();
[[nodiscard]] bool StdoutIsTerminal();

/// The one way to stderr. Text that cannot be written (closed, a full disk, a reader that has gone) is lost, the work
/// goes on.
void PrintToStderr(std::string_view text);

/// Opens /dev/null on those of descriptors 0 to 2 that are closed, so that no file we open gets their number and what is
/// printed. First of all.
void OccupyStandardDescriptors();

/// "cmforge: error: MESSAGE" in one line on stderr; control characters of hostile names are escaped.
void PrintError(std::string_view message);

/// "1.2 GB", decimal units.
[[nodiscard]] std::string HumanBytes(double bytes);

}  // namespace cmforge::cli
