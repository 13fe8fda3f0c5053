// SourceState over the file system's own times.
#include "cli/source_state.h"

#include <algorithm>
#include <array>

namespace cmforge::cli {
namespace {

namespace fs = std::filesystem;

// What a folder is read for; an output that grows beside it is none of it.
constexpr std::array kRead = {".safetensors", ".json", ".jinja", ".npy", ".txt", ".model"};

bool IsRead(const fs::path& path) {
  return std::find(kRead.begin(), kRead.end(), path.extension().string()) != kRead.end();
}

}  // namespace

SourceState::SourceState(const OpenedSource& source, const std::vector<fs::path>& more) {
  if (source.cmf) {
    for (const cmf::Part& part : source.cmf->parts()) Add(part.path);
  } else {
    Add(source.path);
  }
  for (const fs::path& path : more) Add(path);
}

SourceState::Entry SourceState::Look(const fs::path& path) {
  std::error_code ignored;
  Entry entry{path};
  entry.size = fs::file_size(path, ignored);
  entry.time_ns = fs::last_write_time(path, ignored).time_since_epoch().count();
  return entry;
}

void SourceState::Add(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (fs::exists(path, ignored)) entries_.push_back(Look(path));
    return;
  }
  std::vector<fs::path> inside;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.is_directory(ignored) && entry.path().filename() == "tensors") Add(entry.path());
    if (entry.is_regular_file(ignored) && IsRead(entry.path())) inside.push_back(entry.path());
  }
  std::sort(inside.begin(), inside.end());
  for (const fs::path& file : inside) entries_.push_back(Look(file));
}

Result<void> SourceState::CheckUnchanged() const {
  for (const Entry& entry : entries_) {
    if (Look(entry.path) == entry) continue;
    return Fail(ErrorKind::kIo,
                fmt::format("{}: changed while it was read: nothing was written, try again when it rests",
                            entry.path.string()));
  }
  return {};
}

std::string SourceState::Text() const {
  std::string text;
  for (const Entry& entry : entries_)
    text += fmt::format("{} {} {}\n", fs::absolute(entry.path).lexically_normal().string(), entry.size,
                        entry.time_ns);
  return text;
}

std::string CommandIdentity(const CLI::App& command) {
  constexpr std::array kNoMatter = {"resume",  "output",  "threads", "json",
                                    "no-mmap", "verbose", "quiet",   "help"};
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (std::any_of(kNoMatter.begin(), kNoMatter.end(),
                    [&](const char* n) { return name.find(n) != name.npos; }))
      continue;
    for (const std::string& value : option->results()) {
      text += fmt::format("{}={}", name, value);
      std::error_code ignored;
      if (std::filesystem::is_regular_file(value, ignored)) {
        text += fmt::format(" {} {}", std::filesystem::file_size(value, ignored),
                            std::filesystem::last_write_time(value, ignored).time_since_epoch().count());
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace cmforge::cli
