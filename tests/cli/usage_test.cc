// The command line itself: help, usage errors, environment names, exit codes.
#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "cli/program.h"

namespace cmforge {
namespace {

using Usage = CliTest;

TEST_F(Usage, EveryCommandHasHelpWithAnExample) {
  const Ran help = Run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command :
       {"convert",    "info",   "verify",  "sign",     "shard", "unshard", "compact",  "diff",
        "export",     "defrag", "dequant", "run",      "chat",  "logits",  "generate", "tokenize",
        "detokenize", "ppl",    "bench",   "template", "jinja", "mask",    "skill",    "route"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
    const Ran one = Run({command, "--help"});
    EXPECT_EQ(one.status, 0) << command;
    EXPECT_NE(one.out.find("Example:\n  cmforge "), std::string::npos) << one.out;
    EXPECT_NE(one.out.find("--json"), std::string::npos) << command;
  }
}

TEST_F(Usage, VersionNamesTheInstructionSet) {
  const Ran version = Run({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.rfind("cmforge 0.", 0), 0u) << version.out;
  EXPECT_NE(version.out.find('('), std::string::npos);
}

TEST_F(Usage, WrongUsageIsOneLineAndTwo) {
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{},
                                                {"nonsense"},
                                                {"convert"},
                                                {"run", "--temperature", "hot"},
                                                {"logits", "x", "--tokens", "1", "--compute", "slow"},
                                                {"generate", "--tokens", "1,x"},
                                                {"dequant", "--tensor", "a", "--all"}}) {
    const Ran ran = Run(wrong);
    EXPECT_EQ(ran.status, 2) << (wrong.empty() ? "" : wrong[0]) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err.rfind("cmforge: error: ", 0), 0u) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

// An unset variable of a shell must not become the built-in model.
TEST_F(Usage, AnEmptyNameIsNoModel) {
  const std::string model = std::string(CMFORGE_TEST_DATA) + "/cmf/rs-qwen3-q8.cmf", out = Path("o.cmf");
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"convert", "--model", "", "-o", out},
                                                {"requant", "", "--quant", "q8", "-o", out},
                                                {"run", "", "--prompt", "x"},
                                                {"chat", ""},
                                                {"info", ""},
                                                {"verify", ""},
                                                {"dequant", "", "--all", "--out", out},
                                                {"ppl", "", "--file", model},
                                                {"ppl", model, "--against", "", "--file", model},
                                                {"bench", ""},
                                                {"logits", "", "--tokens", "1"},
                                                {"generate", "", "--tokens", "1"},
                                                {"tokenize", "", "--text", "x"},
                                                {"detokenize", "", "--tokens", "1"},
                                                {"template", "", "--messages", model},
                                                {"export", "", "-o", out},
                                                {"coreml", "convert", "--model", "", "-o", out},
                                                {"coreml", "check", "", "--hf", model},
                                                {"coreml", "check", model, "--hf", ""},
                                                {"compact", "", "-o", out},
                                                {"shard", "", "--output-prefix", out, "--shard-max-gb", "1"},
                                                {"unshard", "", "-o", out},
                                                {"defrag", "", "--task", "x", "-o", out},
                                                {"diff", "", model},
                                                {"diff", model, ""},
                                                {"mask", "list", ""},
                                                {"skill", "list", ""},
                                                {"skill", "export", model, "--base", "", "-o", out},
                                                {"sign", "", "--key", model}}) {
    const Ran ran = Run(wrong);
    EXPECT_EQ(ran.status, 2) << wrong[0] << ' ' << wrong[1] << ran.err << ran.out;
    EXPECT_NE(ran.err.find("empty name"), std::string::npos) << wrong[0] << ' ' << wrong[1] << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(out)) << wrong[0];
  }
  EXPECT_EQ(Run({"tokenize", model, "--text", ""}).status, 0) << "an empty text is one";
}

TEST_F(Usage, MissingFilesAreThree) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"info", Path("none.cmf")},
        {"verify", Path("none.cmf")},
        {"convert", "--model", Path("none"), "--output", Path("o.cmf")},
        {"run", Path("none.cmf"), "--prompt", "x"},
        {"dequant", "--tensor", "no.such.tensor", "--json"}}) {
    const Ran ran = Run(wrong);
    EXPECT_EQ(ran.status, 3) << wrong[0] << ran.err;
    EXPECT_EQ(ran.out, "");
  }
}

