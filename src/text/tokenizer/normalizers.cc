// The normalizers.
#include "text/tokenizer/normalizers.h"

#include <utf8proc.h>

#include <functional>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/precompiled.h"
#include "text/tokenizer/unicode_normalize.h"
#include "text/tokenizer/unicode_tables.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

/// A normalizer that maps each character by itself. `Map` appends what stands for `c`; a character's text
/// comes from where the character came from.
template <class Map>
Piece MapCharacters(const Piece& in, std::string& buffer, const Map& map) {
  buffer.clear();
  buffer.reserve(in.text.size());
  const char* at = in.text.data();
  const char* const end = at + in.text.size();
  size_t from_start = 0;
  while (at != end) {
    const size_t offset = static_cast<size_t>(at - in.text.data());
    const uint32_t c = utf8::Next(at);
    map(c, buffer);
    if (offset < in.from_start) from_start = buffer.size();
  }
  if (buffer == in.text) return in;
  return {buffer, from_start};
}

uint32_t LowerOf(uint32_t c) {
  // Pairs younger than utf8proc's tables.
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  switch (c) {
    case 0xA7CB:
      return 0x264;
    case 0xA7DC:
      return 0x19B;
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA:
      return c + 1;
    default:
      return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

void AppendLower(uint32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {  // the one character whose lower case is two
    out += "i\xCC\x87";
  } else {
    utf8::Append(out, LowerOf(c));
  }
}

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}

  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch&) const override {
    if (IsSurelyNormal(in.text, form_)) return in;
    buffer.clear();
    if (in.from_start == 0) {
      AppendNormalized(in.text, form_, buffer);
      return Piece{buffer, 0};
    }
    // What the first character becomes; marks that follow it may join, which keeps its place.
    std::string start;
    AppendNormalized(in.text.substr(0, in.from_start), form_, start);
    AppendNormalized(in.text, form_, buffer);
    return Piece{buffer, std::min(start.size(), buffer.size())};
  }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch&) const override {
    return MapCharacters(in, buffer, AppendLower);
  }
};

class Nmt : public Normalizer {
 public:
  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch&) const override {
    return MapCharacters(in, buffer, [](uint32_t c, std::string& out) {
      const bool is_removed =
          (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      const bool is_blank = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                            (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                            c == 0xFEFF || c == 0xFFFD;
      if (!is_removed) utf8::Append(out, is_blank ? ' ' : c);
    });
  }
};

class StripAccents : public Normalizer {
 public:
  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch&) const override {
    return MapCharacters(in, buffer, [](uint32_t c, std::string& out) {
      if (c < 0x300 || !unicode::Contains(unicode::kAccentMarks, c)) utf8::Append(out, c);
    });
  }
};

