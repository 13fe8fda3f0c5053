// Tokenizer speed: encoding and decoding English, other scripts and code, the worst texts, and loading.
// Without CMFORGE_TOKENIZERS (a folder with <name>/tokenizer.json) a vocabulary of Qwen's size and shape is
// made up.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "text/tokenizer.h"
#include "text/tokenizer/byte_level.h"

namespace {

using cmforge::Json;
using cmforge::TokenId;
using cmforge::Tokenizer;

// Words drawn as in natural text: the n-th most frequent word about once in n.
std::string EnglishLike(size_t bytes) {
  std::mt19937 random(1);
  const char* syllables[] = {"the", "an",  "re",  "ing",  "tion", "con", "er",  "al",  "st",  "or",
                             "in",  "pro", "ly",  "ed",   "ment", "un",  "ble", "com", "per", "is",
                             "to",  "of",  "and", "ness", "ful",  "a",   "i",   "cat"};
  std::vector<std::string> words;
  for (int i = 0; i < 30000; ++i) {
    std::string word;
    for (size_t n = 1 + random() % 4; n-- > 0;) word += syllables[random() % std::size(syllables)];
    words.push_back(word);
  }
  std::string text;
  while (text.size() < bytes) {
    const double u = std::uniform_real_distribution<>(0, 1)(random);
    const auto rank = static_cast<size_t>(std::pow(static_cast<double>(words.size()), u)) - 1;
    text += words[std::min(rank, words.size() - 1)];
    text += random() % 12 == 0 ? ", " : random() % 15 == 0 ? ".\n" : random() % 90 == 0 ? " 1987 " : " ";
  }
  return text;
}

std::string ChineseLike(size_t bytes) {
  std::mt19937 random(2);
  std::string text;
  while (text.size() < bytes) {
    const auto c =
        0x4E00 + static_cast<uint32_t>(std::pow(5000.0, std::uniform_real_distribution<>(0, 1)(random)));
    text += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
             static_cast<char>(0x80 | (c & 63))};
    if (random() % 20 == 0) text += "，";
  }
  return text;
}

// A byte-level vocabulary trained, roughly, on EnglishLike: merges of what is frequent, then of random pairs.
std::string MadeUpQwen() {
  Json file = Json::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex":
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
      "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "decoder": {"type": "ByteLevel"}})");
  std::vector<std::string> tokens;
  std::map<std::string, bool> known;
  Json merges = Json::array();
  const auto add = [&](const std::string& token) {
    if (!known.emplace(token, true).second) return false;
    tokens.push_back(token);
    return true;
  };
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    cmforge::byte_level::AppendSpelling(std::string(1, static_cast<char>(byte)), spelled);
    add(spelled);
  }
  const std::string text = EnglishLike(1 << 21);
  for (size_t at = 0; at < text.size();) {  // every prefix of every word
    size_t end = at + 1;
    while (end < text.size() && std::isalpha(static_cast<unsigned char>(text[end]))) ++end;
    std::string prefix;
    for (size_t i = at; i < end; ++i) {
      std::string letter;
      cmforge::byte_level::AppendSpelling(text.substr(i, 1), letter);
      if (!prefix.empty() && add(prefix + letter)) merges.push_back({prefix, letter});
      prefix += letter;
    }
    at = end;
  }
  std::mt19937 random(3);
  while (tokens.size() < 151643) {
    const std::string& left = tokens[random() % tokens.size()];
    const std::string& right = tokens[random() % tokens.size()];
    if (left.size() + right.size() > 24) continue;
    std::string pair[2] = {left, right};
    if (add(left + right)) merges.push_back({pair[0], pair[1]});
  }
  Json vocab = Json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocab[tokens[i]] = i;
  file["model"] = {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}};
  return file.dump();
}

const std::string& FileText(const std::string& name) {
  static std::map<std::string, std::string> texts;
  std::string& text = texts[name];
  if (!text.empty()) return text;
  if (const char* folder = std::getenv("CMFORGE_TOKENIZERS")) {
    if (auto file = cmforge::ReadTextFile(std::filesystem::path(folder) / name / "tokenizer.json"))
      text = *file;
  }
  if (text.empty() && name == "qwen3") text = MadeUpQwen();
  return text;
}

std::shared_ptr<const Tokenizer> Load(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
  auto& tokenizer = loaded[name];
  if (!tokenizer && !FileText(name).empty()) tokenizer = Tokenizer::FromJson(FileText(name), name).value();
  return tokenizer;
}

void Encode(benchmark::State& state, const std::string& name, const std::string& text) {
  const auto tokenizer = Load(name);
  if (!tokenizer) return state.SkipWithError("set CMFORGE_TOKENIZERS");
  size_t tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->Encode(text);
    tokens = ids->size();
    benchmark::DoNotOptimize(ids->data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}

void Decode(benchmark::State& state, const std::string& name, const std::string& text) {
  const auto tokenizer = Load(name);
  if (!tokenizer) return state.SkipWithError("set CMFORGE_TOKENIZERS");
  const auto ids = *tokenizer->Encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Decode(ids));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}

void LoadFile(benchmark::State& state, const std::string& name) {
  const std::string& text = FileText(name);
  if (text.empty()) return state.SkipWithError("set CMFORGE_TOKENIZERS");
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::FromJson(text, name).value());
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

std::string TextFromFileOr(std::string made_up) {
  if (const char* path = std::getenv("CMFORGE_BENCH_TEXT")) {
    if (auto text = cmforge::ReadTextFile(path)) return *text;
  }
  return made_up;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string english = TextFromFileOr(EnglishLike(4 << 20));
  const std::string chinese = ChineseLike(1 << 20);
  for (const char* name : {"qwen3", "llama3", "gemma3", "gptoss", "deepseek_v3", "mistral_v1"}) {
    const std::string tokenizer = name;
    benchmark::RegisterBenchmark(("encode/" + tokenizer + "/english").c_str(),
                                 [=](benchmark::State& s) { Encode(s, tokenizer, english); });
    benchmark::RegisterBenchmark(("encode/" + tokenizer + "/chinese").c_str(),
                                 [=](benchmark::State& s) { Encode(s, tokenizer, chinese); });
    benchmark::RegisterBenchmark(("encode/" + tokenizer + "/one_letter").c_str(), [=](benchmark::State& s) {
      Encode(s, tokenizer, std::string(1 << 20, 'a'));
    });
    benchmark::RegisterBenchmark(("decode/" + tokenizer + "/english").c_str(),
                                 [=](benchmark::State& s) { Decode(s, tokenizer, english); });
    benchmark::RegisterBenchmark(("load/" + tokenizer).c_str(), [=](benchmark::State& s) {
      LoadFile(s, tokenizer);
    })->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
