// Matching added tokens: a trie, walked from each byte that a token may begin with.
#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/tokenizer/unicode_tables.h"
#include "text/tokenizer/utf8.h"

namespace cmforge {

bool IsMarkup(const AddedToken& token) {
  const std::string_view text = token.content;
  return token.special || (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<｜") && text.ends_with("｜>"));
}

void AddedTokenMatcher::Add(std::string_view content, const AddedToken& token) {
  tokens_.push_back(
      {std::string(content), token.id, token.single_word, token.lstrip, token.rstrip, IsMarkup(token)});
}

void AddedTokenMatcher::Finish() {
  if (tokens_.empty()) return;
  // Of the same content the first token counts.
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const Token& a, const Token& b) { return a.content < b.content; });
  struct Range {
    uint32_t node;
    size_t begin, end, depth;  // tokens_[begin, end) share `depth` bytes
  };
  nodes_.emplace_back();
  std::vector<Range> todo = {{0, 0, tokens_.size(), 0}};
  for (size_t next = 0; next < todo.size(); ++next) {
    Range range = todo[next];
    while (range.begin < range.end && tokens_[range.begin].content.size() == range.depth) {
      int32_t& token = nodes_[range.node].token;
      if (token < 0) token = static_cast<int32_t>(range.begin);
      ++range.begin;
    }
    nodes_[range.node].first_edge = static_cast<uint32_t>(edges_.size());
    while (range.begin < range.end) {
      const char byte = tokens_[range.begin].content[range.depth];
      size_t end = range.begin;
      while (end < range.end && tokens_[end].content[range.depth] == byte) ++end;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.push_back({static_cast<uint8_t>(byte), child});
      ++nodes_[range.node].edge_count;
      todo.push_back({child, range.begin, end, range.depth + 1});
      range.begin = end;
    }
  }
  for (const Token& token : tokens_) begins_[static_cast<uint8_t>(token.content[0])] = true;
}

AddedTokenMatcher::Found AddedTokenMatcher::FindFrom(std::string_view text, size_t at,
                                                     bool allow_special) const {
  for (; at < text.size(); ++at) {
    if (!begins_[static_cast<uint8_t>(text[at])]) continue;
    Found found;
    uint32_t node = 0;
    for (size_t end = at; end < text.size();) {
      const Node& here = nodes_[node];
      const auto byte = static_cast<uint8_t>(text[end]);
      const Edge* const first = edges_.data() + here.first_edge;
      const Edge* const last = first + here.edge_count;
      const Edge* edge =
          std::lower_bound(first, last, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
      if (edge == last || edge->byte != byte) break;
      node = edge->child;
      ++end;
      if (nodes_[node].token < 0) continue;
      const Token& token = tokens_[static_cast<size_t>(nodes_[node].token)];
      if (allow_special || !token.is_markup) found = {&token, at, end};
    }
    if (found.token) return found;
  }
  return {};
}

bool AddedTokenMatcher::Stretch(const Token& token, std::string_view text, size_t done, Part& part) {
  const char* const begin = text.data();
  if (token.single_word) {
    const bool joins_left =
        part.begin > 0 && unicode::IsTokenWord(utf8::Decode(utf8::Previous(begin + part.begin)));
    const bool joins_right = part.end < text.size() && unicode::IsTokenWord(utf8::Decode(begin + part.end));
    if (joins_left || joins_right) return false;
  }
  if (token.lstrip) {
    size_t left = part.begin;
    while (left > done) {
      const char* before = utf8::Previous(begin + left);
      if (!unicode::IsWhiteSpace(utf8::Decode(before))) break;
      left = static_cast<size_t>(before - begin);
    }
    part.begin = left;
  }
  if (token.rstrip) {
    while (part.end < text.size() && unicode::IsWhiteSpace(utf8::Decode(begin + part.end))) {
      part.end += static_cast<size_t>(utf8::LengthOf(text[part.end]));
    }
  }
  return true;
}

}  // namespace cmforge
