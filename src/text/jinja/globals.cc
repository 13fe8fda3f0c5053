// Global functions: jinja's own and the two that transformers adds.
#include "text/jinja/callables.h"
#include "text/jinja/clock.h"
#include "text/jinja/dict.h"
#include "text/jinja/numbers.h"
#include "text/jinja/print.h"

namespace cmforge::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

Result<Value> RaiseException(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value message, ToText(rt, b[0]));
  return Fault(error_name::kRaised, std::string(message.text()));
}

Result<Value> StrftimeNow(Runtime& rt, const Bound& b) {
  CMF_TRY(const Str* const format, AsString(b[0], "strftime_now() argument"));
  const LocalTime now = rt.options.now ? *rt.options.now : LocalTime::Now();
  CMF_TRY(const std::string text, FormatTime(format->view(), now));
  return rt.Text(text);
}

Result<Value> MakeRange(Runtime& rt, const Bound& b) {
  int64_t numbers[3] = {0, 0, 1};
  size_t count = 0;
  for (; count < 3 && b.has(count); ++count) {
    CMF_TRY(numbers[count], ToIndex(b[count]));
  }
  Range r;
  r.start = count == 1 ? 0 : numbers[0];
  r.stop = count == 1 ? numbers[0] : numbers[1];
  r.step = numbers[2];
  if (r.step == 0) return Fault(error_name::kRuntime, "ValueError: range() arg 3 must not be zero");
  // In 128 bits nothing can overflow.
  const __int128 span = r.step > 0 ? __int128{r.stop} - r.start : __int128{r.start} - r.stop;
  const __int128 stride = r.step > 0 ? __int128{r.step} : -__int128{r.step};
  const __int128 size = span <= 0 ? 0 : (span - 1) / stride + 1;
  if (size > kMaxRange) {
    return RuntimeFault("OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                        kMaxRange);
  }
  r.size = static_cast<int64_t>(size);
  return Value::Of(Kind::kRange, rt.heap.New<Range>(r));
}

Result<Value> MakeDict(Runtime& rt, const Bound& b) {
  Dict* dict = rt.heap.New<Dict>();
  CMF_CHECK(UpdateDict(rt, dict, {b.rest, b.named_rest}));
  return DictValue(dict);
}

Result<Value> MakeNamespace(Runtime& rt, const Bound& b) {
  CMF_TRY(const Value dict, MakeDict(rt, b));
  return Value::Of(Kind::kNamespace, dict.dict);
}

Result<Value> MakeCycler(Runtime& rt, const Bound& b) {
  if (b.rest.empty())
    return Fault(error_name::kRuntime, "RuntimeError: at least one item has to be provided");
  CMF_TRY(const Value items, rt.NewList(b.rest));
  return Value::Of(Kind::kCycler, rt.heap.New<Cycler>(items.list->span()));
}

Result<Value> MakeJoiner(Runtime& rt, const Bound& b) {
  return Value::Of(Kind::kJoiner, rt.heap.New<Joiner>(b.has(0) ? b[0] : rt.View(", ")));
}

Result<Value> Lipsum(Runtime&, const Bound&) {
  return Fault(error_name::kRuntime,
               "the function 'lipsum' is not supported: the same input gives the same prompt");
}

constexpr Builtin kGlobals[] = {
    {"cycler", "*", MakeCycler, "<class 'jinja2.utils.Cycler'>"},
    {"dict", "* **", MakeDict, "<class 'dict'>"},
    {"joiner", "sep?", MakeJoiner, "<class 'jinja2.utils.Joiner'>"},
    {"lipsum", "n? html? min? max?", Lipsum, "<function generate_lorem_ipsum at 0x0>"},
    {"namespace", "* **", MakeNamespace, "<class 'jinja2.utils.Namespace'>"},
    {"raise_exception", "message", RaiseException, "<function raise_exception at 0x0>"},
    {"range", "/a /b? /c?", MakeRange, "<function safe_range at 0x0>"},
    {"strftime_now", "format", StrftimeNow, "<function strftime_now at 0x0>"},
};

}  // namespace

const Builtin* FindGlobal(std::string_view name) { return FindSorted(kGlobals, name); }

}  // namespace cmforge::jinja
