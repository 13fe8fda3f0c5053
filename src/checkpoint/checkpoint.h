// A Hugging Face checkpoint folder, opened: its tensors under plain names, its configuration, its tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/hf_config.h"
#include "model/tensor_source.h"

namespace cmforge {

struct Checkpoint {
  std::shared_ptr<const TensorSource> raw;      // names as in the files
  std::shared_ptr<const TensorSource> tensors;  // plain names (canonical_source.h)
  HfConfig config;                              // set right by the tensors where they disagree (head, MTP)
  std::shared_ptr<const MappedFile> tokenizer;  // tokenizer.json, or null
  std::vector<std::string> warnings;            // complete lines, for the caller's log; config's included

  [[nodiscard]] std::string_view tokenizer_json() const {
    return tokenizer ? AsText(tokenizer->bytes()) : std::string_view();
  }
};

/// Opens and checks: every tensor that the config calls for is there with the right shape (tensor_fit.h). No
/// weight is read. Presence decides where a flag and the tensors disagree, and a warning says so: without
/// lm_head.weight the embedding serves as head, a present lm_head.weight wins; an MTP head is there or not.
/// Checkpoints in MLX layout are recognized. Fails: as ParseHfConfig, SafetensorsSource::Open and
/// MakeCanonicalSource; kCorrupt naming a missing tensor, or tensor, shape and wanted shape.
Result<Checkpoint> OpenCheckpoint(const std::filesystem::path& folder,
                                  MappedFile::Mode mode = MappedFile::Mode::kMap);

}  // namespace cmforge
