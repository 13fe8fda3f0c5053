// The chat in the terminal: streaming answers, a few commands, Ctrl-C that stops the answer and keeps the
// conversation.
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/atomic_file.h"
#include "cli/chat_settings.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/line_reader.h"
#include "cli/run_options.h"
#include "cli/signals.h"
#include "cli/template_error.h"

namespace cmforge::cli {
namespace {

/// To the terminal at once. Ctrl-C may cut the write short, which is no failure of the terminal.
void Stream(std::string_view text) {
  errno = 0;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  if (std::ferror(stdout) != 0 && errno == EINTR) std::clearerr(stdout);
}

constexpr const char* kHelp =
    R"(/system TEXT     set the system message (without TEXT: show it; "": take it away)
/set             show the settings: max-tokens, temperature, top-k, top-p, seed, think ...
/set NAME VALUE  change one
/task NAME       run under this task mask, or none (without NAME: show it)
/skill ID        run with this skill, or none, or auto (without ID: show it)
/reset           forget the conversation, keep the system message
/save FILE       write the conversation as JSON
/load FILE       take up a conversation written by /save
/tokens          how many tokens are in use
/help            this list
A line that ends in \ goes on; """ begins and ends a message of several lines.
Ctrl-C stops an answer or drops the line; again, with nothing typed, it leaves. Ctrl-D leaves.)";

std::string HistoryFile() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state && *state) {
    folder = state;
  } else if (home && *home) {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return "";
  }
  std::error_code error;
  std::filesystem::create_directories(folder / "cmforge", error);
  return error ? "" : (folder / "cmforge" / "history").string();
}

class Terminal {
 public:
  Terminal(const Cli& cli, const RunOptions& options, ChatSession& session, Specialist& specialist,
           const Tokenizer& tokenizer)
      : cli_(cli),
        options_(options),
        session_(session),
        specialist_(specialist),
        tokenizer_(tokenizer),
        reader_(HistoryFile()),
        is_json_(cli.common.json),
        colour_(StdoutHasColour() && !is_json_) {}

  Result<int> Loop() {
    if (reader_.is_interactive() && cli_.common.verbosity >= 0 && !is_json_) {
      fmt::print("{}  /help lists the commands, Ctrl-D leaves\n",
                 options_.model.path.empty() ? "the built-in model" : options_.model.path);
    }
    for (;;) {
      std::string message;
      switch (ReadMessage(message)) {
        case LineResult::kEnd:
          if (reader_.is_interactive() && !is_json_) fmt::print("\n");
          return kDone;
        case LineResult::kInterrupted:
          Interrupted() = false;
          if (!message.empty()) {  // what was typed is dropped, and that is all
            was_interrupted_ = false;
            continue;
          }
          if (was_interrupted_ || !reader_.is_interactive()) return ExitCode(ErrorKind::kCancelled);
          was_interrupted_ = true;
          Note("press Ctrl-C again to leave");
          continue;
        case LineResult::kLine:
          break;
      }
      was_interrupted_ = false;
      if (message.find_first_not_of(" \t\r\n") == message.npos) continue;
      if (message[0] == '/') {
        if (const auto done = Command(message); !done) Complain(done.error());
        continue;
      }
      auto done = CheckUtf8(message, "message");
      if (done) done = Answer(message);
      if (!done && !reader_.is_interactive() && !is_json_) return Fail(done.error());
      if (!done) Complain(done.error());
      if (was_interrupted_ && !reader_.is_interactive()) return ExitCode(ErrorKind::kCancelled);
    }
  }

 private:
  LineResult ReadMessage(std::string& message) {
    std::string line;
    LineResult result = reader_.Read(is_json_ ? "" : "> ", line);
    if (result != LineResult::kLine) {
      message = line;
      return result;
    }
    const bool is_block = line.starts_with("\"\"\"");
    if (is_block) line.erase(0, 3);
    for (;;) {
      if (is_block) {
        if (const size_t end = line.rfind("\"\"\""); end != line.npos && end + 3 == line.size()) {
          message += line.substr(0, end);
          return LineResult::kLine;
        }
        message += line + "\n";
      } else if (line.ends_with('\\')) {
        message += line.substr(0, line.size() - 1) + "\n";
      } else {
        message += line;
        return LineResult::kLine;
      }
      result = reader_.Read(is_json_ ? "" : ". ", line);
      if (result == LineResult::kInterrupted) {
        message += line + "\n";
        return result;
      }
      if (result == LineResult::kEnd) return message.empty() ? result : LineResult::kLine;
    }
  }

  Result<void> Answer(const std::string& message) {
    bool in_reasoning = false;
    ChatSink sink;
    if (!is_json_) {
      sink.content = [&](std::string_view text) {
        if (in_reasoning) fmt::print("{}\n", colour_ ? "\033[0m" : "");
        in_reasoning = false;
        Stream(text);
      };
      sink.reasoning = [&](std::string_view text) {
        if (!in_reasoning && colour_) fmt::print("\033[2m");
        in_reasoning = true;
        Stream(text);
      };
    }
    if (specialist_.routes_each_prompt) {
      CMF_TRY(const auto routed_by, RoutingTokens(tokenizer_, message));
      CMF_TRY(const bool changed, specialist_.Reroute(routed_by, options_.specialist));
      if (changed) session_.Switch(specialist_.model, specialist_.active());
    }
    auto asked = session_.Ask(message, sink, cli_.Control());
    if (in_reasoning && colour_) fmt::print("\033[0m");
    if (!is_json_) fmt::print("\n");
    if (!asked) {
      Error error = std::move(asked).error();
      if (error.kind == ErrorKind::kLimit) error.message += ", or begin anew with /reset";
      return Fail(TemplateError(std::move(error), session_.template_origin()));
    }
    const ChatTurn& turn = *asked;
    if (is_json_) {
      PrintJson(DumpJson(TurnJson(message, turn)));
    } else {
      for (const ToolCall& call : turn.answer.tool_calls) fmt::print("[{}({})]\n", call.name, call.arguments);
    }
    if (turn.finish == FinishReason::kCancelled) {
      Interrupted() = false;
      was_interrupted_ = true;  // the next Ctrl-C, if nothing is typed before it, leaves
      Note("stopped");
    }
    if (turn.context_is_full) {
      cli_.Control().Warn(
          fmt::format("the context of {} tokens is full: /reset begins anew", session_.context_length()));
    }
    cli_.Control().Info(fmt::format(
        "{} prompt tokens, {} of them kept from before, {} new at {:.1f} tokens/s", turn.prompt_tokens,
        turn.reused_tokens, turn.answer_tokens,
        turn.decode_seconds > 0 ? static_cast<double>(turn.answer_tokens) / turn.decode_seconds : 0.0));
    return {};
  }

  Result<void> Command(const std::string& line) {
    const size_t space = line.find_first_of(" \t");
    const std::string name = line.substr(0, space);
    const size_t begin = space == line.npos ? line.npos : line.find_first_not_of(" \t", space);
    std::string argument = begin == line.npos ? "" : line.substr(begin);
    argument.resize(argument.find_last_not_of(" \t") + 1);
    if (name == "/help") {
      Say(kHelp);
    } else if (name == "/reset") {
      session_.Reset();
      Note(session_.messages().empty() ? "the conversation is forgotten"
                                       : "the conversation is forgotten, the system message stays");
    } else if (name == "/system") {
      if (argument.empty()) {
        const Json& messages = session_.messages();
        const bool has = !messages.empty() && messages[0]["role"] == "system";
        const Json content = has ? messages[0].value("content", Json()) : Json("no system message");
        Say(content.is_string() ? content.get<std::string>() : DumpJson(content));
      } else {
        const bool is_none = argument == "\"\"";
        session_.SetSystem(is_none ? "" : argument);
        Note(is_none ? "no system message from now on" : "the system message is set");
      }
    } else if (name == "/task") {
      if (argument.empty()) {
        Say(specialist_.task.name.empty() ? "no task" : specialist_.task.name);
        return {};
      }
      CMF_CHECK(specialist_.SwitchTask(argument, options_.specialist));
      session_.Switch(specialist_.model, specialist_.active());
    } else if (name == "/skill") {
      if (argument.empty()) {
        Say(fmt::format("{}{}", specialist_.skill.empty() ? "no skill" : specialist_.skill,
                        specialist_.routes_each_prompt ? ", chosen for each message" : ""));
        return {};
      }
      CMF_CHECK(specialist_.SwitchSkill(argument));
      session_.Switch(specialist_.model, specialist_.active());
    } else if (name == "/tokens") {
      Say(fmt::format("{} of {} tokens in use, {} messages{}", session_.position(), session_.context_length(),
                      session_.messages().size(), session_.is_read() ? "" : ", read anew with the next one"));
    } else if (name == "/save") {
      if (argument.empty()) return Fail(ErrorKind::kUsage, "/save: name a file");
      const std::string text = DumpJson(Json{{"messages", session_.messages()}}, 1) + "\n";
      CMF_CHECK(WriteFileAtomically(argument, AsBytes(text)));
      Note(fmt::format("{} messages saved in {}", session_.messages().size(), argument));
    } else if (name == "/load") {
      if (argument.empty()) return Fail(ErrorKind::kUsage, "/load: name a file");
      CMF_TRY(const Json json, ReadJsonFile(argument));
      auto done = session_.SetMessages(json);
      if (!done) return Fail(std::move(done).error().In(argument));
      Note(fmt::format("{} messages taken up from {}", session_.messages().size(), argument));
    } else if (name == "/set") {
      if (argument.empty()) {
        Say(ShowSettings(session_.options()));
      } else {
        CMF_TRY(const std::string shown, ChangeSetting(session_.options(), argument));
        Note(shown);
      }
    } else {
      return Fail(ErrorKind::kUsage, fmt::format("{}: no such command: /help lists them", name));
    }
    return {};
  }

  /// What a command answers.
  void Say(std::string_view text) {
    if (is_json_) {
      PrintJson(DumpJson(Json{{"info", text}}));
    } else {
      fmt::print("{}\n", text);
    }
  }
  /// What has just been done: shown to a person, and beside the answers of a pipe.
  void Note(std::string_view text) {
    if (is_json_) {
      Say(text);
    } else if (!reader_.is_interactive()) {
      if (cli_.common.verbosity >= 0) PrintToStderr(fmt::format("{}\n", text));
    } else {
      fmt::print("{}{}{}\n", colour_ ? "\033[2m" : "", text, colour_ ? "\033[0m" : "");
    }
  }
  void Complain(const Error& error) {
    if (is_json_) {
      PrintJson(DumpJson(Json{{"error", error.message}}));
    } else {
      PrintError(error.message);
    }
  }

  const Cli& cli_;
  const RunOptions& options_;
  ChatSession& session_;
  Specialist& specialist_;
  const Tokenizer& tokenizer_;
  LineReader reader_;
  bool is_json_;
  bool colour_;
  bool was_interrupted_ = false;
};

}  // namespace

Result<int> ChatInTerminal(const Cli& cli, const RunOptions& options, ChatSession& session,
                           Specialist& specialist, const Tokenizer& tokenizer) {
  return Terminal(cli, options, session, specialist, tokenizer).Loop();
}

}  // namespace cmforge::cli
