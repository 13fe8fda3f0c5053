// Every recorded answer of the reference library, token by token and byte by byte.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "text/tokenizer_cases.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;
using tokenizer_cases::Compare;
using tokenizer_cases::Folder;
using tokenizer_cases::Load;
using tokenizer_cases::SharedFolder;

TEST(TokenizerReference, AgreesOnEveryComponentByItself) {
  int lines = 0, folders = 0;
  for (const auto& entry : fs::directory_iterator(Folder())) {
    if (!entry.path().filename().string().starts_with("synth-")) continue;
    SCOPED_TRACE(entry.path().filename());
    const auto tokenizer = Load(entry.path() / "tokenizer.json");
    if (!tokenizer) continue;
    lines += Compare(*tokenizer, entry.path() / "cases.jsonl");
    ++folders;
  }
  EXPECT_GE(folders, 90);
  EXPECT_GE(lines, 2000);
}

TEST(TokenizerReference, AgreesOnASmallQwen3) {
  const auto tokenizer = Load(Folder() / "qwen3-small/tokenizer.json");
  ASSERT_TRUE(tokenizer);
  EXPECT_GE(Compare(*tokenizer, Folder() / "qwen3-small/cases.jsonl"), 600);
}

// Their licences keep these two out of the tree.
TEST(TokenizerReference, AgreesOnSmallLlama3AndGemma3) {
  if (!fs::exists(SharedFolder())) GTEST_SKIP() << SharedFolder() << " is not there";
  for (const char* name : {"llama3-small", "gemma3-small"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = Load(SharedFolder() / name / "tokenizer.json");
    ASSERT_TRUE(tokenizer);
    EXPECT_GE(Compare(*tokenizer, SharedFolder() / name / "cases.jsonl"), 600);
  }
}

// CMFORGE_TOKENIZERS names a folder with <name>/tokenizer.json of the full vocabularies, as the packages
// named in the first line of each cases.jsonl have them.
TEST(TokenizerReference, AgreesOnFullVocabularies) {
  const char* folder = std::getenv("CMFORGE_TOKENIZERS");
  if (!folder) GTEST_SKIP() << "CMFORGE_TOKENIZERS is not set";
  if (!fs::exists(SharedFolder())) GTEST_SKIP() << SharedFolder() << " is not there";
  int compared = 0;
  for (const char* name :
       {"qwen3", "gemma3", "llama3", "llama3_1", "mistral_v1", "gpt4o", "gptoss", "deepseek_v3"}) {
    const fs::path json = fs::path(folder) / name / "tokenizer.json";
    if (!fs::exists(json)) continue;
    SCOPED_TRACE(name);
    const auto tokenizer = Load(json);
    ASSERT_TRUE(tokenizer);
    EXPECT_GE(Compare(*tokenizer, SharedFolder() / name / "cases.jsonl"), 100);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace cmforge
