// Answers of every family, whole and cut anywhere.
#include "text/chat_parse.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace cmforge {
namespace {

struct Expected {
  std::string content;
  std::string reasoning = {};
  std::vector<ToolCall> calls = {};
};

std::string Show(const std::vector<ToolCall>& calls) {
  std::string text;
  for (const ToolCall& call : calls) text += "[" + call.id + "|" + call.name + "|" + call.arguments + "]";
  return text;
}

void Expect(const Answer& got, const Expected& want, const std::string& what) {
  EXPECT_EQ(got.content, want.content) << what;
  EXPECT_EQ(got.reasoning, want.reasoning) << what;
  EXPECT_TRUE(got.tool_calls == want.calls) << what << "\n"
                                            << Show(got.tool_calls) << "\n"
                                            << Show(want.calls);
}

// Feeds pieces that end at `cuts`; what was handed out at any time is the beginning of the whole.
Answer Stream(AnswerFormat format, const std::string& text, const std::vector<size_t>& cuts,
              bool in_reasoning, const Json& tools) {
  AnswerParser parser(format, in_reasoning, tools);
  Answer joined;
  const auto add = [&](const AnswerDelta& delta) {
    joined.content += delta.content;
    joined.reasoning += delta.reasoning;
    joined.tool_calls.insert(joined.tool_calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
    EXPECT_EQ(joined.content, parser.answer().content);
    EXPECT_EQ(joined.reasoning, parser.answer().reasoning);
  };
  size_t at = 0;
  for (const size_t cut : cuts) {
    add(parser.Feed(std::string_view(text).substr(at, cut - at)));
    at = cut;
  }
  add(parser.Feed(std::string_view(text).substr(at)));
  add(parser.Finish());
  return joined;
}

void ExpectParses(AnswerFormat format, const std::string& text, const Expected& want,
                  bool in_reasoning = false, const Json& tools = nullptr) {
  Expect(ParseAnswer(format, text, in_reasoning, tools), want, "whole: " + text);
  std::vector<size_t> all;
  for (size_t i = 1; i < text.size(); ++i) {
    Expect(Stream(format, text, {i}, in_reasoning, tools), want, "cut at " + std::to_string(i) + ": " + text);
    all.push_back(i);
  }
  Expect(Stream(format, text, all, in_reasoning, tools), want, "byte by byte: " + text);
}

TEST(ParseAnswer, LeavesPlainTextAlone) {
  for (const AnswerFormat format :
       {AnswerFormat::kPlain, AnswerFormat::kHermes, AnswerFormat::kQwenXml, AnswerFormat::kLlama3,
        AnswerFormat::kGemma, AnswerFormat::kMistral, AnswerFormat::kDeepSeek, AnswerFormat::kGptOss}) {
    ExpectParses(format, "", {""});
    ExpectParses(format, "Hello, wörld.\n", {"Hello, wörld.\n"});
    ExpectParses(format, " a < b [TOOL] <tool <| {x} ", {" a < b [TOOL] <tool <| {x} "});
  }
}

TEST(ParseAnswer, SeparatesReasoning) {
  ExpectParses(AnswerFormat::kPlain, "<think>\nLet me see.\n\n 1+1\n</think>\n\nIt is 2.",
               {"It is 2.", "Let me see.\n\n 1+1"});
  ExpectParses(AnswerFormat::kPlain, "<think>\n\n</think>\n\nHi", {"Hi"});
  ExpectParses(AnswerFormat::kPlain, "Well.\n<think>hm</think> So.", {"Well.So.", "hm"});
  ExpectParses(AnswerFormat::kPlain, "<think>a</think>b<think>c</think>d", {"bd", "a\nc"});
  ExpectParses(AnswerFormat::kPlain, "<think>never closed\n", {"", "never closed"});
  ExpectParses(AnswerFormat::kPlain, "thinking\n</think>\nanswer", {"answer", "thinking"},
               /*in_reasoning=*/true);
  ExpectParses(AnswerFormat::kPlain, "cut off in thou", {"", "cut off in thou"}, /*in_reasoning=*/true);
  ExpectParses(AnswerFormat::kQwenXml, "<seed:think>x</seed:think>y", {"y", "x"});
  ExpectParses(AnswerFormat::kMistral, "[THINK]x[/THINK]y", {"y", "x"});
  ExpectParses(AnswerFormat::kMistral, "x[/THINK]y", {"y", "x"}, /*in_reasoning=*/true);
}

TEST(ParseAnswer, ReadsHermesAndQwenCalls) {
  ExpectParses(AnswerFormat::kHermes,
               "<think>\nuse a tool\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
               "{\"a\": 1.0, \"b\": "
               "\"x</tool_call>y\"}}\n</tool_call>",
               {"I look.", "use a tool", {{"", "f", "{\"a\": 1.0, \"b\": \"x</tool_call>y\"}"}}});
  ExpectParses(AnswerFormat::kHermes,
               "<tool_call>{\"name\":\"a\",\"arguments\":{}}</"
               "tool_call>\n<tool_call>{\"name\":\"b\",\"arguments\":{\"x\":[1]}}"
               "</tool_call>",
               {"", "", {{"", "a", "{}"}, {"", "b", "{\"x\":[1]}"}}});
  // Arguments as a string of JSON; no arguments; the closing mark missing at the end.
  ExpectParses(AnswerFormat::kHermes,
               "<tool_call>{\"name\":\"a\",\"arguments\":\"{\\\"k\\\": 2}\"}</tool_call>",
               {"", "", {{"", "a", "{\"k\": 2}"}}});
  ExpectParses(AnswerFormat::kHermes, "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
               {"", "", {{"", "now", "{}"}}});
  ExpectParses(AnswerFormat::kHermes, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n",
               {"", "", {{"", "now", "{}"}}});
}

TEST(ParseAnswer, HandsOutBrokenCallsAsWritten) {
  ExpectParses(AnswerFormat::kHermes, "a\n<tool_call>\nnot json\n</tool_call>\nb",
               {"a\n<tool_call>\nnot json\n</tool_call>\nb"});
  ExpectParses(AnswerFormat::kHermes, "<tool_call>{\"name\": 5}</tool_call>",
               {"<tool_call>{\"name\": 5}</tool_call>"});
  ExpectParses(AnswerFormat::kHermes, "x <tool_call>{\"name\": \"f\", \"argum",
               {"x <tool_call>{\"name\": \"f\", \"argum"});
  ExpectParses(AnswerFormat::kMistral, "[TOOL_CALLS]oops", {"[TOOL_CALLS]oops"});
  ExpectParses(AnswerFormat::kGemma, "<|tool_call>call:f{a:<tool_call|>",
               {"<|tool_call>call:f{a:<tool_call|>"});
  ExpectParses(AnswerFormat::kDeepSeek, "<｜tool▁call▁begin｜>f<｜tool▁call▁end｜>",
               {"<｜tool▁call▁begin｜>f<｜tool▁call▁end｜>"});
}

TEST(ParseAnswer, ReadsQwenCoderTags) {
  const std::string text =
      "On it.\n\n<tool_call>\n<function=run>\n<parameter=cmd>\nls -l\necho "
      "<b>\n</parameter>\n<parameter=n>\n5\n</parameter>\n"
      "<parameter=deep>\n{\"a\": [1, "
      "2]}\n</parameter>\n<parameter=zip>\n01234\n</parameter>\n</function>\n</tool_call>";
  ExpectParses(
      AnswerFormat::kQwenXml, text,
      {"On it.", "", {{"", "run", R"({"cmd":"ls -l\necho <b>","n":5,"deep":{"a":[1,2]},"zip":"01234"})"}}});
  // The schema says what is a string.
  const Json tools =
      Json::parse(R"([{"type":"function","function":{"name":"run","parameters":{"type":"object",
      "properties":{"n":{"type":"string"}}}}}])");
  ExpectParses(
      AnswerFormat::kQwenXml, text,
      {"On it.", "", {{"", "run", R"({"cmd":"ls -l\necho <b>","n":"5","deep":{"a":[1,2]},"zip":"01234"})"}}},
      false, tools);
  // Two functions in one block; a forgotten </parameter>.
  ExpectParses(AnswerFormat::kQwenXml,
               "<tool_call><function=a></function><function=b><parameter=x>\n1\n<parameter=y>\n2\n</"
               "parameter></function></tool_call>",
               {"", "", {{"", "a", "{}"}, {"", "b", R"({"x":"1\n<parameter=y>\n2"})"}}});
  ExpectParses(AnswerFormat::kQwenXml,
               "<tool_call>get\n<arg_key>k</arg_key>\n<arg_value>v w</arg_value>\n</tool_call>",
               {"", "", {{"", "get", R"({"k":"v w"})"}}});
  ExpectParses(AnswerFormat::kQwenXml,
               "<seed:tool_call><function=f><parameter=a>true</parameter></function></seed:tool_call>",
               {"", "", {{"", "f", R"({"a":true})"}}});
}

