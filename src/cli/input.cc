// Reading what the flags name.
#include "cli/input.h"

#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/bytes.h"
#include "base/mapped_file.h"

namespace cmforge::cli {

Result<void> CheckUtf8(std::string_view text, std::string_view what) {
  if (IsUtf8(text)) return {};
  size_t at = 0;
  for (size_t length = 1; length <= 4 && at + length <= text.size();) {
    if (!IsUtf8(text.substr(at, length))) {
      ++length;
    } else {
      at += length;
      length = 1;
    }
  }
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: byte {} (0x{:02x}) is not UTF-8: save the text as UTF-8",
                                               what, at, static_cast<unsigned char>(text[at])));
}

Result<std::string> ReadUtf8File(const std::string& path) {
  CMF_TRY(std::string text, ReadTextFile(path));
  CMF_CHECK(CheckUtf8(text, path));
  return text;
}

Result<std::string> ReadUtf8Input() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  CMF_CHECK(CheckUtf8(text, "standard input"));
  return text;
}

Result<Json> ReadJsonFile(const std::string& path) {
  CMF_TRY(const std::string text, ReadTextFile(path));
  return ParseJson(text, path);
}

Result<Json> ReadToolsFile(const std::string& path) {
  auto tools = ReadJsonFile(path);
  if (!tools && tools.error().kind == ErrorKind::kNotFound) {
    Error error = std::move(tools).error();
    error.message += ": --tools takes the name of a JSON file";
    return Fail(std::move(error));
  }
  if (tools && !tools->is_array()) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: not a list of tools: write [{{\"type\": \"function\", ...}}]", path));
  }
  return tools;
}

Result<void> CheckNotInput(const std::string& input, const std::string& output) {
  std::error_code ignored;
  if (!std::filesystem::equivalent(input, output, ignored)) return {};
  return Fail(
      ErrorKind::kUsage,
      fmt::format("{}: is the input as well and would be lost: give the output another name", output));
}

}  // namespace cmforge::cli
