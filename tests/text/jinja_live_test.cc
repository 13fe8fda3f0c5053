// Random snippets against Debian's python3-jinja2, where that is installed.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/json.h"
#include "text/jinja/template.h"

namespace cmforge::jinja {
namespace {

constexpr int kMissing = 77;  // the script's exit status without jinja2

TEST(JinjaLive, AgreesWithTheReferenceOnRandomSnippets) {
  const std::string script = CMFORGE_SOURCE_DIR "/tests/oracle/jinja_snippets.py";
  const std::string command = "/usr/bin/python3 -W ignore '" + script + "' 2025 1500 2>/dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char buffer[65536];
  while (const size_t n = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, n);
  const int status = pclose(pipe);
  if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) == kMissing || WEXITSTATUS(status) == 127) {
    GTEST_SKIP() << "no python3-jinja2 to compare with";
  }
  ASSERT_EQ(WEXITSTATUS(status), 0);
  int count = 0;
  for (size_t at = 0; at < output.size();) {
    const size_t end = output.find('\n', at);
    const Json c = ParseJson(std::string_view(output).substr(at, end - at), "snippet").value();
    at = end + 1;
    ++count;
    const std::string source = c.at("template");
    RenderOptions options;
    options.now = LocalTime::ParseIso("2025-07-26T09:05:07").value();
    const Result<Template> parsed = Template::Parse(source, "t");
    const Result<std::string> text =
        parsed ? parsed->Render(c.at("vars"), options) : Result<std::string>(Fail(parsed.error()));
    if (c.contains("text")) {
      EXPECT_TRUE(text) << source << "\n" << text.error().message;
      if (text) {
        EXPECT_EQ(*text, c["text"].get<std::string>()) << source;
      }
    } else {
      EXPECT_FALSE(text) << source << "\nshould fail: " << c["error"];
    }
  }
  EXPECT_EQ(count, 1500);
}

}  // namespace
}  // namespace cmforge::jinja
