// Where tensors come from. A checkpoint, a .cmf file, a shard set, a skill overlay: each is a TensorSource,
// so converting, running, exporting and comparing take any of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "model/dtype.h"

namespace cmforge {

using Shape = std::vector<int64_t>;

/// Number of elements; 1 for a scalar (no dimensions), 0 when any dimension is 0. Overflow: nothing.
[[nodiscard]] std::optional<int64_t> ElementCount(std::span<const int64_t> shape);

/// "[2, 3]", for messages.
[[nodiscard]] std::string ShapeText(std::span<const int64_t> shape);

struct TensorInfo {
  std::string name;  // the Hugging Face name: model.layers.0.self_attn.q_proj.weight
  DType dtype = DType::kF32;
  Shape shape;  // row-major; a linear weight is [out, in]
  uint64_t nbytes = 0;
};

/// The bytes of one tensor. They lie in the source's mapping, or in `owner` where the source had to compute
/// them (a fused projection split, a blend); valid while both the source and `owner` live.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  Bytes bytes;
  std::shared_ptr<const void> owner;

  [[nodiscard]] int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  [[nodiscard]] int64_t cols() const { return shape.size() < 2 ? 1 : shape[1]; }
};

/// Immutable: any thread may read from it.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// All tensors, in the order of the file(s).
  [[nodiscard]] virtual std::span<const TensorInfo> tensors() const = 0;

  /// The entry of that exact name, or nullptr. O(1).
  [[nodiscard]] virtual const TensorInfo* Find(std::string_view name) const = 0;

  /// The bytes of that exact name. Fails: kNotFound naming the tensor; what the source's own reading gives.
  virtual Result<TensorView> Read(std::string_view name) const = 0;

  /// Names that were seen and left out on purpose (vision towers and the like).
  [[nodiscard]] virtual std::span<const std::string> skipped() const { return {}; }

  /// File or folder, for messages.
  [[nodiscard]] virtual std::string_view path() const = 0;
};

}  // namespace cmforge