class BytesToAlphabet : public Normalizer {
 public:
  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch&) const override {
    buffer.clear();
    byte_level::AppendSpelling(in.text.substr(0, in.from_start), buffer);
    const size_t from_start = buffer.size();
    byte_level::AppendSpelling(in.text.substr(in.from_start), buffer);
    return Piece{buffer, from_start};
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  Result<Piece> Apply(const Piece& in, std::string&, PatternScratch&) const override {
    const char* begin = in.text.data();
    const char* end = begin + in.text.size();
    while (left_ && begin != end && unicode::IsWhiteSpace(utf8::Decode(begin)))
      begin += utf8::LengthOf(*begin);
    while (right_ && begin != end && unicode::IsWhiteSpace(utf8::Decode(utf8::Previous(end)))) {
      end = utf8::Previous(end);
    }
    return in.Sub(static_cast<size_t>(begin - in.text.data()), static_cast<size_t>(end - in.text.data()));
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}

  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch&) const override {
    if (in.text.empty() || text_.empty()) return in;
    buffer = text_;
    buffer += in.text;
    return Piece{buffer, in.from_start == 0 ? 0 : in.from_start + text_.size()};
  }

 private:
  std::string text_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch& scratch) const override {
    if (in.text.empty()) return in;
    Pattern::Matches matches(pattern_, in.text, scratch);
    CMF_TRY(auto match, matches.Next());
    if (!match) return in;
    buffer.clear();
    size_t done = 0;
    size_t from_start = 0;
    const auto keep_until = [&](size_t end) {
      const std::string_view kept = in.text.substr(done, end - done);
      if (done < in.from_start) from_start = buffer.size() + std::min(kept.size(), in.from_start - done);
      buffer += kept;
    };
    while (match) {
      keep_until(match.begin);
      buffer += content_;
      // The content stands where the last character that it replaces stood.
      const bool is_at_start = match.end == 0 || match.end <= in.from_start;
      if (is_at_start && in.from_start > 0) from_start = buffer.size();
      done = match.end;
      CMF_TRY(match, matches.Next());
    }
    keep_until(in.text.size());
    return Piece{buffer, from_start};
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Bert : public Normalizer {
 public:
  struct Options {
    bool clean_text, handle_chinese_chars, strip_accents, lowercase;
  };
  explicit Bert(Options options) : options_(options) {}

  Result<Piece> Apply(const Piece& in, std::string& buffer, PatternScratch& scratch) const override {
    if (!options_.strip_accents) {
      return MapCharacters(in, buffer,
                           [&](uint32_t c, std::string& out) { Clean(c, options_.lowercase, out); });
    }
    std::string cleaned, decomposed;
    Piece piece = MapCharacters(in, cleaned, [&](uint32_t c, std::string& out) { Clean(c, false, out); });
    CMF_TRY(piece, UnicodeForm(NormalForm::kNfd).Apply(piece, decomposed, scratch));
    const Piece last = MapCharacters(piece, buffer, [&](uint32_t c, std::string& out) {
      if (c >= 0x300 && unicode::Contains(unicode::kBertAccents, c)) return;
      options_.lowercase ? AppendLower(c, out) : utf8::Append(out, c);
    });
    if (last.text.data() == buffer.data() || last.text.data() == in.text.data()) return last;
    buffer = last.text;  // it lay in a buffer of ours
    return Piece{buffer, last.from_start};
  }

 private:
  void Clean(uint32_t c, bool lowercase, std::string& out) const {
    if (options_.clean_text && (c < 0x80 ? (c < 0x20 && c != 9 && c != 10 && c != 13) || c == 0x7F
                                         : unicode::Contains(unicode::kBertControl, c))) {
      return;
    }
    if (options_.clean_text && unicode::IsWhiteSpace(c)) {
      out.push_back(' ');
    } else if (options_.handle_chinese_chars && c >= 0x3400 && unicode::Contains(unicode::kBertChinese, c)) {
      out.push_back(' ');
      utf8::Append(out, c);
      out.push_back(' ');
    } else if (lowercase) {
      AppendLower(c, out);
    } else {
      utf8::Append(out, c);
    }
  }

  Options options_;
};

using Steps = std::vector<std::unique_ptr<const Normalizer>>;

Result<void> AddSteps(const Json& json, Steps& steps) {
  CMF_TRY(const Component component, Component::Of(json, "normalizer"));
  const std::string_view type = component.type();
  const auto add = [&](auto normalizer) -> Result<void> {
    steps.push_back(std::make_unique<const decltype(normalizer)>(std::move(normalizer)));
    return {};
  };
  if (type == "Sequence") {
    CMF_TRY(const Json* list, component.Array("normalizers"));
    for (const Json& step : *list) CMF_CHECK(AddSteps(step, steps));
    return {};
  }
  if (type == "NFC") return add(UnicodeForm(NormalForm::kNfc));
  if (type == "NFD") return add(UnicodeForm(NormalForm::kNfd));
  if (type == "NFKC") return add(UnicodeForm(NormalForm::kNfkc));
  if (type == "NFKD") return add(UnicodeForm(NormalForm::kNfkd));
  if (type == "Lowercase") return add(Lowercase());
  if (type == "Nmt") return add(Nmt());
  if (type == "StripAccents") return add(StripAccents());
  if (type == "ByteLevel") return add(BytesToAlphabet());
  if (type == "Strip") {
    CMF_TRY(const bool left, component.Bool("strip_left"));
    CMF_TRY(const bool right, component.Bool("strip_right"));
    return add(Strip(left, right));
  }
  if (type == "Prepend") {
    CMF_TRY(std::string text, component.String("prepend"));
    return add(Prepend(std::move(text)));
  }
  if (type == "Replace") {
    CMF_TRY(Pattern pattern, component.PatternField("pattern"));
    CMF_TRY(std::string content, component.String("content"));
    return add(Replace(std::move(pattern), std::move(content)));
  }
  if (type == "BertNormalizer") {
    Bert::Options options{};
    CMF_TRY(options.clean_text, component.Bool("clean_text"));
    CMF_TRY(options.handle_chinese_chars, component.Bool("handle_chinese_chars"));
    CMF_TRY(options.lowercase, component.Bool("lowercase"));
    CMF_TRY(options.strip_accents, component.Bool("strip_accents", options.lowercase));
    return add(Bert(options));
  }
  if (type == "Precompiled") {
    CMF_TRY(const std::string map, component.String("precompiled_charsmap"));
    auto precompiled = Precompiled::FromBase64(map);
    if (!precompiled) return Fail(std::move(precompiled.error()).In(component.name()));
    return add(std::move(*precompiled));
  }
  return component.UnknownType();
}

}  // namespace

Result<NormalizerChain> NormalizerChain::FromJson(const Json& json) {
  NormalizerChain chain;
  if (!json.is_null()) CMF_CHECK(AddSteps(json, chain.steps_));
  return chain;
}

Result<Piece> NormalizerChain::Apply(Piece in, std::string (&buffers)[2], PatternScratch& scratch) const {
  int free = 0;
  for (const auto& step : steps_) {
    CMF_TRY(in, step->Apply(in, buffers[free], scratch));
    const char* data = in.text.data();
    const std::string& used = buffers[free];
    if (data >= used.data() && data <= used.data() + used.size()) free = 1 - free;
  }
  return in;
}

}  // namespace cmforge