TEST(ParseAnswer, ReadsLlamaCalls) {
  ExpectParses(AnswerFormat::kLlama3, "{\"name\": \"f\", \"parameters\": {\"a\": \"}\"}}",
               {"", "", {{"", "f", "{\"a\": \"}\"}"}}});
  ExpectParses(AnswerFormat::kLlama3,
               "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}<|eom_id|>",
               {"", "", {{"", "f", "{}"}}});
  ExpectParses(AnswerFormat::kLlama3,
               "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{\"x\":1}}",
               {"", "", {{"", "f", "{}"}, {"", "g", "{\"x\":1}"}}});
  ExpectParses(AnswerFormat::kLlama3, "<|python_tag|>brave_search.call(query=\"a, b\", n=2)",
               {"", "", {{"", "brave_search", R"({"query":"a, b","n":2})"}}});
  ExpectParses(AnswerFormat::kLlama3, "Sure. <function=get>{\"a\": 1}</function>",
               {"Sure.", "", {{"", "get", "{\"a\": 1}"}}});
  // JSON that is no call is an answer.
  ExpectParses(AnswerFormat::kLlama3, "{\"colour\": \"red\"}\nDone", {"{\"colour\": \"red\"}\nDone"});
  ExpectParses(AnswerFormat::kLlama3, "{not json", {"{not json"});
  ExpectParses(AnswerFormat::kLlama3, "Text {\"name\": \"f\", \"parameters\": {}}",
               {"Text {\"name\": \"f\", \"parameters\": {}}"});
}

