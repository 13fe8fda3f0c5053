// Stored and compressed constants.
#include "coreml/interpreter/weight.h"

#include <algorithm>

#include "base/half.h"
#include "mil/packed_bits.h"

namespace cmforge::coreml {
namespace {

using mil::DataType;
using mil::OpCall;
using mil::TensorType;

template <class T>
void DecodeAs(const std::byte* at, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(LoadLe<T>(at + i * static_cast<int64_t>(sizeof(T))));
}

/// Elements [begin, begin + count) of a stored tensor.
void DecodeStored(DataType dtype, const std::byte* data, int64_t begin, int64_t count, float* out) {
  const int bits = mil::BitsOf(dtype);
  const std::byte* at = data + (bits >= 8 ? begin * (bits / 8) : 0);
  switch (dtype) {
    case DataType::kFloat16:
      return HalvesToFloats(at, count, out);
    case DataType::kFloat32:
      std::memcpy(out, at, static_cast<size_t>(count) * 4);
      return;
    case DataType::kFloat64:
      return DecodeAs<double>(at, count, out);
    case DataType::kBFloat16:
      for (int64_t i = 0; i < count; ++i) out[i] = Bf16ToF32(LoadLe<uint16_t>(at + 2 * i));
      return;
    case DataType::kFloat8E4M3FN:
    case DataType::kFloat8E5M2:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(mil::Float8Number(dtype, std::to_integer<uint8_t>(at[i])));
      }
      return;
    case DataType::kBool:
    case DataType::kUInt8:
      return DecodeAs<uint8_t>(at, count, out);
    case DataType::kInt8:
      return DecodeAs<int8_t>(at, count, out);
    case DataType::kInt16:
      return DecodeAs<int16_t>(at, count, out);
    case DataType::kUInt16:
      return DecodeAs<uint16_t>(at, count, out);
    case DataType::kInt32:
      return DecodeAs<int32_t>(at, count, out);
    case DataType::kUInt32:
      return DecodeAs<uint32_t>(at, count, out);
    case DataType::kInt64:
      return DecodeAs<int64_t>(at, count, out);
    case DataType::kUInt64:
      return DecodeAs<uint64_t>(at, count, out);
    default:
      break;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t element = mil::PackedElement(data, bits, begin + i);
    out[i] = static_cast<float>(mil::IsSigned(dtype) ? mil::SignExtend(element, bits)
                                                     : static_cast<int32_t>(element));
  }
}

class DenseWeight final : public Weight {
 public:
  DenseWeight(TensorType type, Bytes bytes) : Weight(std::move(type)), bytes_(bytes) {}
  DenseWeight(TensorType type, std::vector<std::byte> owned)
      : Weight(std::move(type)), owned_(std::move(owned)), bytes_(owned_) {}
  void Decode(int64_t begin, int64_t count, float* out) const override {
    DecodeStored(type().dtype, bytes_.data(), begin, count, out);
  }
  [[nodiscard]] Bytes stored() const override { return bytes_; }
  [[nodiscard]] std::optional<StoredMatrix> Matrix(int64_t rows, int64_t cols) const override {
    StoredMatrix m;
    m.bits = mil::BitsOf(type().dtype);
    if (type().dtype == DataType::kFloat16) {
      m.form = StoredMatrix::Form::kF16;
    } else if (type().dtype != DataType::kFloat32) {
      return std::nullopt;
    }
    m.rows = rows;
    m.cols = cols;
    m.data = bytes_.data();
    return m;
  }

 private:
  std::vector<std::byte> owned_;  // empty where the bytes lie elsewhere
  Bytes bytes_;
};

/// Values computed once, where a form is too irregular to decode in pieces.
class OwnedWeight final : public Weight {
 public:
  OwnedWeight(TensorType type, std::vector<float> values)
      : Weight(std::move(type)), values_(std::move(values)) {}
  void Decode(int64_t begin, int64_t count, float* out) const override {
    std::copy_n(values_.begin() + begin, count, out);
  }

