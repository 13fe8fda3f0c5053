// Cuts matrix products into tasks and hands them to threads. Knows no intrinsics: what a task computes is in
// the instruction set's table, and no cut changes a bit of it.
#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <deque>
#include <new>
#include <vector>

#include "base/bytes.h"
#include "kernels/activations.h"
#include "kernels/guided_rows.h"
#include "kernels/kernels.h"
#include "kernels/live_groups.h"
#include "kernels/table.h"

namespace cmforge {
namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kManyTokens = 8;
// Tasks of many tokens: a thread has at least this many, of at most this many rows unless there are twice as many.
constexpr int64_t kLeastTasks = 2, kTaskRows = 512;
// Results that are joined: of how many products, and at most how many bytes (or what a group of columns has), so that
// they stay in L2 beside the activations and a block of weights.
constexpr size_t kMostJoined = 2;
constexpr int64_t kJoinedBytes = 512 << 10;

/// A job with everything resolved.
struct Plan {
  const MatMulJob* job;
  const LiveGroups* live;        // of a product that skips columns, or null
  const WeightLayout* in_place;  // of `live`, where its groups need not be gathered
  ProductFn product;
  bool is_integer;
  TokenRows tokens;
  RowRange rows;
  int64_t arranged_offset;  // in the context's shared memory

  /// What the product runs on; of gathered groups without its rows.
  [[nodiscard]] const WeightLayout& weight() const {
    return in_place != nullptr ? *in_place : live != nullptr ? live->layout() : job->weight->layout();
  }
  [[nodiscard]] bool is_gathered() const { return live != nullptr && in_place == nullptr; }
};

/// Whether both products read the same tokens in the same order.
bool ReadsTheSame(const Plan& a, const Plan& b) {
  return a.tokens.groups == b.tokens.groups && a.tokens.index == b.tokens.index &&
         a.tokens.count == b.tokens.count && a.weight().dtype == b.weight().dtype;
}

/// Arranges the tokens of every plan that wants it; plans that read the same share.
void ArrangeTokens(const KernelTable& table, KernelContext& context, std::span<Plan> plans) {
  int64_t bytes = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    Plan& plan = plans[i];
    const int64_t own = plan.is_integer ? table.arranged_bytes(plan.weight(), plan.tokens.count) : 0;
    plan.arranged_offset = own == 0 ? -1 : bytes;
    if (own != 0 && i > 0 && ReadsTheSame(plans[i - 1], plan)) {
      plan.arranged_offset = plans[i - 1].arranged_offset;
    } else {
      bytes += static_cast<int64_t>(AlignUp(static_cast<uint64_t>(own), kAlignment));
    }
  }
  std::byte* memory = context.ReserveShared(bytes);
  for (size_t i = 0; i < plans.size(); ++i) {
    Plan& plan = plans[i];
    if (plan.arranged_offset < 0) continue;
    plan.tokens.arranged = memory + plan.arranged_offset;
    if (i > 0 && plans[i - 1].arranged_offset == plan.arranged_offset) continue;
    const auto arrange = [&](int64_t begin, int64_t end) {
      table.arrange(plan.weight(), plan.tokens, begin, end, memory + plan.arranged_offset);
    };
    if (plan.tokens.count < kManyTokens) {
      arrange(0, plan.tokens.count);
    } else {
      context.pool().ForRanges(plan.tokens.count, kArrangeGrain, arrange);
    }
  }
}

/// The rows a job asks for.
RowRange RowsOf(const MatMulJob& job) {
  RowRange rows = job.rows;
  if (rows.begin == 0 && rows.end == 0) rows.end = job.weight->rows();
  assert(0 <= rows.begin && rows.begin <= rows.end && rows.end <= job.weight->rows());
  return rows;
}

/// Rows [begin, end) of a product.
struct Task {
  const Plan* plan;
  int64_t begin, end;
};

int64_t RowBytes(const WeightLayout& w) {
  return std::max<int64_t>(1, static_cast<int64_t>(w.end - w.codes) / w.rows);
}

