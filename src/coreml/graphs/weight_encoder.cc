// Compressing matrices.
#include "coreml/graphs/weight_encoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "coreml/graphs/half_rows.h"
#include "mil/packed_bits.h"
#include "quant/palette.h"

namespace cmforge::coreml {
namespace {

constexpr int64_t kBlockNumbers = 1 << 21;  // compressed between two looks at the wish to stop

class Encoder {
 public:
  Encoder(const WeightRows& rows, const WeightForm& form, ThreadPool& pool)
      : rows_(rows), form_(form), pool_(pool) {
    if (form.kind == WeightForm::Kind::kPalette) fitters_.resize(static_cast<size_t>(pool.threads()));
    unit_ = form.kind == WeightForm::Kind::kPalette ? form.group : 1;
    out_.count = rows.rows * rows.cols;
  }

  Result<EncodedWeight> Run(const RunControl& control, const std::function<void(int64_t)>& on_progress) {
    // Blocks of whole units, and of whole bytes whatever the width.
    const int64_t step = std::lcm(unit_, int64_t{8});
    const int64_t block =
        std::max(kBlockNumbers / std::max<int64_t>(rows_.cols, 1) / step * step, std::min(step, rows_.rows));
    for (int64_t begin = 0; begin < rows_.rows; begin += block) {
      CMF_CHECK(control.CheckCancelled());
      const int64_t end = std::min(begin + block, rows_.rows);
      CMF_CHECK(EncodeBlock(begin, end));
      if (on_progress) on_progress(end * rows_.cols);
    }
    return std::move(out_);
  }

 private:
  struct Errors {
    double error = 0, energy = 0;
  };

  Result<void> EncodeBlock(int64_t begin, int64_t end) {
    const int64_t cols = rows_.cols, units = (end - begin) / unit_;
    const int64_t per_unit =
        form_.kind == WeightForm::Kind::kPalette ? int64_t{1} << form_.bits : cols / form_.group;
    halves_.resize(static_cast<size_t>((end - begin) * cols));
    codes_.resize(halves_.size());
    tables_.resize(static_cast<size_t>(units * per_unit));
    errors_.resize(static_cast<size_t>(units));
    CMF_CHECK(ReadHalves(rows_, begin, end, pool_, halves_));
    pool_.Run(units, [&](int64_t unit, int worker) {
      const auto at = static_cast<size_t>(unit * unit_ * cols), n = static_cast<size_t>(unit_ * cols);
      std::vector<float> importance;
      if (rows_.importance) {
        importance.resize(n);
        rows_.importance->read(begin + unit * unit_, begin + (unit + 1) * unit_, importance.data());
      }
      const std::span<const uint16_t> from(halves_.data() + at, n);
      const std::span<uint16_t> table(tables_.data() + unit * per_unit, static_cast<size_t>(per_unit));
      const std::span<uint8_t> codes(codes_.data() + at, n);
      errors_[static_cast<size_t>(unit)] =
          form_.kind == WeightForm::Kind::kPalette
              ? FitPalette(fitters_[static_cast<size_t>(worker)], from, importance, table, codes)
              : Scale(from, importance, table, codes);
    });
    for (const Errors& e : errors_) {
      out_.error += e.error;
      out_.energy += e.energy;
    }
    const std::vector<std::byte> packed = mil::PackBits(codes_, form_.bits);
    out_.codes.insert(out_.codes.end(), packed.begin(), packed.end());
    const Bytes tables = std::as_bytes(std::span(tables_));
    out_.tables.insert(out_.tables.end(), tables.begin(), tables.end());
    return {};
  }

  Errors FitPalette(PaletteFitter& fitter, std::span<const uint16_t> from, std::span<const float> importance,
                    std::span<uint16_t> table, std::span<uint8_t> codes) const {
    // The values are finite and the importance was checked where it was read. What overflowed since is left to whoever
    // judges the sums.
    if (!fitter.Fit(from, importance, form_.bits, table, codes)) {
      constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
      return {kNone, kNone};
    }
    return ErrorsOf(from, importance, [&](size_t i) { return F16ToF32(table[codes[i]]); });
  }

  /// One row: blocks of `group` columns, each with its scale.
  Errors Scale(std::span<const uint16_t> from, std::span<const float> importance, std::span<uint16_t> scales,
               std::span<uint8_t> codes) const {
    const auto most = static_cast<float>((1 << (form_.bits - 1)) - 1);
    const auto group = static_cast<size_t>(form_.group);
    for (size_t b = 0; b < scales.size(); ++b) {
      const size_t begin = b * group;
      float largest = 0;
      for (size_t i = begin; i < begin + group; ++i)
        largest = std::max(largest, std::fabs(F16ToF32(from[i])));
      // Rounded before the integers are chosen: readers only have the rounded one.
      scales[b] = F32ToF16(largest / most);
      const float scale = F16ToF32(scales[b]);
      for (size_t i = begin; i < begin + group; ++i) {
        const float steps = scale > 0 ? std::nearbyint(F16ToF32(from[i]) / scale) : 0.0f;
        codes[i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(steps, -most, most)));
      }
    }
    return ErrorsOf(from, importance, [&](size_t i) {
      return F16ToF32(scales[i / group]) * static_cast<float>(static_cast<int8_t>(codes[i]));
    });
  }

  template <class Decode>
  static Errors ErrorsOf(std::span<const uint16_t> from, std::span<const float> importance, Decode decode) {
    Errors sums;
    for (size_t i = 0; i < from.size(); ++i) {
      const double counts = importance.empty() ? 1.0 : static_cast<double>(importance[i]);
      const auto w = static_cast<double>(F16ToF32(from[i]));
      const double off = w - static_cast<double>(decode(i));
      sums.error += counts * off * off;
      sums.energy += counts * w * w;
    }
    return sums;
  }

  const WeightRows& rows_;
  const WeightForm& form_;
  ThreadPool& pool_;
  int64_t unit_ = 1;                    // rows that are compressed together
  std::vector<PaletteFitter> fitters_;  // one a thread
  std::vector<uint16_t> halves_, tables_;
  std::vector<uint8_t> codes_;
  std::vector<Errors> errors_;  // of each unit: summed in their order, whoever computed them
  EncodedWeight out_;
};

}  // namespace

Result<EncodedWeight> EncodeWeight(const WeightRows& rows, const WeightForm& form, ThreadPool& pool,
                                   const RunControl& control,
                                   const std::function<void(int64_t numbers)>& on_progress) {
  return Encoder(rows, form, pool).Run(control, on_progress);
}

}  // namespace cmforge::coreml
