// Choosing the family, checking the way back, writing the folder.
#include "convert/export.h"

#include <algorithm>
#include <cmath>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/system_error.h"
#include "checkpoint/canonical_source.h"
#include "checkpoint/hf_config_writer.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/tensor_fit.h"
#include "convert/compare.h"
#include "convert/hf_source.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

bool HasLayer(const ModelConfig& config, LayerKind kind) {
  return std::find(config.layer_types.begin(), config.layer_types.end(), kind) != config.layer_types.end();
}

RopeConfig Essence(const RopeConfig& rope, int64_t max_positions) {
  if (rope.kind != RopeKind::kDefault) {
    RopeConfig same = rope;
    if (same.original_max_position_embeddings == 0) same.original_max_position_embeddings = max_positions;
    return same;
  }
  RopeConfig plain;
  plain.theta = rope.theta;
  plain.partial_rotary_factor = rope.partial_rotary_factor;
  return plain;
}

// Older files tell which layers slide by a pattern alone; a folder names each layer's kind.
void NameSlidingLayers(ModelConfig& config) {
  if (!config.sliding_window_pattern || !config.sliding_window ||
      HasLayer(config, LayerKind::kSlidingAttention))
    return;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    LayerKind& kind = config.layer_types[static_cast<size_t>(i)];
    if (kind == LayerKind::kFullAttention && (i + 1) % *config.sliding_window_pattern != 0)
      kind = LayerKind::kSlidingAttention;
  }
}

// What decides the computation, in one spelling: settings of layers that are not there, names, and what the tensors tell
// are left out.
ModelConfig Essence(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.arch_name = "";
  plain.tie_word_embeddings = false;
  plain.mtp.reset();
  plain.intermediate_size = 0;
  plain.sliding_window_pattern.reset();
  const bool slides = HasLayer(config, LayerKind::kSlidingAttention);
  if (!slides) {
    plain.sliding_window.reset();
    plain.rope_local.reset();
  }
  plain.rope = Essence(config.rope, config.max_position_embeddings);
  if (plain.rope_local) plain.rope_local = Essence(*plain.rope_local, config.max_position_embeddings);
  if (plain.rope_local == plain.rope) plain.rope_local.reset();
  plain.global_partial_rotary_factor = 1.0;
  if (plain.global_head_dim == 0) plain.num_global_kv_heads = 0;
  if (plain.hidden_size_per_layer_input == 0) plain.vocab_size_per_layer_input = 0;
  plain.query_pre_attn_scalar = config.query_pre_attn_scalar.value_or(static_cast<double>(config.head_dim));
  const double root = std::sqrt(static_cast<double>(config.hidden_size));
  if (std::abs(config.embed_multiplier - root) < 1e-3 * root)
    plain.embed_multiplier = root;  // some files round it
  const auto& heads = config.attention_heads_per_layer;
  if (std::all_of(heads.begin(), heads.end(), [&](int64_t n) { return n == config.num_attention_heads; }))
    plain.attention_heads_per_layer.clear();
  if (!HasLayer(config, LayerKind::kLinearAttention)) {
    LinearAttentionConfig linear;
    if (config.linear_attention && HasLayer(config, LayerKind::kShortConv))
      linear.conv_kernel = config.linear_attention->conv_kernel;
    plain.linear_attention = linear;
  }
  if (config.num_loops == 1) plain.loop_final_norm = false;
  return plain;
}

struct Candidate {
  std::string config_text;
  HfConfig parsed;
  std::vector<ValueChange> differences;
  bool fits_traits = false;
};

Result<Candidate> Try(const ExportInput& input, const HfTraits& traits, const HfFamily& family,
                      std::string_view model_type, std::string_view dtype) {
  Candidate candidate;
  candidate.config_text = HfConfigText(input.config, traits, family, model_type, input.chat, dtype);
  HfConfigFiles files;
  files.config = candidate.config_text;
  CMF_TRY(candidate.parsed, ParseHfConfig(files));
  const HfConfig& parsed = candidate.parsed;
  candidate.differences = CompareArch(Essence(input.config), Essence(parsed.model));
  candidate.fits_traits =
      parsed.wants_qkv_bias == traits.has_qkv_bias && parsed.wants_o_bias == traits.has_o_bias &&
      parsed.wants_qk_norm == traits.has_qk_norm && parsed.wants_four_norms == traits.has_four_norms;
  return candidate;
}

struct Choice {
  Candidate candidate;
  const HfFamily* family;
  std::string model_type;
};

