// The pool: a generation counter wakes the workers, an atomic ticket hands out tasks.
#include "base/thread_pool.h"

#include <algorithm>

namespace cmforge {
namespace {

// Waiting spins for some 200 microseconds, longer than what a decode step does between two operators and after the last
// one; then it offers its core a few times, so that the one that is waited for runs; then it parks. Where there are more
// threads than cores, spinning keeps one from running.
constexpr int kSpins = 8000, kSpinsCrowded = 20, kYields = 16;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

bool IsCrowded(int threads) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return cores > 0 && threads > cores;  // 0: not known
}

void Wait(int turn, int spins) {
  if (turn < spins) {
    Pause();
  } else {
    std::this_thread::yield();
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) : spins_(IsCrowded(threads) ? kSpinsCrowded : kSpins) {
  workers_.reserve(static_cast<size_t>(std::max(threads, 1) - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { WorkerLoop(i); });
  } catch (...) {  // a thread is refused: end those that run, then let the caller know
    stop_.store(true);
    generation_.fetch_add(1);
    generation_.notify_all();
    for (auto& worker : workers_) worker.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::TakeTasks(int worker) {
  for (int64_t task = next_.fetch_add(1); task < count_; task = next_.fetch_add(1))
    fn_(context_, task, worker);
}

void ThreadPool::WorkerLoop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    uint32_t now = generation_.load();
    for (int i = 0; i < spins_ + kYields && now == seen; ++i) {
      Wait(i, spins_);
      now = generation_.load();
    }
    if (now == seen) {
      generation_.wait(seen);
      continue;
    }
    seen = now;
    if (stop_.load()) return;
    TakeTasks(worker);
    if (busy_.fetch_sub(1) == 1) busy_.notify_one();
  }
}

void ThreadPool::RunErased(int64_t count, Erased fn, void* context) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    for (int64_t task = 0; task < count; ++task) fn(context, task, 0);
    return;
  }
  const std::lock_guard lock(callers_);
  fn_ = fn;
  context_ = context;
  count_ = count;
  next_.store(0);
  busy_.store(static_cast<int32_t>(workers_.size()));
  generation_.fetch_add(1);
  generation_.notify_all();
  TakeTasks(0);
  for (int i = 0; busy_.load() != 0; ++i) {
    if (i < spins_ + kYields) {
      Wait(i, spins_);
    } else if (const int32_t left = busy_.load(); left != 0) {
      busy_.wait(left);
    }
  }
}

}  // namespace cmforge
