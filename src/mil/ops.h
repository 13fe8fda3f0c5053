// The operations of the iOS 18 set: their parameters, what each accepts, and the types of their results.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "mil/program.h"

namespace cmforge::mil {

enum class Accepts : uint8_t {
  kAny,     // every tensor
  kFloat,   // fp16, fp32 (bf16 and fp64 are no activations)
  kNumber,  // kFloat and int32
  kBool,
  kNumberOrBool,
  kInteger,  // every integer type
  kInt32,
  kString,
  kState,
};

struct Parameter {
  std::string_view name;
  Accepts accepts = Accepts::kAny;
  bool is_optional = false;
  bool is_constant = false;    // must be known when the program is compiled
  bool is_variadic = false;    // a list of values
  bool is_like_first = false;  // has the element type of the operation's first parameter
};

/// One value bound to a parameter, as inference sees it.
struct Operand {
  const Type* type = nullptr;
  const Value* value = nullptr;  // contents, where they are known now and held here (not in a weight file)
  bool is_constant = false;      // const and constexpr results, literals
};

class OpCall;
using InferFn = Result<std::vector<TensorType>> (*)(const OpCall& call);

struct OpInfo {
  std::string_view name;
  std::vector<Parameter> parameters;
  InferFn infer;

  [[nodiscard]] const Parameter* FindParameter(std::string_view name) const;
  [[nodiscard]] bool is_constexpr() const { return name.starts_with("constexpr_"); }
};

[[nodiscard]] const OpInfo* FindOp(std::string_view name);  // nullptr: not in the set
[[nodiscard]] std::span<const OpInfo> AllOps();             // sorted by name
[[nodiscard]] bool IsVariadicParameter(std::string_view op, std::string_view parameter);

/// The operands of one operation, checked against its parameters.
class OpCall {
 public:
  /// Fails: kUnsupported (no such operation), kCorrupt (unknown, missing or repeated parameters, a type the
  /// parameter does not accept, a parameter that must be constant and is not).
  static Result<OpCall> Bind(std::string_view op, NameMap<std::vector<Operand>> operands);

  [[nodiscard]] const OpInfo& info() const { return *info_; }
  [[nodiscard]] bool Has(std::string_view parameter) const { return operands_.contains(parameter); }
  [[nodiscard]] std::span<const Operand> All(std::string_view parameter) const;
  /// The operand of a parameter that Bind has found to be there.
  [[nodiscard]] const Operand& Get(std::string_view parameter) const { return All(parameter).front(); }
  [[nodiscard]] const TensorType& Tensor(std::string_view parameter) const {
    return Get(parameter).type->tensor;
  }
  [[nodiscard]] int64_t Rank(std::string_view parameter) const { return Tensor(parameter).rank(); }

  /// Known contents; nothing when absent or only known when the program runs.
  [[nodiscard]] std::optional<std::vector<int64_t>> Integers(std::string_view parameter) const;

  /// Contents of a scalar or one-element parameter, or the default when it is absent.
  /// Fails: kCorrupt when its contents are not known or of another size.
  Result<int64_t> Integer(std::string_view parameter, int64_t absent) const;
  Result<bool> Flag(std::string_view parameter, bool absent) const;
  Result<double> Number(std::string_view parameter, double absent) const;
  Result<std::string> Text(std::string_view parameter, std::string_view absent) const;

  /// An axis made non-negative. Fails: kCorrupt outside [-rank, rank).
  Result<int64_t> Axis(std::string_view parameter, int64_t rank, int64_t absent) const;
  /// A list of axes, non-negative and distinct; all axes when absent.
  Result<std::vector<int64_t>> Axes(std::string_view parameter, int64_t rank) const;

  [[nodiscard]] tl::unexpected<Error> Wrong(std::string what) const {
    return Fail(ErrorKind::kCorrupt, std::move(what));
  }

 private:
  const OpInfo* info_ = nullptr;
  NameMap<std::vector<Operand>> operands_;
};

/// Types of an operation's results; unknown dimensions stay unknown. Fails: kCorrupt with the shapes in
/// conflict.
[[nodiscard]] inline Result<std::vector<TensorType>> InferTypes(const OpCall& call) {
  return call.info().infer(call);
}

/// The most dimensions a tensor may have.
inline constexpr int64_t kMaxRank = 8;

}  // namespace cmforge::mil
