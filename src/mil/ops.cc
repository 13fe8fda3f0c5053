// The table of operations, and the binding of operands to parameters.
#include "mil/ops.h"

#include <algorithm>

#include "mil/infer.h"

namespace cmforge::mil {
namespace {

struct Row {
  std::string_view name;
  // name[?]:accepts[!][*][=] per parameter: ? optional, ! compile-time constant, * a list, = like the first
  // one. accepts: a any, f float, n number, b bool, m number or bool, i integer, j int32, s string, S state.
  std::string_view parameters;
  InferFn infer;
};

constexpr std::string_view kTwoNumbers = "x:n y:n=";
constexpr std::string_view kReduction = "x:n axes?:j! keep_dims?:b!";
constexpr std::string_view kArgReduction = "x:n axis?:j! keep_dims?:b! output_dtype?:s!";
constexpr std::string_view kWithEpsilon = "x:f epsilon?:f!";

constexpr Row kRows[] = {
    // elementwise, two inputs
    {"add", kTwoNumbers, InferBroadcast},
    {"sub", kTwoNumbers, InferBroadcast},
    {"mul", kTwoNumbers, InferBroadcast},
    {"maximum", kTwoNumbers, InferBroadcast},
    {"minimum", kTwoNumbers, InferBroadcast},
    {"pow", kTwoNumbers, InferBroadcast},
    {"real_div", kTwoNumbers, InferBroadcast},
    {"floor_div", kTwoNumbers, InferBroadcast},
    {"mod", kTwoNumbers, InferBroadcast},
    {"equal", "x:m y:m=", InferCompare},
    {"not_equal", "x:m y:m=", InferCompare},
    {"greater", kTwoNumbers, InferCompare},
    {"greater_equal", kTwoNumbers, InferCompare},
    {"less", kTwoNumbers, InferCompare},
    {"less_equal", kTwoNumbers, InferCompare},
    {"logical_and", "x:b y:b", InferBroadcast},
    {"logical_or", "x:b y:b", InferBroadcast},
    {"logical_xor", "x:b y:b", InferBroadcast},
    // elementwise, one input
    {"tanh", "x:f", InferLikeX},
    {"exp", "x:f", InferLikeX},
    {"sqrt", "x:f", InferLikeX},
    {"erf", "x:f", InferLikeX},
    {"sigmoid", "x:f", InferLikeX},
    {"silu", "x:f", InferLikeX},
    {"relu", "x:f", InferLikeX},
    {"softplus", "x:f", InferLikeX},
    {"floor", "x:f", InferLikeX},
    {"ceil", "x:f", InferLikeX},
    {"round", "x:f", InferLikeX},
    {"sin", "x:f", InferLikeX},
    {"cos", "x:f", InferLikeX},
    {"abs", "x:n", InferLikeX},
    {"square", "x:n", InferLikeX},
    {"sign", "x:n", InferLikeX},
    {"exp2", "x:n", InferLikeX},
    {"logical_not", "x:b", InferLikeX},
    {"identity", "x:a", InferLikeX},
    {"rsqrt", kWithEpsilon, InferLikeX},
    {"log", kWithEpsilon, InferLikeX},
    {"inverse", kWithEpsilon, InferLikeX},
    {"clip", "x:n alpha:n! beta:n!", InferClip},
    {"gelu", "x:f mode?:s!", InferGelu},
    {"cast", "x:a dtype:s!", InferCast},
    {"select", "a:m b:m= cond:b", InferSelect},
    // along axes
    {"softmax", "x:f axis?:j!", InferSoftmax},
    {"layer_norm", "x:f axes?:j! gamma?:f! beta?:f! epsilon?:f!", InferLayerNorm},
    {"instance_norm", "x:f gamma?:f! beta?:f! epsilon?:f!", InferInstanceNorm},
    {"batch_norm", "x:f mean:f! variance:f! gamma?:f! beta?:f! epsilon?:f!", InferBatchNorm},
    {"l2_norm", kWithEpsilon, InferLikeX},
    {"reduce_sum", kReduction, InferReduce},
    {"reduce_mean", kReduction, InferReduce},
    {"reduce_max", kReduction, InferReduce},
    {"reduce_min", kReduction, InferReduce},
    {"reduce_prod", kReduction, InferReduce},
    {"reduce_sum_square", kReduction, InferReduce},
    {"reduce_l1_norm", kReduction, InferReduce},
    {"reduce_l2_norm", kReduction, InferReduce},
    {"reduce_log_sum", kReduction, InferReduce},
    {"reduce_log_sum_exp", kReduction, InferReduce},
    {"reduce_argmax", kArgReduction, InferArgReduce},
    {"reduce_argmin", kArgReduction, InferArgReduce},
    {"cumsum", "x:n axis?:j! exclusive?:b! reverse?:b!", InferCumsum},
    {"topk", "x:n k?:j! axis?:j! ascending?:b! sort?:b! return_indices?:b! output_indices_dtype?:s!",
     InferTopk},
    {"argsort", "x:n axis?:j! ascending?:b!", InferArgsort},
    // products
    {"matmul", "x:n y:n= transpose_x?:b! transpose_y?:b!", InferMatmul},
    {"linear", "x:f weight:f! bias?:f!", InferLinear},
    {"einsum", "values:f*= equation:s!", InferEinsum},
    {"conv", "x:f weight:f bias?:f strides?:j! pad_type?:s! pad?:j! dilations?:j! groups?:j!", InferConv},
    {"scaled_dot_product_attention", "query:f key:f= value:f= attn_mask?:m", InferAttention},
    // moving elements
    {"concat", "values:a*= axis:j! interleave?:b!", InferConcat},
    {"stack", "values:a*= axis:j!", InferStack},
    {"split", "x:a axis:j! num_splits?:j! split_sizes?:j!", InferSplit},
    {"slice_by_index", "x:a begin:i end:i stride?:i! begin_mask?:b! end_mask?:b! squeeze_mask?:b!",
     InferSliceByIndex},
    {"slice_by_size", "x:a begin:i size:i", InferSliceBySize},
    {"slice_update", "x:a update:a= begin:i end:i stride?:i! begin_mask?:b! end_mask?:b! squeeze_mask?:b!",
     InferSliceUpdate},
    {"gather", "x:a indices:i axis?:j! batch_dims?:j! validate_indices?:b!", InferGather},
    {"gather_along_axis", "x:a indices:i axis?:j! validate_indices?:b!", InferGatherAlongAxis},
    {"gather_nd", "x:a indices:i batch_dims?:j! validate_indices?:b!", InferGatherNd},
    {"expand_dims", "x:a axes:j!", InferExpandDims},
    {"squeeze", "x:a axes?:j!", InferSqueeze},
    {"reshape", "x:a shape:i", InferReshape},
    {"transpose", "x:a perm:j!", InferTranspose},
    {"tile", "x:a reps:j", InferTile},
    {"pad", "x:m pad:j! mode?:s! constant_val?:m!", InferPad},
    {"band_part", "x:m lower?:j! upper?:j!", InferBandPart},
    // making elements
    {"fill", "shape:i value?:m!", InferFill},
    {"range_1d", "start:n end:n= step:n=", InferRange},
    {"shape", "x:a", InferShapeOf},
    {"one_hot", "indices:i one_hot_vector_size?:j! axis?:j! on_value?:m! off_value?:m!", InferOneHot},
    // constants and states
    {"const", "val:a!", InferConst},
    {"constexpr_lut_to_dense", "indices:i! lut:a! vector_axis?:j! shape?:i!", InferLutToDense},
    {"constexpr_lut_to_sparse", "indices_mask:i! indices_nonzero_data:i! lut:a! vector_axis?:j!",
     InferLutToSparse},
    {"constexpr_blockwise_shift_scale", "data:a! scale:f! offset?:a!", InferBlockwise},
    {"constexpr_sparse_to_dense", "nonzero_data:a! mask:i! shape?:i!", InferSparseToDense},
    {"constexpr_sparse_blockwise_shift_scale", "data_mask:i! nonzero_data:a! scale:f! offset?:a!",
     InferSparseBlockwise},
    {"constexpr_affine_dequantize", "quantized_data:i! zero_point:i! scale:f! axis:j!",
     InferAffineDequantize},
    {"constexpr_cast", "source_val:f! output_dtype:s!", InferConstexprCast},
    {"read_state", "input:S", InferReadState},
    {"write_state", "input:S data:a", InferWriteState},
};

Accepts AcceptsOf(char letter) {
  switch (letter) {
    case 'f':
      return Accepts::kFloat;
    case 'n':
      return Accepts::kNumber;
    case 'b':
      return Accepts::kBool;
    case 'm':
      return Accepts::kNumberOrBool;
    case 'i':
      return Accepts::kInteger;
    case 'j':
      return Accepts::kInt32;
    case 's':
      return Accepts::kString;
    case 'S':
      return Accepts::kState;
    default:
      return Accepts::kAny;
  }
}

std::vector<Parameter> ParseParameters(std::string_view text) {
  std::vector<Parameter> out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    Parameter parameter;
    const size_t colon = word.find(':');
    parameter.name = word.substr(0, colon);
    if (parameter.name.ends_with('?')) {
      parameter.name.remove_suffix(1);
      parameter.is_optional = true;
    }
    parameter.accepts = AcceptsOf(word[colon + 1]);
    for (const char mark : word.substr(colon + 2)) {
      parameter.is_constant |= mark == '!';
      parameter.is_variadic |= mark == '*';
      parameter.is_like_first |= mark == '=';
    }
    out.push_back(parameter);
  }
  return out;
}

const std::vector<OpInfo>& Table() {
  static const std::vector<OpInfo> table = [] {
    std::vector<OpInfo> ops;
    for (const Row& row : kRows) ops.push_back({row.name, ParseParameters(row.parameters), row.infer});
    std::sort(ops.begin(), ops.end(), [](const OpInfo& a, const OpInfo& b) { return a.name < b.name; });
    return ops;
  }();
  return table;
}

bool DoesAccept(Accepts accepts, const Type& type) {
  if (type.is_state() || !type.is_tensor()) return accepts == Accepts::kState && type.is_state();
  const DataType dtype = type.tensor.dtype;
  const bool is_float = dtype == DataType::kFloat16 || dtype == DataType::kFloat32;
  switch (accepts) {
    case Accepts::kAny:
      return true;
    case Accepts::kFloat:
      return is_float;
    case Accepts::kNumber:
      return is_float || dtype == DataType::kInt32;
    case Accepts::kBool:
      return dtype == DataType::kBool;
    case Accepts::kNumberOrBool:
      return is_float || dtype == DataType::kInt32 || dtype == DataType::kBool;
    case Accepts::kInteger:
      return IsInteger(dtype);
    case Accepts::kInt32:
      return dtype == DataType::kInt32;
    case Accepts::kString:
      return dtype == DataType::kString;
    case Accepts::kState:
      return false;
  }
  return false;
}

std::string_view AcceptsText(Accepts accepts) {
  switch (accepts) {
    case Accepts::kAny:
      return "a tensor";
    case Accepts::kFloat:
      return "fp16 or fp32";
    case Accepts::kNumber:
      return "fp16, fp32 or int32";
    case Accepts::kBool:
      return "bool";
    case Accepts::kNumberOrBool:
      return "fp16, fp32, int32 or bool";
    case Accepts::kInteger:
      return "an integer type";
    case Accepts::kInt32:
      return "int32";
    case Accepts::kString:
      return "string";
    case Accepts::kState:
      return "a state";
  }
  return "";
}

}  // namespace

