// CanonicalSource: a table from plain names to pieces of raw tensors, made at opening from names and shapes
// alone; bytes are looked at when a tensor is read.
#include "checkpoint/canonical_source.h"

#include <cstring>

#include "checkpoint/messages.h"
#include "checkpoint/name_table.h"
#include "checkpoint/plain_names.h"

namespace cmforge {
namespace {

/// A run of bytes of a raw tensor.
struct Run {
  uint64_t offset, size;
};

/// Where a plain tensor's bytes are: the whole raw tensor (no runs, no transposition), runs of it one after
/// another, or a transposed block: out[r][c] = raw[offset + c * pitch + r], counted in elements.
struct Piece {
  uint32_t raw = 0;
  std::vector<Run> runs;
  uint64_t pitch = 0;  // above 0: transposed, the block begins at runs[0].offset
};

Bytes Part(Bytes bytes, const Run& run) { return bytes.subspan(run.offset, run.size); }

class CanonicalSource : public TensorSource {
 public:
  CanonicalSource(std::shared_ptr<const TensorSource> raw, const HfConfig& config)
      : raw_(std::move(raw)), config_(config.model) {}

  Result<void> Build(const HfConfig& config);

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }
  Result<TensorView> Read(std::string_view name) const override;
  [[nodiscard]] std::span<const std::string> skipped() const override { return skipped_; }
  [[nodiscard]] std::string_view path() const override { return raw_->path(); }

 private:
  struct Raw {
    uint32_t index;
    const TensorInfo& info;
    const PlainName& plain;
  };

  Result<void> AddTensor(const Raw& raw);
  Result<void> Add(std::string name, const Raw& raw, Shape shape, Piece piece);
  Result<void> AddRows(std::string name, const Raw& raw, std::span<const Run> row_runs);
  Result<void> SplitAttention(const Raw& raw);
  Result<void> SplitGateUp(const Raw& raw);
  Result<void> SplitQkvz(const Raw& raw);
  Result<void> SplitBa(const Raw& raw);
  Result<void> SplitExperts(const Raw& raw, std::string_view what);

  /// Fails unless the first dimension is `rows`.
  Result<void> WantRows(const Raw& raw, int64_t rows) const;
  Result<const LinearAttentionConfig*> WantLinear(const Raw& raw) const;

  std::shared_ptr<const TensorSource> raw_;
  const ModelConfig config_;
  std::vector<TensorInfo> tensors_;
  std::vector<Piece> pieces_;  // parallel to tensors_
  NameTable<uint32_t> by_name_;
  std::vector<std::string> skipped_;
};

Result<void> CanonicalSource::Build(const HfConfig& config) {
  const auto infos = raw_->tensors();
  for (size_t i = 0; i < infos.size(); ++i) {
    auto plain = ToPlainName(infos[i].name, config);
    if (!plain) return Fail(std::move(plain).error().In(raw_->path()));
    if (plain->is_skipped) {
      skipped_.push_back(infos[i].name);
      continue;
    }
    CMF_CHECK(AddTensor({static_cast<uint32_t>(i), infos[i], *plain}));
  }
  return {};
}

Result<void> CanonicalSource::AddTensor(const Raw& raw) {
  const std::string_view suffix = raw.plain.suffix();
  const auto unknown_kind = [&] {
    return Fail(ErrorKind::kUnsupported, fmt::format("{}: tensor '{}' is of a kind this build does not run",
                                                     raw_->path(), Shown(raw.info.name)));
  };
  if (raw.plain.prefix.empty()) {
    if (!IsKnownPart(raw.plain.name)) return unknown_kind();
    return Add(raw.plain.name, raw, raw.info.shape, {});
  }
  if (suffix.starts_with("self_attn.qkv_proj.")) return SplitAttention(raw);
  if (suffix.starts_with("mlp.gate_up_proj.")) return SplitGateUp(raw);
  if (suffix == "linear_attn.in_proj_qkvz.weight") return SplitQkvz(raw);
  if (suffix == "linear_attn.in_proj_ba.weight") return SplitBa(raw);
  for (const std::string_view bank : {"mlp.experts.", "mlp.switch_mlp."}) {
    if (!suffix.starts_with(bank) || raw.info.shape.size() != 3) continue;
    std::string_view what = suffix.substr(bank.size());
    if (what.ends_with(".weight")) what.remove_suffix(7);
    if (what == "gate_up_proj" || what == "gate_proj" || what == "up_proj" || what == "down_proj") {
      return SplitExperts(raw, what);
    }
  }
  if (!IsKnownLayerTensor(suffix)) return unknown_kind();
  Shape shape = raw.info.shape;
  // MLX keeps convolutions as [C, K, 1]; the bytes are those of [C, 1, K].
  const bool is_convolution = suffix == "linear_attn.conv1d.weight" || suffix == "short_conv.conv.weight";
  if (is_convolution && shape.size() == 3 && shape[2] == 1) std::swap(shape[1], shape[2]);
  return Add(raw.plain.name, raw, std::move(shape), {});
}

Result<void> CanonicalSource::Add(std::string name, const Raw& raw, Shape shape, Piece piece) {
  const auto [at, is_new] = by_name_.emplace(name, static_cast<uint32_t>(tensors_.size()));
  if (!is_new) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensors '{}' and '{}' both mean '{}'", raw_->path(),
                                                 Shown(raw_->tensors()[pieces_[at->second].raw].name),
                                                 Shown(raw.info.name), Shown(name)));
  }
  TensorInfo info{std::move(name), raw.info.dtype, std::move(shape), raw.info.nbytes};
  if (!piece.runs.empty()) {
    info.nbytes = 0;
    for (const Run& run : piece.runs) info.nbytes += run.size;
  }
  piece.raw = raw.index;
  tensors_.push_back(std::move(info));
  pieces_.push_back(std::move(piece));
  return {};
}

