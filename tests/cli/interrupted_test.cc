// Interrupted work: killed, terminated or out of space at every single change of a file. What was there before stays
// until the new is complete, and what an interrupted conversion leaves is taken up again or gone.
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <map>
#include <set>

#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCalls = 2000;  // a run that changes files more often than that is not what is tested here

class Interrupted : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "a sanitizer's own runtime wants to be loaded first";
#endif
    ASSERT_TRUE(fs::exists(shim_)) << shim_;
    fs::create_directory(folder_ / "out");
    ASSERT_EQ(Run({"convert", "-q", "--model", kCheckpoint, "--output", Path("m.cmf")}).status, 0);
  }
  /// Runs with the fault at the n-th change of a file.
  Ran Struck(const std::vector<std::string>& arguments, const char* fault, int n) {
    return Run(
        arguments, "",
        {"LD_PRELOAD=" + shim_.string(), std::string("FAULT=") + fault, "FAULT_AT=" + std::to_string(n)});
  }
  [[nodiscard]] std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "out"))
      names.insert(entry.path().filename().string());
    return names;
  }
  void Clear() {
    fs::remove_all(folder_ / "out");
    fs::create_directory(folder_ / "out");
  }
  const fs::path shim_ = fs::absolute(fs::path(CMFORGE_PROGRAM).parent_path() / "tests/libfault_shim.so");
  const std::string kCheckpoint = std::string(CMFORGE_TEST_DATA) + "/checkpoint/odd-ffn-width";
};

TEST_F(Interrupted, AConversionKilledAtAnyWriteIsTakenUpAgain) {
  const std::string out = Path("out/o.cmf");
  const std::vector<std::string> convert = {"convert", "-q", "--model", kCheckpoint, "--output", out};
  std::vector<std::string> resume = convert;
  resume.push_back("--resume");
  const std::string wanted = Slurp(Path("m.cmf"));
  int n = 1;
  for (; n < kMostCalls; ++n) {
    Clear();
    std::ofstream(out) << "precious";
    const Ran killed = Struck(convert, "kill", n);
    if (killed.status == 0) break;
    ASSERT_EQ(killed.status, 128 + SIGKILL) << n << killed.err;
    const std::string now = Slurp(out);
    ASSERT_TRUE(now == "precious" || now == wanted) << "killed at " << n;
    for (const std::string& name : Names())
      EXPECT_TRUE(name == "o.cmf" || name == "o.cmf.part" || name == "o.cmf.manifest") << n << ": " << name;
    const Ran again = Run(resume);
    ASSERT_EQ(again.status, 0) << n << again.err;
    ASSERT_EQ(Slurp(out), wanted) << "taken up after " << n;
    ASSERT_EQ(Names(), std::set<std::string>{"o.cmf"}) << n;
  }
  EXPECT_GT(n, 30) << "every payload is a write, and every line of the manifest";
}

TEST_F(Interrupted, WhatWasDoneIsNotDoneAgain) {
  const std::string out = Path("out/o.cmf");
  const std::vector<std::string> convert = {"convert", "--model", kCheckpoint, "--output",
                                            out,       "--json",  "--resume"};
  ASSERT_EQ(Struck(convert, "kill", 25).status, 128 + SIGKILL);
  const Ran again = Run(convert);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_GT(again.json()["resumed"].get<int>(), 3);
  EXPECT_EQ(Slurp(out), Slurp(Path("m.cmf")));
  // Other flags, another source, damaged leftovers: begun anew, or checked and done again from there on.
  ASSERT_EQ(Struck(convert, "kill", 25).status, 128 + SIGKILL);
  std::vector<std::string> other = convert;
  other.insert(other.end(), {"--quant", "f16"});
  const Ran anew = Run(other);
  ASSERT_EQ(anew.status, 0) << anew.err;
  EXPECT_EQ(anew.json()["resumed"], 0);
  EXPECT_EQ(Run({"verify", out}).status, 0);
  fs::copy(kCheckpoint, folder_ / "copy", fs::copy_options::recursive);
  std::vector<std::string> copied = convert;
  copied[2] = Path("copy");
  ASSERT_EQ(Struck(copied, "kill", 25).status, 128 + SIGKILL);
  fs::last_write_time(Path("copy/model.safetensors"),
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(Run(copied).json()["resumed"], 0);
  ASSERT_EQ(Struck(convert, "kill", 25).status, 128 + SIGKILL);
  {
    std::fstream part(out + ".part", std::ios::in | std::ios::out | std::ios::binary);
    part.seekp(-1, std::ios::end);
    part.put('\xAA');
  }
  ASSERT_EQ(Run(convert).status, 0);
  EXPECT_EQ(Slurp(out), Slurp(Path("m.cmf")));
}

TEST_F(Interrupted, APackageKilledAtAnyWriteIsTakenUpAgain) {
  const std::string model = std::string(CMFORGE_TEST_DATA) + "/engine/qwen3_yarn";
  const auto convert = [&](const std::string& output) {
    return std::vector<std::string>{"coreml",    "convert",          "--json", "--model",
                                    model,       "--output",         output,   "--form",
                                    "mlpackage", "--context-length", "32",     "--batch-size",
                                    "4",         "--lut-ffn",        "4",      "--quant-lmhead",
                                    "int8",      "--split-lm-head",  "1"};
  };
  ASSERT_EQ(Run(convert(Path("wanted"))).status, 0);
  const auto files = [](const fs::path& folder) {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) out[fs::relative(entry.path(), folder)] = Slurp(entry.path());
    }
    return out;
  };
  const auto wanted = files(Path("wanted"));
  const std::vector<std::string> begin = convert(Path("out/o"));
  std::vector<std::string> resume = begin;
  resume.push_back("--resume");
  int64_t most = 0;
  int n = 1;
  for (; n < kMostCalls; n += 3) {
    Clear();
    const Ran killed = Struck(begin, "kill", n);
    if (killed.status == 0) break;
    ASSERT_EQ(killed.status, 128 + SIGKILL) << n << killed.err;
    const Ran again = Run(resume);
    ASSERT_EQ(again.status, 0) << n << again.err;
    most = std::max(most, again.json().at("resumed").get<int64_t>());
    ASSERT_EQ(Names(), std::set<std::string>{"o"}) << n;
    ASSERT_EQ(files(Path("out/o")), wanted) << n;
  }
  EXPECT_GT(n, 20);
  EXPECT_EQ(most, 7);  // two matrices of each of three layers, and the head
}