const Parameter* OpInfo::FindParameter(std::string_view parameter) const {
  for (const Parameter& p : parameters) {
    if (p.name == parameter) return &p;
  }
  return nullptr;
}

std::span<const OpInfo> AllOps() { return Table(); }

const OpInfo* FindOp(std::string_view name) {
  const std::vector<OpInfo>& table = Table();
  const auto it =
      std::lower_bound(table.begin(), table.end(), name,
                       [](const OpInfo& op, std::string_view wanted) { return op.name < wanted; });
  return it != table.end() && it->name == name ? &*it : nullptr;
}

bool IsVariadicParameter(std::string_view op, std::string_view parameter) {
  const OpInfo* info = FindOp(op);
  const Parameter* p = info ? info->FindParameter(parameter) : nullptr;
  return p && p->is_variadic;
}

Result<OpCall> OpCall::Bind(std::string_view op, NameMap<std::vector<Operand>> operands) {
  OpCall call;
  call.info_ = FindOp(op);
  if (!call.info_) return Fail(ErrorKind::kUnsupported, fmt::format("operation '{}' is not known", op));
  for (const auto& [name, bound] : operands) {
    if (!call.info_->FindParameter(name)) return call.Wrong(fmt::format("no parameter '{}'", name));
  }
  const TensorType* first = nullptr;
  for (const Parameter& parameter : call.info_->parameters) {
    const auto it = operands.find(parameter.name);
    if (it == operands.end() || it->second.empty()) {
      if (it != operands.end()) operands.erase(it);
      if (parameter.is_optional) continue;
      return call.Wrong(fmt::format("parameter '{}' is missing", parameter.name));
    }
    if (it->second.size() > 1 && !parameter.is_variadic) {
      return call.Wrong(
          fmt::format("parameter '{}' has {} values, one is wanted", parameter.name, it->second.size()));
    }
    for (const Operand& operand : it->second) {
      if (!DoesAccept(parameter.accepts, *operand.type)) {
        return call.Wrong(fmt::format("parameter '{}' is {}, wanted is {}", parameter.name,
                                      TypeText(*operand.type), AcceptsText(parameter.accepts)));
      }
      if (parameter.is_constant && !operand.is_constant) {
        return call.Wrong(fmt::format("parameter '{}' must be a constant", parameter.name));
      }
      if (operand.type->tensor.rank() > kMaxRank && !call.info_->is_constexpr() && op != "const") {
        return Fail(ErrorKind::kUnsupported,
                    fmt::format("parameter '{}' has rank {}, at most {} is possible", parameter.name,
                                operand.type->tensor.rank(), kMaxRank));
      }
      if (parameter.is_like_first && first && operand.type->tensor.dtype != first->dtype) {
        return call.Wrong(fmt::format("parameter '{}' is {}, but '{}' is {}", parameter.name,
                                      TypeText(*operand.type), call.info_->parameters[0].name,
                                      TypeText(*first)));
      }
      if (!first) first = &operand.type->tensor;
    }
  }
  call.operands_ = std::move(operands);
  return call;
}

