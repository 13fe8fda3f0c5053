// The MODEL argument that most commands take: a path, or nothing for the built-in default model.
#pragma once

#include <memory>
#include <string>

#include "cli/command.h"
#include "model/language_model.h"
#include "open/open_source.h"
#include "text/tokenizer.h"

namespace cmforge::engine {
class Profile;
}

namespace cmforge::cli {

struct ModelArgument {
  std::string path;  // empty: the default model

  /// Adds the positional argument.
  void AddTo(CLI::App* command);

  /// Opens it and logs its warnings. Fails: as OpenSource; kUnsupported when nothing is built in.
  Result<OpenedSource> Open(const Cli& cli) const;
};

/// How the running commands compute; each flag is added once, by AddComputeFlags.
struct ComputeFlags {
  std::string compute = "fast";
  std::string compute_units = "ne";  // of a Core ML package on a Mac
  std::string kv;                    // empty: f16, or f32 under --compute exact
  int64_t context = 0;

  void AddTo(CLI::App* command);
  void AddWithoutContextTo(CLI::App* command);
  Result<SequenceOptions> Sequence() const;
};

/// Refuses what is no model to run: a bare tensor file (kUsage), a standalone skill (kUnsupported, saying what to do).
Result<void> CheckRunnable(const OpenedSource& source);

/// Loads the engine over an opened source. The pool lives as long as the model.
Result<std::shared_ptr<LanguageModel>> LoadModel(const Cli& cli, const OpenedSource& source,
                                                 const ComputeFlags& flags);

/// The same over `tensors` in the place of the source's own (a skill in front of them), with a pool that may be
/// shared. `variant`, 0 for the source's own tensors, tells their snapshots apart. Every step is charged to `profile`,
/// which may be null.
Result<std::shared_ptr<LanguageModel>> LoadModelOver(const Cli& cli, const OpenedSource& source,
                                                     std::shared_ptr<const TensorSource> tensors,
                                                     uint64_t variant, const ComputeFlags& flags,
                                                     std::shared_ptr<ThreadPool> pool,
                                                     std::shared_ptr<engine::Profile> profile = nullptr);

/// Refuses (kUsage) an output name that is empty, or that is a file the source is read from.
Result<void> CheckOutput(const OpenedSource& source, const std::string& output);

/// Reads the source's tokenizer. Fails: kNotFound when it has none.
Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const OpenedSource& source);

/// The names and texts of a model's special tokens that a chat template may use (bos_token, ...): from
/// tokenizer_config.json of a checkpoint, from the ids of a .cmf's chat bundle.
Result<std::vector<std::pair<std::string, std::string>>> SpecialTokens(const OpenedSource& source);

/// End tokens of a model: those its chat bundle names.
[[nodiscard]] std::vector<TokenId> EosIds(const OpenedSource& source);

/// "1,2,3" (commas or blanks), or @FILE with the same. Fails: kUsage (of a file: kCorrupt, after its name) with the
/// piece that is not a token id.
Result<std::vector<TokenId>> ParseTokenList(const std::string& text);

/// Fails: kUsage naming the first id that the model's embedding has no row for.
Result<void> CheckTokenIds(std::span<const TokenId> ids, const ModelConfig& config);

/// The context a sequence of `config` will have: --context, or the model's own limit. Fails: kLimit above that limit.
Result<int64_t> ContextLength(const ModelConfig& config, int64_t wanted);

}  // namespace cmforge::cli
