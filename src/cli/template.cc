// cmforge template and jinja: a model's chat template rendered on a conversation, and the bare engine.
#include <cstdio>
#include <iostream>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/model_argument.h"
#include "cli/template_error.h"
#include "text/chat_template.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string messages, tools, template_file, context, now;
  std::vector<std::string> set;
  bool no_generation_prompt = false, jsonl = false, keep_blocks = false, allow_mutation = false;
};

void PrintExactly(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Result<jinja::LocalTime> ParseNow(const std::string& text) {
  auto now = jinja::LocalTime::ParseIso(text);
  if (!now) return Fail(std::move(now).error().In("--now"));
  return now;
}

Result<int> RenderTemplate(const Cli& cli, const Options& options) {
  CMF_TRY(const Json messages, ReadJsonFile(options.messages));
  auto request = ParseChatRequest(messages);
  if (!request) {
    request.error().kind = ErrorKind::kCorrupt;  // the file is wrong, not the command
    return Fail(std::move(request).error().In(options.messages));
  }
  if (!options.tools.empty()) {
    CMF_TRY(request->tools, ReadToolsFile(options.tools));
  }
  if (options.no_generation_prompt) request->add_generation_prompt = false;
  for (const std::string& pair : options.set) {
    const size_t at = pair.find('=');
    if (at == pair.npos || at == 0)
      return Fail(ErrorKind::kUsage, fmt::format("--set: '{}' has no name: write NAME=VALUE", pair));
    const std::string value = pair.substr(at + 1);
    const auto json = ParseJson(value, "set");  // true, 3, "text"; anything else is a string as it stands
    request->variables[pair.substr(0, at)] = json ? *json : Json(value);
  }
  if (!options.now.empty()) {
    CMF_TRY(request->now, ParseNow(options.now));
  }
  ChatTemplateText text;
  ChatTemplate::Tokens tokens;
  bool has_template = false;
  if (!options.model.path.empty() || options.template_file.empty()) {
    CMF_TRY(const OpenedSource source, options.model.Open(cli));
    if (source.chat && !source.chat->chat_template.empty()) {
      text = {source.chat->chat_template, source.path + ": chat template"};
      has_template = true;
    }
    CMF_TRY(tokens, SpecialTokens(source));
  }
  if (!options.template_file.empty()) {
    CMF_TRY(text.source, ReadUtf8File(options.template_file));
    text.origin = options.template_file;
    has_template = true;
  }
  ChatTemplate chat = ChatTemplate::ChatMl();
  if (has_template) {
    auto parsed = ChatTemplate::Parse(text, std::move(tokens));
    if (!parsed) return Fail(TemplateError(std::move(parsed).error(), text.origin));
    chat = std::move(*parsed);
  }
  const auto rendered = chat.Render(*request);
  if (!rendered) return Fail(TemplateError(rendered.error(), chat.origin()));
  if (cli.common.json) {
    PrintJson(DumpJson(Json{{"text", *rendered}}));
  } else {
    PrintExactly(*rendered);
  }
  return kDone;
}

Result<int> RenderJinja(const Cli& cli, const Options& options) {
  const jinja::TemplateOptions blocks{.trim_blocks = !options.keep_blocks,
                                      .lstrip_blocks = !options.keep_blocks};
  jinja::RenderOptions render;
  render.allow_mutation = options.allow_mutation;
  if (!options.now.empty()) {
    CMF_TRY(render.now, ParseNow(options.now));
  }
  if (options.jsonl) {
    for (std::string line; std::getline(std::cin, line);) {
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      const auto answer = [&]() -> Result<Json> {
        CMF_TRY(const Json json, ParseJson(line, "line"));
        if (!json.is_object() || !json.contains("template") || !json["template"].is_string()) {
          return Fail(ErrorKind::kUsage, "line: not {\"template\": string, \"context\": object}");
        }
        jinja::TemplateOptions own = blocks;
        if (json.contains("trim_blocks") && json["trim_blocks"].is_boolean())
          own.trim_blocks = json["trim_blocks"];
        if (json.contains("lstrip_blocks") && json["lstrip_blocks"].is_boolean())
          own.lstrip_blocks = json["lstrip_blocks"];
        CMF_TRY(const auto parsed,
                jinja::Template::Parse(json["template"].get_ref<const std::string&>(), "template", own));
        CMF_TRY(std::string text,
                parsed.Render(json.contains("context") ? json["context"] : Json::object(), render));
        return Json{{"text", std::move(text)}};
      }();
      PrintJson(DumpJson(
          answer ? *answer
                 : Json{{"error", answer.error().message}, {"kind", std::string(answer.error().name)}}));
    }
    return kDone;
  }
  if (options.template_file.empty())
    return Fail(ErrorKind::kUsage, "jinja: give --template FILE, or --jsonl");
  CMF_TRY(const std::string source, ReadUtf8File(options.template_file));
  Json context = Json::object();
  if (!options.context.empty()) {
    CMF_TRY(context, ReadJsonFile(options.context));
    if (!context.is_object()) {
      return Fail(
          ErrorKind::kCorrupt,
          fmt::format("{}: not an object of variables: write {{\"name\": value, ...}}", options.context));
    }
  }
  const auto rendered = [&]() -> Result<std::string> {
    CMF_TRY(const auto parsed, jinja::Template::Parse(source, options.template_file, blocks));
    return parsed.Render(context, render);
  }();
  if (!rendered) return Fail(TemplateError(rendered.error(), options.template_file));
  if (cli.common.json) {
    PrintJson(DumpJson(Json{{"text", *rendered}}));
  } else {
    PrintExactly(*rendered);
  }
  return kDone;
}

}  // namespace

void AddTemplate(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("template", "Render a model's chat template",
                              "cmforge template model.cmf --messages chat.json --set enable_thinking=false");
  options->model.AddTo(command);
  command->add_option("--messages", options->messages, "JSON: a list of messages, or a whole request")
      ->required();
  command->add_option("--tools", options->tools, "JSON: a list of tools");
  command->add_option("--template", options->template_file, "Use this template instead of the model's");
  command->add_option("--set", options->set, "NAME=VALUE: one more variable; may be repeated");
  command->add_flag("--no-generation-prompt", options->no_generation_prompt,
                    "Without the beginning of an answer");
  command->add_option("--now", options->now, "The time that strftime_now shows, ISO 8601");
  command->callback(
      [&cli, options] { cli.action = [&cli, options] { return RenderTemplate(cli, *options); }; });
}

void AddJinja(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("jinja", "Render a Jinja template",
                              "cmforge jinja --template page.jinja --context values.json");
  command->add_option("--template", options->template_file, "The template");
  command->add_option("--context", options->context, "JSON object of variables");
  command->add_flag("--keep-blocks", options->keep_blocks, "Without trim_blocks and lstrip_blocks");
  command->add_flag("--allow-mutation", options->allow_mutation, "Let templates change lists and dicts");
  command->add_option("--now", options->now, "The time that strftime_now shows, ISO 8601");
  command->add_flag("--jsonl", options->jsonl,
                    "One {\"template\", \"context\", ...} a line; one answer a line");
  command->callback([&cli, options] { cli.action = [&cli, options] { return RenderJinja(cli, *options); }; });
}

}  // namespace cmforge::cli