// The model's own family if its rules say what the model is, else the first that do.
Result<Choice> ChooseFamily(const ExportInput& input, const HfTraits& traits, std::string_view dtype,
                            const RunControl& run) {
  const std::string& name = input.config.arch_name;
  const auto own = FindHfFamily(name);
  std::vector<const HfFamily*> order;
  if (own && *own != nullptr) order.push_back(*own);
  for (const HfFamily& family : HfFamilies()) {
    if (order.empty() || &family != order[0]) order.push_back(&family);
  }
  std::optional<Choice> second_best;
  std::string why;
  for (const HfFamily* family : order) {
    const std::string model_type = own && *own == family
                                       ? (name.ends_with("_text") ? name : TextModelType(name))
                                       : TextModelType(family->name);
    auto candidate = Try(input, traits, *family, model_type, dtype);
    if (candidate && candidate->differences.empty()) {
      Choice choice{std::move(*candidate), family, model_type};
      if (choice.candidate.fits_traits) return choice;
      if (!second_best && family == order[0] && own && *own == family) second_best = std::move(choice);
    } else if (why.empty()) {
      why = candidate ? fmt::format("{} is {} here and {} there", candidate->differences[0].key,
                                    candidate->differences[0].a, candidate->differences[0].b)
                      : candidate.error().message;
    }
  }
  if (second_best) return std::move(*second_best);
  // A plain decoder under a name of its own: this program reads it back, others may not know it.
  if (own && *own == nullptr) {
    auto candidate = Try(input, traits, CommonHfFamily(), name, dtype);
    if (candidate && candidate->differences.empty()) {
      run.Warn(
          fmt::format("{}: '{}' is no family of Hugging Face models: other programs may not read the folder",
                      input.tensors->path(), name));
      return Choice{std::move(*candidate), &CommonHfFamily(), name};
    }
  }
  return Fail(ErrorKind::kUnsupported,
              fmt::format("{}: arch '{}': no config.json of a known family describes this model: {}",
                          input.tensors->path(), name, why));
}

// Opens the folder that is to be, without a byte of it.
Result<void> CheckWayBack(const ExportInput& input, const std::shared_ptr<const HfSource>& source,
                          HfConfig parsed) {
  // What a reader of folders would say of a broken one is a limit of folders here.
  const auto refuse = [](Error error) {
    error.kind = ErrorKind::kUnsupported;
    if (const size_t remedy = error.message.rfind(": ");
        remedy != error.message.npos && error.message.ends_with("again"))
      error.message.resize(remedy);
    error.message += ": a Hugging Face folder cannot hold this model";
    return Fail(std::move(error));
  };
  auto canonical_or = MakeCanonicalSource(source, parsed);
  if (!canonical_or) return refuse(std::move(canonical_or).error());
  const auto canonical = std::move(*canonical_or);
  if (auto status = FitTensors(*canonical, parsed); !status) return refuse(std::move(status).error());
  for (const TensorInfo& info : input.tensors->tensors()) {
    if (info.name.starts_with("skill.") || canonical->Find(info.name) != nullptr) continue;
    return Fail(ErrorKind::kUnsupported,
                fmt::format("{}: tensor '{}': not of a kind that a Hugging Face folder holds",
                            input.tensors->path(), info.name));
  }
  return {};
}

// Files of one folder, all complete before the first appears.
class FolderWriter {
 public:
  static Result<FolderWriter> Create(const fs::path& folder) {
    FolderWriter writer;
    std::error_code error;
    writer.folder_ = folder;
    const auto cannot = [&](std::error_code reason) {
      const bool is_missing =
          reason == std::errc::no_such_file_or_directory || reason == std::errc::not_a_directory;
      return Fail(is_missing ? ErrorKind::kNotFound : ErrorKind::kIo,
                  fmt::format("{}: cannot create: {}", folder.string(), SystemFault(reason.value())));
    };
    const fs::file_status status = fs::status(folder, error);
    if (fs::exists(status) && !fs::is_directory(status)) {
      return Fail(ErrorKind::kUsage, fmt::format("{}: is not a folder: name a new one", folder.string()));
    }
    const bool is_taken = fs::is_directory(status) && !fs::is_empty(folder, error);
    if (fs::is_directory(status) && error) return cannot(error);
    if (is_taken) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: there is something here already: name a new folder", folder.string()));
    }
    writer.is_new_ = fs::create_directory(folder, error);
    if (error) {
      const fs::path parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
      if (std::error_code ignored;
          error == std::errc::no_such_file_or_directory && !fs::exists(parent, ignored)) {
        return Fail(ErrorKind::kNotFound,
                    fmt::format("{}: cannot create: there is no folder {}: make it first", folder.string(),
                                parent.string()));
      }
      return cannot(error);
    }
    return writer;
  }
  FolderWriter(FolderWriter&& other) noexcept
      : folder_(std::move(other.folder_)),
        is_new_(std::exchange(other.is_new_, false)),
        names_(std::move(other.names_)),
        files_(std::move(other.files_)) {}
  FolderWriter& operator=(FolderWriter&&) = delete;
  ~FolderWriter() {
    files_.clear();
    std::error_code ignored;
    if (is_new_) fs::remove(folder_, ignored);  // only when nothing is in it
  }

  Result<AtomicFile*> Add(const std::string& name) {
    CMF_TRY(AtomicFile file, AtomicFile::Create(folder_ / name));
    names_.push_back(folder_ / name);
    files_.push_back(std::move(file));
    return &files_.back();
  }
  Result<void> AddText(const std::string& name, std::string_view text) {
    CMF_TRY(AtomicFile * file, Add(name));
    return file->Write(AsBytes(text));
  }
  Result<std::vector<fs::path>> Commit() {
    for (AtomicFile& file : files_) CMF_CHECK(file.Commit());
    is_new_ = false;
    return names_;
  }

 private:
  FolderWriter() = default;
  fs::path folder_;
  bool is_new_ = false;
  std::vector<fs::path> names_;
  std::vector<AtomicFile> files_;
};