 private:
  std::vector<float> values_;
};

/// Which block of a grid each element belongs to: `grid[i]` divides `shape[i]`. Elements come in runs of one
/// block.
class BlockGrid {
 public:
  BlockGrid(const Shape& shape, const Shape& grid) {
    run_ = 1;
    size_t last = 0;  // axes before this one decide the block
    for (size_t i = 0; i < shape.size(); ++i) {
      if (grid[i] > 1) last = i + 1;
    }
    for (size_t i = last; i < shape.size(); ++i) run_ *= shape[i];
    for (size_t i = 0; i < last; ++i) axes_.push_back({shape[i], grid[i], shape[i] / grid[i]});
    if (last > 0) {
      run_ *= axes_.back().block;
      axes_.back().extent = axes_.back().grid;
      axes_.back().block = 1;
    }
  }

  /// fn(block, offset, length) for the runs that cover [begin, begin + count); offset from begin.
  template <class Fn>
  void ForRuns(int64_t begin, int64_t count, Fn&& fn) const {
    for (int64_t at = begin, end = begin + count; at < end;) {
      const int64_t length = std::min(end - at, run_ - at % run_);
      fn(BlockOfRun(at / run_), at - begin, length);
      at += length;
    }
  }
  [[nodiscard]] int64_t BlockOf(int64_t element) const { return BlockOfRun(element / run_); }

 private:
  struct Axis {
    int64_t extent, grid, block;
  };
  [[nodiscard]] int64_t BlockOfRun(int64_t run) const {
    int64_t block = 0, scale = 1;
    for (size_t i = axes_.size(); i-- > 0;) {
      block += run % axes_[i].extent / axes_[i].block * scale;
      run /= axes_[i].extent;
      scale *= axes_[i].grid;
    }
    return block;
  }

  std::vector<Axis> axes_;
  int64_t run_ = 1;
};

std::vector<float> DecodeAll(const Weight& weight) {
  std::vector<float> values(static_cast<size_t>(weight.count()));
  weight.Decode(0, weight.count(), values.data());
  return values;
}

/// Numbers that a compressed tensor is made with: halves stay where they are stored, others are decoded once.
class SideNumbers {
 public:
  SideNumbers() = default;
  explicit SideNumbers(std::vector<float> values) : values_(std::move(values)) {}
  explicit SideNumbers(WeightPtr weight) {
    if (weight->type().dtype == DataType::kFloat16 && !weight->stored().empty()) {
      weight_ = std::move(weight);
      halves_ = weight_->stored().data();
    } else {
      values_ = DecodeAll(*weight);
    }
  }
  [[nodiscard]] float operator[](int64_t i) const {
    return halves_ ? F16ToF32(LoadLe<uint16_t>(halves_ + 2 * i)) : values_[static_cast<size_t>(i)];
  }
  [[nodiscard]] bool empty() const { return !halves_ && values_.empty(); }
  [[nodiscard]] const std::byte* halves() const { return halves_; }  // null: decoded

 private:
  WeightPtr weight_;  // keeps the halves
  const std::byte* halves_ = nullptr;
  std::vector<float> values_;
};

/// The last axis that a grid cuts, plus one; 0 when it cuts none.
size_t CutAxes(const Shape& grid) {
  size_t cut = 0;
  for (size_t i = 0; i < grid.size(); ++i) {
    if (grid[i] > 1) cut = i + 1;
  }
  return cut;
}

/// constexpr_lut_to_dense: n-bit indices into a table per block.
class PaletteWeight final : public Weight {
 public:
  PaletteWeight(TensorType type, Bytes indices, int bits, Shape shape, Shape grid, SideNumbers tables,
                int64_t vector, int64_t stride)
      : Weight(std::move(type)),
        indices_(indices),
        bits_(bits),
        shape_(std::move(shape)),
        cuts_(std::move(grid)),
        grid_(shape_, cuts_),
        tables_(std::move(tables)),
        vector_(vector),
        stride_(stride) {}