TEST_F(Interrupted, TerminationAndFullDisksLeaveTheOldFileAndNothingElse) {
  struct Case {
    const char* fault;
    int status;
  };
  struct Command {
    std::vector<std::string> arguments;
    std::string output;  // of one file; a prefix else
  };
  const std::vector<Command> commands = {
      {{"convert", "-q", "--model", kCheckpoint, "--output", Path("out/o.cmf")}, "out/o.cmf"},
      {{"compact", "-q", Path("m.cmf"), "--output", Path("out/o.cmf")}, "out/o.cmf"},
      {{"info", "-q", Path("m.cmf"), "--svg", Path("out/o.cmf")}, "out/o.cmf"},
  };
  for (const Command& command : commands) {
    for (const Case& c : {Case{"full", 6}, Case{"term", 130}, Case{"hup", 130}}) {
      struct sigaction hangup = {};
      ::sigaction(SIGHUP, nullptr, &hangup);
      if (std::string(c.fault) == "hup" && hangup.sa_handler == SIG_IGN)
        continue;  // run under nohup: it has no effect
      int n = 1;
      for (; n < kMostCalls; ++n) {
        Clear();
        std::ofstream(Path(command.output)) << "precious";
        const Ran ran = Struck(command.arguments, c.fault, n);
        ASSERT_EQ(Names(), std::set<std::string>{"o.cmf"}) << command.arguments[0] << c.fault << n;
        if (ran.status == 0) {
          EXPECT_NE(Slurp(Path(command.output)), "precious");
          if (std::string(c.fault) == "full") break;  // the folder's own fsync may fail: the file is complete
          if (n > 60) break;
          continue;  // a signal after the last look at it comes too late to matter
        }
        ASSERT_EQ(ran.status, c.status) << command.arguments[0] << c.fault << n << ran.err;
        ASSERT_EQ(Slurp(Path(command.output)), "precious") << command.arguments[0] << c.fault << n;
        if (c.status == 6) {
          EXPECT_NE(ran.err.find("free some space"), std::string::npos) << ran.err;
        }
      }
      EXPECT_LT(n, kMostCalls);
    }
  }
}

TEST_F(Interrupted, ASourceThatChangesMeanwhileIsNoticed) {
  fs::copy(kCheckpoint, folder_ / "source");
  const std::string out = Path("out/o.cmf"), weights = Path("source/model.safetensors");
  const std::vector<std::string> convert = {"convert", "-q", "--model", Path("source"), "--output", out};
  int refused = 0, n = 1;
  for (; n < kMostCalls; ++n) {
    Clear();
    std::ofstream(out) << "precious";
    fs::last_write_time(weights, fs::file_time_type::clock::now());
    const Ran ran = Run(convert, "",
                        {"LD_PRELOAD=" + shim_.string(), "FAULT=touch", "FAULT_AT=" + std::to_string(n),
                         "FAULT_PATH=" + weights});
    ASSERT_EQ(Names(), std::set<std::string>{"o.cmf"}) << n;
    if (ran.status == 0) break;  // changed after the last look at it
    ++refused;
    ASSERT_EQ(ran.status, 6) << n << ran.err;
    ASSERT_NE(ran.err.find("model.safetensors"), std::string::npos) << ran.err;
    ASSERT_EQ(Slurp(out), "precious") << n;
  }
  EXPECT_GT(refused, 2);
  EXPECT_LT(n, kMostCalls);
}

