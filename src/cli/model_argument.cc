// MODEL, its engine and its tokenizer.
#include "cli/model_argument.h"

#include <charconv>

#include "base/memory_limit.h"
#include "cli/default_model.h"
#include "cli/signals.h"
#include "cmf/hash64.h"
#include "cmf/header.h"
#include "coreml/package_model.h"
#include "engine/model.h"
#include "text/chat_template.h"

namespace cmforge::cli {

void ModelArgument::AddTo(CLI::App* command) {
  command->add_option(
      "MODEL", path,
      "A .cmf file, a Hugging Face folder, a Core ML package, or nothing for the built-in model");
}

Result<OpenedSource> ModelArgument::Open(const Cli& cli) const {
  const RunControl control = cli.Control();
  if (path.empty()) {
    if (DefaultModel().empty()) {
      return Fail(ErrorKind::kUnsupported, "this program was built without a default model: name a model");
    }
    return OpenSourceBytes(DefaultModel(), "the built-in model");
  }
  NameMappedFile(path);
  CMF_TRY(OpenedSource source, OpenSource(path, cli.common.file_mode()));
  for (const std::string& warning : source.warnings) control.Warn(warning);
  return source;
}

void ComputeFlags::AddTo(CLI::App* command) {
  AddWithoutContextTo(command);
  command->add_option("--context", context, "Context length in tokens (default: the model's own limit)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
}

void ComputeFlags::AddWithoutContextTo(CLI::App* command) {
  command->add_option("--compute", compute, "fast, or exact: f32 activations and state, for parity")
      ->check(CLI::IsMember({"fast", "exact"}));
  command
      ->add_option("--compute-units", compute_units,
                   "Core ML packages on a Mac: ne (Neural Engine), gpu, all; exact ones are interpreted")
      ->check(CLI::IsMember({"ne", "gpu", "all", "cpu"}))
      ->capture_default_str();
  command
      ->add_option("--kv", kv, "Type of the KV cache: f32, f16, q8 (default f16; f32 with --compute exact)")
      ->check(CLI::IsMember({"f32", "f16", "q8"}));
}

Result<SequenceOptions> ComputeFlags::Sequence() const {
  SequenceOptions options;
  options.context_length = context;
  options.kv_is_explicit = !kv.empty();
  options.kv = kv == "f32" ? KvType::kF32 : kv == "q8" ? KvType::kQ8 : KvType::kF16;
  return options;
}

namespace {

Result<std::shared_ptr<LanguageModel>> LoadPackage(const Cli& cli, const OpenedSource& source,
                                                   const ComputeFlags& flags) {
  coreml::InterpreterOptions interpreter;
  interpreter.precision = flags.compute == "exact" ? coreml::Precision::kF32 : coreml::Precision::kF16;
  interpreter.pool = cli.common.MakePool();
  CMF_TRY(interpreter.isa, ParseIsa(cli.common.isa));
  CMF_TRY(const coreml::ComputeUnits units, coreml::ParseComputeUnits(flags.compute_units));
  CMF_TRY(auto backend, coreml::DefaultBackend(interpreter, units));
  return coreml::OpenPackageModel(source.path, *source.package, {std::move(backend), *source.config});
}

/// What saved states are bound to: of a .cmf its directory, which holds the hash of every payload. A
/// checkpoint has no such hashes, so its description, its tensors' names and shapes, and the contents of its
/// vectors (norms and biases, which every training moves) stand for it.
Result<uint64_t> IdentityOf(const OpenedSource& source) {
  if (source.cmf) return source.cmf->dir_hash();
  cmf::Hash64Stream hash;
  hash.Update(AsBytes(DumpJson(cmf::ArchToJson(*source.config))));
  for (const TensorInfo& tensor : source.tensors->tensors()) {
    hash.Update(
        AsBytes(fmt::format("{} {} {}\n", tensor.name, DTypeName(tensor.dtype), ShapeText(tensor.shape))));
    if (tensor.shape.size() != 1) continue;
    CMF_TRY(const TensorView view, source.tensors->Read(tensor.name));
    hash.Update(view.bytes);
  }
  return hash.Finish();
}

}  // namespace

Result<void> CheckRunnable(const OpenedSource& source) {
  if (!source.config) {
    return Fail(
        ErrorKind::kUsage,
        fmt::format("{}: a bare tensor file says nothing about the model: name its folder, with config.json",
                    source.path));
  }
  if (source.cmf && source.cmf->is_skill_file()) {
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format(
            "{}: a standalone skill holds only what differs from its base and cannot run: attach it with "
            "`cmforge skill apply BASE {} -o OUT.cmf`",
            source.path, source.path));
  }
  return {};
}

Result<std::shared_ptr<LanguageModel>> LoadModel(const Cli& cli, const OpenedSource& source,
                                                 const ComputeFlags& flags) {
  return LoadModelOver(cli, source, source.tensors, 0, flags, cli.common.MakePool());
}

Result<std::shared_ptr<LanguageModel>> LoadModelOver(const Cli& cli, const OpenedSource& source,
                                                     std::shared_ptr<const TensorSource> tensors,
                                                     uint64_t variant, const ComputeFlags& flags,
                                                     std::shared_ptr<ThreadPool> pool,
                                                     std::shared_ptr<engine::Profile> profile) {
  if (source.package) {
    if (profile == nullptr) return LoadPackage(cli, source, flags);
    return Fail(
        ErrorKind::kUnsupported,
        fmt::format("{}: --profile: programs of a Core ML package are not timed by operator", source.path));
  }
  CMF_CHECK(CheckRunnable(source));
  engine::ModelOptions options;
  options.mode = flags.compute == "exact" ? ComputeMode::kExact : ComputeMode::kFast;
  options.pool = std::move(pool);
  options.isa = cli.common.isa;
  CMF_TRY(const uint64_t identity, IdentityOf(source));
  options.identity = identity ^ variant;
  options.memory_limit = MemoryLimit();
  options.run = cli.Control();
  options.profile = std::move(profile);
  auto model = engine::Model::Load(std::move(tensors), *source.config, options);
  if (!model && !source.path.empty() && model.error().message.rfind(source.path, 0) != 0) {
    return Fail(std::move(model).error().In(source.path));
  }
  return model;
}

Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const OpenedSource& source) {
  if (source.tokenizer_json().empty()) {
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: no tokenizer: put its tokenizer.json beside the file, or use token ids "
                            "(`generate --tokens`)",
                            source.path));
  }
  return Tokenizer::FromJson(source.tokenizer_json(), source.tokenizer_path);
}