std::span<const Operand> OpCall::All(std::string_view parameter) const {
  const auto it = operands_.find(parameter);
  return it == operands_.end() ? std::span<const Operand>{} : std::span<const Operand>(it->second);
}

std::optional<std::vector<int64_t>> OpCall::Integers(std::string_view parameter) const {
  const auto operands = All(parameter);
  if (operands.empty() || !operands[0].value) return std::nullopt;
  return IntegersOf(*operands[0].value);
}

Result<int64_t> OpCall::Integer(std::string_view parameter, int64_t absent) const {
  if (!Has(parameter)) return absent;
  const auto values = Integers(parameter);
  if (values && values->size() == 1) return (*values)[0];
  return Wrong(fmt::format("parameter '{}' is no integer known at compile time", parameter));
}

Result<bool> OpCall::Flag(std::string_view parameter, bool absent) const {
  CMF_TRY(const int64_t value, Integer(parameter, absent));
  return value != 0;
}

Result<double> OpCall::Number(std::string_view parameter, double absent) const {
  if (!Has(parameter)) return absent;
  if (const Value* value = Get(parameter).value) {
    if (const auto floats = FloatsOf(*value); floats && floats->size() == 1) return (*floats)[0];
    if (const auto integers = IntegersOf(*value); integers && integers->size() == 1) {
      return static_cast<double>((*integers)[0]);
    }
  }
  return Wrong(fmt::format("parameter '{}' is no number known at compile time", parameter));
}

