// What executes one operation: a function over the buffers of its inputs and outputs, made once when the
// program is planned, with every parameter that is known by then inside it.
//
// All numbers are 4 bytes wide while a program runs: floats as f32, integers and bools as int32.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "coreml/interpreter/weight.h"
#include "mil/ops.h"

namespace cmforge::coreml {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

[[nodiscard]] inline bool IsFloatBuffer(mil::DataType dtype) { return mil::IsFloat(dtype); }

/// Floats on whole cache lines, zero at first.
class AlignedFloats {
 public:
  void Resize(int64_t count) {
    constexpr size_t kLine = 64;
    size_ = count;
    memory_.assign(static_cast<size_t>(count) * sizeof(float) + kLine, std::byte{0});
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = reinterpret_cast<float*>(memory_.data() + (AlignUp(address, kLine) - address));
  }
  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] int64_t size() const { return size_; }

 private:
  std::vector<std::byte> memory_;
  float* data_ = nullptr;
  int64_t size_ = 0;
};

/// The buffers of one running function, by value.
class Frame {
 public:
  explicit Frame(ThreadPool& threads) : pool_(&threads) {}

  [[nodiscard]] const float* In(ValueId id) const {
    return static_cast<const float*>(data_[static_cast<size_t>(id)]);
  }
  [[nodiscard]] const int32_t* InInts(ValueId id) const {
    return static_cast<const int32_t*>(data_[static_cast<size_t>(id)]);
  }
  [[nodiscard]] float* Out(ValueId id) const { return static_cast<float*>(data_[static_cast<size_t>(id)]); }
  [[nodiscard]] int32_t* OutInts(ValueId id) const {
    return static_cast<int32_t*>(data_[static_cast<size_t>(id)]);
  }
  [[nodiscard]] ThreadPool& pool() const { return *pool_; }
  [[nodiscard]] int threads() const { return pool_->threads(); }

  /// Memory for one kernel's use while it runs: as much as OpContext::Reserve asked for.
  [[nodiscard]] float* WorkerScratch(int worker) const {
    return worker_scratch_.data() + worker * worker_floats_;
  }
  [[nodiscard]] float* SharedScratch() const { return shared_scratch_.data(); }

  // ---- for whoever runs the function
  void SetData(ValueId id, void* data) { data_[static_cast<size_t>(id)] = data; }
  void Resize(size_t values) { data_.resize(values, nullptr); }
  void Reserve(int64_t floats_per_worker, int64_t shared_floats) {
    if (floats_per_worker > worker_floats_) {
      worker_floats_ = (floats_per_worker + 15) / 16 * 16;
      worker_scratch_.Resize(worker_floats_ * threads());
    }
    if (shared_floats > shared_scratch_.size()) shared_scratch_.Resize(shared_floats);
  }

 private:
  ThreadPool* pool_;
  std::vector<void*> data_;  // by value id
  int64_t worker_floats_ = 0;
  AlignedFloats worker_scratch_, shared_scratch_;
};

/// Fails: kCorrupt for contents only known now (an index outside its axis), with the fact.
using Kernel = std::function<Result<void>(const Frame& frame)>;

/// What a kernel is made from. Types are those of this plan: every dimension is known.
class OpContext {
 public:
  explicit OpContext(const mil::OpCall& operation) : call(operation) {}
  virtual ~OpContext() = default;

  /// A parameter's value as a buffer; compressed constants are decoded for it. kNoValue when absent.
  virtual ValueId Input(std::string_view parameter, size_t index = 0) = 0;
  /// The constant behind a parameter, or null when it is no constant.
  [[nodiscard]] virtual WeightPtr Constant(std::string_view parameter) = 0;
  [[nodiscard]] virtual ValueId Output(size_t index = 0) const = 0;
  [[nodiscard]] virtual const mil::TensorType& OutputType(size_t index = 0) const = 0;
  /// Scratch memory the kernel will ask its frame for.
  virtual void Reserve(int64_t floats_per_worker, int64_t shared_floats) = 0;
  /// Whose kernels compute products.
  [[nodiscard]] virtual Isa isa() const { return BestIsa(); }
  [[nodiscard]] virtual mil::Opset opset() const { return mil::Opset::kIos18; }
  /// Whether the result is to be rounded to f16; if so, the kernel does that from now on, where its numbers still are
  /// in the cache of the core that made them.
  [[nodiscard]] virtual bool TakeRounding() { return false; }
  /// True when the output shares its memory with input `parameter` (slice_update in place).
  [[nodiscard]] virtual bool IsInPlace() const { return false; }

  [[nodiscard]] const Shape& ShapeOf(std::string_view parameter) const {
    return call.Tensor(parameter).shape;
  }
  [[nodiscard]] int64_t OutputCount(size_t index = 0) const { return *ElementCount(OutputType(index).shape); }

  const mil::OpCall& call;
};

/// Fails: kUnsupported when no kernel executes the operation; kCorrupt as type inference.
Result<Kernel> MakeKernel(OpContext& context);

/// Convolutions that have one input, and the same extents and strides, as one step: at most kMostConvs.
inline constexpr size_t kMostConvs = 8;
Result<Kernel> MakeConvs(std::span<OpContext* const> contexts);

/// False for operations that only move elements: their results need no rounding.
[[nodiscard]] bool DoesArithmetic(std::string_view op);

// Makers, by file.
using KernelMaker = Result<Kernel> (*)(OpContext& context);
[[nodiscard]] KernelMaker FindElementwiseKernel(std::string_view op);
[[nodiscard]] KernelMaker FindAxisKernel(std::string_view op);
[[nodiscard]] KernelMaker FindProductKernel(std::string_view op);
[[nodiscard]] KernelMaker FindMovementKernel(std::string_view op);
[[nodiscard]] KernelMaker FindIndexKernel(std::string_view op);

}  // namespace cmforge::coreml