/// Many tokens: at least four tasks a thread, so that none waits long for the last one, and as large as that allows,
/// since a task fetches the activations of all tokens, and where that is little, half as many: within a task the next
/// rows are fetched while some are multiplied, between tasks they are not.
int64_t EqualRows(int64_t count, int64_t grain, int threads) {
  const int64_t quarter = count / (int64_t{4} * threads), half = count / (kLeastTasks * threads);
  return std::max<int64_t>(1, (std::max(quarter, std::min(half, kTaskRows)) + grain - 1) / grain) * grain;
}

/// The tasks of a region, in the order in which they are taken.
std::vector<Task> CutTasks(const KernelTable& table, std::span<const Plan> plans, int threads) {
  int64_t left_bytes = 0;
  for (const Plan& plan : plans) left_bytes += (plan.rows.end - plan.rows.begin) * RowBytes(plan.weight());
  std::vector<Task> tasks;
  for (const Plan& plan : plans) {
    const int64_t row_bytes = RowBytes(plan.weight());
    const int64_t grain = table.row_grain(plan.weight(), plan.tokens.count, !plan.is_integer);
    const int64_t equal = EqualRows(plan.rows.end - plan.rows.begin, grain, threads);
    for (int64_t row = plan.rows.begin; row < plan.rows.end;) {
      const int64_t left = plan.rows.end - row;
      int64_t rows = std::min(equal, left);
      if (plan.tokens.count < kManyTokens) rows = GuidedRows(left, row_bytes, left_bytes, grain, threads);
      if (threads == 1) rows = left;
      tasks.push_back({&plan, row, row + rows});
      row += rows;
      left_bytes -= rows * row_bytes;
    }
  }
  return tasks;
}

/// Rows [begin, end) of a product that skips columns, gathered block by block.
void MultiplyLive(const Plan& plan, int64_t begin, int64_t end, std::byte* memory, std::byte* scratch) {
  const int64_t step = LiveGroups::BlockRows(plan.tokens.count);
  for (int64_t row = begin; row < end; row += step) {
    const int64_t rows = std::min(step, end - row);
    LiveGroups::Block block;
    plan.live->Gather(row, row + rows, memory, block);
    plan.product(block.layout, 0, rows, plan.tokens, plan.job->out + row, plan.job->out_stride, scratch);
  }
}

/// What lies outside the codes, from the whole matrix and the whole input.
void AddWholeOverlay(const Plan& plan, int64_t begin, int64_t end) {
  TokenRows tokens = FloatRowsOf(*plan.job->input);
  tokens.index = plan.job->tokens.empty() ? nullptr : plan.job->tokens.data();
  tokens.count = plan.tokens.count;
  AddOverlay(plan.job->weight->layout(), begin, end, tokens, plan.job->out, plan.job->out_stride);
}

/// What does not depend on the other jobs of a region.
Plan PlanOf(const KernelTable& table, const KernelContext& context, const MatMulJob& job,
            const LiveGroups* live, ComputeMode mode) {
  assert(job.input->cols() == job.weight->cols());
  Plan plan = {};
  plan.job = &job;
  plan.live = live;
  plan.rows = RowsOf(job);
  const int64_t count = job.tokens.empty() ? job.input->tokens() : static_cast<int64_t>(job.tokens.size());
  if (count == 0 || plan.rows.begin == plan.rows.end) return plan;
  ThreadPool& pool = context.pool();
  plan.is_integer = mode == ComputeMode::kFast && job.weight->layout().is_integer;
  plan.product = plan.is_integer ? table.integer[static_cast<size_t>(job.weight->dtype())] : table.exact;
  if (plan.live == nullptr) {
    plan.tokens =
        plan.is_integer ? QuantizeFor(table, pool, *job.input, plan.weight()) : FloatRowsOf(*job.input);
    plan.tokens.index = job.tokens.empty() ? nullptr : job.tokens.data();
  } else if (plan.is_integer) {
    plan.tokens = QuantizeLive(table, pool, *job.input, plan.weight(), job.groups, job.tokens);
  } else {
    plan.tokens = FloatRowsOf(LiveColumns(pool, *job.input, job.groups, job.tokens));
  }
  plan.tokens.count = count;
  if (plan.live != nullptr && plan.is_integer && plan.live->in_place() != nullptr) {
    const ProductFn product = table.live(*plan.live->in_place(), count);
    if (product != nullptr) {
      plan.product = product;
      plan.in_place = plan.live->in_place();
    }
  }
  plan.tokens.wants_prefetch = WantsPrefetch();
  plan.tokens.has_tiles = context.isa() == Isa::kAmx;
  return plan;
}

}  // namespace

