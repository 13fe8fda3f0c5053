// Comparing with recorded answers.
#include "text/tokenizer_cases.h"

#include <fstream>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"

namespace cmforge::tokenizer_cases {

namespace {

using Ids = std::vector<TokenId>;

// Ids beyond ours (the cases probe unknown ones) become -1, which is as unknown.
Ids IdsIn(const Json& json) {
  Ids ids;
  for (const Json& value : json) {
    const auto id = value.get<int64_t>();
    ids.push_back(id < 0x7FFFFFFF ? static_cast<TokenId>(id) : -1);
  }
  return ids;
}

class Comparer {
 public:
  Comparer(const Tokenizer& tokenizer, std::string name) : tokenizer_(tokenizer), name_(std::move(name)) {}

  void Line(int number, const Json& line) {
    number_ = number;
    if (line.contains("text")) Encode(line);
    if (line.contains("decode")) Decode(line);
    if (line.contains("stream")) Stream(line);
  }

 private:
  template <class T>
  void Expect(const T& got, const T& wanted, std::string_view what) {
    if (got == wanted) return;
    if (++differences_ > 5) return;
    ADD_FAILURE() << name_ << " line " << number_ << ", " << what << ":\n  got    "
                  << testing::PrintToString(got) << "\n  wanted " << testing::PrintToString(wanted);
  }

  Result<Ids> Run(const Json& line, bool add_special) {
    TokenizeOptions options;
    options.add_special = add_special;
    options.apply_truncation_and_padding = true;
    const auto text = line["text"].get<std::string>();
    if (line.contains("pair")) return tokenizer_.EncodePair(text, line["pair"].get<std::string>(), options);
    return tokenizer_.Encode(text, options);
  }

  void Encode(const Json& line) {
    const auto got = Run(line, true);
    const auto plain = Run(line, false);
    if (line.contains("error")) {
      Expect(got.has_value(), false, "an error");
      return;
    }
    if (!got || !plain) {
      ADD_FAILURE() << name_ << " line " << number_ << ": " << (got ? plain : got).error().message;
      return;
    }
    const Ids wanted = IdsIn(line["ids"]);
    Expect(*got, wanted, "ids of " + line["text"].dump());
    Expect(*plain, line.contains("ids_plain") ? IdsIn(line["ids_plain"]) : wanted,
           "ids_plain of " + line["text"].dump());
    DecodeBoth(line, wanted, line["text"].get<std::string>());
  }

  void Decode(const Json& line) {
    if (line.contains("error")) return;
    DecodeBoth(line, IdsIn(line["decode"]), "");
  }

  void DecodeBoth(const Json& line, const Ids& ids, const std::string& otherwise) {
    const auto text = [&](const char* key) {
      return line.contains(key) ? line[key].get<std::string>() : otherwise;
    };
    Expect(tokenizer_.Decode(ids, true), text("dec_skip"), "decoded without special tokens");
    Expect(tokenizer_.Decode(ids, false), text("dec_keep"), "decoded with special tokens");
    // Whatever the ids, the pieces of a stream make up the whole.
    for (const bool skip : {true, false}) {
      const auto stream = tokenizer_.NewStream(skip);
      std::string streamed;
      for (const TokenId id : ids) streamed += stream->Push(id);
      streamed += stream->Finish();
      const std::string whole = tokenizer_.Decode(ids, skip);
      // Where byte tokens are taken back, a stream can't follow.
      if (whole.find("\uFFFD") == std::string::npos) Expect(streamed, whole, "streamed");
    }
  }

  void Stream(const Json& line) {
    const Ids ids = IdsIn(line["stream"]);
    const bool skip = line["skip_special"].get<bool>();
    Expect(tokenizer_.Decode(ids, skip), line["full"].get<std::string>(), "the whole of a stream");
    const auto stream = tokenizer_.NewStream(skip);
    std::vector<std::string> got, wanted;
    std::string shown;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string chunk = stream->Push(ids[i]);
      // Once a decoder takes back what was shown, the record holds no chunks any more.
      const std::string now = tokenizer_.Decode(std::span(ids).first(i + 1), skip);
      if (line.contains("not_prefix_at") && !now.starts_with(shown)) {
        Expect(got, wanted, "the chunks of a stream until it was taken back");
        return;
      }
      got.push_back(chunk);
      wanted.push_back(line["chunks"][i].get<std::string>());
      shown += wanted.back();
    }
    Expect(got, wanted, "the chunks of a stream");
    Expect(stream->Finish(), line["tail"].get<std::string>(), "the tail of a stream");
  }

  const Tokenizer& tokenizer_;
  std::string name_;
  int number_ = 0;
  int differences_ = 0;
};

}  // namespace

std::filesystem::path Folder() { return std::filesystem::path(CMFORGE_TEST_DATA) / "text/tokenizers"; }

std::filesystem::path SharedFolder() {
  return std::filesystem::path(CMFORGE_SOURCE_DIR) / "../shared/fixtures/tokenizers";
}

std::shared_ptr<const Tokenizer> Load(const std::filesystem::path& json) {
  const auto file = MappedFile::Open(json);
  if (!file) {
    ADD_FAILURE() << file.error().message;
    return nullptr;
  }
  auto tokenizer = Tokenizer::FromJson(AsText(file->bytes()), json.string());
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    return nullptr;
  }
  return *tokenizer;
}

int Compare(const Tokenizer& tokenizer, const std::filesystem::path& cases) {
  Comparer comparer(tokenizer, cases.parent_path().filename().string());
  std::ifstream file(cases);
  EXPECT_TRUE(file.good()) << cases;
  std::string text;
  int lines = 0;
  for (int number = 1; std::getline(file, text); ++number) {
    if (text.empty()) continue;
    const auto line = ParseJson(text, "cases");
    if (!line) {
      ADD_FAILURE() << cases << " line " << number << ": " << line.error().message;
      return lines;
    }
    comparer.Line(number, *line);
    if (number > 1) ++lines;
  }
  return lines;
}

}  // namespace cmforge::tokenizer_cases
