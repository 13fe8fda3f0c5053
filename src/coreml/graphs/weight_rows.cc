// Readers of rows, each a small closure around another.
#include "coreml/graphs/weight_rows.h"

#include <algorithm>
#include <optional>

#include "quant/encoding.h"

namespace cmforge::coreml {
namespace {

std::shared_ptr<const WeightRows> Share(WeightRows rows) {
  return std::make_shared<const WeightRows>(std::move(rows));
}

/// The importance of every part; nothing where a part has none.
std::optional<std::vector<WeightRows>> ImportanceOf(const std::vector<WeightRows>& parts) {
  std::vector<WeightRows> out;
  for (const WeightRows& part : parts) {
    if (!part.importance) return std::nullopt;
    out.push_back(*part.importance);
  }
  return out;
}

}  // namespace

Result<WeightRows> TensorRows(const TensorSource& source, const std::string& name) {
  CMF_TRY(TensorView view, source.Read(name));
  auto rows = AsFloatRows(std::move(view));
  if (!rows) return Fail(std::move(rows).error().In(fmt::format("{}: tensor '{}'", source.path(), name)));
  auto shared = std::make_shared<const FloatRows>(std::move(*rows));
  return WeightRows{shared->rows, shared->cols,
                    [shared](int64_t begin, int64_t end, float* out) { shared->Read(begin, end, out); },
                    nullptr};
}

WeightRows SelectRows(WeightRows from, std::vector<RowRange> ranges) {
  WeightRows out;
  out.cols = from.cols;
  for (const RowRange& range : ranges) out.rows += range.end - range.begin;
  if (from.importance) out.importance = Share(SelectRows(*from.importance, ranges));
  out.read = [from = std::move(from), ranges = std::move(ranges)](int64_t begin, int64_t end, float* to) {
    int64_t first = 0;  // of the range, in the result
    for (const RowRange& range : ranges) {
      const int64_t count = range.end - range.begin;
      const int64_t low = std::max(begin, first), high = std::min(end, first + count);
      if (low < high) {
        from.read(range.begin + low - first, range.begin + high - first, to + (low - begin) * from.cols);
      }
      first += count;
    }
  };
  return out;
}

WeightRows StackRows(std::vector<WeightRows> parts) {
  WeightRows out;
  out.cols = parts.empty() ? 0 : parts[0].cols;
  for (const WeightRows& part : parts) out.rows += part.rows;
  if (auto importance = ImportanceOf(parts)) out.importance = Share(StackRows(std::move(*importance)));
  out.read = [parts = std::move(parts)](int64_t begin, int64_t end, float* to) {
    int64_t first = 0;
    for (const WeightRows& part : parts) {
      const int64_t low = std::max(begin, first), high = std::min(end, first + part.rows);
      if (low < high) part.read(low - first, high - first, to + (low - begin) * part.cols);
      first += part.rows;
    }
  };
  return out;
}

WeightRows JoinColumns(std::vector<WeightRows> parts) {
  WeightRows out;
  out.rows = parts.empty() ? 0 : parts[0].rows;
  for (const WeightRows& part : parts) out.cols += part.cols;
  if (auto importance = ImportanceOf(parts)) out.importance = Share(JoinColumns(std::move(*importance)));
  out.read = [parts = std::move(parts), cols = out.cols](int64_t begin, int64_t end, float* to) {
    std::vector<float> block;
    int64_t at = 0;
    for (const WeightRows& part : parts) {
      block.resize(static_cast<size_t>((end - begin) * part.cols));
      part.read(begin, end, block.data());
      for (int64_t r = 0; r < end - begin; ++r) {
        std::copy_n(block.data() + r * part.cols, part.cols, to + r * cols + at);
      }
      at += part.cols;
    }
  };
  return out;
}

WeightRows ScaleRows(WeightRows from, float scale, float offset) {
  if (scale == 1 && offset == 0) return from;
  WeightRows out;
  out.rows = from.rows;
  out.cols = from.cols;
  if (from.importance && scale != 0) out.importance = Share(ScaleRows(*from.importance, 1 / (scale * scale)));
  out.read = [from = std::move(from), scale, offset](int64_t begin, int64_t end, float* to) {
    from.read(begin, end, to);
    for (int64_t i = 0; i < (end - begin) * from.cols; ++i) to[i] = to[i] * scale + offset;
  };
  return out;
}

WeightRows TransposeRows(const WeightRows& from) {
  std::vector<float> values(static_cast<size_t>(from.rows * from.cols)), turned(values.size());
  from.read(0, from.rows, values.data());
  for (int64_t r = 0; r < from.rows; ++r) {
    for (int64_t c = 0; c < from.cols; ++c)
      turned[static_cast<size_t>(c * from.rows + r)] = values[static_cast<size_t>(r * from.cols + c)];
  }
  return ComputedRows(from.cols, from.rows, std::move(turned));
}

WeightRows OuterProduct(std::vector<float> factors, std::vector<float> row) {
  WeightRows out;
  out.rows = static_cast<int64_t>(factors.size());
  out.cols = static_cast<int64_t>(row.size());
  out.read = [factors = std::make_shared<const std::vector<float>>(std::move(factors)),
              row = std::make_shared<const std::vector<float>>(std::move(row))](int64_t begin, int64_t end,
                                                                                float* to) {
    for (int64_t r = begin; r < end; ++r) {
      const float factor = (*factors)[static_cast<size_t>(r)];
      for (const float value : *row) *to++ = factor * value;
    }
  };
  return out;
}

WeightRows ComputedRows(int64_t rows, int64_t cols, std::vector<float> values) {
  const auto shared = std::make_shared<const std::vector<float>>(std::move(values));
  return {rows, cols,
          [shared, cols](int64_t begin, int64_t end, float* out) {
            std::copy(shared->begin() + begin * cols, shared->begin() + end * cols, out);
          },
          nullptr};
}

}  // namespace cmforge::coreml
