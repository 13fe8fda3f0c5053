// cmforge tokenize and detokenize: text to ids and back, as the reference library does it.
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/model_argument.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string text, file, tokens;
  bool no_special = false, jsonl = false, keep_special = false, has_text = false;
};

Result<std::shared_ptr<const Tokenizer>> OpenTokenizer(const Cli& cli, const ModelArgument& model) {
  // A tokenizer.json may stand for the model.
  if (std::filesystem::path(model.path).extension() == ".json") {
    CMF_TRY(const MappedFile file, MappedFile::Open(model.path));
    return Tokenizer::FromJson(AsText(file.bytes()), model.path);
  }
  CMF_TRY(const OpenedSource source, model.Open(cli));
  return LoadTokenizer(source);
}

Json IdsJson(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  Json json = {{"ids", Json(std::vector<TokenId>(ids.begin(), ids.end()))}, {"tokens", Json::array()}};
  for (const TokenId id : ids) json["tokens"].push_back(std::string(tokenizer.TokenText(id)));
  return json;
}

/// Answers one line for each line of stdin; a bad line gets {"error"}, the next goes on, and the status tells at the end.
template <class Answer>
int EachLine(Answer&& answer) {
  int status = kDone;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    auto result = [&]() -> Result<Json> {
      CMF_TRY(const Json json, ParseJson(line, "line"));
      return answer(json);
    }();
    if (!result) status = ExitCode(ErrorKind::kCorrupt);
    PrintJson(DumpJson(result ? *result : Json{{"error", result.error().message}}));
  }
  return status;
}

Result<int> Tokenize(const Cli& cli, const Options& options) {
  CMF_TRY(const auto tokenizer, OpenTokenizer(cli, options.model));
  // The library's own answer includes truncation and padding that the file asks for (cli.md).
  const auto encode = [&](std::string_view text, bool special) {
    return tokenizer->Encode(text, {.add_special = special, .apply_truncation_and_padding = true});
  };
  if (options.jsonl) {
    return EachLine([&](const Json& line) -> Result<Json> {
      const Json* text = line.is_object() && line.contains("text") ? &line["text"] : &line;
      bool special = !options.no_special;
      if (line.is_object() && line.contains("special") && line["special"].is_boolean())
        special = line["special"];
      if (!text->is_string()) return Fail(ErrorKind::kUsage, "line: not a string or {\"text\": string}");
      CMF_TRY(const auto ids, encode(text->get_ref<const std::string&>(), special));
      return IdsJson(*tokenizer, ids);
    });
  }
  std::string text = options.text;
  if (!options.file.empty()) {
    CMF_TRY(text, ReadUtf8File(options.file));
  } else if (!options.has_text) {
    CMF_TRY(text, ReadUtf8Input());
  }
  CMF_TRY(const auto ids, encode(text, !options.no_special));
  if (cli.common.json) {
    PrintJson(DumpJson(IdsJson(*tokenizer, ids)));
  } else {
    fmt::print("{}\n", fmt::join(ids, ","));
  }
  return kDone;
}

Result<int> Detokenize(const Cli& cli, const Options& options) {
  CMF_TRY(const auto tokenizer, OpenTokenizer(cli, options.model));
  if (options.jsonl) {
    return EachLine([&](const Json& line) -> Result<Json> {
      if (!line.is_object() || !line.contains("ids") || !line["ids"].is_array()) {
        return Fail(ErrorKind::kUsage, "line: not {\"ids\": [numbers]}");
      }
      std::vector<TokenId> ids;
      for (const Json& id : line["ids"]) {
        // As in the reference library, ids beyond the vocabulary are no error here: they give no text.
        if (!id.is_number_unsigned())
          return Fail(ErrorKind::kUsage, "line: ids: not a whole number of 0 or more");
        ids.push_back(static_cast<TokenId>(std::min<uint64_t>(id.get<uint64_t>(), INT32_MAX)));
      }
      const bool skip = line.contains("skip_special") && line["skip_special"].is_boolean()
                            ? line["skip_special"].get<bool>()
                            : !options.keep_special;
      return Json{{"text", tokenizer->Decode(ids, skip)}};
    });
  }
  CMF_TRY(const auto ids, ParseTokenList(options.tokens));
  for (const TokenId id : ids) {
    if (!tokenizer->TokenText(id).empty() || tokenizer->IdOf("") == id) continue;
    return Fail(ErrorKind::kUsage,
                fmt::format("tokens: id {} is not in the vocabulary of {} tokens: give ids that "
                            "`cmforge tokenize` gave",
                            id, tokenizer->vocab_size()));
  }
  const std::string text = tokenizer->Decode(ids, !options.keep_special);
  if (cli.common.json) {
    PrintJson(DumpJson(Json{{"text", text}}));
  } else {
    fmt::print("{}\n", text);
  }
  return kDone;
}

}  // namespace

void AddTokenize(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      cli.Add("tokenize", "Text to token ids", "cmforge tokenize model.cmf --text 'Hello world'");
  options->model.AddTo(command);
  CLI::Option* text = command->add_option("--text", options->text, "The text (default: standard input)");
  command->add_option("--file", options->file, "A file with the text")->excludes(text);
  command->add_flag("--no-special", options->no_special,
                    "Without the tokens that the tokenizer adds around a text");
  command->add_flag("--jsonl", options->jsonl,
                    "One JSON string, or {\"text\", \"special\"}, a line; one answer a line");
  command->callback([&cli, options, text] {
    options->has_text = text->count() > 0;
    cli.action = [&cli, options] { return Tokenize(cli, *options); };
  });
}

void AddDetokenize(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      cli.Add("detokenize", "Token ids to text", "cmforge detokenize model.cmf --tokens 9707,1879");
  options->model.AddTo(command);
  command->add_option("--tokens", options->tokens, "Ids separated by commas, or @FILE");
  command->add_flag("--keep-special", options->keep_special, "Show special tokens too");
  command->add_flag("--jsonl", options->jsonl, "One {\"ids\", \"skip_special\"} a line; one answer a line");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Detokenize(cli, *options); }; });
}

}  // namespace cmforge::cli
