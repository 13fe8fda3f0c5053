// Snippets with what Python's jinja2 makes of them: text byte for byte, errors by kind.
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "text/jinja/template.h"

namespace cmforge::jinja {
namespace {

TEST(JinjaSnippets, RenderAsTheReferenceDoes) {
  const Json doc =
      ParseJson(ReadTextFile(CMFORGE_TEST_DATA "/text/jinja/cases.json").value(), "cases.json").value();
  int count = 0;
  for (const Json& c : doc.at("cases")) {
    ++count;
    const std::string name = c.at("name");
    const std::string source = c.at("template");
    TemplateOptions options;
    if (c.contains("options")) {
      options.trim_blocks = c["options"].value("trim_blocks", true);
      options.lstrip_blocks = c["options"].value("lstrip_blocks", true);
    }
    RenderOptions render;
    render.now = LocalTime::ParseIso(c.value("now", "2025-07-26T09:05:07")).value();
    const Result<Template> parsed = Template::Parse(source, name, options);
    Result<std::string> text =
        !parsed ? Fail(parsed.error()) : parsed->Render(c.value("vars", Json::object()), render);
    if (c.contains("expected")) {
      const std::string expected = c.at("expected");
      EXPECT_TRUE(text) << name << ": " << source << "\n" << text.error().message;
      if (text) {
        EXPECT_EQ(*text, expected) << name << ": " << source;
      }
      continue;
    }
    const std::string kind = c.at("error").at("kind");
    ASSERT_FALSE(text) << name << ": " << source << "\n" << *text;
    EXPECT_EQ(text.error().name, kind) << name << ": " << source << "\n" << text.error().message;
    if (kind == "raised") {
      const std::string message = c.at("error").at("message");
      EXPECT_EQ(text.error().message, message) << name;
    }
  }
  EXPECT_EQ(count, 297);
}

}  // namespace
}  // namespace cmforge::jinja
