// The second projection of an operator under task masks: columns whose input a mask has switched off are neither
// read nor multiplied.
#include <algorithm>

#include "engine/pass.h"

namespace cmforge::engine {
namespace {

constexpr int64_t kGroup = 32;

/// Rows of the pass that have the same mask, or none.
struct Part {
  const uint8_t* bits = nullptr;
  std::vector<int32_t> rows;
};

std::vector<Part> PartsOf(const Pass& pass, int64_t visit, MaskRows field) {
  std::vector<Part> parts;
  for (const RowSpan& span : pass.spans) {
    const uint8_t* bits =
        span.active == nullptr ? nullptr : MaskRow(span.active->*field, pass.network, visit);
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.bits == bits; });
    if (part == parts.end()) part = parts.insert(parts.end(), Part{bits, {}});
    for (int64_t row = span.row; row < span.row + span.count; ++row)
      part->rows.push_back(static_cast<int32_t>(row));
  }
  return parts;
}

}  // namespace

std::vector<int32_t> LiveColumnGroups(const uint8_t* bits, int64_t unit, int64_t columns) {
  std::vector<int32_t> groups;
  for (int64_t begin = 0; begin < columns; begin += kGroup) {
    const int64_t end = std::min(begin + kGroup, columns);
    bool is_live = false;
    for (int64_t i = begin / unit; i * unit < end && !is_live; ++i) {
      if (i % 8 == 0 && (i + 8) * unit <= end && bits[i / 8] == 0) {
        i += 7;
      } else {
        is_live = HasBit(bits, i);
      }
    }
    if (is_live) groups.push_back(static_cast<int32_t>(begin / kGroup));
  }
  return groups;
}

void MultiplyLive(Pass& pass, const Linear& linear, int64_t visit, MaskRows field, int64_t unit,
                  const float* in, float* out) {
  Workspace& work = pass.work;
  const int64_t columns = linear.cols(), width = linear.rows();
  const int64_t groups = (columns + kGroup - 1) / kGroup;
  work.inner.Set(in, pass.rows, columns);
  Observe(pass, linear, work.inner);
  const bool can_skip = CanSkipGroups(linear.weight, pass.mode);
  std::vector<float> packed;  // rows of one part, side by side
  for (const Part& part : PartsOf(pass, visit, field)) {
    const auto count = static_cast<int64_t>(part.rows.size());
    const auto live =
        part.bits == nullptr ? std::vector<int32_t>() : LiveColumnGroups(part.bits, unit, columns);
    if (part.bits != nullptr && live.empty()) {
      for (const int32_t row : part.rows) std::fill_n(out + row * width, width, 0.0f);
      continue;
    }
    const bool is_whole = count == pass.rows;
    MatMulJob job;
    job.weight = &linear.weight;
    job.input = &work.inner;
    job.out_stride = width;
    if (!is_whole) {
      packed.resize(static_cast<size_t>(count * width));
      job.tokens = part.rows;
    }
    job.out = is_whole ? out : packed.data();
    // What is live is copied together first, which the last eighth is not worth. The choice hangs on the mask alone, so
    // that a row's result does not depend on the others of its batch.
    if (part.bits != nullptr && can_skip && static_cast<int64_t>(live.size()) * 8 <= groups * 7)
      job.groups = live;
    MatMul(work.context, std::span(&job, 1), pass.mode);
    for (size_t i = 0; !is_whole && i < part.rows.size(); ++i) {
      std::copy_n(packed.data() + static_cast<int64_t>(i) * width, width, out + part.rows[i] * width);
    }
  }
  if (linear.bias.empty()) return;
  for (int64_t row = 0; row < pass.rows; ++row)
    pass.kernels.add_scaled(linear.bias.data(), 1.0f, width, out + row * width);
}

}  // namespace cmforge::engine
