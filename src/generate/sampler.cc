// The sampler chain. Filters never sort the whole vocabulary: min-p and top-k cut it down first, and what
// top-p still needs is ordered only as far as the probability mass asks.
#include "generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cmforge {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

bool MoreProbable(float pa, TokenId a, float pb, TokenId b) { return pa != pb ? pa > pb : a < b; }

}  // namespace

void SamplingOptions::Apply(const RecommendedSampling& recommended) {
  if (recommended.temperature) temperature = *recommended.temperature;
  if (recommended.top_p) top_p = *recommended.top_p;
  if (recommended.top_k) top_k = *recommended.top_k;
  if (recommended.min_p) min_p = *recommended.min_p;
  if (recommended.typical_p) typical_p = *recommended.typical_p;
  if (recommended.repetition_penalty) repetition_penalty = *recommended.repetition_penalty;
  if (recommended.do_sample == false) temperature = 0;
}

Result<void> SamplingOptions::Check() const {
  const auto out_of_range = [](std::string_view field, double value, std::string_view range) {
    return Fail(ErrorKind::kUsage, fmt::format("sampling: {} is {}: {}", field, value, range));
  };
  if (!(temperature >= 0) || !std::isfinite(temperature))
    return out_of_range("temperature", temperature, "give 0 or more");
  if (!(top_p > 0 && top_p <= 1)) return out_of_range("top-p", top_p, "give a number above 0, at most 1");
  if (top_k < 0) return out_of_range("top-k", static_cast<double>(top_k), "give 0 (off) or more");
  if (!(min_p >= 0 && min_p <= 1)) return out_of_range("min-p", min_p, "give a number from 0 to 1");
  if (!(typical_p > 0 && typical_p <= 1))
    return out_of_range("typical-p", typical_p, "give a number above 0, at most 1");
  if (!(repetition_penalty > 0) || !std::isfinite(repetition_penalty)) {
    return out_of_range("rep-penalty", repetition_penalty, "give a number above 0");
  }
  if (!std::isfinite(presence_penalty))
    return out_of_range("presence-penalty", presence_penalty, "give a finite number");
  if (!std::isfinite(frequency_penalty))
    return out_of_range("frequency-penalty", frequency_penalty, "give a finite number");
  return {};
}

uint64_t SplitMix64::Next() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

TokenId ArgMax(std::span<const float> logits) {
  if (logits.empty()) return -1;
  // The largest of each block side by side, which compilers turn into vectors; only a block with a new one is searched.
  constexpr size_t kBlock = 1024, kLanes = 32;
  TokenId best = 0;
  float best_value = kNever;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::span<const float> block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    float largest[kLanes];
    std::fill_n(largest, kLanes, kNever);
    const size_t whole = block.size() / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes) {
      for (size_t k = 0; k < kLanes; ++k)
        largest[k] = block[i + k] > largest[k] ? block[i + k] : largest[k];  // never NaN
    }
    float value = best_value;
    for (const float l : largest) value = l > value ? l : value;
    for (const float l : block.subspan(whole)) value = l > value ? l : value;
    if (!(value > best_value)) continue;
    best_value = value;
    best = static_cast<TokenId>(begin + static_cast<size_t>(std::ranges::find(block, value) - block.begin()));
  }
  return best;
}

std::vector<std::pair<TokenId, float>> TopLogits(std::span<const float> logits, int64_t count) {
  std::vector<TokenId> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  const auto value = [&](TokenId id) {
    return std::isnan(logits[static_cast<size_t>(id)]) ? kNever : logits[static_cast<size_t>(id)];
  };
  const auto end = ids.begin() + std::clamp<int64_t>(count, 0, static_cast<int64_t>(ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(),
                    [&](TokenId a, TokenId b) { return MoreProbable(value(a), a, value(b), b); });
  std::vector<std::pair<TokenId, float>> top;
  for (auto it = ids.begin(); it != end; ++it) top.emplace_back(*it, logits[static_cast<size_t>(*it)]);
  return top;
}

double LogProbability(std::span<const float> logits, TokenId token) {
  double largest = kNever;
  for (const float l : logits) largest = std::max<double>(largest, l);
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - largest);
  return logits[static_cast<size_t>(token)] - largest - std::log(sum);
}

