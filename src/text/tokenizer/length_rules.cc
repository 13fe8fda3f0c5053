// Truncation and padding.
#include "text/tokenizer/length_rules.h"

#include <algorithm>
#include <limits>

namespace cmforge {

namespace {

constexpr uint64_t kMaxPaddedLength = uint64_t{1} << 24;

tl::unexpected<Error> Wrong(std::string_view part, std::string_view key) {
  return Fail(ErrorKind::kCorrupt, fmt::format("{}: '{}' is missing or not as it should be", part, key));
}

/// nullopt when it is not there or no such number.
std::optional<uint64_t> CountIn(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

std::string TextIn(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<std::optional<Truncation>> Truncation::FromJson(const Json& json) {
  if (json.is_null()) return std::nullopt;
  if (!json.is_object()) return Fail(ErrorKind::kCorrupt, "truncation: not an object");
  Truncation truncation;
  const auto max_length = CountIn(json, "max_length");
  if (!max_length) return Wrong("truncation", "max_length");
  truncation.max_length_ = *max_length;
  const auto stride = CountIn(json, "stride");
  if (!stride) return Wrong("truncation", "stride");
  truncation.stride_ = *stride;
  const std::string strategy = TextIn(json, "strategy");
  if (strategy == "OnlyFirst") {
    truncation.strategy_ = Strategy::kOnlyFirst;
  } else if (strategy == "OnlySecond") {
    truncation.strategy_ = Strategy::kOnlySecond;
  } else if (strategy != "LongestFirst") {
    return Wrong("truncation", "strategy");
  }
  const std::string direction = json.contains("direction") ? TextIn(json, "direction") : "Right";
  if (direction != "Left" && direction != "Right") return Wrong("truncation", "direction");
  truncation.from_left_ = direction == "Left";
  return truncation;
}

Result<void> Truncation::Cut(std::vector<TokenId>& ids, uint64_t length) const {
  if (ids.size() <= length) return {};
  if (length > 0 && stride_ >= length) {
    return Fail(ErrorKind::kUsage,
                fmt::format("tokenizer: truncation: a stride of {} in a room of {}", stride_, length));
  }
  const auto surplus = static_cast<std::ptrdiff_t>(ids.size() - length);
  if (from_left_) {
    ids.erase(ids.begin(), ids.begin() + surplus);
  } else {
    ids.erase(ids.end() - surplus, ids.end());
  }
  return {};
}

Result<void> Truncation::Apply(std::vector<TokenId>& first, std::vector<TokenId>* second,
                               uint64_t added) const {
  // Where not even the special tokens fit, the reference computes a huge room and cuts nothing.
  if (added > max_length_) return {};
  const uint64_t room = max_length_ - added;
  const uint64_t n1 = first.size(), n2 = second ? second->size() : 0;
  if (room == 0) {
    first.clear();
    if (second) second->clear();
    return {};
  }
  if (n1 + n2 <= room) return {};
  const uint64_t surplus = n1 + n2 - room;
  if (strategy_ == Strategy::kLongestFirst) {
    if (!second) return Cut(first, room);
    uint64_t shorter = std::min(n1, n2);
    uint64_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
    if (shorter + longer > room) {
      shorter = room / 2;
      longer = shorter + room % 2;
    }
    CMF_CHECK(Cut(first, n1 > n2 ? longer : shorter));
    return Cut(*second, n1 > n2 ? shorter : longer);
  }
  std::vector<TokenId>* target = strategy_ == Strategy::kOnlyFirst ? &first : second;
  if (!target) return Fail(ErrorKind::kUsage, "tokenizer: truncation: OnlySecond without a second text");
  if (target->size() <= surplus) {
    return Fail(ErrorKind::kUsage,
                fmt::format("tokenizer: truncation: {} tokens, {} to be cut", target->size(), surplus));
  }
  return Cut(*target, target->size() - surplus);
}

Result<std::optional<Padding>> Padding::FromJson(const Json& json) {
  if (json.is_null()) return std::nullopt;
  if (!json.is_object()) return Fail(ErrorKind::kCorrupt, "padding: not an object");
  Padding padding;
  const auto strategy = json.find("strategy");
  if (strategy == json.end()) return Wrong("padding", "strategy");
  if (strategy->is_object()) {
    const auto fixed = CountIn(*strategy, "Fixed");
    if (!fixed) return Wrong("padding", "strategy");
    padding.fixed_ = *fixed;
  } else if (!strategy->is_string() || strategy->get<std::string>() != "BatchLongest") {
    return Wrong("padding", "strategy");
  }
  const std::string direction = TextIn(json, "direction");
  if (direction != "Left" && direction != "Right") return Wrong("padding", "direction");
  padding.on_left_ = direction == "Left";
  padding.multiple_of_ = CountIn(json, "pad_to_multiple_of").value_or(0);
  const auto id = CountIn(json, "pad_id");
  if (!id || *id > std::numeric_limits<TokenId>::max()) return Wrong("padding", "pad_id");
  padding.id_ = static_cast<TokenId>(*id);
  if (padding.fixed_ > kMaxPaddedLength || padding.multiple_of_ > kMaxPaddedLength) {
    return Fail(ErrorKind::kLimit,
                fmt::format("padding: to {} tokens, at most {}",
                            std::max(padding.fixed_, padding.multiple_of_), kMaxPaddedLength));
  }
  return padding;
}

void Padding::Apply(std::vector<TokenId>& ids) const {
  uint64_t length = fixed_ > 0 ? fixed_ : ids.size();
  if (multiple_of_ > 0 && length % multiple_of_ != 0) length += multiple_of_ - length % multiple_of_;
  if (ids.size() >= length) return;
  ids.insert(on_left_ ? ids.begin() : ids.end(), length - ids.size(), id_);
}

}  // namespace cmforge
