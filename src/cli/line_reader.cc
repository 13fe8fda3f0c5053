// LineReader over libedit, or stdio where the input is a pipe or the terminal cannot edit.
#include "cli/line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/signals.h"

namespace cmforge::cli {

struct LineReader::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string history_file;
  std::string prompt;
  bool interactive = false;
};

namespace {

char* Prompt(EditLine* editor) {
  void* data = nullptr;
  el_get(editor, EL_CLIENTDATA, &data);
  return static_cast<std::string*>(data)->data();
}

// stdio, one byte at a time from the kernel's view: a Ctrl-C while waiting must come through.
LineResult ReadPlain(std::string& line) {
  line.clear();
  for (;;) {
    char c = 0;
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) {
      if (Interrupted()) return LineResult::kInterrupted;
      continue;
    }
    if (n <= 0) return line.empty() ? LineResult::kEnd : LineResult::kLine;
    if (c == '\n') return LineResult::kLine;
    line += c;
  }
}

}  // namespace

LineReader::LineReader(std::string history_file) : impl_(std::make_unique<Impl>()) {
  impl_->interactive = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  const char* term = std::getenv("TERM");
  if (!impl_->interactive || !term || std::string_view(term) == "dumb" || !*term) return;
  impl_->editor = el_init("cmforge", stdin, stdout, stderr);
  if (!impl_->editor) return;
  el_set(impl_->editor, EL_CLIENTDATA, &impl_->prompt);
  el_set(impl_->editor, EL_PROMPT, Prompt);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  impl_->history = history_init();
  impl_->history_file = std::move(history_file);
  HistEvent event = {};
  history(impl_->history, &event, H_SETSIZE, 1000);
  history(impl_->history, &event, H_SETUNIQUE, 1);
  if (!impl_->history_file.empty()) history(impl_->history, &event, H_LOAD, impl_->history_file.c_str());
  el_set(impl_->editor, EL_HIST, history, impl_->history);
  el_source(impl_->editor, nullptr);
}

LineReader::~LineReader() {
  if (!impl_->editor) return;
  HistEvent event = {};
  if (!impl_->history_file.empty()) history(impl_->history, &event, H_SAVE, impl_->history_file.c_str());
  history_end(impl_->history);
  el_end(impl_->editor);
}

bool LineReader::is_interactive() const { return impl_->interactive; }

LineResult LineReader::Read(const std::string& prompt, std::string& line) {
  if (!impl_->editor) {
    if (impl_->interactive) {
      std::fputs(prompt.c_str(), stdout);
      std::fflush(stdout);
    }
    return ReadPlain(line);
  }
  impl_->prompt = prompt;
  line.clear();
  int count = 0;
  const char* text = el_gets(impl_->editor, &count);
  if (Interrupted()) {
    const LineInfo* typed = el_line(impl_->editor);
    line.assign(typed->buffer, typed->lastchar);
    el_reset(impl_->editor);
    std::fputc('\n', stdout);
    return LineResult::kInterrupted;
  }
  if (!text || count <= 0) return LineResult::kEnd;
  line.assign(text, static_cast<size_t>(count));
  if (!line.empty() && line.back() == '\n') line.pop_back();
  if (!line.empty()) {
    HistEvent event = {};
    history(impl_->history, &event, H_ENTER, line.c_str());
  }
  return LineResult::kLine;
}

}  // namespace cmforge::cli
