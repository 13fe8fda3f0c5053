// Elementwise operations.
#include <algorithm>
#include <cmath>

#include "coreml/interpreter/element_blocks.h"
#include "coreml/interpreter/kernel.h"
#include "coreml/interpreter/strided.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;

// ---- the arithmetic

/// Integers wrap as the hardware's do; through unsigned, since signed overflow is undefined.
int32_t Wrap(int64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); }

template <class T>
struct Add {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int32_t>) return Wrap(int64_t{a} + b);
    return a + b;
  }
};
template <class T>
struct Sub {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int32_t>) return Wrap(int64_t{a} - b);
    return a - b;
  }
};
template <class T>
struct Mul {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int32_t>) return Wrap(int64_t{a} * b);
    return a * b;
  }
};
/// NaN stays NaN, whichever side it is on.
template <class T>
struct Maximum {
  T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
template <class T>
struct Minimum {
  T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
template <class T>
struct Pow {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int32_t>) {
      const double v = std::pow(static_cast<double>(a), static_cast<double>(b));
      return static_cast<int32_t>(std::clamp(v, -2147483648.0, 2147483647.0));
    } else {
      return std::pow(a, b);
    }
  }
};
/// Division by zero of integers gives 0: defined, whatever the bytes.
template <class T>
struct RealDiv {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int32_t>) return b == 0 ? 0 : Wrap(int64_t{a} / b);
    return a / b;
  }
};
template <class T>
struct FloorDiv {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int32_t>) {
      if (b == 0) return 0;
      const int64_t q = int64_t{a} / b;
      return Wrap(q - (int64_t{a} % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
    } else {
      return std::floor(a / b);
    }
  }
};
/// The sign of the divisor.
template <class T>
struct Mod {
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int32_t>) {
      if (b == 0) return 0;
      const int64_t r = int64_t{a} % b;
      return Wrap(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    } else {
      const float r = std::fmod(a, b);
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
  }
};

template <class T>
struct Equal {
  int32_t operator()(T a, T b) const { return a == b; }
};
template <class T>
struct NotEqual {
  int32_t operator()(T a, T b) const { return a != b; }
};
template <class T>
struct Greater {
  int32_t operator()(T a, T b) const { return a > b; }
};
template <class T>
struct GreaterEqual {
  int32_t operator()(T a, T b) const { return a >= b; }
};
template <class T>
struct Less {
  int32_t operator()(T a, T b) const { return a < b; }
};
template <class T>
struct LessEqual {
  int32_t operator()(T a, T b) const { return a <= b; }
};
template <class T>
struct And {
  int32_t operator()(T a, T b) const { return a != 0 && b != 0; }
};
template <class T>
struct Or {
  int32_t operator()(T a, T b) const { return a != 0 || b != 0; }
};
template <class T>
struct Xor {
  int32_t operator()(T a, T b) const { return (a != 0) != (b != 0); }
};

// ---- two inputs

template <class T, class Out, class Fn>
Kernel BinaryOver(OpContext& context) {
  const Shape& shape = context.OutputType().shape;
  StridedLoop<3> loop(shape, {StridesOf(shape), BroadcastStrides(context.ShapeOf("x"), shape),
                              BroadcastStrides(context.ShapeOf("y"), shape)});
  return [loop = std::move(loop), x = context.Input("x"), y = context.Input("y"),
          out = context.Output()](const Frame& frame) -> Result<void> {
    const auto* a = reinterpret_cast<const T*>(frame.In(x));
    const auto* b = reinterpret_cast<const T*>(frame.In(y));
    auto* o = reinterpret_cast<Out*>(frame.Out(out));
    const int64_t n = loop.inner_extent();
    const auto [so, sx, sy] = loop.inner_strides();
    loop.Run(frame.pool(), [&, sx = sx, sy = sy](const std::array<int64_t, 3>& at) {
      const Fn fn;
      Out* to = o + at[0];
      const T* p = a + at[1];
      const T* q = b + at[2];
      if (sx == 1 && sy == 1) {
        for (int64_t i = 0; i < n; ++i) to[i] = fn(p[i], q[i]);
      } else if (sx == 1) {
        for (int64_t i = 0; i < n; ++i) to[i] = fn(p[i], q[i * sy]);
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = fn(p[i * sx], q[i * sy]);
      }
    });
    return {};
  };
}

template <template <class> class Fn>
Result<Kernel> Arithmetic(OpContext& context) {
  if (IsFloatBuffer(context.call.Tensor("x").dtype)) return BinaryOver<float, float, Fn<float>>(context);
  return BinaryOver<int32_t, int32_t, Fn<int32_t>>(context);
}

template <template <class> class Fn>
Result<Kernel> Comparison(OpContext& context) {
  if (IsFloatBuffer(context.call.Tensor("x").dtype)) return BinaryOver<float, int32_t, Fn<float>>(context);
  return BinaryOver<int32_t, int32_t, Fn<int32_t>>(context);
}