  void Decode(int64_t begin, int64_t count, float* out) const override {
    if (vector_ > 1) return DecodeVectors(begin, count, out);
    const int64_t table_size = int64_t{1} << bits_;
    uint8_t codes[256];
    float table[256];
    grid_.ForRuns(begin, count, [&](int64_t block, int64_t offset, int64_t length) {
      const bool reads_all = length >= table_size;  // short runs look up what they need
      for (int64_t k = 0; reads_all && k < table_size; ++k) table[k] = tables_[block * table_size + k];
      for (int64_t i = 0; i < length; i += 256) {
        const int64_t n = std::min<int64_t>(256, length - i);
        mil::UnpackBits(indices_.data(), bits_, begin + offset + i, n, codes);
        for (int64_t k = 0; k < n; ++k) {
          out[offset + i + k] = reads_all ? table[codes[k]] : tables_[block * table_size + codes[k]];
        }
      }
    });
  }

  [[nodiscard]] std::optional<StoredMatrix> Matrix(int64_t rows, int64_t cols) const override {
    if (vector_ > 1 || !tables_.halves() || type().dtype != DataType::kFloat16 || bits_ == 5 || bits_ == 7)
      return std::nullopt;
    const size_t cut = CutAxes(cuts_);
    if (cut > 1 || (cut == 1 && shape_[0] != rows)) return std::nullopt;
    StoredMatrix m;
    m.form = StoredMatrix::Form::kPalette;
    m.bits = bits_;
    m.rows = rows;
    m.cols = cols;
    m.data = indices_.data();
    m.tables = tables_.halves();
    m.rows_per_table = std::max<int64_t>(cut == 0 ? rows : rows / cuts_[0], 1);
    return m;
  }

 private:
  /// Each index stands for `vector_` numbers along an axis; `stride_` elements lie behind that axis.
  void DecodeVectors(int64_t begin, int64_t count, float* out) const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t inner = (begin + i) % stride_, along = (begin + i) / stride_;
      const int64_t index = along / vector_ * stride_ + inner;
      const uint32_t code = mil::PackedElement(indices_.data(), bits_, index);
      const int64_t row = (grid_.BlockOf(index) << bits_) + code;
      out[i] = tables_[row * vector_ + along % vector_];
    }
  }

  Bytes indices_;
  int bits_;
  Shape shape_, cuts_;  // of the indices
  BlockGrid grid_;
  SideNumbers tables_;
  int64_t vector_, stride_;
};

/// scale * (data - offset), a scale per block.
class ScaledWeight final : public Weight {
 public:
  ScaledWeight(TensorType type, WeightPtr data, Shape grid, SideNumbers scale, std::vector<float> offset)
      : Weight(std::move(type)),
        data_(std::move(data)),
        cuts_(std::move(grid)),
        grid_(this->type().shape, cuts_),
        scale_(std::move(scale)),
        offset_(std::move(offset)) {}

  void Decode(int64_t begin, int64_t count, float* out) const override {
    data_->Decode(begin, count, out);
    grid_.ForRuns(begin, count, [&](int64_t block, int64_t from, int64_t length) {
      const float scale = scale_[block];
      const float offset = offset_.empty() ? 0.0f : offset_[static_cast<size_t>(block)];
      for (int64_t i = from; i < from + length; ++i) out[i] = scale * (out[i] - offset);
    });
    if (type().dtype == DataType::kFloat16) RoundToHalves(out, count);
  }