/// The given rows (offset and size count rows), joined where they touch.
Result<void> CanonicalSource::AddRows(std::string name, const Raw& raw, std::span<const Run> row_runs) {
  Shape shape = raw.info.shape;
  const uint64_t row_bytes = raw.info.nbytes / static_cast<uint64_t>(shape[0]);
  Piece piece;
  uint64_t rows = 0;
  for (const Run& run : row_runs) {
    const Run bytes{run.offset * row_bytes, run.size * row_bytes};
    rows += run.size;
    if (!piece.runs.empty() && piece.runs.back().offset + piece.runs.back().size == bytes.offset) {
      piece.runs.back().size += bytes.size;
    } else {
      piece.runs.push_back(bytes);
    }
  }
  shape[0] = static_cast<int64_t>(rows);
  return Add(std::move(name), raw, std::move(shape), std::move(piece));
}

Result<void> CanonicalSource::WantRows(const Raw& raw, int64_t rows) const {
  if (!raw.info.shape.empty() && raw.info.shape.size() <= 2 && raw.info.shape[0] == rows) return {};
  return Fail(ErrorKind::kCorrupt,
              fmt::format("{}: tensor '{}': shape {}, the config wants {} rows", raw_->path(),
                          Shown(raw.info.name), ShapeText(raw.info.shape), rows));
}

Result<const LinearAttentionConfig*> CanonicalSource::WantLinear(const Raw& raw) const {
  if (config_.linear_attention && config_.linear_attention->num_key_heads > 0)
    return &*config_.linear_attention;
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': the config knows no linear attention",
                                               raw_->path(), Shown(raw.info.name)));
}

/// Phi-3: q, k and v rows one after another.
Result<void> CanonicalSource::SplitAttention(const Raw& raw) {
  const auto layer = static_cast<size_t>(std::max<int64_t>(raw.plain.layer, 0));
  const int64_t heads = layer < config_.attention_heads_per_layer.size()
                            ? config_.attention_heads_per_layer[layer]
                            : config_.num_attention_heads;
  const auto q = static_cast<uint64_t>(heads * config_.head_dim);
  const auto kv = static_cast<uint64_t>(config_.num_kv_heads * config_.head_dim);
  CMF_CHECK(WantRows(raw, static_cast<int64_t>(q + 2 * kv)));
  const std::string_view kind =
      raw.plain.suffix().substr(raw.plain.suffix().rfind('.'));  // ".weight" or ".bias"
  uint64_t at = 0;
  for (const auto& [name, rows] : {std::pair{"q", q}, {"k", kv}, {"v", kv}}) {
    const Run run{at, rows};
    CMF_CHECK(AddRows(fmt::format("{}self_attn.{}_proj{}", raw.plain.prefix, name, kind), raw, {&run, 1}));
    at += rows;
  }
  return {};
}

