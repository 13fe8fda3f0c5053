// Constants that hold what is no number: NaN anywhere, infinity where it does not stand for a mask or a bound.
#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "coreml/lint/subject.h"

namespace cmforge::coreml::lint {
namespace {

using mil::DataType;
using mil::Operation;

struct Numbers {
  uint64_t all = 0, nan = 0, positive = 0, negative = 0;  // the last two: infinities

  [[nodiscard]] uint64_t infinite() const { return positive + negative; }
  /// Zeros and minus infinity: what is added to scores.
  [[nodiscard]] bool is_mask() const { return positive == 0 && negative < all; }
};

/// Numbers whose bits but the sign, as an integer, are `infinity` or, for NaN, above it.
template <class T>
Numbers Count(Bytes bytes, T infinity) {
  constexpr T kSign = T{1} << (sizeof(T) * 8 - 1);
  Numbers out;
  out.all = bytes.size() / sizeof(T);
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    const T bits = LoadLe<T>(&bytes[at]);
    const T magnitude = bits & static_cast<T>(~kSign);
    if (magnitude < infinity) continue;
    ++(magnitude > infinity ? out.nan : (bits & kSign) != 0 ? out.negative : out.positive);
  }
  return out;
}

Numbers Count(Bytes bytes, DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return Count<uint16_t>(bytes, 0x7C00);
    case DataType::kBFloat16:
      return Count<uint16_t>(bytes, 0x7F80);
    case DataType::kFloat32:
      return Count<uint32_t>(bytes, 0x7F800000);
    case DataType::kFloat64:
      return Count<uint64_t>(bytes, 0x7FF0000000000000);
    default:
      break;
  }
  Numbers out;
  out.all = bytes.size();
  for (const std::byte code : bytes) {
    const double number = mil::Float8Number(dtype, std::to_integer<uint8_t>(code));
    if (std::isfinite(number)) continue;
    ++(std::isnan(number) ? out.nan : number < 0 ? out.negative : out.positive);
  }
  return out;
}

/// Whether an operation takes infinities in this parameter for what they are.
bool TakesInfinity(const FunctionView::Use& use, const Numbers& numbers) {
  const std::string& type = use.op->type;
  constexpr std::string_view kBounds[] = {"maximum", "minimum",    "clip",     "pad",
                                          "fill",    "equal",      "greater",  "greater_equal",
                                          "less",    "less_equal", "not_equal"};
  if (std::find(std::begin(kBounds), std::end(kBounds), type) != std::end(kBounds)) return true;
  if (type == "select") return use.parameter != "cond";
  // Of a mask that is at hand whole, rows are looked up or cut out.
  return numbers.is_mask() &&
         (type == "add" || type == "concat" || type == "stack" || type == "tile" ||
          type.starts_with("gather") || type.starts_with("slice_") || type == "scaled_dot_product_attention");
}

class NumberRules {
 public:
  NumberRules(const ModelSubject& model, Findings& findings) : model_(model), findings_(findings) {}

  void Check(const FunctionView& function) {
    for (const Operation& op : function.operations()) {
      ForEachValue(op, [&](const std::string& name, const mil::Value& value) {
        CheckValue(function, op, name, value);
      });
    }
  }

 private:
  void CheckValue(const FunctionView& function, const Operation& op, std::string_view parameter,
                  const mil::Value& value) {
    if (!value.type.is_tensor() || !mil::IsFloat(value.type.tensor.dtype)) return;
    const Numbers numbers = NumbersOf(value);
    if (numbers.nan > 0) Add(function, op, parameter, numbers.nan, numbers.all, "NaN");
    if (numbers.infinite() == 0) return;
    const auto uses = IsConstantOperation(op) ? ConsumersOf(function, op)
                                              : std::vector<FunctionView::Use>{{&op, parameter}};
    if (std::any_of(uses.begin(), uses.end(), [&](const auto& use) { return !TakesInfinity(use, numbers); }))
      Add(function, op, parameter, numbers.infinite(), numbers.all, "infinite");
  }

  void Add(const FunctionView& function, const Operation& op, std::string_view parameter, uint64_t count,
           uint64_t all, std::string_view what) {
    findings_.Add(rules::kNotFinite, model_, function, op,
                  all == 1 ? fmt::format("'{}' is {}", parameter, what)
                           : fmt::format("{} of the {} numbers of '{}' {} {}", count, all, parameter,
                                         count == 1 ? "is" : "are", what));
  }

  /// Entries of weight files are counted once, whoever shares them.
  Numbers NumbersOf(const mil::Value& value) {
    const auto bytes = model_.package->weights->Data(value);
    if (!bytes) return {};  // told where weights are looked for
    const mil::BlobRef* blob = value.blob();
    if (!blob) return Count(*bytes, value.type.tensor.dtype);
    const auto [it, is_new] = known_.try_emplace({blob->file, blob->offset});
    if (is_new) it->second = Count(*bytes, value.type.tensor.dtype);
    return it->second;
  }

  const ModelSubject& model_;
  Findings& findings_;
  std::map<std::pair<std::string, uint64_t>, Numbers> known_;
};

}  // namespace

void CheckNumbers(const ModelSubject& model, Findings& findings) {
  NumberRules rules(model, findings);
  for (const FunctionView& function : model.functions) {
    if (function.is_ordered()) rules.Check(function);
  }
}

}  // namespace cmforge::coreml::lint
