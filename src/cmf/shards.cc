// Shard names and the greedy split.
#include "cmf/shards.h"

#include <algorithm>
#include <charconv>
#include <tuple>

namespace cmforge::cmf {
namespace {

constexpr size_t kDigits = 5;

// Exactly five digits.
std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  if (text.size() != kDigits) return std::nullopt;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// The number between `prefix` and the next dot; takes both off `name`.
std::optional<int64_t> TakeIndex(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view rest = name.substr(prefix.size());
  int64_t index = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  if (error != std::errc() || index < 0 || end == rest.data() + rest.size() || *end != '.')
    return std::nullopt;
  name = rest.substr(static_cast<size_t>(end - rest.data()) + 1);
  return index;
}

// Sorts into canonical order. The experts of a layer lie role by role (all gate_proj, all up_proj, all
// down_proj), so that a layer's bank of one role is one region (spec 2.2).
struct OrderKey {
  int group = 0;
  int64_t layer = 0;
  std::string_view name;  // up to and without the expert number
  int role = 0;
  std::string_view role_name;
  int64_t expert = 0;

  auto operator<=>(const OrderKey&) const = default;
};

OrderKey KeyOf(std::string_view name) {
  OrderKey key;
  key.name = name;
  if (name == "model.embed_tokens.weight") return key;
  key.group = 1;
  if (name == "model.norm.weight") return key;
  key.group = 2;
  if (name == "lm_head.weight") return key;
  std::string_view rest = name;
  if (const auto layer = TakeIndex(rest, "model.layers.")) {
    key.group = 3;
    key.layer = *layer;
    key.name = rest;
    constexpr std::string_view kExperts = "mlp.experts.";
    std::string_view role = rest;
    if (const auto expert = TakeIndex(role, kExperts)) {
      key.name = kExperts;
      key.role = role.starts_with("gate_proj")   ? 0
                 : role.starts_with("up_proj")   ? 1
                 : role.starts_with("down_proj") ? 2
                                                 : 3;
      key.role_name = role;
      key.expert = *expert;
    }
    return key;
  }
  key.group = name.starts_with("model.mtp.") ? 4 : 5;
  return key;
}

std::vector<const TensorInfo*> Sorted(std::span<const TensorInfo> tensors) {
  std::vector<std::pair<OrderKey, const TensorInfo*>> order;
  order.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) order.emplace_back(KeyOf(tensor.name), &tensor);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const TensorInfo*> sorted;
  sorted.reserve(order.size());
  for (const auto& [key, tensor] : order) sorted.push_back(tensor);
  return sorted;
}

}  // namespace

std::optional<ShardName> ParseShardName(std::string_view filename) {
  constexpr std::string_view kSuffix = ".cmf", kOf = "-of-";
  if (!filename.ends_with(kSuffix)) return std::nullopt;
  filename.remove_suffix(kSuffix.size());
  if (filename.size() < 2 * kDigits + kOf.size() + 1) return std::nullopt;
  const std::string_view tail = filename.substr(filename.size() - (2 * kDigits + kOf.size() + 1));
  const auto no = ParseNumber(tail.substr(1, kDigits));
  const auto count = ParseNumber(tail.substr(1 + kDigits + kOf.size()));
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf || !no || !count || *no < 1 ||
      *no > *count)
    return std::nullopt;
  return ShardName{std::string(filename.substr(0, filename.size() - tail.size())), *no, *count};
}

std::string FormatShardName(std::string_view base, int64_t no, int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.cmf", base, no, count);
}

std::filesystem::path SiblingPath(const std::filesystem::path& any_shard, int64_t no) {
  const auto name = ParseShardName(any_shard.filename().string());
  return name ? any_shard.parent_path() / FormatShardName(name->base, no, name->count) : any_shard;
}

std::vector<std::string> CanonicalOrder(std::span<const TensorInfo> tensors) {
  std::vector<std::string> names;
  for (const TensorInfo* tensor : Sorted(tensors)) names.push_back(tensor->name);
  return names;
}

Result<std::vector<std::vector<std::string>>> PlanShards(std::span<const TensorInfo> tensors, double max_gb) {
  if (!(max_gb > 0))
    return Fail(ErrorKind::kUsage, fmt::format("a shard limit of {} GB is not positive", max_gb));
  const double limit = max_gb * 1e9;
  std::vector<std::vector<std::string>> shards(1);
  double filled = 0;
  for (const TensorInfo* tensor : Sorted(tensors)) {
    const double weight = 4.0 * static_cast<double>(ElementCount(tensor->shape).value_or(0));
    if (filled + weight > limit && !shards.back().empty()) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor->name);
    filled += weight;
  }
  if (static_cast<int64_t>(shards.size()) > kMaxShards) {
    return Fail(ErrorKind::kLimit, fmt::format("{} shards of {} GB, at most {} have names: raise the limit",
                                               shards.size(), max_gb, kMaxShards));
  }
  return shards;
}

}  // namespace cmforge::cmf