Result<std::vector<std::pair<std::string, std::string>>> SpecialTokens(const OpenedSource& source) {
  std::vector<std::pair<std::string, std::string>> tokens;
  if (source.format == SourceFormat::kCheckpoint || source.package) {
    const auto read = [&](const char* name) -> Json {
      const auto text = ReadTextFile(std::filesystem::path(source.path) / name);
      if (!text) return nullptr;
      const auto json = ParseJson(*text, name);
      return json ? *json : Json(nullptr);
    };
    return SpecialTokenVariables(read("tokenizer_config.json"), read("special_tokens_map.json"));
  }
  if (!source.chat || source.tokenizer_json().empty()) return tokens;
  CMF_TRY(const auto tokenizer, LoadTokenizer(source));
  const auto add = [&](const char* name, TokenId id) {
    if (const std::string_view text = tokenizer->TokenText(id); !text.empty())
      tokens.emplace_back(name, text);
  };
  if (source.chat->bos_token_id) add("bos_token", *source.chat->bos_token_id);
  if (!source.chat->eos_token_ids.empty()) add("eos_token", source.chat->eos_token_ids[0]);
  if (source.chat->pad_token_id) add("pad_token", *source.chat->pad_token_id);
  return tokens;
}

std::vector<TokenId> EosIds(const OpenedSource& source) {
  return source.chat ? source.chat->eos_token_ids : std::vector<TokenId>();
}

Result<std::vector<TokenId>> ParseTokenList(const std::string& text) {
  const bool is_file = text.starts_with('@');
  const std::string origin = is_file ? text.substr(1) : "tokens";
  std::string list = text;
  if (is_file) {
    if (origin.empty())
      return Fail(ErrorKind::kUsage, "tokens: '@' names no file: give @FILE, or ids like 1,2,3");
    CMF_TRY(list, ReadTextFile(origin));
  }
  const auto wrong = [&](const std::string& what) {
    return Fail(is_file ? ErrorKind::kCorrupt : ErrorKind::kUsage, fmt::format("{}: {}", origin, what));
  };
  std::vector<TokenId> ids;
  bool wants_id = false;  // a comma came last
  for (size_t at = 0; at < list.size();) {
    const size_t begin = list.find_first_not_of(" \t\r\n", at);
    if (begin == list.npos) break;
    if (list[begin] == ',') {
      if (wants_id || ids.empty())
        return wrong("a comma without an id before it: give whole numbers like 1,2,3");
      wants_id = true;
      at = begin + 1;
      continue;
    }
    const size_t end = std::min(list.find_first_of(", \t\r\n", begin), list.size());
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(list.data() + begin, list.data() + end, id);
    if (error != std::errc() || stop != list.data() + end || id < 0) {
      return wrong(fmt::format("'{}' is not a token id: give whole numbers like 1,2,3",
                               list.substr(begin, std::min<size_t>(end - begin, 40))));
    }
    ids.push_back(id);
    wants_id = false;
    at = end;
  }
  if (wants_id) return wrong("a comma at the end without an id behind it: give whole numbers like 1,2,3");
  if (ids.empty()) return wrong("no token ids: give some, like 1,2,3");
  return ids;
}

Result<void> CheckTokenIds(std::span<const TokenId> ids, const ModelConfig& config) {
  if (config.vocab_size == 0)
    return {};  // a package that does not say: its parts know, and judge once they are open
  for (const TokenId id : ids) {
    if (id < config.vocab_size) continue;
    return Fail(ErrorKind::kUsage,
                fmt::format("tokens: id {} is outside the vocabulary of {}: give ids from 0 to {}", id,
                            config.vocab_size, config.vocab_size - 1));
  }
  return {};
}

Result<int64_t> ContextLength(const ModelConfig& config, int64_t wanted) {
  const int64_t most = config.max_position_embeddings;
  if (wanted > most) {
    return Fail(
        ErrorKind::kLimit,
        fmt::format("--context: {} tokens are above the model's limit of {}: give less", wanted, most));
  }
  return wanted > 0 ? wanted : most;
}

}  // namespace cmforge::cli