TEST(ParseAnswer, ReadsGemmaCalls) {
  ExpectParses(
      AnswerFormat::kGemma,
      "<|channel>thought\nI call.\n<channel|><|tool_call>call:get_weather{city:<|\"|>São, "
      "{Paulo}<|\"|>,days:3,"
      "units:[<|\"|>C<|\"|>,<|\"|>F<|\"|>],deep:{ok:true,f:1.5},none:null}<tool_call|>",
      {"",
       "I call.",
       {{"", "get_weather",
         R"({"city":"São, {Paulo}","days":3,"units":["C","F"],"deep":{"ok":true,"f":1.5},"none":null})"}}});
  ExpectParses(
      AnswerFormat::kGemma,
      "Hi<|tool_call>call:a{}<tool_call|><|tool_call>call:b{x:<|\"|><|\"|>}<tool_call|><|tool_response>",
      {"Hi", "", {{"", "a", "{}"}, {"", "b", R"({"x":""})"}}});
  ExpectParses(AnswerFormat::kGemma, "more\n<channel|>Answer", {"Answer", "more"}, /*in_reasoning=*/true);
}

TEST(ParseAnswer, ReadsMistralCalls) {
  ExpectParses(AnswerFormat::kMistral,
               "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abc123xyz\"}, {\"name\": "
               "\"g\", \"arguments\": {}}]",
               {"", "", {{"abc123xyz", "f", "{\"a\": 1}"}, {"", "g", "{}"}}});
  ExpectParses(AnswerFormat::kMistral,
               "[TOOL_CALLS]f[CALL_ID]abc123xyz[ARGS]{\"a\": \"[TOOL_CALLS]\"}[TOOL_CALLS]g[ARGS]{}",
               {"", "", {{"abc123xyz", "f", "{\"a\": \"[TOOL_CALLS]\"}"}, {"", "g", "{}"}}});
  ExpectParses(AnswerFormat::kMistral, "Let me.\n[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{}}]",
               {"Let me.", "", {{"", "f", "{}"}}});
}

