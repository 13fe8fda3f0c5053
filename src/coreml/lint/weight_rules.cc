// How weights are stored and used: forms the Neural Engine computes wrongly, forms that are slow, sizes.
#include <algorithm>
#include <set>

#include "coreml/lint/memory.h"
#include "coreml/stored_form.h"

namespace cmforge::coreml::lint {
namespace {

using mil::Operation;
using Kind = StoredForm::Kind;

constexpr int64_t kMaxRopeRows = 16384;
constexpr double kPhoneBytes = 1e9, kMacBytes = 2e9;
constexpr int64_t kMaxExperts = 1024;

std::string FormText(const StoredForm& form) {
  if (form.kind == Kind::kPalette) return fmt::format("a palette of {} bits", form.bits);
  if (form.kind == Kind::kScaled) return fmt::format("scaled {}", DataTypeName(form.dtype));
  return "sparse";
}

bool IsProduct(const Operation& op) {
  return op.type == "conv" || op.type == "linear" || op.type == "matmul" || op.type == "einsum";
}

// ---- routers

/// What a router's scores are selected by.
bool Selects(const Operation& op) {
  return op.type == "topk" || op.type == "argsort" || op.type == "reduce_max" || op.type == "greater_equal" ||
         op.type == "greater";
}

/// A product whose scores, made probabilities, are selected from; or selected from directly.
bool IsRouter(const FunctionView& function, const Operation& product) {
  if (product.outputs.empty()) return false;
  const Shape& shape = product.outputs[0].type.tensor.shape;
  const bool is_small = std::all_of(shape.begin(), shape.end(), [](int64_t d) { return d <= kMaxExperts; });
  for (const FunctionView::Use& use : UsersBehindViews(function, product.outputs[0].name)) {
    if (is_small && (use.op->type == "topk" || use.op->type == "argsort")) return true;
    if ((use.op->type != "softmax" && use.op->type != "sigmoid") || use.op->outputs.empty()) continue;
    for (const FunctionView::Use& next : UsersBehindViews(function, use.op->outputs[0].name)) {
      if (Selects(*next.op)) return true;
    }
  }
  return false;
}

// ---- one weight

void CheckUse(const ModelSubject& model, const FunctionView& function, const Operation& op,
              const StoredForm& form, Findings& findings) {
  const auto consumers = ConsumersOf(function, op);
  if (consumers.empty()) return;
  const bool is_table = std::all_of(consumers.begin(), consumers.end(), [](const auto& use) {
    return use.op->type.starts_with("gather") && use.parameter == "x";
  });
  if (is_table) {
    findings.Add(
        rules::kCompressedTable, model, function, op,
        fmt::format(
            "{} looked up by rows: it is decompressed when the model loads, {:.3g} MB or more in memory "
            "instead of a mapped file",
            FormText(form), static_cast<double>(form.elements()) * 2e-6));
    return;
  }
  if (form.kind == Kind::kScaled && mil::IsInteger(form.dtype)) {
    if (form.bits >= 8) {
      findings.Add(
          rules::kLinearInt8, model, function, op,
          fmt::format(
              "{} weights: they compile for the Neural Engine and compute garbage (cosine of logits 0.75)",
              DataTypeName(form.dtype)));
    } else {
      findings.Add(
          rules::kLinearInt4, model, function, op,
          fmt::format("{} weights: they do not compile for the Neural Engine", DataTypeName(form.dtype)));
    }
  }
  for (const FunctionView::Use& use : consumers) {
    if (!IsProduct(*use.op) || !IsRouter(function, *use.op)) continue;
    findings.Add(rules::kCompressedRouter, model, function, op,
                 fmt::format("the router's weights are {}: its errors choose other experts", FormText(form)));
    break;
  }
}

void CheckPalette(const ModelSubject& model, const FunctionView& function, const Operation& op,
                  const StoredForm& form, Findings& findings) {
  if (form.channels_per_table == 1) {
    findings.Add(rules::kLutOneChannel, model, function, op,
                 "a table for every output channel: decoding takes about twice as long (41 against 92 tok/s "
                 "were measured)");
  } else if (form.channels_per_table == 2) {
    findings.Add(rules::kLutTwoChannels, model, function, op,
                 "a table for every 2 output channels: decoding takes about a quarter longer");
  }
  if (form.bits == 3) {
    findings.Add(rules::kLutThreeBits, model, function, op,
                 "3 bits take as much memory on the Neural Engine as 4 (0.81 and 0.84 GB were measured)");
  }
}

// ---- constants around convolutions, tables of positions

/// A convolution by a constant, whose only use is a product with another constant.
void CheckScale(const ModelSubject& model, const FunctionView& function, const Operation& op,
                Findings& findings) {
  if (op.type != "conv" || op.outputs.empty()) return;
  const Operation* weight = function.MakerOf(op, "weight");
  if (!weight || !IsConstantOperation(*weight)) return;
  const auto& users = function.Users(op.outputs[0].name);
  if (users.size() != 1 || (users[0].op->type != "mul" && users[0].op->type != "real_div")) return;
  const char* other = users[0].parameter == "x" ? "y" : "x";
  if (users[0].op->type == "real_div" && users[0].parameter != "x") return;
  if (function.Constant(*users[0].op, other)) {
    findings.Add(
        rules::kFoldableScale, model, function, op,
        "a constant factor follows: Core ML's passes fold it into the weights, and tables made for these "
        "weights are then not found again");
  }
}

/// Whether an int32 value follows from the positions of the tokens.
bool FollowsFromPositions(const FunctionView& function, const std::string& value) {
  std::vector<std::string_view> open{value};
  std::set<std::string_view> seen;
  while (!open.empty()) {
    const std::string_view name = open.back();
    open.pop_back();
    if (name == "position_ids" || name == "current_pos") return true;
    const Operation* op = seen.insert(name).second ? function.Maker(name) : nullptr;
    if (!op || op->outputs.empty() || !mil::IsInteger(op->outputs[0].type.tensor.dtype)) continue;
    for (const auto& [parameter, arguments] : op->inputs) {
      for (const mil::Argument& argument : arguments) {
        if (const auto* input = std::get_if<std::string>(&argument)) open.push_back(*input);
      }
    }
  }
  return false;
}

void CheckRopeTable(const ModelSubject& model, const FunctionView& function, const Operation& op,
                    Findings& findings) {
  const bool gathers = op.type == "gather" || op.type == "gather_along_axis";
  if (!gathers && op.type != "slice_by_index" && op.type != "slice_by_size") return;
  const Operation* table = function.MakerOf(op, "x");
  const std::string* where = FunctionView::Name(op, gathers ? "indices" : "begin");
  if (!table || !IsConstantOperation(*table) || table->outputs.empty() || !where ||
      !FollowsFromPositions(function, *where))
    return;
  for (const int64_t dim : table->outputs[0].type.tensor.shape) {
    if (dim < kMaxRopeRows) continue;
    findings.Add(
        rules::kRopeTable, model, function, op,
        fmt::format("a table of {} positions: the Neural Engine takes less than {}", dim, kMaxRopeRows));
    return;
  }
}

}  // namespace

void CheckWeights(const ModelSubject& model, Findings& findings) {
  bool has_lut4 = false, has_state = false;
  for (const FunctionView& function : model.functions) {
    if (!function.is_ordered()) continue;
    for (const mil::NamedType& input : function.function().inputs) has_state |= input.type.is_state();
    for (const Operation& op : function.operations()) {
      if (const auto form = op.type.starts_with("constexpr_") ? FormOf(function, op) : std::nullopt;
          form && form->kind != Kind::kDense) {
        const auto& users = function.Users(op.outputs[0].name);
        const bool is_inner =
            !users.empty() && IsConstantOperation(*users[0].op);  // the outer one speaks for it
        if (!is_inner) CheckUse(model, function, op, *form, findings);
        if (!is_inner && form->kind == Kind::kPalette) CheckPalette(model, function, op, *form, findings);
        has_lut4 = has_lut4 || (form->kind == Kind::kPalette && form->bits == 4);
      }
      CheckScale(model, function, op, findings);
      CheckRopeTable(model, function, op, findings);
    }
  }
  if (has_lut4 && has_state) {
    findings.Add(
        rules::kLut4State, model,
        "palettes of 4 bits and states: one such package is reported to crash after 100 to 200 predictions");
  }
  const auto bytes = static_cast<double>(StoredBytes(model));
  if (bytes > kMacBytes) {
    findings.Add(
        rules::kLargeModel, model,
        fmt::format("{:.2f} GB of weights: the Neural Engine takes about 2 GB a model on macOS, 1 GB on iOS",
                    bytes / 1e9));
  } else if (bytes > kPhoneBytes) {
    findings.Add(
        rules::kLargeForPhones, model,
        fmt::format("{:.2f} GB of weights: the Neural Engine takes about 1 GB a model on iOS", bytes / 1e9));
  }
}

}  // namespace cmforge::coreml::lint
