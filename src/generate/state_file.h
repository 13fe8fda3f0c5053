// A saved sequence: the model's snapshot and the tokens that led to it, in one file.
//
//   ["CMFSTATE"][version u32][token count u32][checksum u64][token ids i32 ...][snapshot bytes ...]
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "model/language_model.h"

namespace cmforge {

struct SavedState {
  std::unique_ptr<Sequence> sequence;
  std::vector<TokenId> tokens;  // at least sequence->position() of them
};

/// Atomic. Fails: kIo; what Sequence::Snapshot gives.
Result<void> SaveState(const std::filesystem::path& path, const Sequence& sequence,
                       std::span<const TokenId> tokens);

/// Fails: kNotFound, kCorrupt (not a state file, cut short, changed anywhere), kUsage (of another model),
/// kUnsupported (another version).
Result<SavedState> LoadState(const std::filesystem::path& path, const LanguageModel& model);

}  // namespace cmforge
