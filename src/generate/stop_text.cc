// StopTextFilter. Stop strings are short and few, so plain searching in the small held part is enough.
#include "generate/stop_text.h"

#include <algorithm>
#include <utility>

namespace cmforge {

StopTextFilter::StopTextFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

std::string StopTextFilter::Push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at < first) {  // the earliest wins; of two at one place, the one listed first
      first = at;
      which_ = stop;
    }
  }
  if (first != std::string::npos) {
    stopped_ = true;
    return std::exchange(held_, {}).substr(0, first);
  }
  size_t keep = 0;  // longest end of the text that begins some stop string
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        keep = n;
        break;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopTextFilter::Finish() { return stopped_ ? std::string() : std::exchange(held_, {}); }

}  // namespace cmforge