TEST_F(Interrupted, ASourceThatIsEmptiedMeanwhileLeavesNothingUnlessItIsToBeResumed) {
  const std::string out = Path("out/o.cmf"), weights = Path("source/model.safetensors");
  const auto source_anew = [&] {
    fs::remove_all(folder_ / "source");
    fs::copy(kCheckpoint, folder_ / "source");
    fs::permissions(weights, fs::perms::owner_all);
  };
  const auto emptied = [&](std::vector<std::string> arguments, int n) {
    return Run(arguments, "",
               {"LD_PRELOAD=" + shim_.string(), "FAULT=empty", "FAULT_AT=" + std::to_string(n),
                "FAULT_PATH=" + weights});
  };
  std::vector<std::string> convert = {"convert", "-q", "--model", Path("source"), "--output", out};
  for (const bool is_set : {false, true}) {
    if (is_set) convert.insert(convert.end(), {"--shard-max-gb", "2e-5"});
    int struck = 0;
    for (int n = 1; n < 40; n += 3) {
      Clear();
      source_anew();
      std::ofstream(out) << "precious";
      const Ran ran = emptied(convert, n);
      if (ran.status == 0) break;
      ASSERT_EQ(ran.status, 6) << n << ran.err;
      struck += ran.err.find("became shorter") != std::string::npos ? 1 : 0;
      ASSERT_EQ(Names(), std::set<std::string>{"o.cmf"}) << n << ran.err;
      ASSERT_EQ(Slurp(out), "precious") << n;
    }
    EXPECT_GT(struck, 2) << "by the signal itself";
  }
  convert.resize(6);
  convert.push_back("--resume");
  Clear();
  source_anew();
  ASSERT_EQ(emptied(convert, 12).status, 6);
  EXPECT_EQ(Names(), (std::set<std::string>{"o.cmf.manifest", "o.cmf.part"}));
}

TEST_F(Interrupted, ASetOrAFolderAppearsWholeOrNotAtAll) {
  for (const char* fault : {"kill", "full"}) {
    for (int n = 1; n < kMostCalls; ++n) {
      Clear();
      const Ran ran =
          Struck({"shard", "-q", Path("m.cmf"), "--output-prefix", Path("out/s"), "--shard-max-gb", "2e-5"},
                 fault, n);
      if (ran.status == 0) break;
      // All are complete before the first appears; killed between two names, the set misses a shard and says so.
      for (const std::string& name : Names()) {
        if (name.ends_with(".cmf")) {
          EXPECT_EQ(Run({"verify", "-q", Path("out/" + name)}).status <= 1, true) << name << n;
        }
      }
    }
    for (int n = 1; n < kMostCalls; ++n) {
      Clear();
      const Ran ran = Struck({"export", "-q", Path("m.cmf"), "--output", Path("out/hf")}, fault, n);
      if (ran.status == 0) break;
      if (fs::exists(Path("out/hf/config.json"))) {  // it comes last, so all is there
        EXPECT_EQ(Run({"verify", "-q", Path("out/hf")}).status, 0) << fault << n;
      }
    }
  }
}

TEST_F(Interrupted, AFileSizeLimitIsAnErrorNotADeath) {
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit low = old;
  low.rlim_cur = 8192;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const Ran ran = Run({"convert", "-q", "--model", kCheckpoint, "--output", Path("out/o.cmf")});
  ::setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(ran.status, 6) << ran.err;
  EXPECT_TRUE(Names().empty());
}

TEST_F(Interrupted, PlacesThatCannotBeWrittenAreSix) {
  if (!fs::exists("/sys/kernel")) GTEST_SKIP() << "needs a file system that nobody may write";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"convert", "--model", kCheckpoint, "--output", "/sys/kernel/o.cmf"},
        {"compact", Path("m.cmf"), "--output", "/sys/kernel/o.cmf"},
        {"export", Path("m.cmf"), "--output", "/sys/kernel/hf"},
        {"sign", Path("m.cmf"), "--key", "/sys/kernel/key"}}) {
    const Ran ran = Run(command);
    EXPECT_EQ(ran.status, 6) << command[0] << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

}  // namespace
}  // namespace cmforge
