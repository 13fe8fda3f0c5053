// The files a command reads from, as they were when it began: size and time of change. A source that changes
// while it is read would give a mixture of two models; an interrupted conversion must not go on with another
// source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "open/open_source.h"

namespace cmforge::cli {

class SourceState {
 public:
  /// Takes the state of all files that `source` reads from, and of `more` (files or folders).
  explicit SourceState(const OpenedSource& source, const std::vector<std::filesystem::path>& more = {});

  /// Fails: kIo naming the file that is not what it was.
  Result<void> CheckUnchanged() const;

  /// Names, sizes and times, one line a file.
  [[nodiscard]] std::string Text() const;

 private:
  struct Entry {
    std::filesystem::path path;
    uint64_t size = 0;
    int64_t time_ns = 0;
    bool operator==(const Entry&) const = default;
  };
  static Entry Look(const std::filesystem::path& path);
  void Add(const std::filesystem::path& path);

  std::vector<Entry> entries_;
};

/// Refuses (kUsage) an output whose work grows beside it, in OUTPUT + a suffix, where that is a file the source is read
/// from. The output itself is CheckOutput's.
Result<void> CheckWorkNames(const OpenedSource& source, const std::string& output,
                            std::initializer_list<std::string_view> suffixes);

/// Everything on the command line that may decide the bytes: flags that files stand behind bring the files'
/// state with them.
[[nodiscard]] std::string CommandIdentity(const CLI::App& command);

}  // namespace cmforge::cli
