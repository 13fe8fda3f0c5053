// Recorded answers of the reference library: reading them and comparing a tokenizer with them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace cmforge::tokenizer_cases {

/// The folder of recorded cases in tests/data.
std::filesystem::path Folder();

/// The folder of all recorded cases beside the source tree, which need not exist.
std::filesystem::path SharedFolder();

/// Loads a tokenizer.json or fails the test.
std::shared_ptr<const Tokenizer> Load(const std::filesystem::path& json);

/// Compares encoding, decoding and streaming with every line of a cases.jsonl; reports the first few
/// differences. Returns the number of lines compared.
int Compare(const Tokenizer& tokenizer, const std::filesystem::path& cases);

}  // namespace cmforge::tokenizer_cases
