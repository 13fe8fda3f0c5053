// Result types of constants, compressed constants and states.
#include "mil/infer.h"

namespace cmforge::mil {
namespace {

/// The shape an iOS 16 constexpr lists as a parameter of its own.
Result<Shape> ListedShape(const OpCall& call) {
  auto shape = call.Integers("shape");
  if (!shape || !ElementCount(*shape)) return call.Wrong("the listed shape is not known or not possible");
  return std::move(*shape);
}

/// Whether a list that iOS 16 packs into bytes has the right number of them.
Result<void> CheckPacked(const OpCall& call, std::string_view parameter, const Shape& shape, int bits) {
  const TensorType& packed = call.Tensor(parameter);
  const int64_t elements = *ElementCount(shape);
  if (packed.dtype == DataType::kUInt8 && packed.rank() == 1 && elements <= INT64_MAX / 8 &&
      packed.shape[0] == (elements * bits + 7) / 8) {
    return {};
  }
  return call.Wrong(
      fmt::format("'{}' is {} for {} elements of {} bits", parameter, TypeText(packed), elements, bits));
}

int Log2(int64_t n) {
  for (int bits = 0; bits <= 8; ++bits) {
    if (n == int64_t{1} << bits) return bits;
  }
  return -1;
}

struct Palette {
  int64_t vector = 1;
};

/// A table [groups..., 2^n, V] for indices of `rank` axes.
Result<Palette> CheckTable(const OpCall& call, const Shape& lut, const TensorType& indices, int64_t rank) {
  const auto wrong = [&] {
    return call.Wrong(fmt::format("lut is {} for indices {}", ShapeText(lut), TypeText(indices)));
  };
  if (static_cast<int64_t>(lut.size()) != rank + 2 || IsSigned(indices.dtype) || BitsOf(indices.dtype) > 8)
    return wrong();
  if (lut.end()[-2] != int64_t{1} << BitsOf(indices.dtype) || lut.back() < 1) return wrong();
  return Palette{lut.back()};
}

Result<void> CheckBlocks(const OpCall& call, const Shape& data, const Shape& blocks, std::string_view what) {
  bool fits = data.size() == blocks.size();
  for (size_t i = 0; fits && i < data.size(); ++i) fits = blocks[i] > 0 && data[i] % blocks[i] == 0;
  if (fits) return {};
  return call.Wrong(fmt::format("{} {} does not divide {}", what, ShapeText(blocks), ShapeText(data)));
}

}  // namespace

Types InferConst(const OpCall& call) {
  if (!call.Get("val").type->is_tensor())
    return Fail(ErrorKind::kUnsupported, "a constant that is no tensor");
  return std::vector{call.Tensor("val")};
}

Types InferLutToDense(const OpCall& call) {
  const TensorType& indices = call.Tensor("indices");
  const TensorType& lut = call.Tensor("lut");
  if (call.Has("shape")) {  // iOS 16
    CMF_TRY(Shape shape, ListedShape(call));
    const int bits = lut.rank() == 1 ? Log2(lut.shape[0]) : -1;
    if (bits < 1) return call.Wrong(fmt::format("lut is {}", ShapeText(lut.shape)));
    CMF_CHECK(CheckPacked(call, "indices", shape, bits));
    return std::vector{TensorType{lut.dtype, std::move(shape)}};
  }
  CMF_TRY(const Palette palette, CheckTable(call, lut.shape, indices, indices.rank()));
  CMF_CHECK(CheckBlocks(call, indices.shape, Shape(lut.shape.begin(), lut.shape.end() - 2), "lut"));
  TensorType out{lut.dtype, indices.shape};
  if (palette.vector > 1) {
    if (!call.Has("vector_axis")) return call.Wrong("a table of vectors needs vector_axis");
    CMF_TRY(const int64_t axis, call.Axis("vector_axis", out.rank(), 0));
    CMF_TRY(out.shape[static_cast<size_t>(axis)],
            DimTimes(out.shape[static_cast<size_t>(axis)], palette.vector));
  }
  return std::vector{std::move(out)};
}

Types InferLutToSparse(const OpCall& call) {
  const TensorType& mask = call.Tensor("indices_mask");
  const TensorType& indices = call.Tensor("indices_nonzero_data");
  const TensorType& lut = call.Tensor("lut");
  if (mask.dtype != DataType::kUInt1 || indices.rank() != 1) {
    return call.Wrong(fmt::format("mask {} with indices {}", TypeText(mask), TypeText(indices)));
  }
  CMF_TRY(const Palette palette, CheckTable(call, lut.shape, indices, mask.rank()));
  CMF_CHECK(CheckBlocks(call, mask.shape, Shape(lut.shape.begin(), lut.shape.end() - 2), "lut"));
  TensorType out_mask = mask, out_data{lut.dtype, indices.shape};
  if (palette.vector > 1) {
    if (!call.Has("vector_axis")) return call.Wrong("a table of vectors needs vector_axis");
    CMF_TRY(const int64_t axis, call.Axis("vector_axis", mask.rank(), 0));
    CMF_TRY(out_mask.shape[static_cast<size_t>(axis)],
            DimTimes(mask.shape[static_cast<size_t>(axis)], palette.vector));
    CMF_TRY(out_data.shape[0], DimTimes(indices.shape[0], palette.vector));
  }
  return std::vector{std::move(out_mask), std::move(out_data)};
}

Types InferBlockwise(const OpCall& call) {
  const TensorType& data = call.Tensor("data");
  const TensorType& scale = call.Tensor("scale");
  CMF_CHECK(CheckBlocks(call, data.shape, scale.shape, "scale"));
  if (call.Has("offset") && call.Tensor("offset").shape != scale.shape) {
    return call.Wrong(fmt::format("offset is {}, scale is {}", ShapeText(call.Tensor("offset").shape),
                                  ShapeText(scale.shape)));
  }
  return std::vector{TensorType{scale.dtype, data.shape}};
}

Types InferSparseToDense(const OpCall& call) {
  const TensorType& data = call.Tensor("nonzero_data");
  const TensorType& mask = call.Tensor("mask");
  if (data.rank() != 1) return call.Wrong(fmt::format("nonzero_data is {}", TypeText(data)));
  if (call.Has("shape")) {  // iOS 16
    CMF_TRY(Shape shape, ListedShape(call));
    CMF_CHECK(CheckPacked(call, "mask", shape, 1));
    return std::vector{TensorType{data.dtype, std::move(shape)}};
  }
  if (mask.dtype != DataType::kUInt1) return call.Wrong(fmt::format("mask is {}", TypeText(mask)));
  return std::vector{TensorType{data.dtype, mask.shape}};
}

Types InferSparseBlockwise(const OpCall& call) {
  const TensorType& mask = call.Tensor("data_mask");
  const TensorType& data = call.Tensor("nonzero_data");
  const TensorType& scale = call.Tensor("scale");
  if (mask.dtype != DataType::kUInt1 || data.rank() != 1) {
    return call.Wrong(fmt::format("mask {} with data {}", TypeText(mask), TypeText(data)));
  }
  CMF_CHECK(CheckBlocks(call, mask.shape, scale.shape, "scale"));
  if (call.Has("offset") && call.Tensor("offset").shape != scale.shape)
    return call.Wrong("offset and scale differ in shape");
  return std::vector{mask, TensorType{scale.dtype, data.shape}};
}

Types InferAffineDequantize(const OpCall& call) {
  const TensorType& data = call.Tensor("quantized_data");
  CMF_TRY(const int64_t axis, call.Axis("axis", data.rank(), 0));
  for (const std::string_view parameter : {"scale", "zero_point"}) {
    const Shape& shape = call.Tensor(parameter).shape;
    if (!shape.empty() && shape != Shape{data.shape[static_cast<size_t>(axis)]}) {
      return call.Wrong(fmt::format("'{}' is {} for axis {} of {}", parameter, ShapeText(shape), axis,
                                    ShapeText(data.shape)));
    }
  }
  return std::vector{TensorType{call.Tensor("scale").dtype, data.shape}};
}

Types InferConstexprCast(const OpCall& call) {
  CMF_TRY(const std::string name, call.Text("output_dtype", ""));
  const auto dtype = DataTypeFromName(name);
  if (dtype != DataType::kFloat32 && dtype != DataType::kFloat16)
    return call.Wrong(fmt::format("cast to '{}'", name));
  return std::vector{TensorType{*dtype, call.Tensor("source_val").shape}};
}

Types InferReadState(const OpCall& call) { return std::vector{call.Tensor("input")}; }

Types InferWriteState(const OpCall& call) {
  const TensorType& state = call.Tensor("input");
  if (!call.Get("data").type->is_tensor() || !AreCompatible(call.Tensor("data"), state)) {
    return call.Wrong(
        fmt::format("{} written to a state of {}", TypeText(call.Tensor("data")), TypeText(state)));
  }
  return std::vector<TensorType>{};
}

}  // namespace cmforge::mil