Result<std::string> OpCall::Text(std::string_view parameter, std::string_view absent) const {
  if (!Has(parameter)) return std::string(absent);
  const Value* value = Get(parameter).value;
  if (const std::string* text = value ? StringOf(*value) : nullptr) return *text;
  return Wrong(fmt::format("parameter '{}' is no text known at compile time", parameter));
}

Result<int64_t> OpCall::Axis(std::string_view parameter, int64_t rank, int64_t absent) const {
  CMF_TRY(const int64_t axis, Integer(parameter, absent));
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return Wrong(fmt::format("{} {} of a tensor of rank {}", parameter, axis, rank));
}

Result<std::vector<int64_t>> OpCall::Axes(std::string_view parameter, int64_t rank) const {
  std::vector<int64_t> axes;
  if (!Has(parameter)) {
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
    return axes;
  }
  const auto values = Integers(parameter);
  if (!values) return Wrong(fmt::format("parameter '{}' is not known at compile time", parameter));
  for (int64_t axis : *values) {
    if (axis < -rank || axis >= rank) {
      return Wrong(fmt::format("{} {} of a tensor of rank {}", parameter, axis, rank));
    }
    if (axis < 0) axis += rank;
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) {
      return Wrong(fmt::format("axis {} occurs twice in '{}'", axis, parameter));
    }
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace cmforge::mil