  [[nodiscard]] std::optional<StoredMatrix> Matrix(int64_t rows, int64_t cols) const override {
    const Shape& shape = type().shape;
    const size_t cut = CutAxes(cuts_);
    if (!scale_.halves() || cut > 2 || (cut > 0 && shape[0] != rows)) return std::nullopt;
    StoredMatrix m;
    if (data_->stored().empty()) {  // a palette under scales of whole rows
      const auto palette = data_->Matrix(rows, cols);
      if (!palette || palette->form != StoredMatrix::Form::kPalette || palette->scales || cut > 1 ||
          !offset_.empty())
        return std::nullopt;
      m = *palette;
    } else {
      const DataType dtype = data_->type().dtype;
      m.bits = mil::BitsOf(dtype);
      m.is_signed = mil::IsSigned(dtype);
      if (!mil::IsInteger(dtype) || (m.bits != 4 && m.bits != 8)) return std::nullopt;
      m.form = StoredMatrix::Form::kScaled;
      m.rows = rows;
      m.cols = cols;
      m.data = data_->stored().data();
      m.offsets = offset_.empty() ? nullptr : offset_.data();
    }
    m.scales = scale_.halves();
    m.rows_per_scale = std::max<int64_t>(cut == 0 ? rows : rows / cuts_[0], 1);
    m.scales_per_row = cut == 2 ? cuts_[1] : 1;
    m.cols_per_scale = std::max<int64_t>(cols / m.scales_per_row, 1);
    return m;
  }

 private:
  WeightPtr data_;
  Shape cuts_;
  BlockGrid grid_;
  SideNumbers scale_;
  std::vector<float> offset_;
};

class CastWeight final : public Weight {
 public:
  CastWeight(TensorType type, WeightPtr data) : Weight(std::move(type)), data_(std::move(data)) {}
  void Decode(int64_t begin, int64_t count, float* out) const override {
    data_->Decode(begin, count, out);
    if (type().dtype == DataType::kFloat16) RoundToHalves(out, count);
  }

 private:
  WeightPtr data_;
};

using Results = Result<std::vector<WeightPtr>>;

template <class W>
std::vector<WeightPtr> One(W weight) {
  return {std::make_shared<const W>(std::move(weight))};
}

struct Operands {
  const OpCall& call;
  const std::function<Result<WeightPtr>(std::string_view)>& weight;
  const std::function<Result<Bytes>(std::string_view)>& bytes;

  Result<std::vector<float>> All(std::string_view parameter) const {
    CMF_TRY(const WeightPtr w, weight(parameter));
    return DecodeAll(*w);
  }
  Result<SideNumbers> Side(std::string_view parameter) const {
    CMF_TRY(WeightPtr w, weight(parameter));
    return SideNumbers(std::move(w));
  }
};

Shape GridOf(const Shape& lut) { return {lut.begin(), lut.end() - 2}; }

Results MakePalette(const Operands& operands, const TensorType& type) {
  CMF_TRY(const Bytes indices, operands.bytes("indices"));
  CMF_TRY(SideNumbers tables, operands.Side("lut"));
  const Shape& lut = operands.call.Tensor("lut").shape;
  if (operands.call.Has("shape")) {  // iOS 16: one table, indices packed into bytes
    int bits = 0;
    while (int64_t{1} << bits < lut[0]) ++bits;
    return One(
        PaletteWeight(type, indices, bits, type.shape, Shape(type.shape.size(), 1), std::move(tables), 1, 1));
  }
  const TensorType& index_type = operands.call.Tensor("indices");
  const int64_t vector = lut.back();
  int64_t stride = 1;
  if (vector > 1) {
    CMF_TRY(const int64_t axis, operands.call.Axis("vector_axis", type.rank(), 0));
    for (size_t i = static_cast<size_t>(axis) + 1; i < type.shape.size(); ++i) stride *= type.shape[i];
  }
  return One(PaletteWeight(type, indices, mil::BitsOf(index_type.dtype), index_type.shape, GridOf(lut),
                           std::move(tables), vector, stride));
}