// One file, or greedily filled ones with an index.
Result<void> WriteWeights(const HfSource& source, const ExportOptions& options, FolderWriter& folder,
                          const RunControl& run) {
  std::vector<std::vector<std::string>> parts(1);
  uint64_t filled = 0, total = 0;
  for (const TensorInfo& info : source.tensors()) {
    if (filled + info.nbytes > options.max_file_bytes && !parts.back().empty()) {
      parts.emplace_back();
      filled = 0;
    }
    parts.back().push_back(info.name);
    filled += info.nbytes;
    total += info.nbytes;
  }
  uint64_t written = 0;
  const auto progress = [&](uint64_t bytes) {
    written += bytes;
    run.Report("exporting", static_cast<int64_t>(written), static_cast<int64_t>(total), ProgressUnit::kBytes);
  };
  Json weight_map = Json::object();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name = parts.size() == 1
                                 ? std::string("model.safetensors")
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    CMF_TRY(AtomicFile * file, folder.Add(name));
    CMF_CHECK(WriteSafetensors(source, parts[i], *file, run, progress));
    for (const std::string& tensor : parts[i]) weight_map[tensor] = name;
  }
  if (parts.size() == 1) return {};
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  return folder.AddText("model.safetensors.index.json", DumpJson(index, 2) + "\n");
}

// Special tokens are added tokens, so their texts are found without building the tokenizer.
std::vector<std::pair<std::string, std::string>> SpecialTokens(const ExportInput& input) {
  std::vector<std::pair<std::string, std::string>> tokens;
  const auto added = AddedTokens(AsText(input.tokenizer_json));
  const auto add = [&](const char* name, std::optional<TokenId> id) {
    const auto found = std::find_if(added.begin(), added.end(),
                                    [&](const auto& token) { return id && token.second == *id; });
    if (found != added.end()) tokens.emplace_back(name, found->first);
  };
  const auto& eos = input.chat->eos_token_ids;
  add("bos_token", input.chat->bos_token_id);
  add("eos_token", eos.empty() ? std::nullopt : std::optional(eos[0]));
  add("pad_token", input.chat->pad_token_id);
  return tokens;
}

Result<void> WriteSideFiles(const ExportInput& input, FolderWriter& folder) {
  const auto is_given = [&](std::string_view name) {
    return std::any_of(input.verbatim.begin(), input.verbatim.end(),
                       [&](const auto& file) { return file.first == name; });
  };
  for (const auto& [name, bytes] : input.verbatim) CMF_CHECK(folder.AddText(name, AsText(bytes)));
  if (!input.tokenizer_json.empty() && !is_given("tokenizer.json"))
    CMF_CHECK(folder.AddText("tokenizer.json", AsText(input.tokenizer_json)));
  if (input.chat == nullptr) return {};
  if (!is_given("tokenizer_config.json")) {
    CMF_CHECK(folder.AddText(
        "tokenizer_config.json",
        HfTokenizerConfigText(*input.chat, SpecialTokens(input), input.config.max_position_embeddings)));
  }
  if (!is_given("generation_config.json"))
    CMF_CHECK(folder.AddText("generation_config.json", HfGenerationConfigText(*input.chat, input.sampling)));
  return {};
}

}  // namespace

Result<ExportReport> ExportToHf(const ExportInput& given, const ExportOptions& options,
                                const fs::path& folder, ThreadPool& pool, const RunControl& run) {
  ExportInput input = given;
  NameSlidingLayers(input.config);
  const std::string_view dtype = options.dtype == DType::kF32   ? "float32"
                                 : options.dtype == DType::kF16 ? "float16"
                                                                : "bfloat16";
  const HfTraits traits = HfTraitsOf(*input.tensors, input.config);
  CMF_TRY(Choice choice, ChooseFamily(input, traits, dtype, run));
  CMF_TRY(std::vector<HfTensor> layout,
          LayOutForHf(*input.tensors, input.config, traits, choice.family->name));
  const auto source =
      std::make_shared<const HfSource>(*input.tensors, std::move(layout), options.dtype, pool);
  CMF_CHECK(CheckWayBack(input, source, choice.candidate.parsed));

  CMF_TRY(FolderWriter writer, FolderWriter::Create(folder));
  CMF_CHECK(WriteWeights(*source, options, writer, run));
  CMF_CHECK(WriteSideFiles(input, writer));
  CMF_CHECK(writer.AddText("config.json", choice.candidate.config_text));
  CMF_CHECK(run.CheckCancelled());
  ExportReport report;
  CMF_TRY(report.files, writer.Commit());
  report.model_type = choice.model_type;
  for (const TensorInfo& info : source->tensors()) {
    ++report.tensors;
    report.bytes += info.nbytes;
  }
  return report;
}

}  // namespace cmforge
