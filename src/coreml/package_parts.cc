// Opening, checking and calling the parts.
#include "coreml/package_parts.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;
using mil::DataType;

tl::unexpected<Error> Broken(const fs::path& part, std::string_view what) {
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: {}: {}", part.string(), what, remedies::kContract));
}

/// The port of that name; unknown wanted dimensions (-1) accept any.
Result<size_t> Want(const fs::path& part, std::string_view side, const std::vector<Port>& ports,
                    std::string_view name, DataType dtype, const Shape& wanted) {
  const int index = PortIndex(ports, name);
  if (index < 0) {
    std::string names;
    for (const Port& port : ports) names += (names.empty() ? "" : ", ") + port.name;
    return Broken(part, fmt::format("no {} '{}': it has {}", side, name, names.empty() ? "none" : names));
  }
  const Port& port = ports[static_cast<size_t>(index)];
  // An output may be of unknown shape until it has run.
  const mil::TensorType type{dtype, wanted};
  if (!mil::AreCompatible(port.type, type))
    return Broken(part, fmt::format("{} '{}' is {}, the contract says {}", side, name, TypeText(port.type),
                                    TypeText(type)));
  return static_cast<size_t>(index);
}

int64_t LastDim(const Port& port) { return port.type.shape.empty() ? 0 : port.type.shape.back(); }

}  // namespace

Result<std::unique_ptr<PackagePartsRunner>> PackagePartsRunner::Open(const fs::path& folder,
                                                                     const PackageMeta& meta,
                                                                     const Backend& backend) {
  CMF_TRY(const PackageParts paths, FindParts(folder, meta));
  auto runner = std::make_unique<PackagePartsRunner>();
  for (size_t i = 0; i < paths.chunks.size(); ++i) {
    CMF_CHECK(runner->OpenChunk(backend, paths.chunks[i], i == 0, i + 1 == paths.chunks.size()));
  }
  CMF_CHECK(runner->OpenEmbeddings(backend, paths.embeddings));
  CMF_CHECK(runner->OpenHead(backend, paths.lm_head, meta));
  if (auto status = runner->CheckMeta(meta); !status)
    return Fail(std::move(status).error().In((folder / "meta.yaml").string()));
  return runner;
}

Result<PackagePartsRunner::Call> PackagePartsRunner::OpenCall(const Part& part, const fs::path& path,
                                                              const std::string& name) {
  Call call;
  CMF_TRY(call.function, part.Function(name));
  const std::vector<Port>& in = call.function->inputs();
  const auto any = mil::kUnknownDim;
  const bool is_prefill = name == "prefill";
  const int64_t hidden = shapes_.hidden > 0 ? shapes_.hidden : any;
  const int64_t tokens = !is_prefill ? 1 : shapes_.batch > 0 ? shapes_.batch : any;
  CMF_TRY(call.hidden,
          Want(path, name + " input", in, "hidden_states", DataType::kFloat16, {1, tokens, hidden}));
  const Shape& shape = in[call.hidden].type.shape;
  if (shape[1] < 1 || shape[2] < 1)
    return Broken(path, fmt::format("{} input 'hidden_states' is {}", name, TypeText(in[call.hidden].type)));
  shapes_.hidden = shape[2];
  if (is_prefill) shapes_.batch = shape[1];
  const int64_t t = shape[1], context = shapes_.context > 0 ? shapes_.context : any;
  CMF_TRY(call.positions, Want(path, name + " input", in, "position_ids", DataType::kInt32, {t}));
  CMF_TRY(call.mask, Want(path, name + " input", in, "causal_mask", DataType::kFloat16, {1, 1, t, context}));
  shapes_.context = LastDim(in[call.mask]);
  if (shapes_.context < 1) return Broken(path, fmt::format("{}: a context of {}", name, shapes_.context));
  CMF_TRY(call.current, Want(path, name + " input", in, "current_pos", DataType::kInt32, {1}));
  if (PortIndex(in, "per_layer_inputs") >= 0) {
    const int64_t width = shapes_.per_layer_inputs > 0 ? shapes_.per_layer_inputs : any;
    CMF_TRY(call.per_layer,
            Want(path, name + " input", in, "per_layer_inputs", DataType::kFloat16, {1, t, width}));
    shapes_.per_layer_inputs = LastDim(in[call.per_layer]);
    call.takes_per_layer = true;
  }
  const size_t known = call.takes_per_layer ? 5 : 4;
  if (in.size() != known) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (i == call.hidden || i == call.positions || i == call.mask || i == call.current ||
          (call.takes_per_layer && i == call.per_layer))
        continue;
      return Fail(ErrorKind::kUnsupported, fmt::format("{}: {} input '{}' is none of the contract's: {}",
                                                       path.string(), name, in[i].name, remedies::kContract));
    }
  }
  CMF_TRY(call.out, Want(path, name + " output", call.function->outputs(), "output_hidden_states",
                         DataType::kFloat16, {1, any, shapes_.hidden}));
  return call;
}

