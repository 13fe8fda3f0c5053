// What one rendering shares: memory, budget, clock, and how faults are said. Functions that may fail return
// Result; the line is put in front by whoever started the rendering.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "text/jinja/heap.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace cmforge::jinja {

/// Macros, blocks and recursive loops inside of each other.
inline constexpr int kMaxCallDepth = 200;
/// Nested containers that are printed, compared, hashed or converted.
inline constexpr int kMaxDataDepth = 200;

class Runtime {
 public:
  /// Its own address marks where the stack of the rendering begins: a local variable of whoever renders.
  explicit Runtime(const RenderOptions& render_options)
      : options(render_options), steps_left_(render_options.limits.steps) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Heap heap;
  const RenderOptions& options;
  int line = 0;  // of what is being evaluated
  int call_depth = 0;
  bool autoescape = false;
  int64_t captured_bytes = 0;  // output not yet turned into values, all levels

  /// Takes `steps` from the budget; false when it, or the memory, is used up: return LimitFault() then.
  [[nodiscard]] bool Spend(int64_t steps = 1) {
    steps_left_ -= steps;
    return steps_left_ >= 0 && heap.used_bytes() <= options.limits.memory_bytes;
  }
  [[nodiscard]] bool HasStack() const {
    const char here = 0;
    const auto used = reinterpret_cast<const char*>(this) - &here;
    return (used < 0 ? -used : used) < options.limits.stack_bytes;
  }
  /// To be asked before anything of a size that data decides: `bytes` fit, and moving them is paid for.
  Result<void> Reserve(uint64_t bytes);
  [[nodiscard]] tl::unexpected<Error> LimitFault() const;

  /// A string with a copy of `text`, or (View) pointing at text that outlives the rendering.
  Result<Value> Text(std::string_view text);
  [[nodiscard]] Value View(std::string_view text) {
    return Value::Of(heap.New<Str>(text.data(), text.size()));
  }
  [[nodiscard]] Value View(const Str& text, bool is_markup = false) {
    return Value::Of(heap.New<Str>(text), is_markup);
  }

  Result<Value> NewList(std::span<const Value> items, Kind kind = Kind::kList);
  [[nodiscard]] Value NewUndefined(Undefined undefined) {
    return Value::Of(Kind::kUndefined, heap.New<Undefined>(undefined));
  }
  /// The undefined value of "owner has no attribute NAME".
  [[nodiscard]] Value NoAttribute(const Value& owner, std::string_view name);
  [[nodiscard]] Value Integer(BigInt value) {
    if (value.FitsInt64()) return Value::Int(value.ToInt64());
    return Value::Of(Kind::kBigInt, heap.Keep(std::move(value)));
  }

 private:
  int64_t steps_left_;
};

/// A failure with one of the names of template.h.
[[nodiscard]] tl::unexpected<Error> Fault(std::string_view name, std::string message);

template <class... A>
[[nodiscard, gnu::noinline]] tl::unexpected<Error> RuntimeFault(fmt::format_string<A...> format,
                                                                A&&... arguments) {
  return Fault(error_name::kRuntime, fmt::format(format, std::forward<A>(arguments)...));
}

/// Using `value`, which is kUndefined, in a way undefined values cannot be used.
[[nodiscard]] tl::unexpected<Error> UndefinedFault(const Value& value);

/// Python's name of the type: "int", "NoneType", ...
[[nodiscard]] std::string_view TypeName(const Value& value);

/// Something nested too deep: data, calls, or the C++ stack.
[[nodiscard]] tl::unexpected<Error> DepthFault();

}  // namespace cmforge::jinja