TEST_F(Usage, FlagsHaveEnvironmentNamesAndWin) {
  const std::vector<std::string> command = {"generate", "--tokens",     "11,12",
                                            "--greedy", "--ignore-eos", "--json"};
  auto flagged = command;
  flagged.insert(flagged.end(), {"-n", "3"});
  EXPECT_EQ(Run(command, "", {"CMFORGE_MAX_TOKENS=5"}).json()["tokens"].size(), 5u);
  EXPECT_EQ(Run(flagged, "", {"CMFORGE_MAX_TOKENS=5"}).json()["tokens"].size(), 3u);
  EXPECT_EQ(Run(command, "", {"CMFORGE_ISA=nonsense"}).status, 2);
}

struct Flag {
  std::string name, type, variable, meaning;  // "--threads", "INT", "CMFORGE_THREADS", the help
};

/// The flags in one command's help.
std::vector<Flag> Flags(const std::string& help) {
  std::vector<Flag> flags;
  std::istringstream lines(help.substr(help.find("Options:")));
  for (std::string line; std::getline(lines, line) && !line.starts_with("Example:");) {
    const size_t name = line.find("--");
    if (!line.starts_with("  -") || name == line.npos || line.find("--help") != line.npos) {
      if (!flags.empty() && line.starts_with("   "))
        flags.back().meaning += line.substr(line.find_first_not_of(' '));
      continue;
    }
    Flag flag;
    const size_t end = line.find_first_of(" ,", name);
    flag.name = line.substr(name, end - name);
    for (const char* type : {"UINT", "INT", "FLOAT", "TEXT"}) {
      if (line.compare(end, 1 + std::string(type).size(), std::string(" ") + type) == 0) flag.type = type;
    }
    if (const size_t env = line.find("(Env:"); env != line.npos) {
      const size_t close = line.find(')', env);
      flag.variable = line.substr(env + 5, close - env - 5);
      flag.meaning =
          line.substr(std::min(line.size(), std::max(close + 1, line.find_first_not_of(' ', close + 1))));
    }
    flags.push_back(flag);
  }
  return flags;
}

struct Command {
  std::vector<std::string> words;  // {"coreml", "info"}
  std::vector<Flag> flags;
};

class EveryCommand : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    Collect({});
    ASSERT_GE(commands_.size(), 14u);
  }

  std::vector<Command> commands_;  // as the program itself lists them

 private:
  void Collect(std::vector<std::string> words) {
    words.push_back("--help");
    const std::string help = Run(words).out;
    words.pop_back();
    if (!words.empty()) commands_.push_back({words, Flags(help)});
    const size_t list = help.find("Subcommands:");
    if (list == help.npos) return;
    std::istringstream lines(help.substr(list));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.starts_with("  ")) {
      if (line[2] == ' ') continue;
      auto below = words;
      below.push_back(line.substr(2, line.find(' ', 2) - 2));
      Collect(below);
    }
  }
};

TEST_F(EveryCommand, HasOneVariableAFlagAndOneMeaningAVariable) {
  std::map<std::string, std::string> meaning_of;
  for (const Command& command : commands_) {
    for (const Flag& flag : command.flags) {
      ASSERT_EQ(flag.variable.find("CMFORGE_"), 0u) << command.words.back() << " " << flag.name;
      const auto [known, is_new] = meaning_of.emplace(flag.variable, flag.meaning);
      EXPECT_EQ(known->second, flag.meaning) << flag.variable << " in " << command.words.back();
    }
  }
  for (const char* name : {"CMFORGE_THREADS", "CMFORGE_ISA", "CMFORGE_JSON", "CMFORGE_COMPUTE", "CMFORGE_KV",
                           "CMFORGE_CONTEXT", "CMFORGE_TOKENS", "CMFORGE_MAX_TOKENS", "CMFORGE_SEED",
                           "CMFORGE_PPL_CONTEXT", "CMFORGE_PPL_TOKENS", "CMFORGE_JINJA_CONTEXT"}) {
    EXPECT_TRUE(meaning_of.contains(name)) << name;
  }
}