// ---- one input

template <class T, class Out, class Fn>
Kernel UnaryOver(OpContext& context, Fn fn) {
  return [fn, x = context.Input("x"), out = context.Output(),
          count = context.OutputCount()](const Frame& frame) -> Result<void> {
    const auto* from = reinterpret_cast<const T*>(frame.In(x));
    auto* to = reinterpret_cast<Out*>(frame.Out(out));
    frame.pool().ForRanges(count, 1 << 13, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = fn(from[i]);
    });
    return {};
  };
}

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float Sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
float GeluExact(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678f)); }
float GeluTanh(float x) { return 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x))); }
float GeluSigmoid(float x) { return x * Sigmoid(1.702f * x); }
float Exp2(float x) { return std::exp2(x); }
float Floor(float x) { return std::floor(x); }
float Ceil(float x) { return std::ceil(x); }
float Round(float x) { return std::nearbyint(x); }
float Abs(float x) { return std::fabs(x); }
float Square(float x) { return x * x; }

template <float (*fn)(float)>
Result<Kernel> FloatUnary(OpContext& context) {
  return UnaryOver<float, float>(context, [](float x) { return fn(x); });
}

/// Those that chains have too.
Result<Kernel> NamedUnary(OpContext& context) {
  return UnaryOver<float, float>(context, FindFloatFunction(context.call.info().name));
}

template <float (*fn)(float)>
Result<Kernel> NumberUnary(OpContext& context) {
  if (IsFloatBuffer(context.call.Tensor("x").dtype)) return FloatUnary<fn>(context);
  return UnaryOver<int32_t, int32_t>(context, [](int32_t x) -> int32_t {
    if constexpr (fn == Square) {
      return Wrap(int64_t{x} * x);
    } else if constexpr (fn == Abs) {
      return Wrap(x < 0 ? -int64_t{x} : x);
    } else if constexpr (fn == Sign) {
      return (x > 0) - (x < 0);
    } else {
      return static_cast<int32_t>(std::min(std::floor(std::exp2(static_cast<double>(x))), 2147483647.0));
    }
  });
}

/// Absent, epsilon is what the operation's definition says; in fp16 programs it should be written (facts 4).
template <int kind>
Result<Kernel> WithEpsilon(OpContext& context) {
  constexpr double kDefaults[] = {1e-12, 1e-45, 1e-4};  // rsqrt, log, inverse
  CMF_TRY(const double number, context.call.Number("epsilon", kDefaults[kind]));
  const auto epsilon = static_cast<float>(number);
  return UnaryOver<float, float>(context, [epsilon](float x) {
    const float shifted = x + epsilon;
    if constexpr (kind == 0) return 1.0f / std::sqrt(shifted);
    if constexpr (kind == 1) return std::log(shifted);
    return 1.0f / shifted;
  });
}

Result<Kernel> LogicalNot(OpContext& context) {
  return UnaryOver<int32_t, int32_t>(context, [](int32_t x) { return static_cast<int32_t>(x == 0); });
}

Result<Kernel> Clip(OpContext& context) {
  CMF_TRY(const double low, context.call.Number("alpha", 0));
  CMF_TRY(const double high, context.call.Number("beta", 0));
  if (IsFloatBuffer(context.call.Tensor("x").dtype)) {
    const auto a = static_cast<float>(low), b = static_cast<float>(high);
    return UnaryOver<float, float>(context, [a, b](float x) { return x < a ? a : x > b ? b : x; });
  }
  const double a = std::clamp(low, -2147483648.0, 2147483647.0),
               b = std::clamp(high, -2147483648.0, 2147483647.0);
  return UnaryOver<int32_t, int32_t>(context, [a, b](int32_t x) {
    return static_cast<int32_t>(std::max(a, std::min(b, static_cast<double>(x))));
  });
}

Result<Kernel> Gelu(OpContext& context) {
  CMF_TRY(const std::string mode, context.call.Text("mode", "EXACT"));
  if (mode == "TANH_APPROXIMATION") return FloatUnary<GeluTanh>(context);
  if (mode == "SIGMOID_APPROXIMATION") return FloatUnary<GeluSigmoid>(context);
  return FloatUnary<GeluExact>(context);
}

// ---- cast and select

struct IntegerRange {
  int32_t low, high;
};

/// What an int32 buffer of that type can hold; wider types are kept to 32 bits.
IntegerRange RangeOf(DataType dtype) {
  if (dtype == DataType::kUInt32 || dtype == DataType::kUInt64) return {0, INT32_MAX};
  const int bits = std::min(mil::BitsOf(dtype), 32);
  if (bits == 32) return {INT32_MIN, INT32_MAX};
  if (mil::IsSigned(dtype)) return {-(1 << (bits - 1)), (1 << (bits - 1)) - 1};
  return {0, (1 << bits) - 1};
}

