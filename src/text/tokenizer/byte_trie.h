// A trie of token strings, byte by byte, for models that look for the tokens a text begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer/hash.h"
#include "text/tokenizer/vocabulary.h"

namespace cmforge {

/// Immutable once built. Node 0 is the root.
class ByteTrie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kMaxTokenBytes = 2048;  // bounds the work per character of text

  /// Fails: kLimit (a token longer than kMaxTokenBytes).
  static Result<ByteTrie> Of(const Vocabulary& vocabulary);

  /// The node that `byte` leads to, or kNone.
  [[nodiscard]] uint32_t Child(uint32_t node, uint8_t byte) const {
    for (size_t at = SlotFor(node, byte);; at = (at + 1) & mask_) {
      const Edge& edge = edges_[at];
      if (edge.child == 0) return kNone;
      if (edge.parent == node && edge.byte == byte) return edge.child;
    }
  }
  [[nodiscard]] uint32_t Walk(uint32_t node, std::string_view bytes) const {
    for (const char byte : bytes) {
      if (node == kNone) break;
      node = Child(node, static_cast<uint8_t>(byte));
    }
    return node;
  }
  /// The id of the token that ends here, or -1.
  [[nodiscard]] TokenId TokenAt(uint32_t node) const { return tokens_[node]; }

 private:
  struct Edge {
    uint32_t parent, child;  // child 0: free
    uint8_t byte;
  };

  [[nodiscard]] size_t SlotFor(uint32_t node, uint8_t byte) const {
    return MixHash((uint64_t{node} << 8 | byte) ^ seed_, 0x9E3779B97F4A7C15u) & mask_;
  }
  void Grow();

  uint64_t seed_ = HashSeed();
  std::vector<Edge> edges_;
  size_t mask_ = 0;
  std::vector<TokenId> tokens_;  // by node
};

}  // namespace cmforge