void KernelContext::Memory::Reserve(int64_t wanted) {
  if (wanted <= bytes) return;
  bytes = static_cast<int64_t>(AlignUp(static_cast<uint64_t>(wanted), 4096));
  data.reset(new (std::align_val_t{kAlignment}) std::byte[static_cast<size_t>(bytes)]);
}

void KernelContext::Memory::Free::operator()(std::byte* p) const {
  ::operator delete[](p, std::align_val_t{kAlignment});
}

KernelContext::KernelContext(ThreadPool& pool, Isa isa) : pool_(pool), isa_(isa) { assert(RunsHere(isa)); }
KernelContext::~KernelContext() = default;

void KernelContext::ReserveScratch(int64_t bytes) {
  scratch_bytes_ =
      std::max(scratch_bytes_, static_cast<int64_t>(AlignUp(static_cast<uint64_t>(bytes), 4096)));
  scratch_.Reserve(scratch_bytes_ * pool_.threads());
}

std::byte* KernelContext::Scratch(int worker) const { return scratch_.data.get() + scratch_bytes_ * worker; }

std::byte* KernelContext::ReserveShared(int64_t bytes) {
  shared_.Reserve(bytes);
  return shared_.data.get();
}

void MatMul(KernelContext& context, std::span<const MatMulJob> jobs, ComputeMode mode) {
  const KernelTable& table = TableOf(context.isa());
  ThreadPool& pool = context.pool();
  std::vector<Plan> plans;
  plans.reserve(jobs.size());
  int64_t scratch = 0, gathered = 0;
  std::deque<LiveGroups> live;  // stay where they are
  for (const MatMulJob& job : jobs) {
    assert(job.groups.empty() || CanSkipGroups(*job.weight, mode));
    const LiveGroups* groups =
        job.groups.empty() ? nullptr : &live.emplace_back(job.weight->layout(), job.groups);
    const Plan plan = PlanOf(table, context, job, groups, mode);
    const int64_t count = plan.tokens.count;
    if (count == 0) continue;
    if (plan.is_gathered())
      gathered = std::max(gathered, plan.live->BlockBytes(LiveGroups::BlockRows(count)));
    scratch = std::max(scratch, table.scratch_bytes(plan.weight(), count, !plan.is_integer));
    plans.push_back(plan);
  }
  ArrangeTokens(table, context, plans);
  context.ReserveScratch(gathered + scratch);
  const std::vector<Task> tasks = CutTasks(table, plans, pool.threads());
  pool.Run(static_cast<int64_t>(tasks.size()), [&](int64_t i, int worker) {
    const auto [of, begin, end] = tasks[static_cast<size_t>(i)];
    const Plan& plan = *of;
    if (plan.is_gathered()) {
      MultiplyLive(plan, begin, end, context.Scratch(worker), context.Scratch(worker) + gathered);
    } else {
      plan.product(plan.weight(), begin, end, plan.tokens, plan.job->out, plan.job->out_stride,
                   context.Scratch(worker));
    }
    if (plan.is_integer && plan.job->weight->layout().overlay != nullptr) AddWholeOverlay(plan, begin, end);
  });
}

