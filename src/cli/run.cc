// cmforge run and chat: a prompt answered on stdout as it comes, or a conversation in the terminal.
#include <cstdio>

#include "base/atomic_file.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/run_options.h"
#include "cli/template_error.h"
#include "generate/state_file.h"
#include "generate/stop_text.h"

namespace cmforge::cli {
namespace {

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void PrintRate(const Cli& cli, int64_t prompt, double prompt_seconds, int64_t answer, double decode_seconds,
               std::string_view finish) {
  const auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
  cli.Control().Info(fmt::format("{} prompt tokens at {:.0f}/s, {} new at {:.1f}/s, finish: {}", prompt,
                                 rate(prompt, prompt_seconds), answer, rate(answer, decode_seconds), finish));
}

/// Keys that an answer and a continued text share.
void AddTimings(Json& json, int64_t prompt, double prompt_seconds, int64_t answer, double decode_seconds) {
  json["prompt_tok_s"] = prompt_seconds > 0 ? static_cast<double>(prompt) / prompt_seconds : 0.0;
  json["decode_tok_s"] = decode_seconds > 0 ? static_cast<double>(answer) / decode_seconds : 0.0;
}

/// Which specialist answered.
void AddChosen(Json& json, const Specialist& specialist) {
  const auto text = [](const std::string& name) { return name.empty() ? Json() : Json(name); };
  json["task"] = text(specialist.task.name);
  json["skill"] = text(specialist.skill);
}

struct Loaded {
  OpenedSource source;
  std::shared_ptr<const Tokenizer> tokenizer;
  Specialist specialist;
  GenerateOptions generate;
  SequenceOptions sequence;
};

Result<Loaded> Load(const Cli& cli, const RunOptions& options) {
  Loaded loaded;
  CMF_TRY(loaded.source, options.model.Open(cli));
  CMF_CHECK(CheckRunnable(loaded.source));
  loaded.generate.max_tokens = options.max_tokens;
  CMF_TRY(loaded.generate.sampling, options.sampling.Make(loaded.source.sampling));
  CMF_TRY(loaded.tokenizer, LoadTokenizer(loaded.source));
  std::vector<TokenId> routed_by;
  if (options.has_prompt) {
    CMF_TRY(routed_by, RoutingTokens(*loaded.tokenizer, options.prompt));
  }
  CMF_TRY(loaded.specialist,
          LoadSpecialist(cli, loaded.source, options.compute, options.specialist, routed_by));
  loaded.generate.active = loaded.specialist.active();
  loaded.generate.eos = EosIds(loaded.source);
  CMF_TRY(loaded.sequence, options.compute.Sequence());
  return loaded;
}

// The text as it stands, without any template. A saved state is continued by the prompt.
Result<int> Complete(const Cli& cli, const RunOptions& options, const Loaded& loaded) {
  const RunControl control = cli.Control();
  std::unique_ptr<Sequence> sequence;
  std::vector<TokenId> history;
  if (!options.state.empty()) {
    CMF_TRY(SavedState saved, LoadState(options.state, *loaded.specialist.model));
    sequence = std::move(saved.sequence);
    history = std::move(saved.tokens);
  } else {
    CMF_TRY(sequence, loaded.specialist.model->NewSequence(loaded.sequence));
  }
  CMF_TRY(std::vector<TokenId> prompt,
          loaded.tokenizer->Encode(options.prompt, {.add_special = history.empty()}));
  // The last token of a saved text was never fed.
  const int64_t consumed_before = sequence->position();
  prompt.insert(prompt.begin(), history.begin() + consumed_before, history.end());

  StopTextFilter stops(options.stop);
  const auto stream = loaded.tokenizer->NewStream(true);
  std::string text;
  const auto show = [&](const std::string& piece) {
    text += piece;
    if (!cli.common.json) Print(piece);
  };
  if (StdoutHasColour() && !cli.common.json) fmt::print("\033[2m{}\033[0m", options.prompt);
  const auto on_token = [&](const TokenEvent& event) {
    show(stops.Push(stream->Push(event.id)));
    return !stops.stopped();
  };
  CMF_TRY(const GenerateResult result,
          Generate(*loaded.specialist.model, *sequence, prompt, loaded.generate, on_token, control,
                   std::span(history).first(static_cast<size_t>(consumed_before))));
  show(stops.Push(stream->Finish()));
  show(stops.Finish());
  if (!options.save_state.empty()) {
    std::vector<TokenId> all(history.begin(), history.begin() + consumed_before);
    all.insert(all.end(), prompt.begin(), prompt.end());
    all.insert(all.end(), result.tokens.begin(), result.tokens.end());
    CMF_CHECK(SaveState(options.save_state, *sequence, all));
  }
  if (cli.common.json) {
    Json json = {{"prompt", options.prompt},
                 {"text", text},
                 {"prompt_tokens", prompt.size()},
                 {"tokens", result.tokens},
                 {"finish", FinishName(result.finish)},
                 {"context_is_full", result.context_is_full}};
    AddChosen(json, loaded.specialist);
    AddTimings(json, static_cast<int64_t>(prompt.size()), result.prompt_seconds,
               static_cast<int64_t>(result.tokens.size()), result.decode_seconds);
    PrintJson(DumpJson(json));
  } else {
    Print("\n");
  }
  if (result.context_is_full)
    control.Warn(fmt::format("the context of {} tokens is full", sequence->context_length()));
  PrintRate(cli, static_cast<int64_t>(prompt.size()), result.prompt_seconds,
            static_cast<int64_t>(result.tokens.size()), result.decode_seconds, FinishName(result.finish));
  return result.finish == FinishReason::kCancelled ? ExitCode(ErrorKind::kCancelled) : kDone;
}

Result<ChatSession> MakeSession(const RunOptions& options, const Loaded& loaded) {
  ChatTemplate chat = ChatTemplate::ChatMl();
  if (loaded.source.chat && !loaded.source.chat->chat_template.empty()) {
    CMF_TRY(auto tokens, SpecialTokens(loaded.source));
    const std::string origin = loaded.source.path + ": chat template";
    auto parsed = ChatTemplate::Parse({loaded.source.chat->chat_template, origin}, std::move(tokens));
    if (!parsed) return Fail(TemplateError(std::move(parsed).error(), origin));
    chat = std::move(*parsed);
  }
  ChatOptions chat_options;
  chat_options.generate = loaded.generate;
  chat_options.sequence = loaded.sequence;
  chat_options.stop_texts = options.stop;
  if (options.no_think) chat_options.variables["enable_thinking"] = false;
  if (!options.tools.empty()) {
    CMF_TRY(chat_options.tools, ReadToolsFile(options.tools));
  }
  ChatSession session(loaded.specialist.model, loaded.tokenizer, std::move(chat), std::move(chat_options));
  if (!options.system.empty()) session.SetSystem(options.system);
  return session;
}

// One user message through the chat template.
Result<int> AnswerOnce(const Cli& cli, const RunOptions& options, ChatSession& session,
                       const Specialist& specialist) {
  ChatSink sink;
  bool dim = false;
  const bool colour = StdoutHasColour();
  if (!cli.common.json) {
    sink.content = [&](std::string_view text) {
      if (dim) Print(colour ? "\033[0m\n" : "\n");
      dim = false;
      Print(text);
    };
    sink.reasoning = [&](std::string_view text) {
      if (!dim && colour) Print("\033[2m");
      dim = true;
      Print(text);
    };
  }
  auto asked = session.Ask(options.prompt, sink, cli.Control());
  if (dim && colour) Print("\033[0m");
  if (!asked) return Fail(TemplateError(std::move(asked).error(), session.template_origin()));
  const ChatTurn& turn = *asked;
  if (cli.common.json) {
    Json json = TurnJson(options.prompt, turn);
    AddChosen(json, specialist);
    PrintJson(DumpJson(json));
  } else {
    Print("\n");
    for (const ToolCall& call : turn.answer.tool_calls) fmt::print("[{}({})]\n", call.name, call.arguments);
  }
  if (turn.context_is_full)
    cli.Control().Warn(fmt::format("the context of {} tokens is full", session.context_length()));
  PrintRate(cli, turn.prompt_tokens - turn.reused_tokens, turn.prompt_seconds, turn.answer_tokens,
            turn.decode_seconds, FinishName(turn.finish));
  return turn.finish == FinishReason::kCancelled ? ExitCode(ErrorKind::kCancelled) : kDone;
}

/// What only a chat template understands has no place where text is taken as it stands.
Result<void> CheckPlainText(const RunOptions& options) {
  const char* plain = options.raw                   ? "--raw"
                      : !options.state.empty()      ? "--state"
                      : !options.save_state.empty() ? "--save-state"
                                                    : nullptr;
  const char* templated = !options.system.empty()  ? "--system"
                          : options.no_think       ? "--no-think"
                          : !options.tools.empty() ? "--tools"
                                                   : nullptr;
  if (!plain || !templated) return {};
  return Fail(ErrorKind::kUsage,
              fmt::format("run: {} is for the chat template, with {} the prompt is plain text: leave "
                          "one of them out",
                          templated, plain));
}

Result<int> Run(const Cli& cli, const RunOptions& options, bool is_chat) {
  if (is_chat || !options.has_prompt) {
    if (options.raw || !options.save_state.empty() || !options.state.empty()) {
      return Fail(ErrorKind::kUsage, "run: --raw, --state and --save-state need --prompt");
    }
  }
  CMF_CHECK(CheckPlainText(options));
  // A place that cannot be written to shows before the work, not after it.
  if (!options.save_state.empty()) CMF_CHECK(AtomicFile::Create(options.save_state));
  CMF_TRY(Loaded loaded, Load(cli, options));
  if (!options.save_state.empty()) CMF_CHECK(CheckOutput(loaded.source, options.save_state));
  // Without a template of its own a model most often was not trained to chat: its text is continued.
  const bool has_template = loaded.source.chat && !loaded.source.chat->chat_template.empty();
  const bool completes =
      options.raw || !has_template || !options.state.empty() || !options.save_state.empty();
  if (options.has_prompt && !is_chat && completes) return Complete(cli, options, loaded);
  CMF_TRY(ChatSession session, MakeSession(options, loaded));
  if (options.has_prompt && !is_chat) return AnswerOnce(cli, options, session, loaded.specialist);
  return ChatInTerminal(cli, options, session, loaded.specialist, *loaded.tokenizer);
}

void AddFlags(Cli& cli, CLI::App* command, const std::shared_ptr<RunOptions>& options, bool is_chat) {
  options->model.AddTo(command);
  CLI::Option* prompt = nullptr;
  if (!is_chat) {
    prompt =
        command->add_option("-p,--prompt", options->prompt, "The prompt; without it: chat in the terminal");
    command->add_flag("--raw", options->raw, "Continue the text as it stands, without chat template");
    command->add_option(
        "--save-state", options->save_state,
        "Write the state after the answer to this file; the prompt is plain text, as with --raw");
    command->add_option("--state", options->state,
                        "Go on from a saved state; the prompt is plain text, as with --raw");
  }
  command->add_option("-n,--max-tokens", options->max_tokens, "New tokens at most")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  options->sampling.AddTo(command);
  command->add_option("--stop", options->stop, "Text that ends the answer; may be repeated");
  command->add_option("--system", options->system, "The system message");
  command->add_flag("--no-think", options->no_think, "Ask the template for an answer without reasoning");
  command->add_option("--tools", options->tools, "JSON: a list of tools that the model may call");
  options->compute.AddTo(command);
  options->specialist.AddTo(command);
  command->callback([&cli, options, prompt, is_chat] {
    options->has_prompt = prompt && prompt->count() > 0;
    cli.action = [&cli, options, is_chat] { return Run(cli, *options, is_chat); };
  });
}

}  // namespace

Json TurnJson(const std::string& prompt, const ChatTurn& turn) {
  Json json = {{"prompt", prompt}, {"text", turn.answer.content}, {"reasoning", turn.answer.reasoning}};
  json["tool_calls"] = Json::array();
  for (const ToolCall& call : turn.answer.tool_calls) {
    json["tool_calls"].push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  json["prompt_tokens"] = turn.prompt_tokens;
  json["tokens"] = turn.tokens;
  json["finish"] = FinishName(turn.finish);
  json["context_is_full"] = turn.context_is_full;
  AddTimings(json, turn.prompt_tokens, turn.prompt_seconds, turn.answer_tokens, turn.decode_seconds);
  return json;
}

void AddRun(Cli& cli) {
  CLI::App* command = cli.Add("run", "Answer a prompt, or chat in the terminal",
                              "cmforge run model.cmf --prompt 'What color is the sky?'");
  AddFlags(cli, command, std::make_shared<RunOptions>(), false);
}

void AddChat(Cli& cli) {
  CLI::App* command =
      cli.Add("chat", "Chat in the terminal", "cmforge chat model.cmf --system 'Answer briefly.'");
  AddFlags(cli, command, std::make_shared<RunOptions>(), true);
}

}  // namespace cmforge::cli
