// The parts of a package together: the runtime contract, meta.yaml against what the parts are.
#include <algorithm>
#include <set>

#include "coreml/lint/described_parts.h"
#include "coreml/lint/package.h"
#include "coreml/package_parts.h"
#include "coreml/stored_form.h"

namespace cmforge::coreml::lint {
namespace {

namespace fs = std::filesystem;
using mil::Operation;

constexpr const char* kMeta = "meta.yaml";
constexpr int64_t kMostSlots = 1 << 20;  // of a state: no model has as many

const FunctionView* FunctionOf(const ModelSubject& model, std::string_view name) {
  for (const FunctionView& function : model.functions) {
    if (function.name() == name) return &function;
  }
  return nullptr;
}

void CheckContract(const PackageSubject& package, Findings& findings) {
  std::map<fs::path, std::shared_ptr<const mil::Package>> opened;
  for (const ModelSubject* model : {&package.embeddings, &package.head})
    opened[model->package->path] = model->package;
  for (const ModelSubject& chunk : package.chunks) opened[chunk.package->path] = chunk.package;
  const auto backend = DescribedParts(std::move(opened));
  const auto runner = PackagePartsRunner::Open(package.folder, package.meta, *backend);
  if (runner) return;
  // "FOLDER/PART: ...": the part is said apart.
  std::string reason = runner.error().message, part = kMeta;
  const std::string folder = (package.folder / "").string();
  if (reason.starts_with(folder)) reason.erase(0, folder.size());
  if (const size_t colon = reason.find(": "); colon != std::string::npos) {
    part = reason.substr(0, colon);
    reason.erase(0, colon + 2);
  }
  findings.Add(rules::kContract, part, reason);
}

/// Callers make buffers from the descriptions: all but the embeddings' outputs are fp16 of a fixed shape.
void CheckOutputs(const ModelSubject& model, Findings& findings) {
  for (const FunctionView& function : model.functions) {
    const auto view = model.package->model.description.Find(function.name());
    if (!view) continue;
    for (const mil::Feature& output : *view->outputs) {
      const mil::ArrayFeature* array = output.array();
      if (array && array->dtype == mil::ArrayDataType::kFloat16 && !array->shape.empty()) continue;
      findings.Add(rules::kOutputShape, model, function,
                   fmt::format("output '{}' is described as {}: the Swift runtime makes its buffer from that",
                               output.name,
                               !array ? "no array"
                               : array->shape.empty()
                                   ? "an array without a shape"
                                   : fmt::format("{}", DataTypeName(*ElementTypeOf(array->dtype)))));
    }
  }
}

/// The token of the batch that an output [1, 1, H] shows: the slice it is made of, followed back through norms and
/// moves. Nothing when that is not seen.
std::optional<int64_t> TokenOf(const FunctionView& function, const std::string& output) {
  const Operation* op = function.Maker(output);
  while (op) {
    if (op->type == "slice_by_index" || op->type == "slice_by_size") {
      const mil::TensorType* from = function.TypeOf(*op, "x");
      const auto begin = function.Integers(*op, "begin");
      const Shape& shape = op->outputs.empty() ? Shape() : op->outputs[0].type.tensor.shape;
      const bool drops_tokens = shape.size() == 2 || (shape.size() == 3 && shape[1] == 1);
      if (from && from->rank() == 3 && from->shape[1] > 1 && drops_tokens) {
        const auto mask = function.Integers(*op, "begin_mask");
        if (!begin || begin->size() != 3) return std::nullopt;
        if (mask && mask->size() == 3 && (*mask)[1] != 0) return 0;
        return (*begin)[1] < 0 ? (*begin)[1] + from->shape[1] : (*begin)[1];
      }
    }
    const Operation* next = nullptr;
    for (const char* parameter : {"x", "values", "y"}) {
      const Operation* maker = function.MakerOf(*op, parameter);
      if (!next && maker && !IsConstantOperation(*maker)) next = maker;
    }
    op = next;
  }
  return std::nullopt;
}

void CheckPrefill(const PackageSubject& package, Findings& findings) {
  const ModelSubject& last = package.chunks.back();
  const FunctionView* prefill = FunctionOf(last, "prefill");
  const mil::TensorType* out = prefill ? prefill->TypeOf("output_hidden_states") : nullptr;
  if (!out || out->rank() != 3 || !prefill->is_ordered()) return;
  const mil::TensorType* in = prefill->TypeOf("hidden_states");
  const auto token = out->shape[1] == 1 ? TokenOf(*prefill, "output_hidden_states") : std::nullopt;
  const bool is_first = token == 0 && in && in->rank() == 3 && in->shape[1] > 1;
  if (package.meta.prefill_last_token_output) {
    if (is_first) {
      findings.Add(
          rules::kFirstToken, last, *prefill,
          "'prefill_last_token_output' is true, its output is sliced from the first token of the batch");
    }
  } else if (is_first || out->shape[1] == 1) {
    findings.Add(rules::kStockPrefill, last, *prefill,
                 "its output is not said to be the last token's normed state (prefill_last_token_output)");
  }
}

void CheckExtensions(const PackageSubject& package, Findings& findings) {
  if (package.meta.per_layer_inputs || (FunctionOf(package.chunks[0], "infer") &&
                                        FunctionOf(package.chunks[0], "infer")->Input("per_layer_inputs"))) {
    findings.Add(rules::kExtension, kMeta,
                 "decoders take per_layer_inputs: ANEMLL's own runtimes pass four inputs and cannot run it");
  }
  if (package.meta.recurrent_state) {
    findings.Add(
        rules::kExtension, kMeta,
        "recurrent states: ANEMLL's own runtimes run the last prompt token twice, which corrupts them");
  }
  if (package.meta.local_cache_length) {
    findings.Add(rules::kExtension, kMeta,
                 "a shifting local cache: positions must be fed once and in order, which ANEMLL's own "
                 "runtimes do not do");
  }
}

/// States that the chunks declare; all declare the same.
std::map<std::string, Shape> DeclaredStates(const PackageSubject& package) {
  std::map<std::string, Shape> declared;
  for (const FunctionView& function : package.chunks[0].functions) {
    for (const mil::NamedType& input : function.function().inputs) {
      if (input.type.is_state()) declared[input.name] = input.type.tensor.shape;
    }
  }
  return declared;
}

/// 'num_layers' against the layers that the states have room for, where their layout is known.
void CheckLayersOfStates(const PackageSubject& package, Findings& findings) {
  if (!package.meta.num_layers) return;
  const auto declared = DeclaredStates(package);
  const auto slots = [&](const char* name) -> int64_t {
    const auto it = declared.find(std::string("model_model_") + name);
    const int64_t count = it == declared.end() || it->second.empty() ? 0 : it->second[0];
    return count > 0 && count <= kMostSlots ? count : 0;
  };
  int64_t layers = 0;
  std::string room;
  if (package.meta.architecture.starts_with("gemma4")) {
    // A slot for each layer that has keys of its own; the others are only in the list of whose they read.
    const auto shared = static_cast<int64_t>(package.meta.kv_shared_layers.size());
    const int64_t local = slots("kv_cache_local"), global = slots("kv_cache_global");
    layers = local + global + shared;
    if (shared == 0 && layers < *package.meta.num_layers) return;  // the list is informational
    room = fmt::format("the caches have room for {} local and {} global layers, 'kv_shared_layers' lists {}",
                       local, global, shared);
  } else {
    if (slots("gdn_state_0") > 0 && slots("conv_state_0") == 0) return;
    const int64_t rows = slots("kv_cache_0"), linear = slots("conv_state_0");
    layers = rows % 2 == 0 ? rows / 2 + linear : -1;
    room = fmt::format("the cache has {} rows of keys and of values", rows);
    if (linear > 0) room += fmt::format(", there is the history of {} convolutions", linear);
  }
  if (layers == 0 || layers == *package.meta.num_layers) return;
  findings.Add(rules::kMetaValue, kMeta,
               fmt::format("'num_layers' is {}, {}", *package.meta.num_layers, room));
}

void CheckStatesListed(const PackageSubject& package, Findings& findings) {
  if (package.meta.states.empty()) return;
  auto declared = DeclaredStates(package);
  for (const StateMeta& state : package.meta.states) {
    const auto it = declared.find(state.name);
    if (it == declared.end()) {
      findings.Add(rules::kMetaStates, kMeta, fmt::format("state '{}' is in no chunk", state.name));
      continue;
    }
    if (it->second != state.shape) {
      findings.Add(rules::kMetaStates, kMeta,
                   fmt::format("state '{}' is said to be {}, the chunks have {}", state.name,
                               ShapeText(state.shape), ShapeText(it->second)));
    }
    declared.erase(it);
  }
  for (const auto& [name, shape] : declared)
    findings.Add(rules::kMetaStates, kMeta, fmt::format("state '{}' of the chunks is not listed", name));
}

/// Widths of the palettes of a part against the key that says them.
void CheckBits(const PackageMeta& meta, const char* key, const std::vector<const ModelSubject*>& models,
               Findings& findings) {
  const auto said = meta.weights.find(key);
  if (said == meta.weights.end()) return;
  std::set<int64_t> widths;
  for (const ModelSubject* model : models) {
    for (const FunctionView& function : model->functions) {
      for (const Operation& op : function.operations()) {
        const auto form = op.type == "constexpr_lut_to_dense" ? FormOf(function, op) : std::nullopt;
        if (form && form->kind == StoredForm::Kind::kPalette) widths.insert(form->bits);
      }
    }
  }
  std::string has;
  for (const int64_t bits : widths) has += fmt::format("{}{}", has.empty() ? "" : ", ", bits);
  const bool agrees =
      said->second == "none" ? widths.empty() : std::any_of(widths.begin(), widths.end(), [&](int64_t bits) {
        return said->second.starts_with(std::to_string(bits));
      });
  if (agrees) return;
  findings.Add(rules::kMetaWeights, kMeta,
               fmt::format("'{}' is {}, the weights have {}", key, said->second,
                           widths.empty() ? "no palettes" : fmt::format("palettes of {} bits", has)));
}

}  // namespace

void CheckPackage(const PackageSubject& package, Findings& findings) {
  CheckContract(package, findings);
  for (const ModelSubject& chunk : package.chunks) CheckOutputs(chunk, findings);
  CheckOutputs(package.head, findings);
  CheckPrefill(package, findings);
  CheckExtensions(package, findings);
  CheckLayersOfStates(package, findings);
  CheckStatesListed(package, findings);
  std::vector<const ModelSubject*> chunks;
  for (const ModelSubject& chunk : package.chunks) chunks.push_back(&chunk);
  CheckBits(package.meta, "lut_ffn", chunks, findings);
  CheckBits(package.meta, "lut_lmhead", {&package.head}, findings);
  CheckBits(package.meta, "lut_embeddings", {&package.embeddings}, findings);
}

}  // namespace cmforge::coreml::lint
