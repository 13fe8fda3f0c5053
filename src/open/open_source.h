// Open anything that holds a model: a .cmf file (any shard of a set), a Hugging Face folder, a bare .safetensors
// file, a Core ML package folder. What comes out is the same for all: tensors under plain names, the model's description,
// its chat bundle and tokenizer text.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "cmf/file.h"
#include "coreml/package_meta.h"
#include "model/model_config.h"
#include "model/tensor_source.h"

namespace cmforge {

enum class SourceFormat : uint8_t { kCmf, kCheckpoint, kSafetensors, kCoremlPackage };
[[nodiscard]] std::string_view SourceFormatName(SourceFormat format);

struct OpenedSource {
  SourceFormat format = SourceFormat::kCmf;
  std::string path;
  std::shared_ptr<const TensorSource> tensors;  // of a Core ML package: none, see RequireTensors
  std::optional<ModelConfig> config;            // absent for a bare .safetensors file
  std::optional<ChatBundle> chat;
  RecommendedSampling sampling;
  std::shared_ptr<const cmf::File> cmf;                // kCmf only: sections, masks, skills
  std::shared_ptr<const coreml::PackageMeta> package;  // kCoremlPackage only
  std::shared_ptr<const MappedFile> tokenizer_file;    // where the tokenizer text lies, if outside `cmf`
  std::string tokenizer_path;                          // for messages
  std::vector<std::string> warnings;                   // complete lines

  /// tokenizer.json, verbatim; empty when there is none.
  [[nodiscard]] std::string_view tokenizer_json() const;
};

/// Fails: kNotFound (nothing there), kUsage (a folder or file that is none of these: says what was looked
/// for), and whatever the format's own reader finds. A .cmf without tokenizer takes tokenizer.json beside it
/// (spec 6).
Result<OpenedSource> OpenSource(const std::filesystem::path& path,
                                MappedFile::Mode mode = MappedFile::Mode::kMap);

/// For whoever works on tensors. Fails: kUnsupported for a Core ML package, whose weights are parts of programs.
Result<void> RequireTensors(const OpenedSource& source);

/// A .cmf file in memory, such as the built-in default model.
Result<OpenedSource> OpenSourceBytes(Bytes cmf, std::string name);

}  // namespace cmforge
