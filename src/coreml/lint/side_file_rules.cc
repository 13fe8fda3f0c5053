// Files beside the parts: the tokenizer, and where a text ends.
#include "base/json.h"
#include "base/mapped_file.h"
#include "coreml/lint/package.h"
#include "text/tokenizer.h"

namespace cmforge::coreml::lint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBytes = 256 << 20;

Result<Json> ReadJson(const fs::path& file) {
  CMF_TRY(const std::string text, ReadTextFile(file, kMaxBytes));
  return ParseJson(text, file.string());
}

/// The reason without the file's name, which a finding has apart.
std::string ReasonOf(Error error, const fs::path& file) {
  const std::string prefix = file.string() + ": ";
  return error.message.starts_with(prefix) ? error.message.substr(prefix.size()) : std::move(error.message);
}

void CheckTokenizer(const fs::path& folder, Findings& findings) {
  std::error_code error;
  const auto is_there = [&](const char* name) {
    if (fs::exists(folder / name, error)) return true;
    findings.Add(rules::kNoTokenizer, name,
                 "not there: ANEMLL's runtimes read the tokenizer from the folder");
    return false;
  };
  if (is_there("tokenizer.json")) {
    const fs::path file = folder / "tokenizer.json";
    const auto read = [&]() -> Result<void> {
      CMF_TRY(const std::string text, ReadTextFile(file, kMaxBytes));
      const auto tokenizer = Tokenizer::FromJson(text, file.string());
      // A component that only we don't know is no fault of the file.
      if (!tokenizer && tokenizer.error().kind != ErrorKind::kUnsupported) return Fail(tokenizer.error());
      return {};
    };
    if (auto status = read(); !status)
      findings.Add(rules::kTokenizer, "tokenizer.json", ReasonOf(std::move(status).error(), file));
  }
  if (is_there("tokenizer_config.json")) {
    if (auto json = ReadJson(folder / "tokenizer_config.json"); !json)
      findings.Add(rules::kTokenizer, "tokenizer_config.json",
                   ReasonOf(std::move(json).error(), folder / "tokenizer_config.json"));
  }
}

/// Places where a configuration may say something: its top, and what it says of the text model.
std::vector<const Json*> PlacesOf(const Json& config) {
  std::vector<const Json*> places;
  if (!config.is_object()) return places;
  places.push_back(&config);
  const auto inner = config.find("text_config");
  if (inner != config.end() && inner->is_object()) places.push_back(&*inner);
  return places;
}

/// Ids that no logit stands for never come.
void CheckEnds(const char* part, const Json& config, std::optional<int64_t> vocab, Findings& findings) {
  for (const Json* place : PlacesOf(config)) {
    const auto end = place->find("eos_token_id");
    if (end == place->end() || end->is_null()) continue;
    for (const Json& id : end->is_array() ? *end : Json::array({*end})) {
      const bool is_id = id.is_number_integer() && (id.is_number_unsigned() || id.get<int64_t>() >= 0);
      if (is_id && (!vocab || id.get<uint64_t>() < static_cast<uint64_t>(*vocab))) continue;
      const std::string text = DumpJson(id).substr(0, 40);
      findings.Add(
          rules::kEndOutside, part,
          !is_id ? fmt::format("'eos_token_id' is {}, which is no token id", text)
                 : fmt::format("'eos_token_id' is {}, the vocabulary has ids 0 to {}", text, *vocab - 1));
    }
  }
}

}  // namespace

void CheckSideFiles(const fs::path& folder, std::optional<int64_t> vocab, Findings& findings) {
  CheckTokenizer(folder, findings);
  std::error_code error;
  if (!fs::exists(folder / "config.json", error)) {
    findings.Add(rules::kNoEnd, "config.json", "not there: the Swift runtime takes the end of text from it");
  } else if (auto config = ReadJson(folder / "config.json"); !config) {
    findings.Add(rules::kUnreadablePart, "config.json",
                 ReasonOf(std::move(config).error(), folder / "config.json"));
  } else {
    const auto end = config->is_object() ? config->find("eos_token_id") : config->end();
    const bool is_there =
        config->is_object() && end != config->end() && !end->is_null() && !(end->is_array() && end->empty());
    if (!is_there) {
      findings.Add(
          rules::kNoEnd, "config.json",
          "no eos_token_id at its top: the Swift runtime stops at tokens named <eos>, <|im_end|> and "
          "the like only");
    }
    for (const Json* place : PlacesOf(*config)) {
      const auto count = place->find("vocab_size");
      if (!vocab && count != place->end() && count->is_number_integer()) vocab = count->get<int64_t>();
    }
    CheckEnds("config.json", *config, vocab, findings);
  }
  if (!fs::exists(folder / "generation_config.json", error)) return;
  if (auto config = ReadJson(folder / "generation_config.json"); !config) {
    findings.Add(rules::kUnreadablePart, "generation_config.json",
                 ReasonOf(std::move(config).error(), folder / "generation_config.json"));
  } else {
    CheckEnds("generation_config.json", *config, vocab, findings);
  }
}

}  // namespace cmforge::coreml::lint
