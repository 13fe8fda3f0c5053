// The models of one package, opened, checked against the contract and joined: token ids go in, the state moves
// on, the last token's final hidden state and its logits come out.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "coreml/backend.h"
#include "coreml/package_meta.h"
#include "model/model_config.h"

namespace cmforge::coreml {

/// Shapes as the parts themselves have them; meta.yaml must agree where it says them.
struct PartShapes {
  int64_t hidden = 0, context = 0, batch = 0, vocab = 0;
  int64_t per_layer_inputs = 0;           // width of that tensor; 0: the package has none
  std::vector<int64_t> logits;            // width of each output of the head
  bool prefill_gives_last_token = false;  // [1, 1, H], final-normed
};

class PackagePartsRunner {
 public:
  /// Fails: kNotFound (parts: all missing ones named), kCorrupt (a part whose inputs, outputs or states are not
  /// those of the contract, or not those of meta.yaml: part, name, both shapes), kUnsupported (argmax inside
  /// the head), and what the backend finds.
  static Result<std::unique_ptr<PackagePartsRunner>> Open(const std::filesystem::path& folder,
                                                          const PackageMeta& meta, const Backend& backend);

  [[nodiscard]] const PartShapes& shapes() const { return shapes_; }
  Result<std::unique_ptr<PartState>> NewState() const { return chunks_[0].part->NewState(); }

  /// One call of every chunk for the tokens at positions p, p + 1, ...: one token through `infer`, a whole
  /// batch through `prefill`. Positions must lie in the context.
  Result<void> Run(std::span<const TokenId> tokens, int64_t position, PartState& state);

  /// Logits of the last token of the last Run, joined; after a prefill only where it gives the last token.
  Result<void> Logits(std::span<float> out);

 private:
  struct Embed {
    std::unique_ptr<PartFunction> function;
    size_t ids = 0, hidden = 0, per_layer = 0;
  };
  struct Call {  // a function of a chunk
    std::unique_ptr<PartFunction> function;
    size_t hidden = 0, positions = 0, mask = 0, current = 0, per_layer = 0, out = 0;
    bool takes_per_layer = false;
  };
  struct Chunk {
    std::unique_ptr<Part> part;
    Call infer, prefill;
  };

  Result<void> OpenEmbeddings(const Backend& backend, const std::filesystem::path& path);
  Result<void> OpenChunk(const Backend& backend, const std::filesystem::path& path, bool is_first,
                         bool is_last);
  Result<void> OpenHead(const Backend& backend, const std::filesystem::path& path, const PackageMeta& meta);
  Result<Call> OpenCall(const Part& part, const std::filesystem::path& path, const std::string& function);
  Result<void> CheckMeta(const PackageMeta& meta) const;

  PartShapes shapes_;
  std::unique_ptr<Part> embeddings_, head_part_;
  Embed embed_one_, embed_batch_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<PartFunction> head_;
  size_t head_input_ = 0;
  std::vector<size_t> head_outputs_;
  std::vector<float> hidden_, per_layer_, mask_, last_;
  std::vector<int32_t> positions_;
};

}  // namespace cmforge::coreml
