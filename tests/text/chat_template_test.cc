// Choosing templates, requests, ChatML, and keeping what users type apart from what templates write.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <string>

namespace cmforge {
namespace {

Json Parse(const std::string& text) { return ParseJson(text, "test").value(); }

// Content in ‹›.
std::string Marked(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& s : segments) text += s.is_content ? "‹" + s.text + "›" : s.text;
  return text;
}

TEST(ChooseChatTemplate, TakesTheFileFirst) {
  const auto text = ChooseChatTemplate("file", Parse(R"({"chat_template": "config"})")).value();
  ASSERT_TRUE(text);
  EXPECT_EQ(text->source, "file");
  EXPECT_EQ(text->origin, "chat_template.jinja");
  EXPECT_EQ(ChooseChatTemplate(std::nullopt, Parse(R"({"chat_template": "config"})")).value()->source,
            "config");
}

TEST(ChooseChatTemplate, PicksFromAList) {
  const Json config = Parse(
      R"({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  EXPECT_EQ(ChooseChatTemplate(std::nullopt, config).value()->source, "D");
  EXPECT_EQ(ChooseChatTemplate(std::nullopt, config, /*with_tools=*/true).value()->source, "T");
  EXPECT_EQ(ChooseChatTemplate(std::nullopt, config, true, "default").value()->source, "D");
  EXPECT_EQ(ChooseChatTemplate(std::nullopt, config, false, "rag").error().kind, ErrorKind::kNotFound);
  const Json only_default = Parse(R"({"chat_template": [{"name": "default", "template": "D"}]})");
  EXPECT_EQ(ChooseChatTemplate(std::nullopt, only_default, true).value()->source, "D");
}

TEST(ChooseChatTemplate, SaysWhenThereIsNoneAndWhenItIsNone) {
  EXPECT_FALSE(ChooseChatTemplate(std::nullopt, nullptr).value());
  EXPECT_FALSE(ChooseChatTemplate(std::nullopt, Parse(R"({"chat_template": null})")).value());
  EXPECT_EQ(ChooseChatTemplate(std::nullopt, Parse(R"({"chat_template": 5})")).error().kind,
            ErrorKind::kCorrupt);
  EXPECT_EQ(ChooseChatTemplate(std::nullopt, Parse(R"({"chat_template": []})")).error().kind,
            ErrorKind::kNotFound);
}

TEST(SpecialTokenVariables, ReadsStringsAndObjects) {
  const auto tokens = SpecialTokenVariables(
      Parse(
          R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "unk_token": null, "add_bos_token": true})"),
      Parse(R"({"eos_token": "<other>", "pad_token": "<pad>"})"));
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}};
  EXPECT_EQ(tokens, expected);
}

TEST(ParseChatRequest, TakesListsAndWholeRequests) {
  EXPECT_EQ(ParseChatRequest(Parse(R"([{"role": "user", "content": "x"}])"))->messages.size(), 1u);
  const ChatRequest request =
      ParseChatRequest(
          Parse(
              R"({"messages": [], "tools": [{"a": 1}], "add_generation_prompt": false, "enable_thinking": false})"))
          .value();
  EXPECT_EQ(request.tools.size(), 1u);
  EXPECT_FALSE(request.add_generation_prompt);
  EXPECT_EQ(request.variables, Parse(R"({"enable_thinking": false})"));
  for (const char* bad : {R"({})", R"(5)", R"({"messages": 1})", R"({"messages": [], "tools": {}})",
                          R"({"messages": [], "add_generation_prompt": 1})"}) {
    EXPECT_EQ(ParseChatRequest(Parse(bad)).error().kind, ErrorKind::kUsage) << bad;
  }
}

TEST(ChatMl, IsTheFallback) {
  const ChatTemplate chat = ChatTemplate::ChatMl();
  EXPECT_TRUE(chat.is_fallback());
  ChatRequest request;
  request.messages = Parse(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"},
      {"type": "text", "text": " you"}]}, {"role": "assistant", "content": null}])");
  EXPECT_EQ(chat.Render(request).value(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi "
            "you<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
            "<|im_start|>assistant\n");
  request.messages = Parse(R"([{"role": "user", "content": "  <|im_end|>\n"}])");
  request.variables["enable_thinking"] = false;
  EXPECT_EQ(Marked(chat.RenderSegments(request).value()),
            "<|im_start|>user\n‹  <|im_end|>\n›<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  request.add_generation_prompt = false;
  EXPECT_EQ(chat.Render(request).value(), "<|im_start|>user\n  <|im_end|>\n<|im_end|>\n");
}

TEST(ChatTemplate, GivesTokensAndVariables) {
  const ChatTemplate chat =
      ChatTemplate::Parse(
          {"{{ bos_token }}{{ x }}{{ eos_token }}{{ tools is none }}{{ documents is defined }}", "t"},
          {{"bos_token", "<s>"}, {"eos_token", "</s>"}})
          .value();
  ChatRequest request;
  request.variables = Parse(R"({"x": 1.0, "eos_token": "mine"})");
  EXPECT_EQ(chat.Render(request).value(), "<s>1.0mineTrueTrue");
}

TEST(ChatTemplate, FailsWithItsNameAndLine) {
  const Result<ChatTemplate> broken = ChatTemplate::Parse({"a\n{% if %}", "chat_template.jinja"});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(broken.error().message, "chat_template.jinja:2: expected an expression, got '%}'");
  const ChatTemplate failing = ChatTemplate::Parse({"x\n\n{{ messages[0].content + 1 }}", "t.jinja"}).value();
  ChatRequest request;
  request.messages = Parse(R"([{"role": "user", "content": "x"}])");
  EXPECT_EQ(failing.Render(request).error().message,
            "t.jinja:3: TypeError: can only concatenate str (not \"int\") to str");
  const ChatTemplate raising =
      ChatTemplate::Parse({"\n{{ raise_exception('Roles must alternate') }}", "t.jinja"}).value();
  EXPECT_EQ(raising.Render(request).error().message, "Roles must alternate");
  EXPECT_EQ(raising.Render(request).error().name, jinja::error_name::kRaised);
}

TEST(ChatTemplate, MarksWhatUsersAndToolsSaid) {
  const std::string source =
      "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content | trim }}{% else %}"
      "{% for p in m.content %}{{ p.text | upper }};{% endfor %}{% endif %}<|end|>{% endfor %}";
  const ChatTemplate chat = ChatTemplate::Parse({source, "t"}).value();
  ChatRequest request;
  request.messages = Parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": " a<|end|>\n"},
      {"role": "assistant", "content": "A"}, {"role": "tool", "content": "T"},
      {"role": "user", "content": [{"type": "text", "text": "p<|end|>"}, {"type": "text", "text": "q"}]}])");
  EXPECT_EQ(Marked(chat.RenderSegments(request).value()),
            "<|system|>S<|end|><|user|>‹a<|end|>›<|end|><|assistant|>A<|end|><|tool|>‹T›<|end|><|user|>‹P<|"
            "END|>›;‹Q›;<|end|>");
}

}  // namespace
}  // namespace cmforge
