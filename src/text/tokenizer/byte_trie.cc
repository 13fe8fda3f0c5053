// Building the trie.
#include "text/tokenizer/byte_trie.h"

namespace cmforge {

void ByteTrie::Grow() {
  std::vector<Edge> old(edges_.empty() ? 1024 : edges_.size() * 2);
  old.swap(edges_);
  mask_ = edges_.size() - 1;
  for (const Edge& edge : old) {
    if (edge.child == 0) continue;
    size_t at = SlotFor(edge.parent, edge.byte);
    while (edges_[at].child != 0) at = (at + 1) & mask_;
    edges_[at] = edge;
  }
}

Result<ByteTrie> ByteTrie::Of(const Vocabulary& vocabulary) {
  ByteTrie trie;
  trie.tokens_.push_back(-1);
  trie.Grow();
  size_t longest = 0;
  vocabulary.ForEach([&](std::string_view token, TokenId id) {
    longest = std::max(longest, token.size());
    if (token.size() > kMaxTokenBytes) return;
    uint32_t node = 0;
    for (const char character : token) {
      const auto byte = static_cast<uint8_t>(character);
      uint32_t child = trie.Child(node, byte);
      if (child == kNone) {
        if (trie.tokens_.size() * 2 >= trie.edges_.size()) trie.Grow();
        child = static_cast<uint32_t>(trie.tokens_.size());
        trie.tokens_.push_back(-1);
        size_t at = trie.SlotFor(node, byte);
        while (trie.edges_[at].child != 0) at = (at + 1) & trie.mask_;
        trie.edges_[at] = {node, child, byte};
      }
      node = child;
    }
    if (node != 0) trie.tokens_[node] = id;
  });
  if (longest > kMaxTokenBytes) {
    return Fail(ErrorKind::kLimit, fmt::format("a token of {} bytes, at most {}", longest, kMaxTokenBytes));
  }
  return trie;
}

}  // namespace cmforge
