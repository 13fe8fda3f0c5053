// Lines from a person or a pipe: with editing and history on a capable terminal, plainly elsewhere.
#pragma once

#include <memory>
#include <string>

namespace cmforge::cli {

enum class LineResult { kLine, kEnd, kInterrupted };

class LineReader {
 public:
  /// `history_file` is read now and written on destruction; empty: history lives in memory only.
  explicit LineReader(std::string history_file);
  ~LineReader();

  /// One line without its end; after kInterrupted what had been typed of it, as far as the terminal tells. The prompt
  /// shows on a terminal only.
  LineResult Read(const std::string& prompt, std::string& line);

  /// True when a person types (stdin and stdout are terminals).
  [[nodiscard]] bool is_interactive() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cmforge::cli