/// Phi-3: gate rows, then as many up rows.
Result<void> CanonicalSource::SplitGateUp(const Raw& raw) {
  CMF_CHECK(WantRows(raw, 2 * config_.intermediate_size));
  const auto half = static_cast<uint64_t>(config_.intermediate_size);
  const std::string_view kind = raw.plain.suffix().substr(raw.plain.suffix().rfind('.'));
  const Run gate{0, half}, up{half, half};
  CMF_CHECK(AddRows(fmt::format("{}mlp.gate_proj{}", raw.plain.prefix, kind), raw, {&gate, 1}));
  return AddRows(fmt::format("{}mlp.up_proj{}", raw.plain.prefix, kind), raw, {&up, 1});
}

/// Qwen3-Next: for each key head q [Dk], k [Dk], v [r Dv], z [r Dv] -> all q, all k, all v; all z.
Result<void> CanonicalSource::SplitQkvz(const Raw& raw) {
  CMF_TRY(const LinearAttentionConfig* linear, WantLinear(raw));
  const auto key = static_cast<uint64_t>(linear->key_head_dim);
  const auto value =
      static_cast<uint64_t>(linear->num_value_heads / linear->num_key_heads * linear->value_head_dim);
  const uint64_t group = 2 * key + 2 * value;
  const auto groups = static_cast<uint64_t>(linear->num_key_heads);
  CMF_CHECK(WantRows(raw, static_cast<int64_t>(groups * group)));
  std::vector<Run> qkv, z;
  for (const auto& [offset, size] : {Run{0, key}, Run{key, key}, Run{2 * key, value}}) {
    for (uint64_t g = 0; g < groups; ++g) qkv.push_back({g * group + offset, size});
  }
  for (uint64_t g = 0; g < groups; ++g) z.push_back({g * group + 2 * key + value, value});
  CMF_CHECK(AddRows(raw.plain.prefix + "linear_attn.in_proj_qkv.weight", raw, qkv));
  return AddRows(raw.plain.prefix + "linear_attn.in_proj_z.weight", raw, z);
}

/// Qwen3-Next: for each key head b [r], a [r] -> all b; all a.
Result<void> CanonicalSource::SplitBa(const Raw& raw) {
  CMF_TRY(const LinearAttentionConfig* linear, WantLinear(raw));
  const auto ratio = static_cast<uint64_t>(linear->num_value_heads / linear->num_key_heads);
  const auto groups = static_cast<uint64_t>(linear->num_key_heads);
  CMF_CHECK(WantRows(raw, 2 * linear->num_value_heads));
  std::vector<Run> b, a;
  for (uint64_t g = 0; g < groups; ++g) {
    b.push_back({g * 2 * ratio, ratio});
    a.push_back({g * 2 * ratio + ratio, ratio});
  }
  CMF_CHECK(AddRows(raw.plain.prefix + "linear_attn.in_proj_b.weight", raw, b));
  return AddRows(raw.plain.prefix + "linear_attn.in_proj_a.weight", raw, a);
}

