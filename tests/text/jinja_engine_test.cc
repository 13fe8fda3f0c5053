// The engine's own promises: messages, options, the clock, many renderings of one template.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "text/jinja/template.h"

namespace cmforge::jinja {
namespace {

Result<std::string> RenderText(const std::string& source, const Json& context = Json::object(),
                               const RenderOptions& options = {}) {
  CMF_TRY(const Template parsed, Template::Parse(source, "t"));
  return parsed.Render(context, options);
}

TEST(JinjaEngine, NamesTheLineOfAFault) {
  EXPECT_EQ(RenderText("a\nb\n{{ x.y }}").error().message, "t:3: 'x' is undefined");
  EXPECT_EQ(RenderText("{% if true %}\n\n{{ {}.a.b }}{% endif %}").error().message,
            "t:3: 'dict object' has no attribute 'a'");
  EXPECT_EQ(RenderText("{% macro m(a) %}\n{{ a + 1 }}\n{% endmacro %}\n\n{{ m('x') }}").error().message,
            "t:2: TypeError: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(RenderText("{{ [1,\n 2,\n x()] }}").error().message, "t:3: 'x' is undefined");
  EXPECT_EQ(RenderText("x\n{{ 1 2 }}").error().message, "t:2: expected '}}', got '2'");
  EXPECT_EQ(RenderText("{% for x in y %}\n").error().message,
            "t:1: unexpected end of template: 'for' of line 1 is not closed by 'endfor'");
  EXPECT_EQ(RenderText("\n{{ x|nosuch }}").error().message, "t:2: no filter named 'nosuch'");
}

TEST(JinjaEngine, TellsKindsOfFaultsApart) {
  const std::pair<const char*, std::string_view> kCases[] = {
      {"{{ }}", error_name::kSyntax},
      {"{{ x.y }}", error_name::kUndefined},
      {"{{ [].append(1) }}", error_name::kSecurity},
      {"{{ ''.__class__.x }}", error_name::kSecurity},
      {"{{ raise_exception('m') }}", error_name::kRaised},
      {"{% set x.y = 1 %}", error_name::kTemplate},
      {"{{ 1 + 'x' }}", error_name::kRuntime},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", error_name::kLimitReached},
  };
  for (const auto& [source, name] : kCases) {
    const Result<std::string> text = RenderText(source);
    ASSERT_FALSE(text) << source;
    EXPECT_EQ(text.error().name, name) << source;
    EXPECT_EQ(text.error().kind, name == error_name::kLimitReached ? ErrorKind::kLimit : ErrorKind::kCorrupt)
        << source;
  }
}

TEST(JinjaEngine, SwitchesTrimming) {
  const std::string source = " {% if true %}\nx\n {% endif %}\ny";
  const auto render = [&](bool trim, bool lstrip) {
    return Template::Parse(source, "t", {.trim_blocks = trim, .lstrip_blocks = lstrip})
        .value()
        .Render(Json::object())
        .value();
  };
  EXPECT_EQ(render(true, true), "x\ny");
  EXPECT_EQ(render(false, true), "\nx\n\ny");
  EXPECT_EQ(render(true, false), " x\n y");
  EXPECT_EQ(render(false, false), " \nx\n \ny");
}

TEST(JinjaEngine, AllowsMutationWhenAsked) {
  const std::string source =
      "{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}) "
      "%}{{ d }}{{ d.pop('a') }}{{ d }}";
  EXPECT_EQ(RenderText(source).error().name, error_name::kSecurity);
  EXPECT_EQ(RenderText(source, Json::object(), {.allow_mutation = true}).value(),
            "[1, 2]{'a': 1, 'b': 2}1{'b': 2}");
}

TEST(JinjaEngine, DoesNotTouchItsContext) {
  const Json context = {{"l", {3, 1, 2}}};
  EXPECT_EQ(RenderText("{{ l.pop() }}{{ l }}{{ l.clear() }}{{ l }}", context).value(), "2[3, 1]None[]");
  EXPECT_EQ(context["l"].size(), 3u);
}

TEST(JinjaEngine, RendersOneTemplateInManyThreads) {
  const Template parsed =
      Template::Parse(
          "{% macro m(n) %}{% for i in range(n) %}{{ i }}{{ x }}{% endfor %}{% endmacro %}{{ m(20) }}", "t")
          .value();
  std::vector<std::thread> threads;
  std::vector<std::string> texts(8);
  for (size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        texts[t] = parsed.Render({{"x", std::string(1, static_cast<char>('a' + t))}}).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < texts.size(); ++t) {
    std::string expected;
    for (int i = 0; i < 20; ++i) expected += std::to_string(i) + static_cast<char>('a' + t);
    EXPECT_EQ(texts[t], expected);
  }
}

TEST(JinjaEngine, ReadsTimes) {
  EXPECT_EQ(LocalTime::ParseIso("2024-02-29")->day, 29);
  EXPECT_EQ(LocalTime::ParseIso("2025-07-26T09:05:07.25")->microsecond, 250000);
  EXPECT_EQ(LocalTime::ParseIso("2025-07-26 09:05")->minute, 5);
  for (const char* bad :
       {"", "2025", "2025-02-29", "2025-13-01", "2025-01-01T24:00:00", "2025-01-01T10:00:00Z", "2025-1-1"}) {
    EXPECT_EQ(LocalTime::ParseIso(bad).error().kind, ErrorKind::kUsage) << bad;
  }
}

TEST(JinjaEngine, WritesTimes) {
  const auto show = [](const std::string& format, const char* time) {
    return RenderText("{{ strftime_now(f) }}", {{"f", format}}, {.now = LocalTime::ParseIso(time).value()})
        .value();
  };
  EXPECT_EQ(show("%Y-%m-%d %H:%M:%S", "2025-07-26T09:05:07"), "2025-07-26 09:05:07");
  EXPECT_EQ(show("%a %A %b %B %d %e %-d %j %p %I %y %%", "2025-07-06T00:05:07"),
            "Sun Sunday Jul July 06  6 6 187 AM 12 25 %");
  EXPECT_EQ(show("%c|%x|%X|%D|%F|%T|%R|%r", "2025-07-26T19:05:07"),
            "Sat Jul 26 19:05:07 2025|07/26/25|19:05:07|07/26/25|2025-07-26|19:05:07|19:05|07:05:07 PM");
  EXPECT_EQ(show("%G-W%V-%u %U %W %w", "2027-01-01"), "2026-W53-5 00 00 5");
  EXPECT_EQ(show("%G %V %s %f", "1970-01-01T00:00:01.5"), "1970 01 1 500000");
  EXPECT_EQ(show("%^a %#p %_d %5Y %Q [%z%Z] %", "2025-07-06"), "SUN am  6 02025 %Q [] %");
}

TEST(JinjaEngine, WantsAnObject) {
  EXPECT_EQ(RenderText("x", Json::array()).error().kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace cmforge::jinja
