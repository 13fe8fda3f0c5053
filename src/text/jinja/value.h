// The values a template computes with: Python's, as far as templates reach. A Value is 16 bytes and cheap to
// copy; what it points to lives in the Heap of one rendering (or of the parsed template) and dies with it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace cmforge::jinja {

class BigInt;
class Iterator;
struct Activation;
struct Block;
struct Builtin;
struct Dict;
struct List;
struct LoopState;
struct MacroSource;
struct MethodEntry;
struct Value;

/// Byte ranges of a string that came from traced input (template.h, Rendering).
struct TraceRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// An immutable piece of UTF-8 (surrogates from escapes are encoded like any code point).
struct Str {
  const char* data = nullptr;
  uint64_t size = 0;
  std::span<const TraceRange> traced = {};

  [[nodiscard]] std::string_view view() const { return {data, size}; }
};

struct Undefined;
struct Range;
struct DictView;
struct BoundMethod;
struct Macro;
struct Cycler;
struct Joiner;

enum class Kind : uint8_t {
  kMissing,  // no value at all: an unset variable, an argument not given
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // always outside int64
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,
  kNamespace,
  kRange,
  kIterator,
  kBuiltin,  // range, dict, raise_exception, ...
  kMethod,   // 'x'.upper before it is called
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
  kBlock,  // self.name
  kSelf,
};

struct Value {
  Kind kind = Kind::kMissing;
  // kString: escaped HTML (markupsafe's Markup); kTuple: a group with names (groupby).
  bool special = false;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
    const BigInt* big;
    const Undefined* undefined;
    const Str* string;
    List* list;  // kList, kTuple
    Dict* dict;  // kDict, kNamespace
    const DictView* view;
    const Range* range;
    Iterator* iterator;
    const Builtin* builtin;
    const BoundMethod* method;
    const Macro* macro;
    LoopState* loop;
    Cycler* cycler;
    Joiner* joiner;
    const Block* block;
    const void* pointer;
  };

  static Value None() { return Of(Kind::kNone); }
  static Value Bool(bool b) {
    Value v = Of(Kind::kBool);
    v.boolean = b;
    return v;
  }
  static Value Int(int64_t i) {
    Value v = Of(Kind::kInt);
    v.integer = i;
    return v;
  }
  static Value Float(double d) {
    Value v = Of(Kind::kFloat);
    v.real = d;
    return v;
  }
  static Value Of(Kind k) {
    Value v;
    v.kind = k;
    return v;
  }
  static Value Of(Kind k, const void* p) {
    Value v = Of(k);
    v.pointer = p;
    return v;
  }
  static Value Of(const Str* s, bool is_markup = false) {
    Value v = Of(Kind::kString, s);
    v.special = is_markup;
    return v;
  }

  [[nodiscard]] bool is(Kind k) const { return kind == k; }
  [[nodiscard]] bool is_missing() const { return kind == Kind::kMissing; }
  [[nodiscard]] bool is_undefined() const { return kind == Kind::kUndefined; }
  [[nodiscard]] bool is_none() const { return kind == Kind::kNone; }
  [[nodiscard]] bool is_string() const { return kind == Kind::kString; }
  [[nodiscard]] bool is_markup() const { return kind == Kind::kString && special; }
  [[nodiscard]] bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  /// int or bool, which Python counts as an int; big integers included.
  [[nodiscard]] bool is_integral() const {
    return kind == Kind::kInt || kind == Kind::kBool || kind == Kind::kBigInt;
  }
  [[nodiscard]] bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  /// kInt or kBool as a number.
  [[nodiscard]] int64_t small_int() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  [[nodiscard]] std::string_view text() const { return string->view(); }  // kString only
};
static_assert(sizeof(Value) == 16);

struct List {
  Value* items = nullptr;
  uint64_t size = 0;
  uint64_t capacity = 0;

  [[nodiscard]] std::span<Value> span() const { return {items, size}; }
};

/// Insertion ordered; keys are hashable values. See dict.h.
struct Dict {
  struct Entry {
    Value key;
    Value value;
    uint64_t hash = 0;
  };
  Entry* entries = nullptr;
  uint64_t size = 0;
  uint64_t capacity = 0;
  uint32_t* index = nullptr;  // open addressing, entry number + 1; only when size > 8
  uint64_t index_size = 0;    // a power of two

  [[nodiscard]] std::span<Entry> span() const { return {entries, size}; }
};

struct DictView {
  enum class What : uint8_t { kKeys, kValues, kItems };
  Dict* dict = nullptr;
  What what = What::kKeys;
};

struct Range {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t size = 0;

  [[nodiscard]] int64_t at(int64_t i) const { return start + i * step; }
};

/// What is known of a value that is not there, for the message of whoever uses it.
struct Undefined {
  std::string_view hint = {};   // the whole message, or
  std::string_view owner = {};  // "'dict object'" and
  std::string_view name = {};   // the attribute, element or variable
  bool name_is_string = true;
  bool is_security = false;  // stands for something the sandbox refuses
};

struct BoundMethod {
  Value self;
  const MethodEntry* method = nullptr;
};

struct Macro {
  const MacroSource* source = nullptr;
  Activation* closure = nullptr;
};

struct Cycler {
  std::span<const Value> items;
  uint64_t position = 0;
};

struct Joiner {
  Value separator;
  bool used = false;
};

struct NamedValue {
  std::string_view name;
  Value value;
};

/// Evaluated arguments of one call.
struct Arguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

}  // namespace cmforge::jinja