TokenId Sampler::Sample(std::span<const float> logits) {
  work_.assign(logits.begin(), logits.end());
  const auto in_vocabulary = [&](TokenId id) { return id >= 0 && static_cast<size_t>(id) < work_.size(); };
  for (const TokenId id : options_.suppress) {
    if (in_vocabulary(id)) work_[static_cast<size_t>(id)] = kNever;
  }
  const auto repetition = static_cast<float>(options_.repetition_penalty);
  if (repetition != 1 || options_.presence_penalty != 0 || options_.frequency_penalty != 0) {
    for (const auto& [id, count] : seen_) {
      if (!in_vocabulary(id)) continue;
      float& l = work_[static_cast<size_t>(id)];
      l = l > 0 ? l / repetition : l * repetition;
      l -= static_cast<float>(options_.presence_penalty + options_.frequency_penalty * count);
    }
  }
  const TokenId best = ArgMax(work_);
  if (options_.temperature < 1e-6 || best < 0) return best;
  const float largest = work_[static_cast<size_t>(best)];
  if (!std::isfinite(largest)) return ArgMax(logits);  // everything suppressed

  // Softmax at the temperature; probabilities stay relative to the largest until the sum is known.
  const auto inverse_temperature = static_cast<float>(1.0 / options_.temperature);
  double sum = 0;
  for (float& l : work_) {
    l = std::isnan(l) ? 0.0f : std::exp((l - largest) * inverse_temperature);
    sum += l;
  }
  const auto scale = static_cast<float>(1.0 / sum);
  const auto floor = static_cast<float>(options_.min_p);  // the largest has relative probability 1
  candidates_.clear();
  for (size_t i = 0; i < work_.size(); ++i) {
    if (work_[i] > 0 && work_[i] >= floor) candidates_.push_back({static_cast<TokenId>(i), work_[i] * scale});
  }
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < candidates_.size()) {
    sorted_ = candidates_;
    const auto kth = sorted_.begin() + options_.top_k - 1;
    std::nth_element(sorted_.begin(), kth, sorted_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.p > b.p; });
    const float limit = kth->p;
    std::erase_if(candidates_, [&](const Candidate& c) { return c.p < limit; });
  }
  if (options_.top_p < 1) KeepTopP(options_.top_p);
  if (options_.typical_p < 1) KeepTypical(options_.typical_p);
  float total = 0;
  for (const Candidate& c : candidates_) total += c.p;
  return Draw(total);
}

// The smallest set of most probable tokens whose mass reaches `limit`, back in the order of ids.
void Sampler::KeepTopP(double limit) {
  sorted_ = candidates_;
  const auto more_probable = [](const Candidate& a, const Candidate& b) {
    return MoreProbable(a.p, a.id, b.p, b.id);
  };
  double mass = 0;
  size_t kept = 0;
  for (size_t ready = 0; kept < sorted_.size() && mass < limit;) {
    if (kept == ready) {  // order the next stretch only when it is needed
      ready = std::min(sorted_.size(), std::max<size_t>(256, ready * 4));
      std::partial_sort(sorted_.begin() + static_cast<std::ptrdiff_t>(kept),
                        sorted_.begin() + static_cast<std::ptrdiff_t>(ready), sorted_.end(), more_probable);
    }
    mass += sorted_[kept++].p;
  }
  sorted_.resize(kept);
  std::sort(sorted_.begin(), sorted_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  std::swap(candidates_, sorted_);
}

// Locally typical sampling: tokens whose surprise is nearest to the entropy, until their mass reaches
// `limit`.
void Sampler::KeepTypical(double limit) {
  double mass = 0, entropy = 0;
  for (const Candidate& c : candidates_) mass += c.p;
  for (const Candidate& c : candidates_) entropy -= c.p / mass * std::log(c.p / mass);
  const auto oddness = [&](const Candidate& c) { return std::abs(-std::log(c.p / mass) - entropy); };
  sorted_ = candidates_;
  std::sort(sorted_.begin(), sorted_.end(), [&](const Candidate& a, const Candidate& b) {
    const double x = oddness(a), y = oddness(b);
    return x != y ? x < y : a.id < b.id;
  });
  double reached = 0;
  size_t kept = 0;
  while (kept < sorted_.size() && reached < limit * mass) reached += sorted_[kept++].p;
  sorted_.resize(kept);
  std::sort(sorted_.begin(), sorted_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  std::swap(candidates_, sorted_);
}

TokenId Sampler::Draw(float total) {
  const float at = random_.NextUniform() * total;
  float reached = 0;
  for (const Candidate& c : candidates_) {
    reached += c.p;
    if (at < reached) return c.id;
  }
  return candidates_.back().id;  // rounding left a gap at the end
}

}  // namespace cmforge
