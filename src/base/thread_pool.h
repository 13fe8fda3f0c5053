// One pool of threads for kernels: made once, handed to whoever computes. The calling thread works
// too, so a pool of 1 has no threads of its own. Workers spin briefly between jobs, then park.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace cmforge {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls fn(task, worker) once for every task in [0, count), worker in [0, threads()), and returns when
  /// all are done. Which worker takes which task is not fixed: results must not depend on it.
  /// `fn` must not throw and must not call the pool. Concurrent callers take turns.
  template <class Fn>
  void Run(int64_t count, Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    RunErased(
        count,
        [](void* context, int64_t task, int worker) { (*static_cast<Callable*>(context))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  /// Cuts [0, count) into about 4 ranges a thread, each a multiple of `grain`, and calls fn(begin, end).
  template <class Fn>
  void ForRanges(int64_t count, int64_t grain, Fn&& fn) {
    if (count <= 0) return;
    const int64_t units = (count + grain - 1) / grain;
    const int64_t pieces = threads() == 1 ? 1 : std::min<int64_t>(units, int64_t{4} * threads());
    Run(pieces, [&](int64_t piece, int) {
      const int64_t begin = units * piece / pieces * grain;
      const int64_t end = std::min(count, units * (piece + 1) / pieces * grain);
      if (begin < end) fn(begin, end);
    });
  }

 private:
  using Erased = void (*)(void* context, int64_t task, int worker);
  void RunErased(int64_t count, Erased fn, void* context);
  void WorkerLoop(int worker);
  void TakeTasks(int worker);

  const int spins_;
  std::mutex callers_;
  std::vector<std::thread> workers_;
  // The job, written by the caller before `generation_` is advanced.
  Erased fn_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int32_t> busy_{0};  // workers that have not finished the current job
  std::atomic<bool> stop_{false};
};

}  // namespace cmforge
