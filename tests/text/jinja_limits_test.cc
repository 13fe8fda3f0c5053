// Hostile templates end in an error, soon, whatever they try.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/json.h"
#include "text/jinja/template.h"

namespace cmforge::jinja {
namespace {

std::string Times(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

Result<std::string> RenderText(const std::string& source, const Limits& limits = {}) {
  CMF_TRY(const Template parsed, Template::Parse(source, "t"));
  RenderOptions options;
  options.limits = limits;
  return parsed.Render(Json::object(), options);
}

constexpr Limits kSmall{.steps = 1'000'000, .output_bytes = 1 << 20, .memory_bytes = 8 << 20};

TEST(JinjaLimits, StopLoopsAndGrowth) {
  const std::string kTemplates[] = {
      // time
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% if loop.last %}{% endif %}{% endfor %}{% "
      "endfor %}",
      "{% set l = range(100000)|list %}{% for a in l %}{% if 'x' in l %}{% endif %}{% endfor %}",
      "{% set l = range(100000)|list %}{% for a in l %}{{ l|sort|first }}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{% if 'b' in s %}{% endif %}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{% if s.upper() == s %}{% endif %}{% endfor %}",
      "{% set s = 'é' * 500000 %}{% for a in range(100000) %}{% if s[400000] %}{% endif %}{% endfor %}",
      "{% for a in range(100000) %}{% if ('a' * 100000).count('a') %}{% endif %}{% endfor %}",
      "{% for i in range(100000) %}{{ loop.length }}{% for j in range(100000) if j > 99998 %}{% endfor %}{% "
      "endfor %}",
      // memory
      "{{ 'a' * 1000000000000 }}",
      "{{ [0] * 1000000000000 }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ "
      "ns.s|length }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ "
      "ns.s|length }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s.replace('a', 'aaaab') %}{% "
      "endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s|join(ns.s) %}{% endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% "
      "endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = '{0}{0}'.format(ns.s) %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ "
      "ns.l|length }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
      "ns.l }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
      "ns.l|tojson }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
      "ns.l == [ns.l[0], ns.l[1], 2] }}{{ [ns.l]|pprint }}",
      "{{ 'x'|center(1000000000000) }}",
      "{{ 'x'.zfill(1000000000000) }}",
      "{{ '\\t'.expandtabs(1000000000000) }}",
      "{{ 'a\\nb'|indent(1000000000000) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '%.1000000000f' % 1 }}",
      "{{ '%*d' % (10 ** 9, 1) }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ '{:.1000000000f}'.format(1) }}",
      "{{ [1]|tojson(indent=1000000000000) }}",
      "{{ [1]|batch(1000000000000, 0)|list }}",
      "{{ [1]|slice(1000000000000)|list|length }}",
      "{% for i in range(100000) %}{% set v = range(1000)|list %}{% endfor %}",
      // output
      "{% for a in range(100000) %}{{ 'a' * 100 }}{% endfor %}",
      "{% for a in range(100000) %}{% set v %}{{ 'a' * 1000000 }}{% endset %}{% endfor %}",
      // numbers
      "{{ 10 ** 1000000000 }}",
      "{{ 2 ** 30 ** 30 ** 30 ** 30 }}",
      "{% set ns = namespace(n=9) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n "
      "}}",
      // depth
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{% filter upper %}{{ a() }}{% endfilter %}{% "
      "endmacro %}{{ a() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}{% "
      "endmacro %}{{ r() }}",
      "{% block a %}{{ self.a() }}{% endblock %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ "
      "ns.l|tojson }}",
      "{% set ns = namespace(l=()) %}{% for i in range(1000) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: "
      "1} }}",
      "{% set ns = namespace(l=[], m=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% set ns.m = "
      "[ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "{% set ns = namespace(d={}) %}{% for i in range(1000) %}{% set ns.d = {'a': ns.d} %}{% endfor %}{{ "
      "ns.d|pprint }}",
      "{{ strftime_now('%1000000000d') ~ strftime_now('%9999Y' * 100000) }}",
  };
  for (const std::string& source : kTemplates) {
    const auto start = std::chrono::steady_clock::now();
    const Result<std::string> text = RenderText(source, kSmall);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_FALSE(text) << source;
    EXPECT_LT(seconds, 60) << source;  // a hang, not a matter of speed
    if (!text) {
      EXPECT_EQ(text.error().kind, ErrorKind::kLimit) << source << ": " << text.error().message;
    }
  }
}

TEST(JinjaLimits, CyclesAreShownAndFreed) {
  EXPECT_EQ(RenderText("{% set n = namespace() %}{% set n.self = n %}{{ n }}").value(),
            "<Namespace {'self': <Namespace {...}>}>");
  EXPECT_FALSE(RenderText("{% set n = namespace() %}{% set n.self = n %}{{ n|tojson }}"));
}

TEST(JinjaLimits, StopDeepTemplates) {
  const int deep = 100000;
  const std::string kTemplates[] = {
      "{{ " + Times("(", deep) + "1" + Times(")", deep) + " }}",
      "{{ " + Times("[", deep) + Times("]", deep) + " }}",
      "{{ " + Times("{1:", deep) + "1" + Times("}", deep) + " }}",
      "{{ " + Times("-", deep) + "1 }}",
      "{{ " + Times("not ", deep) + "1 }}",
      "{{ 1" + Times("+1", deep) + " }}",
      "{{ 1" + Times("|abs", deep) + " }}",
      "{{ x" + Times(".a", deep) + " }}",
      "{{ x" + Times("[0]", deep) + " }}",
      "{{ x" + Times("()", deep) + " }}",
      "{{ 1" + Times(" if 1 else 1", deep) + " }}",
      "{{ 1" + Times(" and 1", deep) + " }}",
      "{{ f(" + Times("f(", deep) + Times(")", deep) + ") }}",
      Times("{% if 1 %}", deep) + Times("{% endif %}", deep),
      Times("{% for x in y %}", deep),
      Times("{% macro m() %}", deep),
      Times("{% set x %}", deep),
      "{% for " + Times("(", deep) + "x" + Times(")", deep) + " in y %}{% endfor %}",
  };
  for (const std::string& source : kTemplates) {
    const Result<Template> parsed = Template::Parse(source, "t");
    ASSERT_FALSE(parsed) << source.substr(0, 60);
    EXPECT_EQ(parsed.error().kind, ErrorKind::kLimit)
        << source.substr(0, 60) << ": " << parsed.error().message;
  }
  EXPECT_EQ(Template::Parse(std::string(2 << 20, 'x'), "t").error().kind, ErrorKind::kLimit);
}

TEST(JinjaLimits, StopManyBranchesTimesManyNames) {
  std::string source;
  for (int i = 0; i < 3000; ++i) source += "{% set v" + std::to_string(i) + " = 1 %}";
  source += "{% if a %}";
  for (int i = 0; i < 20000; ++i) source += "{% elif a %}";
  const Result<Template> parsed = Template::Parse(source + "{% endif %}", "t");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().kind, ErrorKind::kLimit);
}

TEST(JinjaLimits, LeaveRoomForWhatTheReferenceAllows) {
  EXPECT_EQ(
      RenderText("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}x{% endmacro %}{{ m(195)|length }}")
          .value(),
      "196");
  EXPECT_EQ(RenderText("{{ " + Times("(", 74) + "1" + Times(")", 74) + " }}").value(), "1");
  EXPECT_EQ(RenderText("{% set x = 1 %}{{ x" + Times(" + 1", 195) + " }}").value(), "196");
  EXPECT_EQ(RenderText(Times("{% if 1 %}", 98) + "x" + Times("{% endif %}", 98)).value(), "x");
  EXPECT_EQ(RenderText("{% if x %}" + Times("{% elif x %}", 2900) + "{% else %}y{% endif %}").value(), "y");
  // Appending in a loop is linear.
  EXPECT_EQ(RenderText("{% set ns = namespace(s='') %}{% for i in range(100000) %}{% set ns.s = ns.s + "
                       "'0123456789' %}{% endfor %}"
                       "{{ ns.s|length }}",
                       {.steps = 10'000'000, .memory_bytes = 32 << 20})
                .value(),
            "1000000");
}

}  // namespace
}  // namespace cmforge::jinja