TEST(ParseAnswer, ReadsDeepSeekCalls) {
  ExpectParses(
      AnswerFormat::kDeepSeek,
      "<think>x</"
      "think>ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
      "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>",
      {"ok", "x", {{"", "f", "{\"a\": 1}"}, {"", "g", "{}"}}});
  ExpectParses(AnswerFormat::kDeepSeek,
               "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
               "\"é\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
               {"", "", {{"", "f", "{\"a\": \"é\"}"}}});
  ExpectParses(AnswerFormat::kDeepSeek,
               "Now.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
               "string=\"true\">5</｜DSML｜"
               "parameter>\n<｜DSML｜parameter name=\"n\" "
               "string=\"false\">[5]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
               {"Now.", "", {{"", "f", R"({"s":"5","n":[5]})"}}});
}

TEST(ParseAnswer, ReadsHarmony) {
  ExpectParses(AnswerFormat::kGptOss,
               "<|channel|>analysis<|message|>The user "
               "asks.<|end|><|start|>assistant<|channel|>final<|message|>Hello!\n\nBye.<|return|>",
               {"Hello!\n\nBye.", "The user asks."});
  ExpectParses(AnswerFormat::kGptOss,
               "<|channel|>analysis<|message|>Need a tool.<|end|><|start|>assistant<|channel|>commentary "
               "to=functions.get_weather "
               "<|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>",
               {"", "Need a tool.", {{"", "get_weather", "{\"city\": \"Rome\"}"}}});
  ExpectParses(AnswerFormat::kGptOss,
               "<|channel|>commentary<|message|>I will look it up.<|end|><|start|>assistant "
               "to=functions.f<|channel|>commentary json"
               "<|message|>{}<|call|>",
               {"I will look it up.", "", {{"", "f", "{}"}}});
  ExpectParses(AnswerFormat::kGptOss, "<|channel|>final<|message|>cut off", {"cut off"});
  ExpectParses(AnswerFormat::kGptOss, "<|channel|>analysis", {""});
  ExpectParses(AnswerFormat::kGptOss, "<|channel|>commentary to=functions.f<|message|>not json<|call|>",
               {"not json"});
}

TEST(DetectAnswerFormat, KnowsTheTemplates) {
  const std::pair<const char*, AnswerFormat> kTemplates[] = {
      {"Qwen-Qwen3-0.6B", AnswerFormat::kHermes},
      {"Qwen-Qwen2.5-7B-Instruct", AnswerFormat::kHermes},
      {"Qwen3-Coder", AnswerFormat::kQwenXml},
      {"Qwen3.5-4B", AnswerFormat::kQwenXml},
      {"GLM-4.6", AnswerFormat::kQwenXml},
      {"ByteDance-Seed-OSS", AnswerFormat::kQwenXml},
      {"google-gemma-4-31B-it", AnswerFormat::kGemma},
      {"openai-gpt-oss-120b", AnswerFormat::kGptOss},
      {"deepseek-ai-DeepSeek-V3.1", AnswerFormat::kDeepSeek},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", AnswerFormat::kDeepSeek},
      {"deepseek-ai-DeepSeek-V3.2", AnswerFormat::kDeepSeek},
      {"Mistral-Small-3.2-24B-Instruct-2506", AnswerFormat::kMistral},
      {"mistralai-Mistral-Nemo-Instruct-2407", AnswerFormat::kMistral},
      {"meetkai-functionary-medium-v3.1", AnswerFormat::kLlama3},
      {"llama-cpp-rwkv-world", AnswerFormat::kPlain},
      {"microsoft-Phi-3.5-mini-instruct", AnswerFormat::kPlain}};
  for (const auto& [name, format] : kTemplates) {
    const std::string source =
        ReadTextFile(std::string(CMFORGE_TEST_DATA "/text/chat/") + name + ".jinja").value();
    EXPECT_EQ(AnswerFormatName(DetectAnswerFormat(source)), AnswerFormatName(format)) << name;
  }
}

TEST(PromptOpensReasoning, LooksAtTheEndOfThePrompt) {
  EXPECT_TRUE(PromptOpensReasoning("…<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(PromptOpensReasoning("[THINK]"));
  EXPECT_FALSE(PromptOpensReasoning("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(PromptOpensReasoning("user: what is <think>?\nassistant:"));
  EXPECT_FALSE(PromptOpensReasoning(""));
}

}  // namespace
}  // namespace cmforge
