// Streaming: text is given out as soon as it would be the text if the sequence ended now, except that nothing
// is given out while that text ends in U+FFFD, which most often is a character in the making.
#include "text/tokenizer/stream_decoder.h"

#include "text/tokenizer/utf8.h"

namespace cmforge {

namespace {

class Stream : public StreamDecoder {
 public:
  Stream(const TokenDecoder& decoder, std::function<std::optional<std::string_view>(TokenId)> text_of)
      : text_of_(std::move(text_of)), run_(decoder) {}

  [[nodiscard]] std::string Push(TokenId id) override {
    const auto token = text_of_(id);
    if (!token) return {};
    run_.Push(*token, certain_);
    Settle();
    const std::string tail = run_.Tail();
    std::string fresh = certain_ + tail;
    if (!fresh.starts_with(early_)) return {};
    fresh.erase(0, early_.size());
    if (fresh.empty() || fresh.ends_with(utf8::kReplacement)) return {};
    certain_.clear();
    early_ = tail;
    return fresh;
  }

  [[nodiscard]] std::string Finish() override {
    certain_ += run_.Tail();
    if (!Settle()) Forget();  // `early_` is longer than all there is
    return std::move(certain_);
  }

 private:
  // Takes what was given out early off the certain text. Returns whether all of it could be accounted for.
  bool Settle() {
    const size_t common = std::min(certain_.size(), early_.size());
    if (certain_.compare(0, common, early_, 0, common) != 0) {
      Forget();
      return true;
    }
    certain_.erase(0, common);
    early_.erase(0, common);
    return early_.empty();
  }

  // The decoder took back what looked certain (a run of byte tokens that turned out not to be UTF-8). It
  // can't be taken back here: as many characters as were given out too early are left out instead.
  void Forget() {
    const size_t characters = utf8::CountCodePoints(early_);
    size_t bytes = 0;
    for (size_t i = 0; i < characters && bytes < certain_.size(); ++i) {
      bytes += static_cast<size_t>(utf8::LengthOf(certain_[bytes]));
    }
    certain_.erase(0, bytes);
    early_.clear();
  }

  std::function<std::optional<std::string_view>(TokenId)> text_of_;
  TokenDecoder::Run run_;
  std::string certain_;  // text that is certain and not given out yet
  std::string early_;    // text given out that is not certain yet
};

}  // namespace

std::unique_ptr<StreamDecoder> NewStreamDecoder(
    const TokenDecoder& decoder, std::function<std::optional<std::string_view>(TokenId)> text_of) {
  return std::make_unique<Stream>(decoder, std::move(text_of));
}

}  // namespace cmforge
