// room: text
// A tokenizer.json of hostile bytes: loading it, and encoding and decoding with what could be loaded. The
// input is the file, or, when its first byte is not '{', a byte that picks a stored file and then a text for
// it.
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "text/tokenizer.h"

namespace {

using cmforge::TokenId;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

void Exercise(const cmforge::Tokenizer& tokenizer, std::string_view text) {
  for (const bool plain : {false, true}) {
    cmforge::TokenizeOptions options;
    options.allow_special_in_text = !plain;
    options.add_special = !plain;
    options.apply_truncation_and_padding = plain;
    const auto ids = tokenizer.Encode(text, options);
    if (!ids) continue;
    const std::string decoded = tokenizer.Decode(*ids, plain);
    Require(cmforge::IsUtf8(decoded));
    const auto stream = tokenizer.NewStream(plain);
    std::string streamed;
    for (const TokenId id : *ids) {
      const std::string chunk = stream->Push(id);
      Require(cmforge::IsUtf8(chunk));
      streamed += chunk;
    }
    streamed += stream->Finish();
    // Without U+FFFD no decoder takes anything back.
    if (decoded.find("\xEF\xBF\xBD") == std::string::npos &&
        streamed.find("\xEF\xBF\xBD") == std::string::npos) {
      Require(streamed == decoded);
    }
  }
  (void)tokenizer.EncodePair(text, "x y");
  std::vector<TokenId> some;
  for (TokenId id = -1; id < 300; id += 7) some.push_back(id);
  Require(cmforge::IsUtf8(tokenizer.Decode(some, false)));
}

constexpr std::string_view kFiles[] = {
    R"({"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},
        "decoder":{"type":"ByteLevel"},"added_tokens":[{"id":1,"content":"<|x|>","single_word":false,"lstrip":true,
        "rstrip":true,"normalized":true,"special":true}],
        "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"],"unk_token":"a","fuse_unk":true}})",
    R"({"normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"lowercase":true},
        "pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
        "model":{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##","max_input_chars_per_word":9,
        "vocab":{"u":0,"a":1,"##a":2,".":3}}})",
    R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"UnicodeScripts"},{"type":"Metaspace",
        "replacement":"▁","prepend_scheme":"first"}]},"decoder":{"type":"Metaspace","replacement":"▁"},
        "model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["u",0],["▁",-1],["a",-2],["▁a",-1.5]]}})",
    R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|\\s+"},
        "behavior":"Removed","invert":true},
        "model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1}}})",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (!input.empty() && input[0] != '{') {
    const size_t file = static_cast<uint8_t>(input[0]) % std::size(kFiles);
    static const std::vector<std::shared_ptr<const cmforge::Tokenizer>> tokenizers = [] {
      std::vector<std::shared_ptr<const cmforge::Tokenizer>> all;
      for (const std::string_view json : kFiles)
        all.push_back(cmforge::Tokenizer::FromJson(json, "stored").value());
      return all;
    }();
    Exercise(*tokenizers[file], input.substr(1));
    return 0;
  }
  if (const auto tokenizer = cmforge::Tokenizer::FromJson(input, "fuzz")) {
    Exercise(**tokenizer, "Hello, wörld's  <s>tok</s> 12345\n\n\t中文 \xF0\x9F\x98\x80 aaaaaaaab▁▁ ");
    Exercise(**tokenizer, input.substr(0, 512));
  }
  return 0;
}
