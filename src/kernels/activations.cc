// Quantizes an operator's input once, however many matrices read it.
#include "kernels/activations.h"

namespace cmforge {
namespace {

void Reserve(const Activations& input, QuantizedRows& rows) {
  const int64_t groups = (input.cols() + kGroupSize - 1) / kGroupSize;
  rows.stride = (groups + kGroupPad - 1) / kGroupPad * kGroupPad;
  const auto wanted = static_cast<size_t>(input.tokens() * rows.stride);
  if (rows.groups.size() < wanted) rows.groups.resize(wanted);
  rows.is_valid = true;
}

void Quantize(const KernelTable& table, ThreadPool& pool, const Activations& input, const std::byte* columns,
              QuantizedRows& rows) {
  Reserve(input, rows);
  const auto quantize = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      table.quantize(input.data() + t * input.stride(), columns, input.cols(), rows.stride,
                     rows.groups.data() + t * rows.stride);
    }
  };
  if (input.tokens() * input.cols() < kParallelElements) {
    quantize(0, input.tokens());
  } else {
    pool.ForRanges(input.tokens(), 1, quantize);
  }
}

// The slot of this column field: the one that has it, else one that is no longer in use.
QuantizedRows& SlotFor(QuantizedRows& all, const std::byte* columns) {
  QuantizedRows::ForColumns* free = nullptr;
  for (auto& slot : all.for_columns) {
    if (slot.rows->is_valid && slot.columns == columns) return *slot.rows;
    if (!slot.rows->is_valid) free = &slot;
  }
  if (free == nullptr) free = &all.for_columns.emplace_back(nullptr, std::make_unique<QuantizedRows>());
  free->columns = columns;
  return *free->rows;
}

QuantizedRows& RowsFor(Activations& input, const WeightLayout& weight) {
  return weight.columns != nullptr ? SlotFor(input.quantized(), weight.columns) : input.quantized();
}

}  // namespace

Activations::Activations() : quantized_(std::make_unique<QuantizedRows>()) {}
Activations::Activations(Activations&&) noexcept = default;
Activations& Activations::operator=(Activations&&) noexcept = default;
Activations::~Activations() = default;

void Activations::Set(const float* x, int64_t tokens, int64_t cols, int64_t stride) {
  x_ = x;
  tokens_ = tokens;
  cols_ = cols;
  stride_ = stride;
  quantized_->is_valid = false;
  for (auto& slot : quantized_->for_columns) slot.rows->is_valid = false;
}

TokenRows FloatRowsOf(const Activations& input) {
  TokenRows result;
  result.x = input.data();
  result.x_stride = input.stride();
  result.count = input.tokens();
  return result;
}

TokenRows QuantizeFor(const KernelTable& table, ThreadPool& pool, Activations& input,
                      const WeightLayout& weight) {
  QuantizedRows& rows = RowsFor(input, weight);
  if (!rows.is_valid) Quantize(table, pool, input, weight.columns, rows);
  TokenRows result = FloatRowsOf(input);
  result.groups = rows.groups.data();
  result.groups_stride = rows.stride;
  return result;
}

QuantizedRows& RowsToQuantize(Activations& input, const WeightLayout& weight) {
  QuantizedRows& rows = RowsFor(input, weight);
  Reserve(input, rows);
  return rows;
}

}  // namespace cmforge
