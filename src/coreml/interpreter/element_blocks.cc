// Blocks by plain loops, compiled for several instruction sets.
#include "coreml/interpreter/element_blocks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/half.h"
#include "coreml/interpreter/clones.h"
#include "coreml/interpreter/weight.h"

namespace cmforge::coreml {
namespace {

// One loop for every way of stepping, so that each is vector code.
#define CMF_BINARY_BLOCK(name, expression)                                                            \
  CMF_CLONES void name(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t count, \
                       float* out) {                                                                  \
    if (a_step == 1 && b_step == 1) {                                                                 \
      for (int64_t i = 0; i < count; ++i) {                                                           \
        const float x = a[i], y = b[i];                                                               \
        out[i] = expression;                                                                          \
      }                                                                                               \
    } else if (a_step == 1) {                                                                         \
      const float y = b[0];                                                                           \
      for (int64_t i = 0; i < count; ++i) {                                                           \
        const float x = a[i];                                                                         \
        out[i] = expression;                                                                          \
      }                                                                                               \
    } else {                                                                                          \
      const float x = a[0];                                                                           \
      for (int64_t i = 0; i < count; ++i) {                                                           \
        const float y = b[i * b_step];                                                                \
        out[i] = expression;                                                                          \
      }                                                                                               \
    }                                                                                                 \
  }

CMF_BINARY_BLOCK(Add, x + y)
CMF_BINARY_BLOCK(Sub, x - y)
CMF_BINARY_BLOCK(Mul, x* y)
CMF_BINARY_BLOCK(RealDiv, x / y)
CMF_BINARY_BLOCK(Maximum, x > y || x != x ? x : y)
CMF_BINARY_BLOCK(Minimum, x < y || x != x ? x : y)

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float Silu(float x) { return x * Sigmoid(x); }
float Relu(float x) { return x < 0 ? 0.0f : x; }
float Tanh(float x) { return std::tanh(x); }
float Exp(float x) { return std::exp(x); }
float Sqrt(float x) { return std::sqrt(x); }
float Erf(float x) { return std::erf(x); }
float Sin(float x) { return std::sin(x); }
float Cos(float x) { return std::cos(x); }
float Abs(float x) { return std::fabs(x); }
float Square(float x) { return x * x; }
float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }

CMF_CLONES void HalvesOf(const float* x, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = F32ToF16(x[i]);
}

}  // namespace

BinaryBlock FindBinaryBlock(std::string_view op) {
  constexpr std::pair<std::string_view, BinaryBlock> kBlocks[] = {{"add", Add},         {"sub", Sub},
                                                                  {"mul", Mul},         {"real_div", RealDiv},
                                                                  {"maximum", Maximum}, {"minimum", Minimum}};
  for (const auto& [name, block] : kBlocks) {
    if (name == op) return block;
  }
  return nullptr;
}

FloatFunction FindFloatFunction(std::string_view op) {
  constexpr std::pair<std::string_view, FloatFunction> kFunctions[] = {
      {"tanh", Tanh}, {"sigmoid", Sigmoid}, {"silu", Silu},     {"exp", Exp},
      {"sqrt", Sqrt}, {"erf", Erf},         {"relu", Relu},     {"sin", Sin},
      {"cos", Cos},   {"abs", Abs},         {"square", Square}, {"softplus", Softplus}};
  for (const auto& [name, fn] : kFunctions) {
    if (name == op) return fn;
  }
  return nullptr;
}

const uint16_t* HalfTableOf(FloatFunction fn) {
  static std::mutex mutex;
  static std::map<FloatFunction, std::unique_ptr<uint16_t[]>> tables;
  const std::lock_guard lock(mutex);
  std::unique_ptr<uint16_t[]>& table = tables[fn];
  if (!table) {
    table = std::make_unique<uint16_t[]>(65536);
    for (uint32_t h = 0; h < 65536; ++h) table[h] = F32ToF16(fn(F16ToF32(static_cast<uint16_t>(h))));
  }
  return table.get();
}

void LookUpHalves(const uint16_t* table, const float* x, int64_t count, float* out) {
  constexpr int64_t kBlock = 256;
  uint16_t halves[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    HalvesOf(x + begin, n, halves);
    for (int64_t i = 0; i < n; ++i) halves[i] = table[halves[i]];
    HalvesToFloats(reinterpret_cast<const std::byte*>(halves), n, out + begin);
  }
}

}  // namespace cmforge::coreml
