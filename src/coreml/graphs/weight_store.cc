// Streaming weights into a weight file.
#include "coreml/graphs/weight_store.h"

#include <algorithm>

#include "coreml/graphs/half_rows.h"

namespace cmforge::coreml {
namespace {

constexpr int64_t kBlockNumbers = 1 << 20;  // of one block: 2 MiB of halves
constexpr int64_t kInProgram = 10;          // fewer numbers than this are written into the program

StoredWeight Plain(mil::Value value) {
  StoredWeight weight;
  weight.parameters.emplace_back("val", std::move(value));
  return weight;
}

mil::DataType CodeType(const WeightForm& form) {
  using enum mil::DataType;
  if (form.kind == WeightForm::Kind::kScaled) return form.bits == 8 ? kInt8 : kInt4;
  switch (form.bits) {
    case 2:
      return kUInt2;
    case 3:
      return kUInt3;
    case 4:
      return kUInt4;
    case 6:
      return kUInt6;
    default:
      return kUInt8;
  }
}

/// Palette: [rows / group, 1, ..., 2^bits, 1]. Scaled: [rows, columns / group, 1, ...].
Shape TableShape(const WeightForm& form, const Shape& shape) {
  Shape out(shape.size(), 1);
  if (form.kind == WeightForm::Kind::kPalette) {
    out[0] = shape[0] / form.group;
    out.push_back(int64_t{1} << form.bits);
    out.push_back(1);
  } else {
    out[0] = shape[0];
    out[1] = shape[1] / form.group;
  }
  return out;
}

}  // namespace

Result<WeightRows> WeightStore::Rows(const std::string& name) const {
  CMF_TRY(WeightRows rows, TensorRows(source_, name));
  if (plan_.statistics == nullptr) return rows;
  const auto it = plan_.statistics->mean_square.find(name);
  if (it == plan_.statistics->mean_square.end()) return rows;
  if (static_cast<int64_t>(it->second.size()) != rows.cols) {
    return Fail(ErrorKind::kUsage,
                fmt::format("{}: '{}': statistics of {} channels, {} has {}: calibrate with this model",
                            plan_.statistics->origin, name, it->second.size(), source_.path(), rows.cols));
  }
  std::vector<float> factors(static_cast<size_t>(rows.rows), 1.0f);
  if (const auto own = plan_.statistics->row_weight.find(name); own != plan_.statistics->row_weight.end()) {
    if (own->second.size() != factors.size()) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: '{}': statistics of {} rows, {} has {}: calibrate with this model",
                              plan_.statistics->origin, name, own->second.size(), source_.path(), rows.rows));
    }
    factors = own->second;
  }
  rows.importance = std::make_shared<const WeightRows>(OuterProduct(std::move(factors), it->second));
  return rows;
}

const WeightForm& WeightStore::FormOf(const std::string& name) const {
  const auto it = plan_.exceptions.find(name);
  return it == plan_.exceptions.end() ? plan_.form : it->second;
}

Result<StoredWeight> WeightStore::Add(const std::string& name, const Shape& shape, WeightRole role,
                                      const std::function<Result<WeightRows>()>& make) {
  if (const auto it = known_.find(name); it != known_.end()) return it->second;
  CMF_CHECK(control_.CheckCancelled());
  const int64_t count = ElementCount(shape).value_or(-1);
  const bool may_shrink = role != WeightRole::kPlain && count > kMostNumbersOfSmall;
  const mil::TensorType type{mil::DataType::kFloat16, shape};
  if (blobs_ == nullptr && !may_shrink) return known_[name] = Plain(mil::FromBlob(type, mil::kBlobAlignment));
  CMF_TRY(WeightRows rows, make());
  if (rows.rows * rows.cols != count) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: weight '{}': {} x {} numbers, the graph wants {}", source_.path(), name,
                            rows.rows, rows.cols, ShapeText(shape)));
  }
  if (role == WeightRole::kLookup) rows.importance = nullptr;
  const WeightForm& wanted = FormOf(name);
  const bool shrinks = may_shrink && wanted.is_compressed();
  if (shrinks && plan_.statistics != nullptr && role == WeightRole::kMatrix && !rows.importance) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: no statistics of weight '{}': calibrate with this model",
                                               plan_.statistics->origin, name));
  }
  const auto add = [&]() -> Result<StoredWeight> {
    if (blobs_ == nullptr) {
      if (on_matrix) CMF_CHECK(on_matrix(name, rows));
      return Plain(mil::FromBlob(type, mil::kBlobAlignment));
    }
    if (shrinks) return AddCompressed(name, shape, rows, FormFor(wanted, rows.rows, rows.cols));
    return AddHalves(shape, rows);
  };
  auto added = add();
  if (!added) {
    Error error = std::move(added).error();
    const bool is_of_weight = error.kind == ErrorKind::kCorrupt || error.kind == ErrorKind::kUnsupported;
    return Fail(is_of_weight ? std::move(error).In(fmt::format("{}: weight '{}'", source_.path(), name))
                             : std::move(error));
  }
  return known_[name] = std::move(*added);
}

