// The rope kinds, one function each.
#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cmforge {
namespace {

std::vector<double> PlainFrequencies(double theta, int64_t half, int64_t dims) {
  std::vector<double> out(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    out[static_cast<size_t>(i)] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
  }
  return out;
}

void StretchLlama3(const RopeConfig& config, double original, std::vector<double>& frequencies) {
  for (double& f : frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / f;
    const double smooth = std::clamp(
        (original / wavelength - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor),
        0.0, 1.0);
    f = (1.0 - smooth) * f / config.factor + smooth * f;
  }
}

double YarnMagnitude(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

/// Returns the attention factor.
double StretchYarn(const RopeConfig& config, double original, std::vector<double>& frequencies) {
  const auto rotated = static_cast<double>(2 * frequencies.size());
  const auto bound = [&](double rotations) {
    return rotated * std::log(original / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(config.theta));
  };
  double low = bound(config.beta_fast), high = bound(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotated - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] * (1.0 - ramp) + frequencies[i] / config.factor * ramp;
  }
  if (config.attention_factor) return *config.attention_factor;
  const double m = config.mscale.value_or(0), m_all = config.mscale_all_dim.value_or(0);
  if (m != 0 && m_all != 0) return YarnMagnitude(config.factor, m) / YarnMagnitude(config.factor, m_all);
  return YarnMagnitude(config.factor, 1.0);
}

}  // namespace

Result<RopeFrequencies> RopeFrequencies::Make(const RopeConfig& config, int64_t head_dim,
                                              int64_t max_position_embeddings, int64_t context_length) {
  RopeFrequencies rope;
  if (!(config.theta > 0) || !std::isfinite(config.theta)) {
    return Fail(ErrorKind::kCorrupt, fmt::format("rope: theta {} is not positive", config.theta));
  }
  if (!(config.factor > 0) || !std::isfinite(config.factor)) {
    return Fail(ErrorKind::kCorrupt, fmt::format("rope: factor {} is not positive", config.factor));
  }
  if (!(config.partial_rotary_factor >= 0 && config.partial_rotary_factor <= 1)) {
    return Fail(ErrorKind::kCorrupt, fmt::format("rope: partial_rotary_factor {} is not within 0..1",
                                                 config.partial_rotary_factor));
  }
  const auto dims = static_cast<int64_t>(static_cast<double>(head_dim) * config.partial_rotary_factor);
  const int64_t original = config.original_max_position_embeddings > 0
                               ? config.original_max_position_embeddings
                               : max_position_embeddings;
  if (config.kind == RopeKind::kProportional) {
    // The pairs span the whole head; those past the rotated share have frequency 0.
    if (head_dim % 2 != 0) {
      return Fail(ErrorKind::kUnsupported, fmt::format("rope: a head of {} dims has no pairs", head_dim));
    }
    rope.half_ = head_dim / 2;
    rope.frequencies_ = PlainFrequencies(config.theta, rope.half_, head_dim);
    for (auto& f : rope.frequencies_) f /= config.factor;
    std::fill(rope.frequencies_.begin() + dims / 2, rope.frequencies_.end(), 0.0);
    return rope;
  }
  if (dims % 2 != 0)
    return Fail(ErrorKind::kUnsupported, fmt::format("rope: {} rotated dims are an odd number", dims));
  rope.half_ = dims / 2;
  rope.frequencies_ = PlainFrequencies(config.theta, rope.half_, dims);
  switch (config.kind) {
    case RopeKind::kDefault:
    case RopeKind::kProportional:
      break;
    case RopeKind::kLinear:
      for (auto& f : rope.frequencies_) f /= config.factor;
      break;
    case RopeKind::kDynamic:
      rope.is_dynamic_ = rope.half_ > 1;  // the exponent d / (d - 2) needs more than one pair
      rope.theta_ = config.theta;
      rope.factor_ = config.factor;
      rope.original_length_ = original;
      break;
    case RopeKind::kLlama3:
      if (original <= 0 || !(config.high_freq_factor > config.low_freq_factor)) {
        return Fail(ErrorKind::kCorrupt,
                    fmt::format("rope: llama3 with original_max_position_embeddings {}, low_freq_factor {}, "
                                "high_freq_factor {}",
                                original, config.low_freq_factor, config.high_freq_factor));
      }
      StretchLlama3(config, static_cast<double>(original), rope.frequencies_);
      break;
    case RopeKind::kYarn:
      if (original <= 0 || !(config.beta_fast > 0) || !(config.beta_slow > 0) || config.theta == 1.0) {
        return Fail(
            ErrorKind::kCorrupt,
            fmt::format("rope: yarn with original_max_position_embeddings {}, beta_fast {}, beta_slow {}",
                        original, config.beta_fast, config.beta_slow));
      }
      rope.magnitude_ = StretchYarn(config, static_cast<double>(original), rope.frequencies_);
      break;
    case RopeKind::kLongRope: {
      const auto& factors = context_length > original ? config.long_factor : config.short_factor;
      if (static_cast<int64_t>(factors.size()) != rope.half_) {
        return Fail(ErrorKind::kCorrupt, fmt::format("rope: longrope has {} factors for {} rotated pairs",
                                                     factors.size(), rope.half_));
      }
      for (size_t i = 0; i < factors.size(); ++i) {
        if (!(factors[i] > 0)) {
          return Fail(ErrorKind::kCorrupt, fmt::format("rope: longrope factor {} is {}", i, factors[i]));
        }
        rope.frequencies_[i] /= factors[i];
      }
      if (config.attention_factor) {
        rope.magnitude_ = *config.attention_factor;
      } else if (const double ratio =
                     static_cast<double>(max_position_embeddings) / static_cast<double>(original);
                 ratio > 1) {
        rope.magnitude_ = std::sqrt(1.0 + std::log(ratio) / std::log(static_cast<double>(original)));
      }
      break;
    }
  }
  return rope;
}

void RopeFrequencies::Angles(int64_t position, float* cosines, float* sines) const {
  const auto at = static_cast<double>(position);
  double theta_ratio = 1.0;  // dynamic: stretched theta over theta
  if (is_dynamic_ && position + 1 > original_length_) {
    const auto dims = static_cast<double>(2 * half_);
    const double stretch = factor_ * (at + 1.0) / static_cast<double>(original_length_) - (factor_ - 1.0);
    theta_ratio = std::pow(stretch, dims / (dims - 2.0));
  }
  for (int64_t i = 0; i < half_; ++i) {
    double frequency = frequencies_[static_cast<size_t>(i)];
    if (theta_ratio != 1.0)
      frequency *= std::pow(theta_ratio, -static_cast<double>(i) / static_cast<double>(half_));
    const double angle = at * frequency;
    cosines[i] = static_cast<float>(std::cos(angle) * magnitude_);
    sines[i] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

}  // namespace cmforge
