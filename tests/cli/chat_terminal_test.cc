// The chat as a person at a terminal meets it, driven through tmux; and through a pipe.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "cli/program.h"

namespace cmforge {
namespace {

class Chat : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    if (std::system("tmux -V > /dev/null 2>&1") != 0) GTEST_SKIP() << "tmux is not installed";
    socket_ = SocketOfStart();
  }
  void TearDown() override {
    if (!socket_.empty()) Tmux("kill-server");
    // The program may still be ending, and writing its history, while the folder goes.
    for (int attempt = 0; attempt < 100; ++attempt) {
      std::error_code left;
      std::filesystem::remove_all(folder_, left);
      if (!left) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    CliTest::TearDown();
  }

  // A session of its own server: history in the test's folder, slow kernels so that an answer can be
  // interrupted.
  void Start(const std::string& flags, const std::string& term = "screen") {
    if (starts_ > 0) Tmux("kill-server");
    ++starts_;  // a server that is ending would take the next session with it
    socket_ = SocketOfStart();
    Tmux("new-session -d -s chat -x 120 -y 50 \"env TERM=" + term + " XDG_STATE_HOME=" + Path("state") + " " +
         std::filesystem::absolute(CMFORGE_PROGRAM).string() + " chat --temperature 0 " + flags +
         "; echo left with \\$?; sleep 60\"");
    Expect("Ctrl-D leaves");
  }
  std::string Tmux(const std::string& arguments) {
    const std::string command = "tmux -L " + socket_ + " -f /dev/null " + arguments + " 2>/dev/null";
    std::string out;
    FILE* pipe = ::popen(command.c_str(), "r");
    char buffer[4096];
    for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, n);
    ::pclose(pipe);
    return out;
  }
  std::string Screen() { return Tmux("capture-pane -p -J -t chat -S -200"); }
  void Keys(const std::string& keys) { Tmux("send-keys -t chat " + keys); }
  void Type(const std::string& text) { Keys("-l '" + text + "'"); }
  void Enter(const std::string& text) {
    Type(text);
    Keys("Enter");
  }
  static int Count(const std::string& screen, const std::string& text) {
    int n = 0;
    for (size_t at = 0; (at = screen.find(text, at)) != screen.npos; at += text.size()) ++n;
    return n;
  }
  /// Waits until `text` stands on the screen `times` times.
  void Expect(const std::string& text, int times = 1) {
    std::string screen;
    for (int i = 0; i < 400; ++i) {
      screen = Screen();
      if (Count(screen, text) >= times) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    FAIL() << "'" << text << "' did not appear " << times << " times:\n" << screen;
  }

  [[nodiscard]] std::string SocketOfStart() const {
    return "cmforge-test-" + std::to_string(::getpid()) + "-" + std::to_string(starts_);
  }

  std::string socket_;
  int starts_ = 0;
};

constexpr const char* kSlow = "--isa reference --threads 1 --compute exact";
constexpr const char* kQuestion = "Tell me a story about a rabbit.";

TEST_F(Chat, CtrlCStopsTheAnswerKeepsTheConversationAndThenLeaves) {
  Start(kSlow);
  Enter(kQuestion);
  Expect("Once");
  Keys("C-c");
  Expect("stopped");
  Enter("/tokens");
  Expect("2 messages");  // the question and what there was of the answer
  Enter("Hello!");
  Expect("> Hello!");
  Keys("C-c");
  Expect("stopped", 2);
  Keys("C-c");
  Expect("left with 130");
}

TEST_F(Chat, CtrlCDropsWhatWasTypedAndLeavesOnlyWhenPressedTwiceOnNothing) {
  Start("");
  for (int i = 1; i <= 3; ++i) {
    Type("half a line " + std::to_string(i));
    Expect("half a line " + std::to_string(i));
    Keys("C-c");
    Expect("\n>", i + 1);
  }
  EXPECT_EQ(Screen().find("press Ctrl-C"), std::string::npos) << Screen();
  Enter("several lines \\\\");
  Expect("\n. ");
  Type("of them");
  Keys("C-c");  // all of them go
  Expect("\n>", 5);
  Enter("/tokens");
  Expect("0 messages");
  Keys("C-c");
  Expect("press Ctrl-C again to leave");
  Type("x");
  Keys("C-c");
  Expect("\n>", 8);
  Keys("C-c");
  Expect("press Ctrl-C again to leave", 2);
  Keys("C-c");
  Expect("left with 130");
}

TEST_F(Chat, CtrlDLeavesAndHistoryAndEditingWork) {
  Start("");
  Type("/tokenz");
  Keys("BSpace");
  Enter("s");
  Expect("0 messages");
  Keys("Up");
  Keys("Enter");
  Expect("0 messages", 2);
  Keys("C-d");
  Expect("left with 0");
  Start("");
  Keys("Up");  // from the file
  Keys("Enter");
  Expect("0 messages");
}

TEST_F(Chat, CommandsSayWhatTheyDid) {
  Start("--seed 5 --max-tokens 9");
  Enter("/set");
  Expect("temperature        0");
  Expect("max-tokens         9");
  Expect("seed               5");
  Enter("/set top-k 12");
  Expect("top-k              12");
  Enter("/set top-p 3");
  Expect("top-p is 3");
  Enter("/set top-k many");
  Expect("is not a value it can take: it is 12 now");
  Enter("/set think off");
  Expect("think              off");
  Enter("/set nothing 1");
  Expect("no setting");
  Enter("/system Be brief.");
  Expect("the system message is set");
  Enter("/system");
  Expect("Be brief.", 2);
  Enter("Hello!");
  Enter("/tokens");
  Expect("3 messages");
  Enter("/save " + Path("talk.json"));
  Expect("3 messages saved in");
  Enter("/reset");
  Expect("the conversation is forgotten, the system message stays");
  Enter("/load " + Path("talk.json"));
  Expect("3 messages taken up from");
  Enter("/load " + Path("none.json"));
  Expect("cmforge: error");
  Enter("/help");
  Expect("/save FILE");
  Enter("/nonsense");
  Expect("no such command");
  Enter("\"\"\"first");
  Enter("second\"\"\"");
  Expect("second\"\"\"");
  Enter("/tokens");
  Expect("5 messages");
  const Json saved = Json::parse(Slurp(Path("talk.json")))["messages"];
  ASSERT_EQ(saved.size(), 3u);
  EXPECT_EQ(saved[1]["content"], "Hello!");
}

TEST_F(Chat, ADumbTerminalWorksToo) {
  Start(kSlow, "dumb");
  Enter("/tokens");
  Expect("0 messages");
  Enter(kQuestion);
  Expect("Once");
  Keys("C-c");
  Expect("stopped");
  Keys("C-d");
  Expect("left with 0");
}

using ChatPipe = CliTest;

TEST_F(ChatPipe, AnswersGoToStdoutAndConfirmationsBesideThem) {
  const Ran ran =
      Run({"chat", "--greedy", "--max-tokens", "12"},
          "/system Be brief.\nHello!\n/set top-k 3\n/reset\n/set\n\"\"\"What color\nis the sky?\"\"\"\n");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("Hello"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("> "), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("is set"), std::string::npos) << ran.out;
  EXPECT_NE(ran.err.find("the system message is set"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("forgotten"), std::string::npos) << ran.err;
  EXPECT_NE(ran.out.find("top-k              3"), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace cmforge