Result<StoredWeight> WeightStore::AddHalves(const Shape& shape, const WeightRows& rows) {
  const int64_t count = rows.rows * rows.cols;
  const mil::TensorType type{mil::DataType::kFloat16, shape};
  if (count < kInProgram) {
    std::vector<float> values(static_cast<size_t>(count));
    if (count > 0) rows.read(0, rows.rows, values.data());
    CMF_CHECK(CheckHalfRange(values));
    return Plain(mil::Floats(mil::DataType::kFloat16, shape, values));
  }
  CMF_CHECK(blobs_->Begin(mil::DataType::kFloat16, count));
  const int64_t block = std::clamp<int64_t>(kBlockNumbers / std::max<int64_t>(rows.cols, 1), 1, rows.rows);
  std::vector<uint16_t> halves(static_cast<size_t>(block * rows.cols));
  for (int64_t begin = 0; begin < rows.rows; begin += block) {
    CMF_CHECK(control_.CheckCancelled());
    const int64_t end = std::min(begin + block, rows.rows);
    CMF_CHECK(ReadHalves(rows, begin, end, pool_, halves));
    const auto n = static_cast<size_t>((end - begin) * rows.cols);
    CMF_CHECK(blobs_->Append(std::as_bytes(std::span(halves).first(n))));
    written_ += static_cast<int64_t>(n);
    Progress(0);
  }
  CMF_TRY(const uint64_t offset, blobs_->End());
  return Plain(mil::FromBlob(type, offset));
}

Result<EncodedWeight> WeightStore::Compress(const std::string& name, const WeightRows& rows,
                                            const WeightForm& form) {
  const std::string key = fmt::format("{} {}", FormText(form), name);
  CMF_TRY(auto known, plan_.journal->Find(key));
  if (known) return std::move(*known);
  CMF_TRY(EncodedWeight weight,
          EncodeWeight(rows, form, pool_, control_, [&](int64_t numbers) { Progress(numbers); }));
  CMF_CHECK(plan_.journal->Add(key, weight));
  return weight;
}

Result<StoredWeight> WeightStore::AddCompressed(const std::string& name, const Shape& shape,
                                                const WeightRows& rows, const WeightForm& form) {
  CMF_TRY(const EncodedWeight weight, Compress(name, rows, form));
  const bool is_palette = form.kind == WeightForm::Kind::kPalette;
  const mil::TensorType codes{CodeType(form), shape};
  const mil::TensorType tables{mil::DataType::kFloat16, TableShape(form, shape)};
  const auto store = [&](const mil::TensorType& type, Bytes bytes) -> Result<mil::Value> {
    const int64_t count = ElementCount(type.shape).value_or(0);
    if (count < kInProgram) return mil::Raw(type, {bytes.begin(), bytes.end()});
    CMF_TRY(const uint64_t offset, blobs_->Add(type.dtype, count, bytes));
    return mil::FromBlob(type, offset);
  };
  CMF_TRY(mil::Value code_value, store(codes, weight.codes));
  CMF_TRY(mil::Value table_value, store(tables, weight.tables));
  StoredWeight stored;
  stored.op = is_palette ? "constexpr_lut_to_dense" : "constexpr_blockwise_shift_scale";
  stored.suffix = is_palette ? "_palettized" : "_quantized";
  stored.parameters.emplace_back(is_palette ? "indices" : "data", std::move(code_value));
  stored.parameters.emplace_back(is_palette ? "lut" : "scale", std::move(table_value));
  ++report_.weights;
  report_.numbers += weight.count;
  report_.bytes += weight.codes.size() + weight.tables.size();
  report_.error += weight.error;
  report_.energy += weight.energy;
  if (const int64_t asked = FormOf(name).group; asked > 0 && asked != form.group) {
    report_.uneven.push_back(fmt::format("{}: {} {} in groups of {}", name,
                                         is_palette ? rows.rows : rows.cols,
                                         is_palette ? "channels" : "columns", form.group));
  }
  written_ += weight.count;
  Progress(0);
  return stored;
}

}  // namespace cmforge::coreml
