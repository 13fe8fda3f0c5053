// Where a step's time goes, operator by operator. The clock always runs for exactly one operator, so the
// parts add up to the whole.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace cmforge::engine {

enum class Operator : uint8_t {
  kOutside,  // between steps; not reported
  kOther,    // checks, copies of logits
  kEmbedding,
  kNorms,  // and the sums of the residual stream
  kAttentionProducts,
  kAttention,  // rope, cache, attention itself
  kDeltaProducts,
  kDeltaConvolution,  // and gates
  kDeltaRule,
  kShortConv,
  kFeedForward,
  kRouter,
  kExperts,
  kSharedExpert,
  kHead,
};
inline constexpr size_t kOperatorCount = static_cast<size_t>(Operator::kHead) + 1;

[[nodiscard]] std::string_view OperatorName(Operator op);

/// Collects while it hangs at a model (ModelOptions::profile); only one thread may step meanwhile.
class Profile {
 public:
  /// Charges the time until now to the operator that ran, goes on with `next`, and returns the one that ran.
  Operator Switch(Operator next) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[static_cast<size_t>(current_)] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    ++calls_[static_cast<size_t>(next)];
    return std::exchange(current_, next);
  }
  void Return(Operator to) {
    Switch(to);
    --calls_[static_cast<size_t>(to)];
  }
  void Reset() { *this = Profile(); }

  struct Entry {
    Operator op;
    int64_t calls;
    double seconds;
  };
  /// Operators that ran, in the order of the enumeration.
  [[nodiscard]] std::vector<Entry> Entries() const;

 private:
  std::array<double, kOperatorCount> seconds_ = {};
  std::array<int64_t, kOperatorCount> calls_ = {};
  Operator current_ = Operator::kOutside;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// Charges its lifetime to `op`, less the scopes inside it; without a profile it does nothing.
class ProfileScope {
 public:
  ProfileScope(Profile* profile, Operator op) : profile_(profile) {
    if (profile_ != nullptr) before_ = profile_->Switch(op);
  }
  ~ProfileScope() {
    if (profile_ != nullptr) profile_->Return(before_);
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profile* profile_;
  Operator before_ = Operator::kOutside;
};

}  // namespace cmforge::engine
