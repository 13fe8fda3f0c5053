// Unicode normalization: decompositions, combining classes and compositions come from utf8proc, except for
// the code points that the reference library's older tables do not know.
#include "text/tokenizer/unicode_normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "text/tokenizer/unicode_tables.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

// Vowel sign AI of Dives Akuru, U+11938, is made of these two; the older tables don't know.
constexpr int32_t kUnknownPairSecond = 0x11930;

bool IsInert(uint32_t c) { return c >= 0x7FD && unicode::Contains(unicode::kNormalizerInert, c); }

bool IsCompatibility(NormalForm form) { return form == NormalForm::kNfkc || form == NormalForm::kNfkd; }
bool IsComposing(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

int CombiningClass(uint32_t c) {
  if (c < 0x300 || IsInert(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

bool IsHangulSyllable(uint32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }

// Never changed by the form, never reordered, never joined with what stands before it.
bool IsSteady(uint32_t c, NormalForm form) {
  if (c < 0x80) return true;
  const bool is_composing = IsComposing(form);
  if (is_composing && !IsCompatibility(form) && c < 0x300) return true;
  if (IsHangulSyllable(c)) return is_composing;
  if (c >= 0x4E00 && c <= 0x9FFF) return true;  // unified ideographs
  if (c >= 0x3041 && c <= 0x3096) {             // Hiragana: the voiced ones decompose
    return is_composing ||
           utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->decomp_seqindex == UINT16_MAX;
  }
  if (is_composing && c >= 0x1100 && c <= 0x11FF) return c < 0x1160;  // Jamo vowels and finals join
  if (IsInert(c)) return true;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
         (!is_composing || property->comb_index == UINT16_MAX || property->comb_index < 0x8000);
}

void Decompose(uint32_t c, NormalForm form, std::vector<int32_t>& out) {
  if (c < 0x80 || IsInert(c)) {
    out.push_back(static_cast<int32_t>(c));
    return;
  }
  utf8proc_int32_t parts[32];
  int boundclass = UTF8PROC_BOUNDCLASS_START;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (IsCompatibility(form) ? UTF8PROC_COMPAT : 0));
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts,
                                                         std::size(parts), options, &boundclass);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(std::size(parts))) {
    out.push_back(static_cast<int32_t>(c));
    return;
  }
  out.insert(out.end(), parts, parts + count);
}

// Canonical order: runs of combining characters sorted by class, stably.
void Reorder(std::vector<int32_t>& text) {
  size_t i = 0;
  while (i < text.size()) {
    if (CombiningClass(static_cast<uint32_t>(text[i])) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && CombiningClass(static_cast<uint32_t>(text[end])) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(i),
                     text.begin() + static_cast<std::ptrdiff_t>(end), [](int32_t a, int32_t b) {
                       return CombiningClass(static_cast<uint32_t>(a)) <
                              CombiningClass(static_cast<uint32_t>(b));
                     });
    i = end;
  }
}

// utf8proc composes each stretch by itself; stretches are cut before whatever the older tables would not
// join.
void Compose(std::vector<int32_t>& text) {
  size_t write = 0, begin = 0;
  while (begin < text.size()) {
    size_t end = begin + 1;
    while (end < text.size() && text[end] != kUnknownPairSecond && !IsInert(static_cast<uint32_t>(text[end])))
      ++end;
    const utf8proc_ssize_t length =
        utf8proc_normalize_utf32(text.data() + begin, static_cast<utf8proc_ssize_t>(end - begin),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const size_t kept = length < 0 ? end - begin : static_cast<size_t>(length);
    std::memmove(text.data() + write, text.data() + begin, kept * sizeof(int32_t));
    write += kept;
    begin = end;
  }
  text.resize(write);
}

}  // namespace

bool IsSurelyNormal(std::string_view text, NormalForm form) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    uint64_t word;
    while (end - at >= 8 && (std::memcpy(&word, at, 8), (word & 0x8080808080808080u) == 0)) at += 8;
    if (at == end) break;
    if (!IsSteady(utf8::Next(at), form)) return false;
  }
  return true;
}

void AppendNormalized(std::string_view text, NormalForm form, std::string& out) {
  std::vector<int32_t> stretch;
  const char* at = text.data();
  const char* const end = at + text.size();
  // A steady character starts afresh: between two of them nothing moves or joins over the border. So only the
  // stretches with something unsteady in them, each with the steady character before it, are worked on.
  const char* copied = at;       // up to here `out` is done
  const char* last_steady = at;  // where the latest steady character begins
  while (at != end) {
    const char* here = at;
    if (IsSteady(utf8::Next(at), form)) {
      last_steady = here;
      continue;
    }
    const char* from = std::max(last_steady, copied);
    out.append(copied, static_cast<size_t>(from - copied));
    stretch.clear();
    const char* p = from;
    while (p != end) {
      const char* before = p;
      const uint32_t c = utf8::Next(p);
      if (before > here && IsSteady(c, form)) {
        p = before;
        break;
      }
      Decompose(c, form, stretch);
    }
    Reorder(stretch);
    if (IsComposing(form)) Compose(stretch);
    for (const int32_t c : stretch) utf8::Append(out, static_cast<uint32_t>(c));
    copied = at = last_steady = p;
  }
  out.append(copied, static_cast<size_t>(end - copied));
}

}  // namespace cmforge
