// How long work talks to whoever started it: progress, warnings, and the wish to stop. The library
// never prints; a program hands in callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace cmforge {

enum class LogLevel { kDebug, kInfo, kWarning };

/// What a progress counts; kThings have no rate worth telling (windows, tensors, numbers).
enum class ProgressUnit : uint8_t { kThings, kBytes, kTokens };

struct RunControl {
  /// `done` of `total` units; called from one thread at a time.
  std::function<void(std::string_view what, int64_t done, int64_t total, ProgressUnit unit)> progress;
  std::function<void(LogLevel level, std::string_view message)> log;
  const std::atomic<bool>* cancelled = nullptr;  // set by a signal handler

  void Report(std::string_view what, int64_t done, int64_t total,
              ProgressUnit unit = ProgressUnit::kThings) const {
    if (progress) progress(what, done, total, unit);
  }
  void Warn(std::string_view message) const {
    if (log) log(LogLevel::kWarning, message);
  }
  void Info(std::string_view message) const {
    if (log) log(LogLevel::kInfo, message);
  }
  [[nodiscard]] bool IsCancelled() const { return cancelled && cancelled->load(std::memory_order_relaxed); }
  /// Fails with kCancelled once the user asked to stop.
  Result<void> CheckCancelled() const {
    if (IsCancelled()) return Fail(ErrorKind::kCancelled, "interrupted");
    return {};
  }
};

}  // namespace cmforge
