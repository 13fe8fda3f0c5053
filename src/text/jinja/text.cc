// Pieces of strings and the builder.
#include "text/jinja/text.h"

#include <string.h>

#include <algorithm>

namespace cmforge::jinja {
namespace {

// The first range that ends behind `at`.
const TraceRange* RangeBehind(const Str& text, uint64_t at) {
  return std::upper_bound(text.traced.data(), text.traced.data() + text.traced.size(), at,
                          [](uint64_t x, const TraceRange& r) { return x < r.end; });
}

bool IsTracedAt(const Str& text, uint64_t at) {
  if (text.traced.empty()) return false;
  const TraceRange* r = RangeBehind(text, at);
  return r != text.traced.data() + text.traced.size() && r->begin <= at;
}

bool IsStripped(std::string_view text, uint64_t at, const std::string_view* chars) {
  uint64_t end = at;
  const char32_t c = DecodeUtf8(text, &end);
  if (chars == nullptr) return IsSpace(c);
  for (uint64_t i = 0; i < chars->size();) {
    if (DecodeUtf8(*chars, &i) == c) return true;
  }
  return false;
}

}  // namespace

Str Piece(Runtime& rt, const Str& text, uint64_t begin, uint64_t end) {
  Str piece{text.data + begin, end - begin};
  if (text.traced.empty() || begin == end) return piece;
  const TraceRange* first = RangeBehind(text, begin);
  const TraceRange* last = first;
  const TraceRange* const stop = text.traced.data() + text.traced.size();
  while (last != stop && last->begin < end) ++last;
  if (first == last) return piece;
  const std::span<TraceRange> ranges = rt.heap.NewArray<TraceRange>(static_cast<uint64_t>(last - first));
  for (TraceRange& r : ranges) {
    r = {std::max(first->begin, begin) - begin, std::min(first->end, end) - begin};
    ++first;
  }
  piece.traced = ranges;
  return piece;
}

Str Strip(Runtime& rt, const Str& text, const std::string_view* chars, bool left, bool right) {
  const std::string_view all = text.view();
  uint64_t begin = 0;
  uint64_t end = all.size();
  while (left && begin < end && IsStripped(all, begin, chars)) begin += CodePointSize(all, begin);
  while (right && begin < end) {
    const uint64_t last = PreviousCodePoint(all, end);
    if (!IsStripped(all, last, chars)) break;
    end = last;
  }
  return Piece(rt, text, begin, end);
}

uint64_t Find(std::string_view text, std::string_view needle, uint64_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (at == nullptr) return std::string_view::npos;
  return static_cast<uint64_t>(static_cast<const char*>(at) - text.data());
}

std::vector<uint64_t> FindFromBack(std::string_view text, std::string_view needle, uint64_t most) {
  std::vector<uint64_t> found;
  if (needle.empty()) return {text.size()};
  // The linear search exists forwards only, so both are turned around.
  const std::string turned(text.rbegin(), text.rend());
  const std::string turned_needle(needle.rbegin(), needle.rend());
  uint64_t from = 0;
  while (found.size() < most) {
    const uint64_t at = Find(turned, turned_needle, from);
    if (at == std::string_view::npos) break;
    from = at + needle.size();
    found.push_back(text.size() - from);
  }
  return found;
}

bool TextBuilder::Fits(uint64_t size) {
  if (overflowed_) return false;
  const auto limit = static_cast<uint64_t>(rt_.options.limits.memory_bytes);
  if (size > limit || text_.size() > limit - size) {
    overflowed_ = true;
    text_.clear();
    return false;
  }
  return true;
}

void TextBuilder::NoteTraced(uint64_t begin, uint64_t end) {
  if (begin == end) return;
  if (!traced_.empty() && traced_.back().end == begin) {
    traced_.back().end = end;
  } else {
    traced_.push_back({begin, end});
  }
}

void TextBuilder::Append(const Str& text) {
  if (!Fits(text.size)) return;
  const uint64_t at = text_.size();
  text_.append(text.view());
  for (const TraceRange& r : text.traced) NoteTraced(at + r.begin, at + r.end);
}

void TextBuilder::Append(const Str& text, uint64_t begin, uint64_t end) {
  if (text.traced.empty()) {
    Append(text.view().substr(begin, end - begin));
  } else {
    Append(Piece(rt_, text, begin, end));
  }
}

void TextBuilder::AppendFor(std::string_view text, const Str& source, uint64_t at) {
  AppendTraced(text, IsTracedAt(source, at));
}

void TextBuilder::AppendTraced(std::string_view text, bool is_traced) {
  if (!Fits(text.size())) return;
  const uint64_t at = text_.size();
  text_.append(text);
  if (is_traced) NoteTraced(at, text_.size());
}

void TextBuilder::AppendRepeated(std::string_view text, uint64_t times) {
  if (text.empty() || times == 0) return;
  if (times > static_cast<uint64_t>(rt_.options.limits.memory_bytes) / text.size())
    times = UINT64_MAX / text.size();
  if (!Fits(text.size() * times)) return;
  if (text.size() == 1) {
    text_.append(times, text[0]);
  } else {
    for (uint64_t i = 0; i < times; ++i) text_.append(text);
  }
}

Result<Value> TextBuilder::Finish(bool is_markup) {
  if (overflowed_) return rt_.LimitFault();
  CMF_CHECK(rt_.Reserve(text_.size() + traced_.size() * sizeof(TraceRange)));
  const std::string_view copy = rt_.heap.CopyText(text_);
  Str* text = rt_.heap.New<Str>(copy.data(), copy.size());
  if (!traced_.empty()) {
    const std::span<TraceRange> ranges = rt_.heap.NewArray<TraceRange>(traced_.size());
    std::copy(traced_.begin(), traced_.end(), ranges.begin());
    text->traced = ranges;
  }
  return Value::Of(text, is_markup);
}

Result<Value> Join(Runtime& rt, const Str& head, const Str& tail, bool is_markup) {
  if (head.traced.empty() && tail.traced.empty()) {
    // An appended tail costs its own size, the head only when it moves: counted by the heap.
    CMF_CHECK(rt.Reserve(tail.size));
    const int64_t before = rt.heap.used_bytes();
    const std::string_view text = rt.heap.JoinText(head.view(), tail.view());
    if (text.data() != head.data && !rt.Spend(static_cast<int64_t>(head.size / 16))) return rt.LimitFault();
    if (rt.heap.used_bytes() != before && !rt.Spend(0)) return rt.LimitFault();
    return rt.View(Str{text.data(), text.size()}, is_markup);
  }
  TextBuilder out(rt);
  out.Append(head);
  out.Append(tail);
  return out.Finish(is_markup);
}

void AppendEscaped(TextBuilder* out, const Str& text) {
  const std::string_view all = text.view();
  uint64_t plain = 0;
  for (uint64_t i = 0; i < all.size(); ++i) {
    std::string_view entity;
    switch (all[i]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '"':
        entity = "&#34;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      default:
        continue;
    }
    out->Append(text, plain, i);
    out->AppendFor(entity, text, i);
    plain = i + 1;
  }
  out->Append(text, plain, all.size());
}

}  // namespace cmforge::jinja
