// The command line itself: help, usage errors, environment names, exit codes.
#include "cli/program.h"

namespace cmforge {
namespace {

using Usage = CliTest;

TEST_F(Usage, EveryCommandHasHelpWithAnExample) {
  const Ran help = Run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"convert", "info", "verify", "dequant", "run", "chat", "logits", "generate",
                              "tokenize", "detokenize", "ppl", "bench", "template", "jinja"}) {
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

TEST_F(Usage, AThreadCountChangesNothing) {
  const Ran one = Run({"logits", "--tokens", "11,12,13", "--threads", "1"}),
            three = Run({"logits", "--tokens", "11,12,13", "--threads", "3"});
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out, three.out);
}

}  // namespace
}  // namespace cmforge