Result<void> PackagePartsRunner::OpenChunk(const Backend& backend, const fs::path& path, bool is_first,
                                           bool is_last) {
  Chunk chunk;
  CMF_TRY(chunk.part, backend.Open(path));
  CMF_TRY(chunk.prefill, OpenCall(*chunk.part, path, "prefill"));
  CMF_TRY(chunk.infer, OpenCall(*chunk.part, path, "infer"));
  const int64_t rows = chunk.prefill.function->outputs()[chunk.prefill.out].type.shape[1];
  if (!is_last && rows != shapes_.batch) {
    return Broken(path, fmt::format("prefill gives {} tokens, the next chunk takes {}", rows, shapes_.batch));
  }
  if (is_last && rows != 1 && rows != shapes_.batch)
    return Broken(path, fmt::format("prefill gives {} tokens: 1 or {} are possible", rows, shapes_.batch));
  if (is_last) shapes_.prefill_gives_last_token = rows == 1;  // meta.yaml has the last word, see CheckMeta
  if (!is_first) {  // one state object serves all chunks: it is made by the first
    const std::vector<Port> ours = chunks_[0].part->States();
    for (const Port& state : chunk.part->States()) {
      const int index = PortIndex(ours, state.name);
      if (index < 0 || !(ours[static_cast<size_t>(index)].type == state.type)) {
        return Broken(path,
                      fmt::format("state '{}' ({}) is not that of the first chunk, which holds the state "
                                  "of all",
                                  state.name, TypeText(state.type)));
      }
    }
  }
  chunks_.push_back(std::move(chunk));
  return {};
}

Result<void> PackagePartsRunner::OpenEmbeddings(const Backend& backend, const fs::path& path) {
  CMF_TRY(embeddings_, backend.Open(path));
  const auto open = [&](int64_t tokens) -> Result<Embed> {
    Embed embed;
    CMF_TRY(embed.function, embeddings_->Function("", {{"input_ids", {1, tokens}}}));
    CMF_TRY(embed.ids,
            Want(path, "input", embed.function->inputs(), "input_ids", DataType::kInt32, {1, tokens}));
    const std::vector<Port>& out = embed.function->outputs();
    CMF_TRY(embed.hidden,
            Want(path, "output", out, "hidden_states", DataType::kFloat16, {1, tokens, shapes_.hidden}));
    if (shapes_.per_layer_inputs > 0) {
      CMF_TRY(embed.per_layer, Want(path, "output", out, "per_layer_inputs", DataType::kFloat16,
                                    {1, tokens, shapes_.per_layer_inputs}));
    }
    return embed;
  };
  CMF_TRY(embed_one_, open(1));
  CMF_TRY(embed_batch_, open(shapes_.batch));
  return {};
}

Result<void> PackagePartsRunner::OpenHead(const Backend& backend, const fs::path& path,
                                          const PackageMeta& meta) {
  CMF_TRY(head_part_, backend.Open(path));
  CMF_TRY(head_, head_part_->Function(""));
  CMF_TRY(head_input_,
          Want(path, "input", head_->inputs(), "hidden_states", DataType::kFloat16, {1, 1, shapes_.hidden}));
  const std::vector<Port>& out = head_->outputs();
  if (PortIndex(out, "argmax_idx") >= 0) {
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: the head answers with the best token, not with logits: {}", path.string(),
                            remedies::kContract));
  }
  for (int64_t i = 1; i <= meta.split_lm_head; ++i) {
    CMF_TRY(const size_t index, Want(path, "output", out, fmt::format("logits{}", i), DataType::kFloat16,
                                     {1, 1, mil::kUnknownDim}));
    head_outputs_.push_back(index);
    shapes_.logits.push_back(LastDim(out[index]));
    if (shapes_.logits.back() < 1)
      return Broken(path, fmt::format("output 'logits{}' is {}", i, TypeText(out[index].type)));
    shapes_.vocab += shapes_.logits.back();
  }
  if (out.size() != head_outputs_.size()) {
    return Broken(path, fmt::format("{} outputs, split_lm_head is {}", out.size(), meta.split_lm_head));
  }
  return {};
}

