// Streaming weights into a weight file.
#include "coreml/graphs/weight_store.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/half.h"

namespace cmforge::coreml {
namespace {

constexpr int64_t kBlockNumbers = 1 << 20;  // of one block: 4 MiB of floats, 2 MiB of halves
constexpr int64_t kInProgram = 10;          // fewer numbers than this are written into the program

/// The largest magnitude of `values`; NaN when one is.
float Largest(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) {
    if (!(std::fabs(v) <= largest)) largest = std::isnan(v) ? v : std::fabs(v);
    if (std::isnan(largest)) break;
  }
  return largest;
}

Result<void> CheckRange(float largest) {
  if (std::isfinite(largest) && !std::isinf(F16ToF32(F32ToF16(largest)))) return {};
  if (!std::isfinite(largest)) {
    return Fail(ErrorKind::kCorrupt, "holds NaN or infinity: fetch the checkpoint again");
  }
  return Fail(
      ErrorKind::kUnsupported,
      fmt::format("a weight of {} is beyond fp16, which ends at 65504: this model cannot be a Core ML "
                  "package",
                  largest));
}

}  // namespace

Result<mil::Value> WeightStore::Add(const std::string& name, const Shape& shape,
                                    const std::function<Result<WeightRows>()>& make) {
  if (const auto it = known_.find(name); it != known_.end()) return it->second;
  CMF_CHECK(control_.CheckCancelled());
  CMF_TRY(const WeightRows rows, make());
  const int64_t count = ElementCount(shape).value_or(-1);
  if (rows.rows * rows.cols != count) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: weight '{}': {} x {} numbers, the graph wants {}", source_.path(), name,
                            rows.rows, rows.cols, ShapeText(shape)));
  }
  const mil::TensorType type{mil::DataType::kFloat16, shape};
  const auto fail = [&](Error error) {
    return Fail(std::move(error).In(fmt::format("{}: weight '{}'", source_.path(), name)));
  };
  if (count < kInProgram) {
    std::vector<float> values(static_cast<size_t>(count));
    if (count > 0) rows.read(0, rows.rows, values.data());
    if (auto status = CheckRange(Largest(values)); !status) return fail(std::move(status).error());
    return known_[name] = mil::Floats(mil::DataType::kFloat16, shape, values);
  }
  CMF_CHECK(blobs_.Begin(mil::DataType::kFloat16, count));
  const int64_t block = std::clamp<int64_t>(kBlockNumbers / std::max<int64_t>(rows.cols, 1), 1, rows.rows);
  std::vector<float> numbers(static_cast<size_t>(block * rows.cols));
  std::vector<uint16_t> halves(numbers.size());
  for (int64_t begin = 0; begin < rows.rows; begin += block) {
    CMF_CHECK(control_.CheckCancelled());
    const int64_t end = std::min(begin + block, rows.rows);
    std::mutex mutex;
    float largest = 0;
    pool_.ForRanges(end - begin, 1, [&](int64_t first, int64_t last) {
      float* from = numbers.data() + first * rows.cols;
      const auto n = static_cast<size_t>((last - first) * rows.cols);
      rows.read(begin + first, begin + last, from);
      for (size_t i = 0; i < n; ++i) halves[static_cast<size_t>(first * rows.cols) + i] = F32ToF16(from[i]);
      const float here = Largest({from, n});
      const std::scoped_lock lock(mutex);
      if (!(here <= largest)) largest = here;
    });
    if (auto status = CheckRange(largest); !status) return fail(std::move(status).error());
    const auto n = static_cast<size_t>((end - begin) * rows.cols);
    CMF_CHECK(blobs_.Append(std::as_bytes(std::span(halves).first(n))));
    written_ += static_cast<int64_t>(n);
    if (on_progress) on_progress(written_);
  }
  CMF_TRY(const uint64_t offset, blobs_.End());
  return known_[name] = mil::FromBlob(type, offset);
}

}  // namespace cmforge::coreml