TEST_F(EveryCommand, RefusesNumbersThatMakeNoSenseByName) {
  for (const Command& command : commands_) {
    for (const Flag& flag : command.flags) {
      if (flag.type.empty() || flag.type == "TEXT") continue;
      std::vector<std::string> wrong = {"-5", "1e400", "many", ""};
      if (flag.name.find("-penalty") != flag.name.npos) wrong.erase(wrong.begin());  // these may be negative
      for (const std::string& value : wrong) {
        auto words = command.words;
        words.push_back(flag.name + "=" + value);
        const Ran ran = Run(words);
        EXPECT_EQ(ran.status, 2) << command.words.back() << " " << flag.name << "=" << value << " "
                                 << ran.err;
        EXPECT_NE(ran.err.find(flag.name.substr(2)), std::string::npos) << ran.err;
        EXPECT_LT(ran.err.size(), 200u) << "a range for people: " << ran.err;
      }
    }
  }
}

TEST_F(Usage, AVariableOfAnotherCommandDoesNotDisturb) {
  const std::vector<std::string> command = {"generate", "--tokens", "11,12", "--greedy", "--json", "-n", "2"};
  const Ran plain = Run(command);
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(Run(command, "", {"CMFORGE_REPEAT=x", "CMFORGE_PPL_CONTEXT=-1", "CMFORGE_MEAN_BITS=99"}).out,
            plain.out);
}

TEST_F(Usage, FlagsWinOverVariablesThatAllCommandsShare) {
  const Ran ran = Run({"bench", "--threads", "1", "--prompt-tokens", "4", "--gen-tokens", "0", "--json"}, "",
                      {"CMFORGE_THREADS=3", "CMFORGE_REPEAT=1"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.json()["threads"], 1);
  EXPECT_EQ(Run({"bench", "--prompt-tokens", "4", "--gen-tokens", "0", "--json", "--repeat", "1"}, "",
                {"CMFORGE_THREADS=3", "CMFORGE_BENCH_THREADS=2"})
                .json()["threads"],
            2)
      << "the command's own name is the closer one";
}

TEST_F(Usage, AnUnknownInstructionSetIsTheFlagsFault) {
  for (const char* command : {"info", "verify", "run", "logits", "tokenize"}) {
    const Ran ran = Run({command, "--isa", "sse9", std::string(command) == "logits" ? "--tokens=1" : "x"});
    EXPECT_EQ(ran.status, 2) << command;
    EXPECT_EQ(ran.err.find("cmforge: error: --isa: unknown instruction set 'sse9': choose one of reference"),
              0u)
        << ran.err;
  }
}

TEST_F(Usage, BenchRefusesWhatDoesNotFitBeforeItWorks) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--prompt-tokens", "16,100000"},
                                                {"--depth", "0,100000"},
                                                {"--depth", "2040", "--gen-tokens", "9"},
                                                {"--context", "64", "--gen-tokens", "64"},
                                                {"--context", "1000000"}}) {
    std::vector<std::string> command = {"bench", "--json"};
    command.insert(command.end(), flags.begin(), flags.end());
    const Ran ran = Run(command);
    EXPECT_EQ(ran.status, 7) << flags[0];
    EXPECT_EQ(ran.err.find("cmforge: error: --"), 0u) << ran.err;
    EXPECT_EQ(ran.out, "");
  }
  const Ran small = Run({"bench", "--context", "64", "--repeat", "1", "--json"});
  ASSERT_EQ(small.status, 0) << small.err;
  EXPECT_EQ(small.json()["prefill"][0]["tokens"], 64) << "what is not given adapts";
}

