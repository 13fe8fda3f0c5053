// Stop strings in streamed text: text that may be the beginning of a stop string is held back until it is
// clear, so a stop is found over token borders and never leaks its first letters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cmforge {

class StopTextFilter {
 public:
  /// Empty strings are ignored.
  explicit StopTextFilter(std::vector<std::string> stops);

  /// Text that may be shown now. After a stop was found: nothing more.
  std::string Push(std::string_view text);

  /// What was held back and turned out not to be a stop.
  std::string Finish();

  [[nodiscard]] bool stopped() const { return stopped_; }
  /// The stop string that ended the text, or empty.
  [[nodiscard]] const std::string& which() const { return which_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string which_;
  bool stopped_ = false;
};

}  // namespace cmforge
