// Tracing: which bytes of the output came from a marked string, through everything a template can do to it.
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "text/jinja/template.h"

namespace cmforge::jinja {
namespace {

// Renders with x = "ab <T> c" traced; traced bytes stand in [].
std::string Traced(const std::string& source, const std::string& x = "ab <T> c") {
  Json context = {{"x", x}, {"y", "plain"}, {"d", {{"k", x}}}};
  const Template parsed = Template::Parse(source, "t").value();
  RenderOptions options;
  options.traced = {&context["x"], &context["d"]["k"]};
  const Result<Rendering> r = parsed.RenderTraced(context, options);
  if (!r) return r.error().message;
  EXPECT_EQ(r->text, parsed.Render(context).value()) << source;
  std::string marked;
  uint64_t at = 0;
  for (const Rendering::Range& range : r->traced) {
    EXPECT_LE(at, range.begin);
    EXPECT_LT(range.begin, range.end);
    marked += r->text.substr(at, range.begin - at) + "[" +
              r->text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return marked + r->text.substr(at);
}

TEST(JinjaTracing, FollowsStringsThroughExpressions) {
  EXPECT_EQ(Traced("{{ x }}"), "[ab <T> c]");
  EXPECT_EQ(Traced("<{{ y }}{{ x }}>"), "<plain[ab <T> c]>");
  EXPECT_EQ(Traced("{{ '<T>' + x + '<T>' }}"), "<T>[ab <T> c]<T>");
  EXPECT_EQ(Traced("{{ 'a' ~ x ~ 1 ~ x }}"), "a[ab <T> c]1[ab <T> c]");
  EXPECT_EQ(Traced("{{ x[3:6] }}{{ x[::-1] }}{{ x[0] }}"), "[<T>c >T< baa]");
  EXPECT_EQ(Traced("{{ x * 2 }}"), "[ab <T> cab <T> c]");
  EXPECT_EQ(Traced("{{ '%s|%5s|%.2s' % (x, y, x) }}"), "[ab <T> c]|plain|[ab]");
  EXPECT_EQ(Traced("{{ '{}|{:>10}|{k}'.format(x, x, k=y) }}"), "[ab <T> c]|  [ab <T> c]|plain");
  EXPECT_EQ(Traced("{{ x if true else y }}"), "[ab <T> c]");
  EXPECT_EQ(Traced("{{ [x, y] }}"), "['[ab <T> c]', 'plain']");
}

TEST(JinjaTracing, FollowsStringsThroughFiltersAndMethods) {
  EXPECT_EQ(Traced("{{ x | trim | upper }}", " é<T> "), "[É<T>]");
  EXPECT_EQ(Traced("{{ x | replace('<T>', y) }}"), "[ab ]plain[ c]");
  EXPECT_EQ(Traced("{{ y | replace('l', x) }}"), "p[ab <T> c]ain");
  EXPECT_EQ(Traced("{{ x.split(' ') | join('<T>') }}"), "[ab]<T>[<T>]<T>[c]");
  EXPECT_EQ(Traced("{{ x | tojson }}", "a\"é\n"), "\"[a\\\"é\\n]\"");
  EXPECT_EQ(Traced("{{ d | tojson }}"), "{\"k\": \"[ab <T> c]\"}");
  EXPECT_EQ(Traced("{{ x | indent(2) }}", "a\nb"), "[a]\n  [b]");
  EXPECT_EQ(Traced("{{ x | e }}"), "[ab &lt;T&gt; c]");
  EXPECT_EQ(Traced("{{ x | title }}{{ x.title() }}{{ x | capitalize }}"), "[Ab <T> CAb <T> CAb <t> c]");
  EXPECT_EQ(Traced("{{ x | center(12) }}|{{ x.zfill(10) }}"), "  [ab <T> c]  |00[ab <T> c]");
  EXPECT_EQ(Traced("{{ x | truncate(6, true, '<T>', 0) }}"), "[ab ]<T>");
  EXPECT_EQ(Traced("{{ x | wordwrap(4) }}"), "[ab]\n[<T>]\n[c]");
  EXPECT_EQ(Traced("{{ x | list | last }}{{ x | reverse }}{{ x | first }}"), "[cc >T< baa]");
  EXPECT_EQ(Traced("{{ x | urlencode }}", "é/"), "[%C3%A9/]");
  EXPECT_EQ(Traced("{{ [x] | map('upper') | join }}"), "[AB <T> C]");
}

TEST(JinjaTracing, FollowsStringsThroughStatements) {
  EXPECT_EQ(Traced("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}{{ m(y) }}"), "<[ab <T> c]><plain>");
  EXPECT_EQ(Traced("{% set v %}({{ x }}){% endset %}{{ v }}{{ v | length }}"), "([ab <T> c])10");
  EXPECT_EQ(Traced("{% filter upper %}y{{ x }}{% endfilter %}"), "Y[AB <T> C]");
  EXPECT_EQ(Traced("{% set ns = namespace(t='') %}{% for i in [1, 2] %}{% set ns.t = ns.t + '|' + x %}{% "
                   "endfor %}{{ ns.t }}"),
            "|[ab <T> c]|[ab <T> c]");
  EXPECT_EQ(Traced("{% for c in x %}{{ c }}.{% endfor %}", "ab"), "[a].[b].");
  EXPECT_EQ(Traced("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}"), "k=[ab <T> c]");
}

TEST(JinjaTracing, ChangesNoText) {
  EXPECT_EQ(Traced("{{ x == 'ab <T> c' }}{{ '<T>' in x }}{{ x.startswith('ab') }}{{ x|length }}{{ {x: 1}['ab "
                   "<T> c'] }}"),
            "TrueTrueTrue81");
  EXPECT_EQ(Traced("{{ x }}", ""), "");
}

}  // namespace
}  // namespace cmforge::jinja
