// Cuts matrix products into tasks and hands them to threads. Knows no intrinsics: what a task computes is in
// the instruction set's table, and no cut changes a bit of it.
#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/bytes.h"
#include "kernels/activations.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

namespace cmforge {
namespace {

constexpr size_t kAlignment = 64;
// A decode task reads about this many bytes of weights: long enough for the prefetchers to run, short enough
// that the last task of a region keeps nobody waiting.
constexpr int64_t kTaskBytes = 64 << 10;

constexpr int64_t kManyTokens = 8;

/// A job with everything resolved, and where its tasks begin in the region's numbering.
struct Plan {
  const MatMulJob* job;
  ProductFn product;
  bool is_integer;
  TokenRows tokens;
  RowRange rows;
  int64_t rows_per_task;
  int64_t first_task;
};

int64_t RowsPerTask(const KernelTable& table, const WeightLayout& w, const RowRange& rows, int64_t tokens,
                    bool is_exact, int threads) {
  const int64_t grain = table.row_grain(w, tokens, is_exact);
  const int64_t count = rows.end - rows.begin;
  if (threads == 1) return count;
  const int64_t row_bytes = std::max<int64_t>(1, static_cast<int64_t>(w.end - w.codes) / w.rows);
  // At least four tasks a thread, so that none waits long for the last one. With few tokens a task reads
  // kTaskBytes; with many it is as large as that allows, since a task fetches the activations of all tokens.
  const int64_t by_count = count / (int64_t{4} * threads);
  const int64_t wanted = tokens >= kManyTokens ? by_count : std::min(by_count, kTaskBytes / row_bytes);
  return std::max<int64_t>(1, (wanted + grain - 1) / grain) * grain;
}

}  // namespace

void KernelContext::Free::operator()(std::byte* p) const {
  ::operator delete[](p, std::align_val_t{kAlignment});
}

KernelContext::KernelContext(ThreadPool& pool, Isa isa) : pool_(pool), isa_(isa) { assert(RunsHere(isa)); }
KernelContext::~KernelContext() = default;

void KernelContext::ReserveScratch(int64_t bytes) {
  if (bytes <= scratch_bytes_) return;
  scratch_bytes_ = static_cast<int64_t>(AlignUp(static_cast<uint64_t>(bytes), 4096));
  const size_t total = static_cast<size_t>(scratch_bytes_) * static_cast<size_t>(pool_.threads());
  scratch_.reset(new (std::align_val_t{kAlignment}) std::byte[total]);
}

std::byte* KernelContext::Scratch(int worker) const { return scratch_.get() + scratch_bytes_ * worker; }

void MatMul(KernelContext& context, std::span<const MatMulJob> jobs, ComputeMode mode) {
  const KernelTable& table = TableOf(context.isa());
  ThreadPool& pool = context.pool();
  std::vector<Plan> plans;
  plans.reserve(jobs.size());
  int64_t tasks = 0;
  int64_t scratch = 0;
  for (const MatMulJob& job : jobs) {
    const WeightLayout& w = job.weight->layout();
    assert(job.input->cols() == w.cols);
    RowRange rows = job.rows;
    if (rows.begin == 0 && rows.end == 0) rows.end = w.rows;
    assert(0 <= rows.begin && rows.begin <= rows.end && rows.end <= w.rows);
    const bool is_exact = mode == ComputeMode::kExact || !w.is_integer;
    Plan plan{
        &job, is_exact ? table.exact : table.integer[static_cast<size_t>(w.dtype)], !is_exact, {}, rows, 0,
        tasks};
    const int64_t count = job.tokens.empty() ? job.input->tokens() : static_cast<int64_t>(job.tokens.size());
    if (count == 0 || rows.begin == rows.end) continue;
    plan.tokens = is_exact ? FloatRowsOf(*job.input) : QuantizeFor(table, pool, *job.input, w);
    plan.tokens.index = job.tokens.empty() ? nullptr : job.tokens.data();
    plan.tokens.count = count;
    plan.rows_per_task = RowsPerTask(table, w, rows, count, is_exact, pool.threads());
    tasks += (rows.end - rows.begin + plan.rows_per_task - 1) / plan.rows_per_task;
    scratch = std::max(scratch, table.scratch_bytes(w, count, is_exact));
    plans.push_back(plan);
  }
  context.ReserveScratch(scratch);
  pool.Run(tasks, [&](int64_t task, int worker) {
    const auto after =
        std::upper_bound(plans.begin(), plans.end(), task,
                         [](int64_t value, const Plan& plan) { return value < plan.first_task; });
    const Plan& plan = *std::prev(after);
    const int64_t begin = plan.rows.begin + (task - plan.first_task) * plan.rows_per_task;
    const int64_t end = std::min(plan.rows.end, begin + plan.rows_per_task);
    const WeightLayout& w = plan.job->weight->layout();
    plan.product(w, begin, end, plan.tokens, plan.job->out, plan.job->out_stride, context.Scratch(worker));
    if (w.overlay != nullptr && plan.is_integer) {
      AddOverlay(w, begin, end, plan.tokens, plan.job->out, plan.job->out_stride);
    }
  });
}

}  // namespace cmforge
