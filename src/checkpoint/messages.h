// Words that several readers of checkpoints say in their errors.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace cmforge {

/// A name from a file, fit for one line of a message: control characters as '?', cut after 200 bytes.
[[nodiscard]] inline std::string Shown(std::string_view name) {
  std::string shown(name.substr(0, 200));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return name.size() > 200 ? shown + "..." : shown;
}

/// True for the text that Git LFS leaves in place of a file it has not fetched.
[[nodiscard]] inline bool IsLfsPointer(Bytes file) {
  return file.size() < 4096 && AsText(file).starts_with("version https://git-lfs.github.com/spec/");
}

[[nodiscard]] inline Error LfsPointerError(std::string_view what) {
  return {
      ErrorKind::kCorrupt,
      fmt::format("{}: this is a Git LFS pointer, the file itself was not fetched: run git lfs pull", what)};
}

/// True for nothing but white space: a download that broke off, or a file that was touched into being.
[[nodiscard]] inline bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

[[nodiscard]] inline Error BlankFileError(std::string_view what) {
  return {ErrorKind::kCorrupt,
          fmt::format("{}: the file is empty: fetch it again, or delete it to do without", what)};
}

}  // namespace cmforge
