// The loop object.
#include "text/jinja/loop.h"

#include "text/jinja/callables.h"
#include "text/jinja/compare.h"

namespace cmforge::jinja {
namespace {

// The item after the current one, taken early; kMissing at the end.
Result<Value> Peek(Runtime& rt, LoopState* loop) {
  if (loop->after.is_missing()) {
    CMF_TRY(loop->after, loop->iterator->Next(rt));
  }
  return loop->after;
}

class LoopIterator final : public Iterator {
 public:
  explicit LoopIterator(LoopState* loop) : loop_(loop) {}
  Result<Value> Next(Runtime& rt) override {
    CMF_TRY(const Value item, AdvanceLoop(rt, loop_));
    if (item.is_missing()) return Value();
    return Pair(rt, item, Value::Of(Kind::kLoop, loop_));
  }

 private:
  LoopState* loop_;
};

Result<Value> Cycle(Runtime&, const Bound& b) {
  if (b.rest.empty()) return Fault(error_name::kRuntime, "TypeError: no items for cycling given");
  return b.rest[static_cast<size_t>(b.self.loop->index0) % b.rest.size()];
}

Result<Value> Changed(Runtime& rt, const Bound& b) {
  LoopState& loop = *b.self.loop;
  CMF_TRY(const Value now, rt.NewList(b.rest, Kind::kTuple));
  bool same = false;
  if (!loop.changed.is_missing()) {
    CMF_TRY(same, Equal(rt, loop.changed, now));
  }
  if (!same) loop.changed = now;
  return Value::Bool(!same);
}

constexpr MethodEntry kMethods[] = {
    {{"changed", "*", Changed}},
    {{"cycle", "*", Cycle}},
};

Value Nothing(Runtime& rt, std::string_view hint) { return rt.NewUndefined({.hint = hint}); }

}  // namespace

Result<Value> AdvanceLoop(Runtime& rt, LoopState* loop) {
  Value item = loop->after;
  loop->after = Value();
  if (item.is_missing()) {
    CMF_TRY(item, loop->iterator->Next(rt));
  }
  if (item.is_missing()) return item;
  ++loop->index0;
  loop->before = loop->current;
  loop->current = item;
  return item;
}

Result<int64_t> LoopLength(Runtime& rt, LoopState* loop) {
  if (loop->length >= 0) return loop->length;
  if (HasLength(loop->iterable) && !loop->iterable.is(Kind::kLoop)) {
    CMF_TRY(loop->length, Length(rt, loop->iterable));
    return loop->length;
  }
  // What has no length is read to its end.
  CMF_TRY(const std::vector<Value> rest, Collect(rt, Value::Of(Kind::kIterator, loop->iterator)));
  CMF_TRY(const Value kept, rt.NewList(rest));
  loop->iterator = IterateSpan(rt, kept.list->span());
  loop->length = static_cast<int64_t>(rest.size()) + loop->index0 + 1 + (loop->after.is_missing() ? 0 : 1);
  return loop->length;
}

Result<Iterator*> IterateLoop(Runtime& rt, LoopState* loop) {
  return new (rt.heap.Allocate(sizeof(LoopIterator))) LoopIterator(loop);
}

Result<Value> LoopAttribute(Runtime& rt, const Value& value, std::string_view name) {
  LoopState* const loop = value.loop;
  if (name == "index") return Value::Int(loop->index0 + 1);
  if (name == "index0") return Value::Int(loop->index0);
  if (name == "first") return Value::Bool(loop->index0 == 0);
  if (name == "depth") return Value::Int(loop->depth0 + 1);
  if (name == "depth0") return Value::Int(loop->depth0);
  if (name == "last" || name == "nextitem") {
    CMF_TRY(const Value next, Peek(rt, loop));
    if (name == "last") return Value::Bool(next.is_missing());
    return next.is_missing() ? Nothing(rt, "there is no next item") : next;
  }
  if (name == "previtem") {
    return loop->index0 == 0 ? Nothing(rt, "there is no previous item") : loop->before;
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    CMF_TRY(const int64_t length, LoopLength(rt, loop));
    if (name == "length") return Value::Int(length);
    return Value::Int(length - loop->index0 - (name == "revindex0" ? 1 : 0));
  }
  const MethodEntry* method = FindSorted(kMethods, name);
  if (method == nullptr) return Value();
  return Value::Of(Kind::kMethod, rt.heap.New<BoundMethod>(value, method));
}

}  // namespace cmforge::jinja