TEST_F(Usage, TokenIdsOutsideTheVocabularyAreNamed) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"detokenize", "--tokens", "5,99999999"},
        {"logits", "--tokens", "5,99999999"},
        {"generate", "--tokens", "5,99999999", "-n", "1"}}) {
    const Ran ran = Run(command);
    EXPECT_EQ(ran.status, 2) << command[0];
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find("99999999"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("4096"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(Run({"detokenize", "--jsonl"}, "{\"ids\":[99999999]}\n").out, "{\"text\":\"\"}\n")
      << "lines answer as the reference library does";
}

TEST_F(Usage, WhatCannotBeSaidIsLostAndTheWorkIsNot) {
  const std::string program = "'" + std::filesystem::absolute(CMFORGE_PROGRAM).string() + "' ",
                    out = " '" + Path("out") + "'";
  const auto shell = [&](const std::string& command) {
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
  // A model without a tokenizer: converting it warns.
  const std::string convert =
      "convert --model '" + std::string(CMFORGE_SOURCE_DIR) + "/tests/data/engine/llama' -q --output";
  ASSERT_EQ(shell(program + convert + out + ".cmf >/dev/null 2>" + out), 0);
  std::string warns = convert;
  warns.erase(warns.find(" -q"), 3);
  // A pipe whose reader has gone: opened for both, its one end closed.
  const std::string gone = "'" + Path("pipe") + "'";
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const std::string& lost : {std::string("2>&-"), std::string("2>/dev/full"),
                                  std::string("<&- >&- 2>&-"), "3<>" + gone + " 2>" + gone + " 3<&-"}) {
    EXPECT_EQ(shell(program + "info nope " + lost), 3) << lost;
    EXPECT_EQ(shell(program + "nonsense " + lost), 2) << lost;
    const int closed =
        lost.find(">&- 2") != lost.npos ? 6 : 0;  // what should have been printed is missed, as ever
    std::filesystem::remove(Path("out.cmf"));
    EXPECT_EQ(shell(program + warns + out + ".cmf " + (closed ? "" : ">/dev/null ") + lost), closed) << lost;
    EXPECT_EQ(Run({"verify", Path("out.cmf"), "-q"}).status, 0) << lost;
  }
  for (const char* command : {"info --tensors", "info --json", "--version", "logits --tokens 1"}) {
    EXPECT_EQ(shell(program + command + " >/dev/full 2>" + out), 6) << command;
    EXPECT_EQ(Slurp(Path("out")).rfind("cmforge: error: standard output: writing failed", 0), 0u) << command;
  }
}

TEST_F(Usage, GenerateSaysWhenTheContextIsFull) {
  for (const auto& [context, is_full] : {std::pair{"4", true}, {"64", false}}) {
    const Ran ran =
        Run({"generate", "--tokens", "11,12", "-n", "8", "--ignore-eos", "--context", context, "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.json()["context_is_full"], is_full);
  }
}

TEST_F(Usage, AThreadCountChangesNothing) {
  const Ran one = Run({"logits", "--tokens", "11,12,13", "--threads", "1"}),
            three = Run({"logits", "--tokens", "11,12,13", "--threads", "3"});
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out, three.out);
}

/// What the program writes to a terminal on stderr.
std::string OnTerminal(std::vector<std::string> arguments) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_TRUE(terminal >= 0 && ::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, ::ptsname(terminal), O_WRONLY | O_NOCTTY, 0);
  arguments.insert(arguments.begin(), CMFORGE_PROGRAM);
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  std::string out;
  char buffer[4096];
  for (ssize_t n = 0;
       (n = ::read(terminal, buffer, sizeof(buffer))) > 0;)  // an error once the program has gone
    out.append(buffer, static_cast<size_t>(n));
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0) << out;
  ::close(terminal);
  return out;
}

class Progress : public CliTest {};

TEST_F(Progress, CountsTokensAndGuessesNothingBeforeThereIsARate) {
  std::ofstream text(Path("text.txt"));
  for (int i = 0; i < 30; ++i) text << "Tom had a red ball. He liked to play with the ball in the park.\n";
  text.close();
  const std::string out =
      OnTerminal({"calibrate", std::string(CMFORGE_SOURCE_DIR) + "/models/tiny-qwen3", "--file",
                  Path("text.txt"), "-o", Path("stats"), "--isa", "reference", "--threads", "1"});
  const size_t first = out.find("calibrating"), second = out.find("calibrating", first + 1);
  ASSERT_NE(second, out.npos) << out;
  EXPECT_EQ(out.substr(first, second - first).find(" left"), out.npos) << out;
  EXPECT_NE(out.find(" tok/s, ", second), out.npos) << out;
  EXPECT_EQ(out.find("B/s"), out.npos) << out;
  EXPECT_EQ(out.find(" -"), out.npos) << out;
}

}  // namespace
}  // namespace cmforge
