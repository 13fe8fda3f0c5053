// tokenize, detokenize, template, jinja, run and ppl through the program and its built-in model.
#include <set>

#include "cli/program.h"

namespace cmforge {
namespace {

using Text = CliTest;

TEST_F(Text, RoundTripsThroughIds) {
  const std::string text = "Once upon a time, ünïcödé 你好 👋\n  def f(x):\n";
  const Json ids = Run({"tokenize", "--text", text, "--json"}).json()["ids"];
  std::string list;
  for (const Json& id : ids) list += (list.empty() ? "" : ",") + std::to_string(id.get<int>());
  EXPECT_EQ(Run({"detokenize", "--tokens", list, "--json"}).json()["text"], text);
  EXPECT_EQ(Run({"tokenize", "--json"}, text).json()["ids"], ids) << "from standard input";
  std::ofstream(Path("t.txt")) << text;
  EXPECT_EQ(Run({"tokenize", "--file", Path("t.txt"), "--json"}).json()["ids"], ids);
}

TEST_F(Text, JsonLinesKeepGoingAfterABadLine) {
  const Ran ran =
      Run({"tokenize", "--jsonl"}, "\"a b\"\nnot json\n{\"text\":\"<|im_end|>\",\"special\":false}\n7\n");
  EXPECT_EQ(ran.status, 4) << "told at the end";
  EXPECT_EQ(Run({"tokenize", "--jsonl"}, "\"a b\"\n").status, 0);
  EXPECT_EQ(Run({"detokenize", "--jsonl"}, "{\"ids\":[-1]}\n{\"ids\":[1]}\n").status, 4);
  std::istringstream lines(ran.out);
  std::vector<Json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(ParseJson(line, "line").value());
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_TRUE(answers[0].contains("ids"));
  EXPECT_TRUE(answers[1].contains("error"));
  EXPECT_EQ(answers[2]["ids"], Json::array({4093}));
  EXPECT_TRUE(answers[3].contains("error"));
  EXPECT_EQ(Run({"detokenize", "--jsonl"}, "{\"ids\":[4093],\"skip_special\":false}\n").out,
            "{\"text\":\"<|im_end|>\"}\n");
}

TEST_F(Text, RendersTheModelsTemplate) {
  std::ofstream(Path("m.json")) << R"([{"role":"user","content":"Hi"}])";
  const Ran ran = Run({"template", "--messages", Path("m.json")});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Run({"template", "--messages", Path("m.json"), "--no-generation-prompt"}).out,
            "<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_NE(Run({"template", "--messages", Path("m.json"), "--set", "enable_thinking=false"})
                .out.find("<think>\n\n</think>"),
            std::string::npos);
  std::ofstream(Path("bad.jinja")) << "{{ raise_exception('roles must alternate') }}";
  const Ran failed = Run({"template", "--messages", Path("m.json"), "--template", Path("bad.jinja")});
  EXPECT_EQ(failed.status, 4);
  EXPECT_NE(failed.err.find("roles must alternate"), std::string::npos);
}

TEST_F(Text, RendersBareJinja) {
  std::ofstream(Path("t.jinja")) << "{% for x in xs %}\n{{ x }};\n{% endfor %}";
  std::ofstream(Path("c.json")) << R"({"xs":[1,"a",2.5]})";
  EXPECT_EQ(Run({"jinja", "--template", Path("t.jinja"), "--context", Path("c.json")}).out, "1;\na;\n2.5;\n");
  EXPECT_EQ(Run({"jinja", "--jsonl"}, "{\"template\":\"{{ a|upper }}\",\"context\":{\"a\":\"x\"}}\n").out,
            "{\"text\":\"X\"}\n");
}

TEST_F(Text, RunStreamsTextAndNothingElse) {
  const Ran ran = Run({"run", "--raw", "--prompt", "Once upon a time", "-n", "12", "--seed", "7"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  EXPECT_GT(ran.out.size(), 10u);
  EXPECT_EQ(
      Run({"run", "--raw", "--prompt", "Once upon a time", "-n", "12", "--seed", "7", "--threads", "1"}).out,
      ran.out)
      << "seeds repeat, whatever the threads";
  const Json json =
      Run({"run", "--raw", "--prompt", "Once upon a time", "-n", "12", "--seed", "7", "--json"}).json();
  EXPECT_EQ(json["text"].get<std::string>() + "\n", ran.out);
  EXPECT_EQ(json["finish"], "length");
}

TEST_F(Text, StopTextsEndTheAnswer) {
  const std::string whole =
      Run({"run", "--raw", "--prompt", "Once upon a time", "-n", "40", "--greedy", "--json"}).json()["text"];
  ASSERT_GT(whole.size(), 30u);
  const std::string stop = whole.substr(17, 5);
  const Json stopped =
      Run({"run", "--raw", "--prompt", "Once upon a time", "-n", "40", "--greedy", "--json", "--stop", stop})
          .json();
  EXPECT_EQ(stopped["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(stopped["finish"], "stop");
}

TEST_F(Text, AnswersThroughTheChatTemplate) {
  const Json json = Run({"run", "--prompt", "What color is the sky?", "--greedy", "--json"}).json();
  EXPECT_EQ(json["text"], "The sky is blue.");
  EXPECT_EQ(json["finish"], "stop");
}

TEST_F(Text, ChatsThroughAPipe) {
  const Ran ran = Run({"chat", "--greedy"}, "What color is the sky?\n/tokens\n/nonsense\nHello!\n");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("The sky is blue."), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("tokens in use"), std::string::npos);
  EXPECT_NE(ran.err.find("/nonsense: no such command"), std::string::npos);
}

TEST_F(Text, CountsTheTokensOfTheMessagesAsTheyStand) {
  const std::string talk = Path("talk.json");
  const Ran ran = Run({"chat", "--greedy", "--json", "--context", "64"},
                      "Hello!\n/save " + talk + "\n/tokens\n/reset\n/tokens\n/load " + talk +
                          "\n/tokens\nHello!\n/tokens\n" + std::string(400, 'x') + "\n");
  std::istringstream lines(ran.out);
  std::vector<std::string> said;
  for (std::string line; std::getline(lines, line);) said.push_back(line);
  ASSERT_EQ(said.size(), 10u) << ran.out;
  EXPECT_NE(said[2].find("2 messages\""), std::string::npos) << ran.out;
  EXPECT_EQ(said[2].find("\"0 of 64"), std::string::npos) << ran.out;
  EXPECT_NE(said[4].find("\"0 of 64 tokens in use, 0 messages\""), std::string::npos) << ran.out;
  EXPECT_NE(said[6].find("\"0 of 64 tokens in use, 2 messages, read anew"), std::string::npos) << ran.out;
  EXPECT_NE(said[8].find("4 messages\""), std::string::npos) << ran.out;
  EXPECT_NE(said[9].find("/reset"), std::string::npos) << ran.out;  // does not fit
}

TEST_F(Text, ChatsInJsonLines) {
  std::ofstream(Path("load.json")) << R"(["no message"])";
  const Ran ran = Run({"chat", "--greedy", "--json"},
                      "What color is the sky?\n/tokens\n/nonsense\n/set top-k -3\n\xFF\n/load " +
                          Path("load.json") + "\n/reset\nWhat color is the sky?\n");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  std::istringstream lines(ran.out);
  std::vector<Json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(ParseJson(line, "line").value());
  ASSERT_EQ(answers.size(), 8u) << ran.out;
  EXPECT_EQ(answers[0]["text"], "The sky is blue.");
  EXPECT_EQ(answers[0]["finish"], "stop");
  EXPECT_TRUE(answers[1].contains("info"));
  EXPECT_TRUE(answers[6].contains("info"));  // forgotten
  for (const size_t wrong : {2, 3, 4, 5}) EXPECT_TRUE(answers[wrong].contains("error")) << ran.out;
  EXPECT_EQ(answers[7]["text"], "The sky is blue.");
  EXPECT_EQ(Run({"run", "--greedy", "--json"}, "What color is the sky?\n").json()["text"],
            "The sky is blue.");
}

TEST_F(Text, AStateContinuesWhereItWasSaved) {
  const std::vector<std::string> base = {"run", "--raw", "--greedy", "--json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return Run(more);
  };
  const Json whole = with({"--prompt", "Once upon a time", "-n", "24"}).json();
  const Json first = with({"--prompt", "Once upon a time", "-n", "10", "--save-state", Path("s")}).json();
  const Json second = with({"--prompt", "", "-n", "14", "--state", Path("s")}).json();
  EXPECT_EQ(first["text"].get<std::string>() + second["text"].get<std::string>(),
            whole["text"].get<std::string>());
  std::string bytes = Slurp(Path("s"));
  bytes.resize(bytes.size() / 2);
  std::ofstream(Path("cut"), std::ios::binary) << bytes;
  EXPECT_EQ(with({"--prompt", "", "-n", "1", "--state", Path("cut")}).status, 4);
}

TEST_F(Text, PlainTextTakesNoFlagsOfTheTemplate) {
  std::ofstream(Path("tools.json")) << "[]";
  const std::vector<std::vector<std::string>> plain = {
      {"--save-state", Path("s")}, {"--state", Path("s")}, {"--raw"}};
  const std::vector<std::vector<std::string>> templated = {
      {"--system", "Be brief."}, {"--no-think"}, {"--tools", Path("tools.json")}};
  for (const auto& a : plain) {
    for (const auto& b : templated) {
      std::vector<std::string> arguments = {"run", "--prompt", "Once", "-n", "1"};
      arguments.insert(arguments.end(), a.begin(), a.end());
      arguments.insert(arguments.end(), b.begin(), b.end());
      const Ran ran = Run(arguments);
      EXPECT_EQ(ran.status, 2) << a[0] << b[0];
      EXPECT_NE(ran.err.find(b[0] + " is for the chat template, with " + a[0]), std::string::npos) << ran.err;
      EXPECT_FALSE(std::filesystem::exists(Path("s")));
    }
  }
}

TEST_F(Text, PromptsThatDoNotFitAreALimit) {
  const Ran ran =
      Run({"run", "--raw", "--prompt", "one two three four five six seven eight nine ten", "--context", "4"});
  EXPECT_EQ(ran.status, 7);
  EXPECT_NE(ran.err.find("context of 4"), std::string::npos) << ran.err;
}

TEST_F(Text, PerplexityIsSmallOnWhatTheModelLearned) {
  std::ofstream(Path("t.txt")) << "Once upon a time, there was a small rabbit named Leo. He liked to eat jam "
                                  "and to sing songs. The sky was blue and clear.\n";
  const Json json = Run({"ppl", "--file", Path("t.txt"), "--json", "--compute", "exact"}).json();
  EXPECT_GT(json["ppl"].get<double>(), 1.0);
  EXPECT_LT(json["ppl"].get<double>(), 6.0);
}

TEST_F(Text, PerplexityTellsWhatACacheCosts) {
  std::ofstream text(Path("t.txt"));
  for (int i = 0; i < 40; ++i)
    text << "Once upon a time, there was a small rabbit named Leo, who had " << i << " hats. ";
  text.close();
  std::set<double> seen;
  for (const char* kv : {"f32", "f16", "q8"}) {
    const Json json = Run({"ppl", "--file", Path("t.txt"), "--json", "--kv", kv}).json();
    EXPECT_TRUE(seen.insert(json["ppl"].get<double>()).second) << kv;
    EXPECT_NEAR(json["ppl"].get<double>() / *seen.begin(), 1.0, 0.01) << kv;
  }
}

}  // namespace
}  // namespace cmforge
