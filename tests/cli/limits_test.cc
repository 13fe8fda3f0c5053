// Limits from outside: little memory, and a model file that shrinks while it is read.
#include <cstdlib>

#include "cli/program.h"

namespace cmforge {
namespace {

class Limits : public CliTest {
 protected:
  /// A shell command in the test's folder; its exit code.
  int Shell(const std::string& command) {
    const int status = std::system(("cd '" + folder_.string() + "' && { " + command + "; }").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  static std::string Program() { return "'" + std::filesystem::absolute(CMFORGE_PROGRAM).string() + "'"; }
};

TEST_F(Limits, TooLittleMemoryIsSevenAndOneLine) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space of their own";
#endif
  std::ofstream file(folder_ / "tokens");
  for (int i = 0; i < 400; ++i) file << i << ' ';
  file.close();
  int kib = 8000;
  while (Shell("ulimit -v " + std::to_string(kib) + "; " + Program() + " --version > out 2> err") != 0) {
    ASSERT_LT(kib += 2000, 1000000);
  }
  int refused = 0;
  for (int status = 7; status != 0; kib += 1500) {
    ASSERT_LT(kib, 2000000);
    status = Shell(
        "ulimit -v " + std::to_string(kib) + "; " + Program() +
        " generate --tokens @tokens -n 4 --greedy --ignore-eos --threads 3 --compute exact > out 2> err");
    if (status == 0) break;
    const std::string err = Slurp(folder_ / "err");
    ASSERT_EQ(status, 7) << kib << " KiB: " << err;
    ASSERT_EQ(err.rfind("cmforge: error: ", 0), 0u) << err;
    ASSERT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
    ++refused;
  }
  EXPECT_GT(refused, 0);
}

TEST_F(Limits, AModelThatShrinksUnderUsIsSixAndNamed) {
  ASSERT_EQ(
      Run({"convert", "--model", CMFORGE_SOURCE_DIR "/models/tiny-qwen3", "--output", Path("m.cmf"), "-q"})
          .status,
      0);
  // The second message is asked when the first has been answered and the file is gone.
  const int status = Shell(
      "{ echo Hello; for i in $(seq 600); do [ -s out ] && break; sleep 0.1; done; sleep 0.5; truncate -s "
      "4096 m.cmf; echo Again; "
      "} | " +
      Program() + " chat m.cmf --greedy --max-tokens 3 > out 2> err");
  EXPECT_EQ(status, 6) << Slurp(folder_ / "err");
  const std::string err = Slurp(folder_ / "err");
  EXPECT_NE(err.find("m.cmf: the file became shorter"), std::string::npos) << err;
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  // Opened after that it is refused at once.
  EXPECT_EQ(Run({"run", Path("m.cmf"), "--prompt", "x"}).status, 4);
}

}  // namespace
}  // namespace cmforge