Results MakeScaled(const Operands& operands, const TensorType& type) {
  CMF_TRY(WeightPtr data, operands.weight("data"));
  CMF_TRY(SideNumbers scale, operands.Side("scale"));
  std::vector<float> offset;
  if (operands.call.Has("offset")) {
    CMF_TRY(offset, operands.All("offset"));
  }
  return One(ScaledWeight(type, std::move(data), operands.call.Tensor("scale").shape, std::move(scale),
                          std::move(offset)));
}

/// iOS 16: scale and zero point of one axis, or of the whole.
Results MakeAffine(const Operands& operands, const TensorType& type) {
  CMF_TRY(WeightPtr data, operands.weight("quantized_data"));
  CMF_TRY(std::vector<float> scale, operands.All("scale"));
  CMF_TRY(std::vector<float> zero, operands.All("zero_point"));
  CMF_TRY(const int64_t axis, operands.call.Axis("axis", type.rank(), 0));
  const size_t blocks = std::max(scale.size(), zero.size());
  scale.resize(blocks, scale.empty() ? 0.0f : scale[0]);
  zero.resize(blocks, zero.empty() ? 0.0f : zero[0]);
  Shape grid(type.shape.size(), 1);
  grid[static_cast<size_t>(axis)] = static_cast<int64_t>(blocks);
  return One(
      ScaledWeight(type, std::move(data), std::move(grid), SideNumbers(std::move(scale)), std::move(zero)));
}

/// Calls fn(element, k) for the k-th set bit of a mask.
template <class Fn>
Result<void> ForSetBits(Bytes mask, int64_t elements, int64_t expected, Fn&& fn) {
  int64_t k = 0;
  for (int64_t i = 0; i < elements; ++i) {
    if (mil::PackedElement(mask.data(), 1, i) == 0) continue;
    if (k < expected) fn(i, k);
    ++k;
  }
  if (k == expected) return {};
  return Fail(ErrorKind::kCorrupt,
              fmt::format("{} elements set in the mask, {} values are stored", k, expected));
}

Results MakeSparseToDense(const Operands& operands, const TensorType& type) {
  CMF_TRY(const Bytes mask, operands.bytes("mask"));
  CMF_TRY(const std::vector<float> data, operands.All("nonzero_data"));
  const int64_t elements = *ElementCount(type.shape);
  std::vector<float> values(static_cast<size_t>(elements), 0.0f);
  CMF_CHECK(ForSetBits(mask, elements, static_cast<int64_t>(data.size()), [&](int64_t at, int64_t k) {
    values[static_cast<size_t>(at)] = data[static_cast<size_t>(k)];
  }));
  return One(OwnedWeight(type, std::move(values)));
}

Results MakeLutToSparse(const Operands& operands, const std::vector<TensorType>& types) {
  CMF_TRY(const Bytes mask, operands.bytes("indices_mask"));
  CMF_TRY(const std::vector<float> codes, operands.All("indices_nonzero_data"));
  CMF_TRY(const std::vector<float> tables, operands.All("lut"));
  const int bits = mil::BitsOf(operands.call.Tensor("indices_nonzero_data").dtype);
  const Shape& lut = operands.call.Tensor("lut").shape;
  const Shape& shape = operands.call.Tensor("indices_mask").shape;
  const BlockGrid grid(shape, GridOf(lut));
  const int64_t elements = *ElementCount(shape), vector = lut.back();
  std::vector<int64_t> rows(static_cast<size_t>(elements), -1);  // of the tables, by index; -1: not set
  CMF_CHECK(ForSetBits(mask, elements, static_cast<int64_t>(codes.size()), [&](int64_t at, int64_t k) {
    rows[static_cast<size_t>(at)] =
        (grid.BlockOf(at) << bits) + static_cast<int64_t>(codes[static_cast<size_t>(k)]);
  }));
  int64_t stride = elements;  // with vectors of one, an output element is its index
  if (vector > 1) {
    CMF_TRY(const int64_t axis, operands.call.Axis("vector_axis", static_cast<int64_t>(shape.size()), 0));
    stride = 1;
    for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) stride *= shape[i];
  }
  // Each set index gives `vector` set elements along the axis; values come in the order of the output.
  std::vector<float> values;
  std::vector<uint8_t> is_set(static_cast<size_t>(elements * vector));
  for (int64_t at = 0; at < elements * vector; ++at) {
    const int64_t along = at / stride;
    const int64_t row = rows[static_cast<size_t>(along / vector * stride + at % stride)];
    if (row < 0) continue;
    is_set[static_cast<size_t>(at)] = 1;
    values.push_back(tables[static_cast<size_t>(row * vector + along % vector)]);
  }
  std::vector<WeightPtr> out =
      vector > 1 ? One(DenseWeight(types[0], mil::PackBits(is_set, 1))) : One(DenseWeight(types[0], mask));
  out.push_back(std::make_shared<const OwnedWeight>(types[1], std::move(values)));
  return out;
}

