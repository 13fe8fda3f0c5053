// The pool runs every task once, from any number of callers.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace cmforge {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.Run(count, [&](int64_t task, int worker) {
        EXPECT_LT(worker, threads);
        hits[static_cast<size_t>(task)]++;
      });
      for (const auto& hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

TEST(ThreadPool, RangesCoverEverythingInGrains) {
  ThreadPool pool(3);
  for (const int64_t count : {1, 63, 64, 65, 1000}) {
    std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
    pool.ForRanges(count, 32, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin % 32, 0);
      for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)]++;
    });
    for (const auto& hit : hits) EXPECT_EQ(hit, 1);
  }
}

TEST(ThreadPool, ServesManyCallersInTurn) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) pool.Run(10, [&](int64_t task, int) { sum += task; });
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 500 * 45);
}

TEST(ThreadPool, WakesParkedWorkers) {
  ThreadPool pool(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::atomic<int> hits{0};
  pool.Run(100, [&](int64_t, int) { hits++; });
  EXPECT_EQ(hits, 100);
}

}  // namespace
}  // namespace cmforge
