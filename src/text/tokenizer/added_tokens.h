// Added tokens: strings that are cut out of the text before (or after) normalization.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace cmforge {

/// True for a token that a message of a stranger must not be able to write: marked special, or spelled like
/// <|this|> or <｜this｜>, as some files forget to mark them.
[[nodiscard]] bool IsMarkup(const AddedToken& token);

/// Finds added tokens in a text: leftmost first, of those the longest. Immutable.
class AddedTokenMatcher {
 public:
  /// A part of the text: an added token (id >= 0), or what lies between two (id == -1, not empty).
  struct Part {
    size_t begin, end;
    TokenId id;
  };

  AddedTokenMatcher() = default;

  static constexpr size_t kMaxContentBytes = 1024;  // bounds the work per byte of text

  /// `content` is what to look for (normalized for the second round), not empty, at most kMaxContentBytes
  /// long.
  void Add(std::string_view content, const AddedToken& token);
  /// After the last Add.
  void Finish();

  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  /// With `allow_special` false, special tokens are passed over as if they were not there.
  template <class F>
  Result<void> Split(std::string_view text, bool allow_special, const F& take) const {
    if (tokens_.empty()) return text.empty() ? Result<void>() : take(Part{0, text.size(), -1});
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const Found found = FindFrom(text, at, allow_special);
      if (!found.token) break;
      at = found.end;
      Part part{found.begin, found.end, found.token->id};
      if (!Stretch(*found.token, text, done, part)) continue;
      if (done < part.begin) CMF_CHECK(take(Part{done, part.begin, -1}));
      CMF_CHECK(take(part));
      done = part.end;
    }
    return done < text.size() ? take(Part{done, text.size(), -1}) : Result<void>();
  }

 private:
  struct Token {
    std::string content;
    TokenId id;
    bool single_word, lstrip, rstrip, is_markup;
  };
  struct Found {
    const Token* token = nullptr;
    size_t begin = 0, end = 0;
  };
  struct Node {
    int32_t token = -1;       // that ends here
    uint32_t first_edge = 0;  // children: edges_[first_edge, +edge_count), by ascending byte
    uint32_t edge_count = 0;
  };
  struct Edge {
    uint8_t byte;
    uint32_t child;
  };

  [[nodiscard]] Found FindFrom(std::string_view text, size_t at, bool allow_special) const;
  /// Applies single_word (false: not a match after all), lstrip and rstrip. White space up to `done` is
  /// taken.
  [[nodiscard]] static bool Stretch(const Token& token, std::string_view text, size_t done, Part& part);

  std::vector<Token> tokens_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  bool begins_[256] = {};  // bytes that some token begins with
};

}  // namespace cmforge