Result<void> PackagePartsRunner::CheckMeta(const PackageMeta& meta) const {
  const auto agree = [](const char* key, int64_t said, int64_t is) -> Result<void> {
    if (said == is) return {};
    return Fail(ErrorKind::kCorrupt,
                fmt::format("'{}' is {}, the parts have {}: {}", key, said, is, remedies::kContract));
  };
  if (meta.context_length > 0) CMF_CHECK(agree("context_length", meta.context_length, shapes_.context));
  CMF_CHECK(agree("batch_size", meta.batch_size, shapes_.batch));
  if (meta.hidden_size) CMF_CHECK(agree("hidden_size", *meta.hidden_size, shapes_.hidden));
  if (meta.vocab_size) CMF_CHECK(agree("vocab_size", *meta.vocab_size, shapes_.vocab));
  if (meta.per_layer_inputs)
    CMF_CHECK(agree("per_layer_inputs", *meta.per_layer_inputs, shapes_.per_layer_inputs));
  if (!meta.lm_head_chunk_sizes.empty()) {
    CMF_CHECK(agree("lm_head_chunk_sizes", static_cast<int64_t>(meta.lm_head_chunk_sizes.size()),
                    static_cast<int64_t>(shapes_.logits.size())));
    for (size_t i = 0; i < shapes_.logits.size(); ++i)
      CMF_CHECK(agree("lm_head_chunk_sizes", meta.lm_head_chunk_sizes[i], shapes_.logits[i]));
  }
  if (meta.prefill_last_token_output && !shapes_.prefill_gives_last_token)
    return Fail(
        ErrorKind::kCorrupt,
        fmt::format("'prefill_last_token_output' is true, the last chunk's prefill gives a whole batch: {}",
                    remedies::kContract));
  return {};
}

Result<void> PackagePartsRunner::Run(std::span<const TokenId> tokens, int64_t position, PartState& state) {
  const auto n = static_cast<int64_t>(tokens.size());
  const bool is_prefill = n == shapes_.batch && n > 1;
  Embed& embed = is_prefill ? embed_batch_ : embed_one_;
  CMF_CHECK(embed.function->SetInts(embed.ids, tokens));
  CMF_CHECK(embed.function->Run(nullptr));
  hidden_.resize(static_cast<size_t>(n * shapes_.hidden));
  CMF_CHECK(embed.function->GetFloats(embed.hidden, hidden_));
  if (shapes_.per_layer_inputs > 0) {
    per_layer_.resize(static_cast<size_t>(n * shapes_.per_layer_inputs));
    CMF_CHECK(embed.function->GetFloats(embed.per_layer, per_layer_));
  }
  positions_.resize(tokens.size());
  mask_.assign(static_cast<size_t>(n * shapes_.context), -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < n; ++i) {
    positions_[static_cast<size_t>(i)] = static_cast<int32_t>(position + i);
    const auto row = mask_.begin() + i * shapes_.context;
    std::fill(row, row + position + i + 1, 0.0f);
  }
  const int32_t current = static_cast<int32_t>(position);
  for (Chunk& chunk : chunks_) {
    Call& call = is_prefill ? chunk.prefill : chunk.infer;
    CMF_CHECK(call.function->SetFloats(call.hidden, hidden_));
    CMF_CHECK(call.function->SetInts(call.positions, positions_));
    CMF_CHECK(call.function->SetFloats(call.mask, mask_));
    CMF_CHECK(call.function->SetInts(call.current, {&current, 1}));
    if (call.takes_per_layer) CMF_CHECK(call.function->SetFloats(call.per_layer, per_layer_));
    CMF_CHECK(call.function->Run(&state));
    const Shape& out = call.function->outputs()[call.out].type.shape;
    hidden_.resize(static_cast<size_t>(out[1] * out[2]));
    CMF_CHECK(call.function->GetFloats(call.out, hidden_));
  }
  last_.assign(hidden_.end() - shapes_.hidden, hidden_.end());
  return {};
}

Result<void> PackagePartsRunner::Logits(std::span<float> out) {
  CMF_CHECK(head_->SetFloats(head_input_, last_));
  CMF_CHECK(head_->Run(nullptr));
  size_t at = 0;
  for (size_t i = 0; i < head_outputs_.size(); ++i) {
    const auto n = static_cast<size_t>(shapes_.logits[i]);
    CMF_CHECK(head_->GetFloats(head_outputs_[i], out.subspan(at, n)));
    at += n;
  }
  return {};
}

}  // namespace cmforge::coreml