/// Banks of experts: gate_up_proj [E, 2I, H] and down_proj [E, H, I] as linear weights are, or both with
/// their last two dimensions exchanged. Square matrices do not tell which; the other bank of the layer does.
Result<void> CanonicalSource::SplitExperts(const Raw& raw, std::string_view what) {
  if (!config_.moe) {
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: tensor '{}': the config knows no experts", raw_->path(),
                                                 Shown(raw.info.name)));
  }
  const int64_t experts = config_.moe->num_experts, hidden = config_.hidden_size,
                inner = config_.moe->intermediate_size;
  const bool is_pair = what == "gate_up_proj", is_down = what == "down_proj";
  const Shape straight =
      is_down ? Shape{experts, hidden, inner} : Shape{experts, is_pair ? 2 * inner : inner, hidden};
  const Shape turned = {straight[0], straight[2], straight[1]};
  bool is_turned = raw.info.shape != straight;
  if (raw.info.shape != straight && raw.info.shape != turned) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: tensor '{}': shape {}, the config wants {}", raw_->path(),
                            Shown(raw.info.name), ShapeText(raw.info.shape), ShapeText(straight)));
  }
  if (straight == turned) {
    const std::string_view partner = is_down ? "gate_up_proj" : "down_proj";
    std::string name = raw.info.name;
    name.replace(name.rfind(what), what.size(), partner);
    const TensorInfo* other = raw_->Find(name);
    const Shape wanted = is_down ? Shape{experts, hidden, 2 * inner} : Shape{experts, inner, hidden};
    is_turned = other != nullptr && other->shape == wanted && wanted[1] != wanted[2];
  }

  struct Matrix {
    std::string_view name;
    int64_t first, rows;  // among the output rows of one expert of the bank
  };
  std::vector<Matrix> matrices;
  if (is_pair) {
    matrices = {{"gate_proj", 0, inner}, {"up_proj", inner, inner}};
  } else {
    matrices = {{what, 0, straight[1]}};
  }
  const auto element = static_cast<uint64_t>(ElementBytes(raw.info.dtype));
  const int64_t out = straight[1], in = straight[2];
  for (const Matrix& matrix : matrices) {
    for (int64_t e = 0; e < experts; ++e) {
      Piece piece;
      const int64_t first = is_turned ? matrix.first : matrix.first * in;
      const auto size = static_cast<uint64_t>(matrix.rows * in) * element;
      piece.runs = {{static_cast<uint64_t>(e * out * in + first) * element, size}};
      if (is_turned) piece.pitch = static_cast<uint64_t>(out);
      CMF_CHECK(Add(fmt::format("{}mlp.experts.{}.{}.weight", raw.plain.prefix, e, matrix.name), raw,
                    {matrix.rows, in}, std::move(piece)));
    }
  }
  return {};
}

Result<TensorView> CanonicalSource::Read(std::string_view name) const {
  const TensorInfo* info = Find(name);
  if (info == nullptr)
    return Fail(ErrorKind::kNotFound, fmt::format("{}: no tensor '{}'", path(), Shown(name)));
  const Piece& piece = pieces_[static_cast<size_t>(info - tensors_.data())];
  CMF_TRY(TensorView view, raw_->Read(raw_->tensors()[piece.raw].name));
  view.shape = info->shape;
  if (piece.pitch == 0 && piece.runs.size() <= 1) {
    if (!piece.runs.empty()) view.bytes = Part(view.bytes, piece.runs[0]);
    return view;
  }
  auto bytes = std::make_shared<std::vector<std::byte>>(info->nbytes);
  std::byte* to = bytes->data();
  if (piece.pitch > 0) {
    const auto element = static_cast<size_t>(ElementBytes(view.dtype));
    const auto rows = static_cast<size_t>(view.rows()), cols = static_cast<size_t>(view.cols());
    const std::byte* block = view.bytes.data() + piece.runs[0].offset;
    for (size_t c = 0; c < cols; ++c) {
      for (size_t r = 0; r < rows; ++r) {
        std::memcpy(to + (r * cols + c) * element, block + (c * piece.pitch + r) * element, element);
      }
    }
  } else {
    for (const Run& run : piece.runs) {
      std::memcpy(to, view.bytes.data() + run.offset, run.size);
      to += run.size;
    }
  }
  view.bytes = *bytes;
  view.owner = std::move(bytes);
  return view;
}

}  // namespace

Result<std::shared_ptr<const TensorSource>> MakeCanonicalSource(std::shared_ptr<const TensorSource> raw,
                                                                const HfConfig& config) {
  auto source = std::make_shared<CanonicalSource>(std::move(raw), config);
  CMF_CHECK(source->Build(config));
  return source;
}

}  // namespace cmforge
