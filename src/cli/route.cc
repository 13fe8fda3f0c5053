// cmforge route: which of a file's skills fits a prompt.
#include <cstdio>
#include <map>

#include "cli/cmf_argument.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/specialist_flags.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  ComputeFlags compute{.compute = "exact"};  // the ranking is a figure that others compare
  std::string prompt, tokens, file;
  int64_t passage_tokens = 128;
};

/// A text in passages: how many went to which skill.
Result<int> RoutePassages(const Cli& cli, const Options& options, const OpenedSource& source) {
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  CMF_TRY(const std::string text, ReadUtf8File(options.file));
  CMF_TRY(const auto tokens, RoutingTokens(*tokenizer, text));
  CMF_TRY(const auto specialists, OpenSpecialists(cli, source, options.compute));
  const auto length = static_cast<size_t>(options.passage_tokens);
  std::map<std::string, int64_t> winners;
  int64_t passages = 0, novel = 0;
  for (size_t at = 0; at + length <= tokens.size(); at += length) {
    cli.Control().Report("passages", static_cast<int64_t>(at), static_cast<int64_t>(tokens.size()));
    CMF_TRY(const Ranking ranking, specialists->Route(std::span(tokens).subspan(at, length)));
    ++winners[ranking.winner()->id];
    ++passages;
    novel += ranking.is_novel;
  }
  if (passages == 0) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: {} tokens: too short for a passage of {}", options.file,
                                               tokens.size(), options.passage_tokens));
  }
  if (cli.common.json) {
    PrintJson(DumpJson(Json{{"passages", passages}, {"winners", winners}, {"novel", novel}}));
    return kDone;
  }
  for (const auto& [id, count] : winners) fmt::print("{:<16} {:>5} of {} passages\n", id, count, passages);
  return kDone;
}

Result<int> Route(const Cli& cli, const Options& options) {
  if ((options.prompt.empty() ? 0 : 1) + (options.tokens.empty() ? 0 : 1) + (options.file.empty() ? 0 : 1) !=
      1)
    return Fail(ErrorKind::kUsage, "route: give one of --prompt TEXT, --tokens IDS and --file TEXT");
  CMF_TRY(const OpenedSource source, OpenCmf(cli, options.model));
  CMF_CHECK(CheckRunnable(source));
  if (!options.file.empty()) return RoutePassages(cli, options, source);
  std::vector<TokenId> tokens;
  if (options.prompt.empty()) {
    CMF_TRY(tokens, ParseTokenList(options.tokens));
  } else {
    CMF_TRY(const auto tokenizer, LoadTokenizer(source));
    CMF_TRY(tokens, RoutingTokens(*tokenizer, options.prompt));
  }
  CMF_TRY(const auto specialists, OpenSpecialists(cli, source, options.compute));
  Json json = {{"ranking", Json::array()}, {"winner", nullptr}, {"is_novel", false}};
  if (specialists->has_routable_skill()) {
    CMF_TRY(const Ranking ranking, specialists->Route(tokens));
    for (const SkillScore& score : ranking.scores)
      json["ranking"].push_back({{"id", score.id}, {"energy", score.energy}, {"raw", score.raw}});
    json["winner"] = ranking.winner()->id;
    json["is_novel"] = ranking.is_novel;
  }
  if (cli.common.json) {
    PrintJson(DumpJson(json));
    return kDone;
  }
  for (const Json& score : json["ranking"]) {
    fmt::print("{:<16} energy {:.6f}, raw {:.6g}\n", score["id"].get<std::string>(),
               score["energy"].get<double>(), score["raw"].get<double>());
  }
  if (json["winner"].is_null()) {
    fmt::print("no skill of this file can be routed to\n");
  } else {
    fmt::print("winner: {}{}\n", json["winner"].get<std::string>(),
               json["is_novel"].get<bool>() ? ", though the prompt is far from all the skills know" : "");
  }
  return kDone;
}

}  // namespace

void AddRoute(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("route", "Rank a file's skills for a prompt",
                              "cmforge route model.cmf --prompt 'def read_file(path):'");
  options->model.AddTo(command);
  command->add_option("-p,--prompt", options->prompt, "The prompt");
  command->add_option("--tokens", options->tokens, "The prompt as token ids, or @FILE");
  command->add_option("--file", options->file, "A text in passages: how many of them go to which skill");
  command->add_option("--passage-tokens", options->passage_tokens, "Tokens a passage")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--compute", options->compute.compute, "exact, or fast")
      ->check(CLI::IsMember({"fast", "exact"}))
      ->capture_default_str();
  command->callback([&cli, options] { cli.action = [&cli, options] { return Route(cli, *options); }; });
}

}  // namespace cmforge::cli
