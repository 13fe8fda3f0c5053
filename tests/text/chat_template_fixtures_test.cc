// Chat templates of many models with expected prompts, byte for byte.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "text/chat_template.h"

namespace cmforge {
namespace {

std::string Joined(const std::vector<ChatSegment>& segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

ChatRequest RequestOf(const Json& input) {
  ChatRequest request;
  request.messages = input.at("messages");
  request.tools = input.value("tools", Json());
  request.documents = input.value("documents", Json());
  request.add_generation_prompt = input.value("add_generation_prompt", false);
  request.variables = input.value("kwargs", Json::object());
  return request;
}

// Returns the number of cases.
int CheckTemplate(const std::filesystem::path& path) {
  const std::string name = path.stem().string();
  const std::string source = ReadTextFile(path).value();
  const ChatTemplate chat = ChatTemplate::Parse({source, name}).value();
  const std::filesystem::path cases = path.parent_path() / (name + ".cases.json");
  const Json doc = ParseJson(ReadTextFile(cases).value(), name).value();
  int count = 0;
  for (const Json& c : doc.at("cases")) {
    ++count;
    const std::string what = name + ", case " + std::to_string(count);
    ChatRequest request = RequestOf(c.at("input"));
    request.now = jinja::LocalTime::ParseIso(c.value("now", "2025-07-26T09:05:07")).value();
    const Result<std::string> text = chat.Render(request);
    const Result<std::vector<ChatSegment>> segments = chat.RenderSegments(request);
    if (!c.contains("expected")) {
      const std::string kind = c.at("error").at("kind");
      EXPECT_FALSE(text) << what;
      EXPECT_FALSE(segments) << what;
      if (text) continue;
      EXPECT_EQ(text.error().name, kind) << what << ": " << text.error().message;
      if (kind == "raised") {
        EXPECT_EQ(text.error().message, c.at("error").at("message").get<std::string>()) << what;
      }
      if (c.contains("expected_if_mutation_allowed")) {
        const auto parsed = jinja::Template::Parse(source, name).value();
        Json context = request.variables;
        context["messages"] = request.messages;
        context["tools"] = request.tools;
        context["documents"] = request.documents;
        context["add_generation_prompt"] = request.add_generation_prompt;
        const auto lenient = parsed.Render(context, {.now = request.now, .allow_mutation = true});
        EXPECT_TRUE(lenient) << what << ": " << lenient.error().message;
        if (lenient) {
          EXPECT_EQ(*lenient, c["expected_if_mutation_allowed"].get<std::string>()) << what;
        }
      }
      continue;
    }
    EXPECT_TRUE(text) << what << ": " << text.error().message;
    if (!text) continue;
    EXPECT_EQ(*text, c.at("expected").get<std::string>()) << what;
    EXPECT_TRUE(segments) << what;
    if (segments) {
      EXPECT_EQ(Joined(*segments), *text) << what;
    }
  }
  return count;
}

int CheckFolder(const std::filesystem::path& folder, std::string_view only = {}) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".jinja" && name.find(only) != std::string::npos)
      count += CheckTemplate(entry.path());
  }
  return count;
}

TEST(ChatTemplates, RenderAsTheReferenceDoes) {
  EXPECT_EQ(CheckFolder(CMFORGE_TEST_DATA "/text/chat"), 1043);
}

TEST(ChatTemplates, RenderAsTheReferenceDoesForTemplatesUnderConditions) {
  const std::filesystem::path folder = CMFORGE_SOURCE_DIR "/../shared/fixtures/chat_templates";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "no " << folder << ": these templates are not part of the repository";
  EXPECT_EQ(CheckFolder(folder, "Kimi"), 80);
}

}  // namespace
}  // namespace cmforge