Result<Kernel> Cast(OpContext& context) {
  const DataType from = context.call.Tensor("x").dtype, to = context.OutputType().dtype;
  if (IsFloatBuffer(from) && IsFloatBuffer(to))
    return UnaryOver<float, float>(context, [](float x) { return x; });
  if (IsFloatBuffer(to))
    return UnaryOver<int32_t, float>(context, [](int32_t x) { return static_cast<float>(x); });
  if (to == DataType::kBool && IsFloatBuffer(from)) {
    return UnaryOver<float, int32_t>(context, [](float x) { return static_cast<int32_t>(x != 0); });
  }
  if (to == DataType::kBool)
    return UnaryOver<int32_t, int32_t>(context, [](int32_t x) { return static_cast<int32_t>(x != 0); });
  const IntegerRange range = RangeOf(to);
  if (IsFloatBuffer(from)) {
    return UnaryOver<float, int32_t>(context, [range](float x) {  // NaN becomes 0
      const double v = std::trunc(static_cast<double>(x));
      return x != x ? 0 : static_cast<int32_t>(std::clamp(v, double{0} + range.low, double{0} + range.high));
    });
  }
  return UnaryOver<int32_t, int32_t>(context,
                                     [range](int32_t x) { return std::clamp(x, range.low, range.high); });
}

Result<Kernel> Select(OpContext& context) {
  const Shape& shape = context.OutputType().shape;
  StridedLoop<4> loop(
      shape, {StridesOf(shape), BroadcastStrides(context.ShapeOf("cond"), shape),
              BroadcastStrides(context.ShapeOf("a"), shape), BroadcastStrides(context.ShapeOf("b"), shape)});
  return [loop = std::move(loop), cond = context.Input("cond"), a = context.Input("a"),
          b = context.Input("b"), out = context.Output()](const Frame& frame) -> Result<void> {
    const int64_t n = loop.inner_extent();
    const std::array<int64_t, 4> s = loop.inner_strides();
    loop.Run(frame.pool(), [&](const std::array<int64_t, 4>& at) {
      const int32_t* c = frame.InInts(cond) + at[1];
      const int32_t* p = frame.InInts(a) + at[2];  // bits are moved, whatever they mean
      const int32_t* q = frame.InInts(b) + at[3];
      int32_t* to = frame.OutInts(out) + at[0];
      for (int64_t i = 0; i < n; ++i) to[i] = c[i * s[1]] ? p[i * s[2]] : q[i * s[3]];
    });
    return {};
  };
}

struct Row {
  std::string_view op;
  KernelMaker make;
};

constexpr Row kRows[] = {
    {"add", Arithmetic<Add>},
    {"sub", Arithmetic<Sub>},
    {"mul", Arithmetic<Mul>},
    {"maximum", Arithmetic<Maximum>},
    {"minimum", Arithmetic<Minimum>},
    {"pow", Arithmetic<Pow>},
    {"real_div", Arithmetic<RealDiv>},
    {"floor_div", Arithmetic<FloorDiv>},
    {"mod", Arithmetic<Mod>},
    {"equal", Comparison<Equal>},
    {"not_equal", Comparison<NotEqual>},
    {"greater", Comparison<Greater>},
    {"greater_equal", Comparison<GreaterEqual>},
    {"less", Comparison<Less>},
    {"less_equal", Comparison<LessEqual>},
    {"logical_and", Comparison<And>},
    {"logical_or", Comparison<Or>},
    {"logical_xor", Comparison<Xor>},
    {"tanh", NamedUnary},
    {"exp", NamedUnary},
    {"sqrt", NamedUnary},
    {"erf", NamedUnary},
    {"sigmoid", NamedUnary},
    {"silu", NamedUnary},
    {"relu", NamedUnary},
    {"softplus", NamedUnary},
    {"floor", FloatUnary<Floor>},
    {"ceil", FloatUnary<Ceil>},
    {"round", FloatUnary<Round>},
    {"sin", NamedUnary},
    {"cos", NamedUnary},
    {"abs", NumberUnary<Abs>},
    {"square", NumberUnary<Square>},
    {"sign", NumberUnary<Sign>},
    {"exp2", NumberUnary<Exp2>},
    {"logical_not", LogicalNot},
    {"rsqrt", WithEpsilon<0>},
    {"log", WithEpsilon<1>},
    {"inverse", WithEpsilon<2>},
    {"clip", Clip},
    {"gelu", Gelu},
    {"cast", Cast},
    {"select", Select},
};

}  // namespace

KernelMaker FindElementwiseKernel(std::string_view op) {
  for (const Row& row : kRows) {
    if (row.op == op) return row.make;
  }
  return nullptr;
}

}  // namespace cmforge::coreml