Results MakeSparseScaled(const Operands& operands, const std::vector<TensorType>& types) {
  CMF_TRY(const Bytes mask, operands.bytes("data_mask"));
  CMF_TRY(std::vector<float> values, operands.All("nonzero_data"));
  CMF_TRY(const std::vector<float> scale, operands.All("scale"));
  std::vector<float> offset;
  if (operands.call.Has("offset")) {
    CMF_TRY(offset, operands.All("offset"));
  }
  const BlockGrid grid(types[0].shape, operands.call.Tensor("scale").shape);
  CMF_CHECK(ForSetBits(mask, *ElementCount(types[0].shape), static_cast<int64_t>(values.size()),
                       [&](int64_t at, int64_t k) {
                         const auto block = static_cast<size_t>(grid.BlockOf(at));
                         float& value = values[static_cast<size_t>(k)];
                         value = scale[block] * (value - (offset.empty() ? 0.0f : offset[block]));
                       }));
  if (types[1].dtype == DataType::kFloat16) RoundToHalves(values.data(), static_cast<int64_t>(values.size()));
  std::vector<WeightPtr> out = One(DenseWeight(types[0], mask));
  out.push_back(std::make_shared<const OwnedWeight>(types[1], std::move(values)));
  return out;
}

}  // namespace

Result<WeightPtr> MakeDenseWeight(const TensorType& type, Bytes bytes) {
  if (type.dtype == DataType::kString)
    return Fail(ErrorKind::kUnsupported, "a string where numbers are wanted");
  return WeightPtr(std::make_shared<const DenseWeight>(type, bytes));
}

Result<std::vector<WeightPtr>> MakeConstexpr(
    const OpCall& call, const std::vector<TensorType>& types,
    const std::function<Result<WeightPtr>(std::string_view)>& operand,
    const std::function<Result<Bytes>(std::string_view)>& bytes) {
  const Operands operands{call, operand, bytes};
  const std::string_view op = call.info().name;
  if (op == "constexpr_lut_to_dense") return MakePalette(operands, types[0]);
  if (op == "constexpr_blockwise_shift_scale") return MakeScaled(operands, types[0]);
  if (op == "constexpr_affine_dequantize") return MakeAffine(operands, types[0]);
  if (op == "constexpr_sparse_to_dense") return MakeSparseToDense(operands, types[0]);
  if (op == "constexpr_lut_to_sparse") return MakeLutToSparse(operands, types);
  if (op == "constexpr_sparse_blockwise_shift_scale") return MakeSparseScaled(operands, types);
  if (op == "constexpr_cast") {
    CMF_TRY(WeightPtr data, operand("source_val"));
    return One(CastWeight(types[0], std::move(data)));
  }
  return Fail(ErrorKind::kUnsupported, fmt::format("'{}' is not known", op));
}

}  // namespace cmforge::coreml
