// SourceState over the file system's own times.
#include "cli/source_state.h"

#include <algorithm>
#include <array>

#include "base/links.h"
#include "checkpoint/side_files.h"
#include "cli/model_argument.h"

namespace cmforge::cli {
namespace {

namespace fs = std::filesystem;

// What a folder is read for; an output that grows beside it is none of it.
constexpr std::array kRead = {".safetensors", ".json", ".jinja", ".npy", ".txt", ".model"};
// Its files by name, beside the weights and kSideFiles; of a package beside its parts, which are folders.
constexpr std::array kInputs = {"config.json", "model.safetensors.index.json", "meta.yaml"};

bool IsRead(const fs::path& path) {
  return std::find(kRead.begin(), kRead.end(), path.extension().string()) != kRead.end();
}

/// Whether `target` is, or would become, a file that `source` is read from. Whether it exists makes no difference, or a
/// command that has worked would not work again.
bool IsPartOf(const OpenedSource& source, const fs::path& target) {
  std::error_code ignored;
  for (const std::string& read : {source.path, source.tokenizer_path}) {  // the latter perhaps beside a .cmf
    if (fs::equivalent(target, read, ignored)) return true;
  }
  if (source.cmf) {
    return std::any_of(source.cmf->parts().begin(), source.cmf->parts().end(), [&](const cmf::Part& part) {
      std::error_code none;
      return fs::equivalent(target, part.path, none);
    });
  }
  if (source.format != SourceFormat::kCheckpoint && !source.package) return false;
  const auto is_input = [](const fs::path& path) {
    const std::string name = path.filename().string();
    return path.extension() == ".safetensors" || std::ranges::find(kInputs, name) != kInputs.end() ||
           std::ranges::find(kSideFiles, name) != kSideFiles.end();
  };
  const fs::path real = FollowLinks(target);
  const fs::path folder = real.has_parent_path() ? real.parent_path() : fs::path(".");
  if (fs::equivalent(folder, source.path, ignored) && is_input(real)) return true;
  for (const auto& entry :
       fs::directory_iterator(source.path, ignored)) {  // a link there, or another name of it
    std::error_code none;
    if (is_input(entry.path()) && fs::equivalent(target, entry.path(), none)) return true;
  }
  return false;
}

}  // namespace

Result<void> CheckOutput(const OpenedSource& source, const std::string& output) {
  if (output.empty()) return Fail(ErrorKind::kUsage, "output: an empty name: name a file to write");
  if (!IsPartOf(source, output)) return {};
  return Fail(ErrorKind::kUsage,
              fmt::format("{}: is part of the source itself: give the output another name", output));
}

Result<void> CheckWorkNames(const OpenedSource& source, const std::string& output,
                            std::initializer_list<std::string_view> suffixes) {
  fs::path target(output);
  if (!target.has_filename()) target = target.parent_path();  // a trailing slash
  target = FollowLinks(target);
  for (const std::string_view suffix : suffixes) {
    fs::path beside = target;
    beside += suffix;
    if (!IsPartOf(source, beside)) continue;
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: is part of the source itself, and {} would grow under this name: give the output "
                    "another name",
                    beside.string(), output));
  }
  return {};
}

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