void MatMulInto(KernelContext& context, std::span<const MatMulJob> jobs, ComputeMode mode, const JoinFn& join,
                const LinearWeight* next, float* floats, Activations& into) {
  const KernelTable& table = TableOf(context.isa());
  ThreadPool& pool = context.pool();
  const int64_t tokens = jobs.front().input->tokens(), width = jobs.front().weight->rows();
  into.Set(floats, tokens, width);
  if (tokens == 0 || width == 0) return;
  const bool is_quantized = next != nullptr && mode == ComputeMode::kFast && next->layout().is_integer &&
                            next->layout().overlay == nullptr;
  QuantizedRows* rows = is_quantized ? &RowsToQuantize(into, next->layout()) : nullptr;
  assert(jobs.size() <= kMostJoined);
  std::vector<Plan> plans;
  int64_t scratch = 0;
  for (const MatMulJob& job : jobs) {
    assert(job.tokens.empty() && job.groups.empty() && job.weight->rows() == width);
    const Plan& plan = plans.emplace_back(PlanOf(table, context, job, nullptr, mode));
    scratch = std::max(scratch, table.scratch_bytes(plan.weight(), tokens, !plan.is_integer));
  }
  ArrangeTokens(table, context, plans);
  std::vector<int64_t> cuts = {0};  // between the tasks' columns; whole groups
  int64_t columns = kGroupSize;     // of a task, at most
  if (tokens < kManyTokens) {
    int64_t bytes = 0;  // of one row of each
    for (const Plan& plan : plans) bytes += RowBytes(plan.weight());
    while (cuts.back() < width) {
      const int64_t left = width - cuts.back();
      const int64_t count =
          pool.threads() == 1 ? left : GuidedRows(left, bytes, left * bytes, kGroupSize, pool.threads());
      cuts.push_back(cuts.back() + count);
      columns = std::max(columns, count);
    }
  } else {
    // As many as leave a thread its tasks and the results in cache.
    while (width >= 2 * columns * kLeastTasks * pool.threads() &&
           2 * columns * tokens * static_cast<int64_t>(plans.size() * sizeof(float)) <= kJoinedBytes)
      columns *= 2;
    while (cuts.back() < width) cuts.push_back(std::min(width, cuts.back() + columns));
  }
  scratch = static_cast<int64_t>(AlignUp(static_cast<uint64_t>(scratch), kAlignment));
  const int64_t results = tokens * columns;
  context.ReserveScratch(scratch + static_cast<int64_t>(plans.size() * sizeof(float)) * results);
  pool.Run(static_cast<int64_t>(cuts.size()) - 1, [&](int64_t task, int worker) {
    const int64_t begin = cuts[static_cast<size_t>(task)], n = cuts[static_cast<size_t>(task) + 1] - begin;
    auto* memory = reinterpret_cast<float*>(context.Scratch(worker) + scratch);
    for (size_t i = 0; i < plans.size(); ++i) {
      const Plan& plan = plans[i];
      float* out = memory + static_cast<int64_t>(i) * results - begin;  // row r is written at [r]
      plan.product(plan.weight(), begin, begin + n, plan.tokens, out, columns, context.Scratch(worker));
      if (plan.is_integer && plan.job->weight->layout().overlay != nullptr)
        AddOverlay(plan.job->weight->layout(), begin, begin + n, FloatRowsOf(*plan.job->input), out, columns);
    }
    const int64_t last = begin + n < width || rows == nullptr ? (begin + n) / kGroupSize : rows->stride;
    for (int64_t token = 0; token < tokens; ++token) {
      float* of_token[kMostJoined];
      for (size_t i = 0; i < plans.size(); ++i)
        of_token[i] = memory + static_cast<int64_t>(i) * results + token * columns;
      join(begin, n, of_token);
      if (rows == nullptr) {
        std::copy_n(of_token[0], n, floats + token * width + begin);
        continue;
      }
      for (int64_t done = 0; done < n; done += kGroupPad * kGroupSize) {
        const int64_t first = (begin + done) / kGroupSize, end = std::min(first + kGroupPad, last);
        QuantizedGroup* to = rows->groups.data() + token * rows->stride + first;
        QuantizedGroup copy[kGroupPad];  // where not all that is quantized together is the task's
        const bool is_whole = end - first == kGroupPad;
        const std::byte* factors = next->layout().columns;
        table.quantize(of_token[0] + done, factors == nullptr ? nullptr : factors + 2 * (begin + done),
                       std::min(n - done, kGroupPad * kGroupSize), kGroupPad, is_whole ? to : copy);
        if (!is_whole) std::copy_n(copy, end - first, to);
      }
    }
  });
}

}  // namespace cmforge
