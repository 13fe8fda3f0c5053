// Softmax attention: projections, norms and rotation of heads, cache, and the cut of the work into tasks.
#include <algorithm>
#include <cmath>

#include "engine/pass.h"

namespace cmforge::engine {
namespace {

// Softmax is accumulated separately in segments of this many positions, counted from position 0, and the
// segments are merged in order: long contexts can be cut between threads without changing a bit.
constexpr int64_t kSegment = 1024;
// Queries that share the unpacking of a page, at most and, where that leaves threads idle, at least.
constexpr int64_t kMostQueriesPerTask = 128, kLeastQueriesPerTask = 16;

/// log(1 + e^x) without overflow.
float Softplus(float x) {
  return x > 20.0f ? x : static_cast<float>(std::log1p(std::exp(static_cast<double>(x))));
}

/// Asks for the lines of n floats that are read soon; rows of a head lie too far apart for the processor to foresee.
void Prefetch(const float* x, int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(x + i);
}
constexpr int64_t kRowsAhead = 4;

/// Rows [row, row + count) of a span against the keys of one kv head.
struct Task {
  const RowSpan* span = nullptr;
  int64_t row = 0, count = 0;
  int64_t kv_head = 0;
  int64_t first = 0, last = 0;  // positions that any of the rows sees
  int64_t part = 0;             // first of its segments' states in the parts buffer

  [[nodiscard]] int64_t segments() const { return last / kSegment - first / kSegment + 1; }
};

class Runner {
 public:
  Runner(Pass& pass, const Attention& attention, int64_t visit)
      : pass_(pass),
        a_(attention),
        visit_(visit),
        group_(a_.heads / a_.kv_heads),
        dim_(a_.head_dim),
        q_stride_(a_.has_query_gate ? 2 * dim_ : dim_),
        half_(pass.spans.front().sequence->rope(a_.rope).half()),
        cosines_(pass.work.cosines[static_cast<size_t>(a_.rope)].Get(pass.rows * half_)),
        sines_(pass.work.sines[static_cast<size_t>(a_.rope)].Get(pass.rows * half_)) {}

  void Run(const float* in, float* out) {
    Project(in);
    StoreKeys();
    Attend();
    const ProfileScope scope(pass_.profile, Operator::kAttentionProducts);
    if (has_mask_) {
      MultiplyLive(pass_, a_.o, visit_, &ActiveSet::heads, dim_, attended_, out);
      return;
    }
    pass_.work.inner.Set(attended_, pass_.rows, a_.heads * dim_);
    Multiply(pass_, pass_.work.inner, {{&a_.o, out}});
  }

 private:
  /// The mask of a span's heads, or null.
  [[nodiscard]] const uint8_t* Heads(const RowSpan& span) const {
    if (span.active == nullptr || visit_ >= pass_.network.visits()) return nullptr;
    return MaskRow(span.active->heads, pass_.network, visit_);
  }

  /// Finds the heads that some row of the pass needs. Keys and values are kept for all of them: a sequence may go on
  /// under another mask.
  void FindLiveHeads() {
    is_live_.assign(static_cast<size_t>(a_.heads), 0);
    has_mask_ = false;
    for (const RowSpan& span : pass_.spans) {
      const uint8_t* heads = Heads(span);
      has_mask_ = has_mask_ || heads != nullptr;
      for (int64_t h = 0; h < a_.heads; ++h) {
        if (heads == nullptr || HasBit(heads, h)) is_live_[static_cast<size_t>(h)] = 1;
      }
    }
  }

  /// Queries of live heads only.
  void ProjectLiveQueries() {
    Observe(pass_, a_.q, pass_.work.input);
    std::vector<MatMulJob> jobs;
    for (int64_t h = 0; h < a_.heads; ++h) {
      if (is_live_[static_cast<size_t>(h)] == 0) continue;
      if (jobs.empty() || jobs.back().rows.end != h * q_stride_) {
        MatMulJob& job = jobs.emplace_back();
        job.weight = &a_.q.weight;
        job.input = &pass_.work.input;
        job.out = q_;
        job.out_stride = a_.q.rows();
        job.rows.begin = h * q_stride_;
      }
      jobs.back().rows.end = (h + 1) * q_stride_;
    }
    if (!jobs.empty()) MatMul(pass_.work.context, jobs, pass_.mode);
    for (const MatMulJob& job : jobs) {
      if (a_.q.bias.empty()) break;
      for (int64_t row = 0; row < pass_.rows; ++row) {
        pass_.kernels.add_scaled(a_.q.bias.data() + job.rows.begin, 1.0f, job.rows.end - job.rows.begin,
                                 q_ + row * a_.q.rows() + job.rows.begin);
      }
    }
  }

  void Project(const float* in) {
    const ProfileScope scope(pass_.profile, Operator::kAttentionProducts);
    Workspace& work = pass_.work;
    std::vector<Product> products;
    q_ = work.q.Get(pass_.rows * a_.q.rows());
    FindLiveHeads();
    if (!has_mask_) products.push_back({&a_.q, q_});
    if (a_.k) products.push_back({&*a_.k, k_ = work.k.Get(pass_.rows * a_.k->rows())});
    if (a_.v) products.push_back({&*a_.v, v_ = work.v.Get(pass_.rows * a_.v->rows())});
    if (a_.g) products.push_back({&*a_.g, gate_ = work.gate.Get(pass_.rows * a_.g->rows())});
    work.input.Set(in, pass_.rows, pass_.hidden());
    Multiply(pass_, work.input, products);
    if (has_mask_) ProjectLiveQueries();
    if (a_.is_value_key && a_.k) {
      v_ = work.v.Get(pass_.rows * a_.k->rows());
      std::copy_n(k_, pass_.rows * a_.k->rows(), v_);
    }
    // A task's results replace its queries, whose lines are at hand, unless gates lie between these.
    attended_ = a_.has_query_gate ? work.attended.Get(pass_.rows * a_.heads * dim_) : q_;
  }

  [[nodiscard]] KvCache& Cache(const RowSpan& span) const {
    return span.sequence->state(a_.shares_kv_of.value_or(visit_)).kv;
  }

  /// `to` may be `from`.
  void NormAndTurn(const float* from, const NormWeight& norm, int64_t row, float* to) const {
    if (!norm.empty()) {
      pass_.kernels.rms_norm(from, norm.data(), pass_.network.config.rms_norm_eps, dim_, to);
    } else if (to != from) {
      std::copy_n(from, dim_, to);
    }
    pass_.kernels.rope(to, cosines_ + row * half_, sines_ + row * half_, half_);
  }

  /// Tiles of positions that a span's rows lie in: from the first, so many.
  static std::pair<int64_t, int64_t> Tiles(const RowSpan& span) {
    const int64_t first = span.position / kTilePositions;
    return {first, (span.position + span.count - 1) / kTilePositions + 1 - first};
  }

  /// A few rows are stored by the tasks that read them, head by head: what these write is what they read next.
  [[nodiscard]] bool IsStoredByTasks(const RowSpan& span) const {
    return a_.k && Tiles(span).second < pass_.pool().threads() &&
           span.count <= std::max<int64_t>(1, kLeastQueriesPerTask / group_);
  }

  void StoreKeys() {
    if (!a_.k) return;
    for (const RowSpan& span : pass_.spans) {
      if (!span.is_on) continue;
      Cache(span).Reserve(span.position, span.position + span.count);
      if (IsStoredByTasks(span)) continue;
      // By tiles of positions, which share cache lines; a few rows by head.
      const auto [first, tiles] = Tiles(span);
      const int64_t cost = span.count * dim_ * 4;
      if (tiles < pass_.pool().threads()) {
        ForRange(pass_, a_.kv_heads, cost, [&](int64_t begin, int64_t end) { StoreHeads(span, begin, end); });
      } else {
        ForRange(pass_, tiles, cost * a_.kv_heads / tiles, [&, from = first](int64_t begin, int64_t end) {
          for (int64_t tile = from + begin; tile < from + end; ++tile) StoreTile(span, tile, 0, a_.kv_heads);
        });
      }
    }
  }

  void StoreHeads(const RowSpan& span, int64_t begin, int64_t end) const {
    const auto [first, tiles] = Tiles(span);
    for (int64_t tile = first; tile < first + tiles; ++tile) StoreTile(span, tile, begin, end);
  }

  /// What of the span lies in a tile of positions, heads [begin, end).
  void StoreTile(const RowSpan& span, int64_t tile, int64_t begin, int64_t end) const {
    const int64_t from = std::max(span.position, tile * kTilePositions),
                  to = std::min(span.position + span.count, (tile + 1) * kTilePositions), count = to - from;
    const int64_t row = span.row + from - span.position, stride = a_.kv_heads * dim_;
    std::vector<float> keys(static_cast<size_t>(count * dim_));
    for (int64_t head = begin; head < end; ++head) {
      float* values = v_ + (row * a_.kv_heads + head) * dim_;
      for (int64_t n = 0; n < count; ++n) {
        NormAndTurn(k_ + ((row + n) * a_.kv_heads + head) * dim_, a_.k_norm, row + n, keys.data() + n * dim_);
        if (a_.has_value_norm) {
          float* value = values + n * stride;
          pass_.kernels.rms_norm(value, nullptr, pass_.network.config.rms_norm_eps, dim_, value);
        }
      }
      Cache(span).Store(pass_.kernels, from, count, head, keys.data(), dim_, values, stride);
    }
  }

  void Attend() {
    const int64_t rows_per_task = RowsPerTask();
    std::vector<Task> tasks;
    for (const RowSpan& span : pass_.spans) {
      // A layer whose keys another one was to store, but a mask switched that one off, sees nothing.
      if (!span.is_on || !Cache(span).Covers(First(span.position), span.position + span.count)) {
        std::fill_n(attended_ + span.row * a_.heads * dim_, span.count * a_.heads * dim_, 0.0f);
        if (span.is_on && IsStoredByTasks(span)) StoreHeads(span, 0, a_.kv_heads);
        continue;
      }
      // One head's tasks follow each other, so that its keys and values stay in a cache, the longest first, so that
      // threads end together.
      for (int64_t kv_head = 0; kv_head < a_.kv_heads; ++kv_head) {
        for (int64_t n = (span.count - 1) / rows_per_task * rows_per_task; n >= 0; n -= rows_per_task) {
          Task task;
          task.span = &span;
          task.row = span.row + n;
          task.count = std::min(rows_per_task, span.count - n);
          task.first = First(span.position + n);
          task.last = span.position + n + task.count - 1;
          task.kv_head = kv_head;
          if (HasLiveHead(span, kv_head)) {
            tasks.push_back(task);
          } else {
            if (IsStoredByTasks(span)) StoreHeads(span, kv_head, kv_head + 1);
            ClearHeads(task);
          }
        }
      }
    }
    const auto count = static_cast<int64_t>(tasks.size());
    const int64_t threads = pass_.pool().threads();
    int64_t segments = 0;
    for (Task& task : tasks) {
      task.part = segments;
      segments += task.segments();
    }
    const int64_t queries = rows_per_task * group_;
    if (count < 2 * threads && segments > count) {
      // Few tasks over long contexts: every segment on its own, merged afterwards in order.
      TurnQueries();
      for (const Task& task : tasks) {
        if (IsStoredByTasks(*task.span)) StoreHeads(*task.span, task.kv_head, task.kv_head + 1);
      }
      parts_ = pass_.work.attend_parts.Get(segments * queries * dim_);
      std::vector<AttendQuery> states(static_cast<size_t>(segments * queries));
      pass_.pool().Run(segments, [&](int64_t index, int) {
        const auto next = std::upper_bound(tasks.begin(), tasks.end(), index,
                                           [](int64_t part, const Task& task) { return part < task.part; });
        const Task& task = *(next - 1);
        AttendQuery* state = states.data() + index * queries;
        Prepare(task, state, parts_ + index * queries * dim_, nullptr);
        AttendSegment(task, state, task.first / kSegment + index - task.part, nullptr, nullptr);
      });
      for (const Task& task : tasks) {
        AttendQuery* whole = states.data() + task.part * queries;
        for (int64_t s = 1; s < task.segments(); ++s) {
          for (int64_t n = 0; n < task.count * group_; ++n)
            AttendMerge(whole[n], whole[s * queries + n], dim_);
        }
        Finish(task, whole);
      }
      return;
    }
    // By thread: an unpacked page, the queries, their states for the whole and for a segment.
    const int64_t page = UnpackedFloats(Cache(pass_.spans.front()).layout());
    const int64_t by_thread = page + queries * 3 * dim_;
    parts_ = pass_.work.attend_parts.Get(threads * by_thread);
    const auto run = [&](int64_t index, int worker) {
      const Task& task = tasks[static_cast<size_t>(index)];
      float* unpacked = parts_ + worker * by_thread;
      float* memory = unpacked + page;
      float* turned = memory + queries * 2 * dim_;
      if (IsStoredByTasks(*task.span)) StoreHeads(*task.span, task.kv_head, task.kv_head + 1);
      std::vector<AttendQuery> whole(static_cast<size_t>(queries)), part(whole.size());
      Prepare(task, whole.data(), memory, turned);
      // The next task of this thread, if others take as long.
      const std::byte* after =
          index + threads < count ? FirstPage(tasks[static_cast<size_t>(index + threads)]) : nullptr;
      for (int64_t s = 0; s < task.segments(); ++s) {
        AttendQuery* into = s == 0 ? whole.data() : part.data();
        if (s > 0) {
          for (int64_t n = 0; n < task.count * group_; ++n) {
            part[static_cast<size_t>(n)] = whole[static_cast<size_t>(n)];
            part[static_cast<size_t>(n)].acc = memory + (queries + n) * dim_;
            AttendBegin(part[static_cast<size_t>(n)], dim_);
          }
        }
        AttendSegment(task, into, task.first / kSegment + s, unpacked, after);
        if (s > 0) {
          for (size_t n = 0; n < static_cast<size_t>(task.count * group_); ++n)
            AttendMerge(whole[n], part[n], dim_);
        }
      }
      Finish(task, whole.data());
    };
    int64_t keys = 0;
    for (const Task& task : tasks) keys += (task.last - task.first + 1) * task.count * group_;
    if (keys * dim_ < (1 << 15)) {
      for (int64_t i = 0; i < count; ++i) run(i, 0);
    } else {
      pass_.pool().Run(count, run);
    }
  }

  /// As many as share a page, but enough tasks for all threads.
  [[nodiscard]] int64_t RowsPerTask() const {
    int64_t queries = kMostQueriesPerTask;
    const auto tasks = [&] { return pass_.rows * group_ / queries * a_.kv_heads; };
    while (queries > kLeastQueriesPerTask && tasks() < int64_t{4} * pass_.pool().threads()) queries /= 2;
    return std::max<int64_t>(1, queries / group_);
  }

  [[nodiscard]] bool HasLiveHead(const RowSpan& span, int64_t kv_head) const {
    const uint8_t* heads = Heads(span);
    if (heads == nullptr) return true;
    for (int64_t g = 0; g < group_; ++g) {
      if (HasBit(heads, kv_head * group_ + g)) return true;
    }
    return false;
  }

  void ClearHeads(const Task& task) const {
    for (int64_t row = task.row; row < task.row + task.count; ++row)
      std::fill_n(attended_ + (row * a_.heads + task.kv_head * group_) * dim_, group_ * dim_, 0.0f);
  }

  [[nodiscard]] int64_t First(int64_t position) const {
    return a_.window > 0 ? std::max<int64_t>(0, position - a_.window + 1) : 0;
  }

  /// Query states of a task, [row][head of the group]. Queries are turned into `turned`, where they lie side by side:
  /// in `q_`, all rows of a head meet in few lines of L1. Null: they are turned already.
  void Prepare(const Task& task, AttendQuery* states, float* acc, float* turned) const {
    for (int64_t n = 0; n < task.count; ++n) {
      const int64_t row = task.row + n, position = task.span->position + row - task.span->row;
      if (n + kRowsAhead < task.count)
        Prefetch(q_ + (row + kRowsAhead) * a_.q.rows() + task.kv_head * group_ * q_stride_,
                 group_ * q_stride_);
      for (int64_t g = 0; g < group_; ++g) {
        AttendQuery& state = states[n * group_ + g];
        const float* q = q_ + row * a_.q.rows() + (task.kv_head * group_ + g) * q_stride_;
        state.q = q;
        if (turned != nullptr) {
          float* to = turned + (n * group_ + g) * dim_;
          state.q = to;
          if (is_live_[static_cast<size_t>(task.kv_head * group_ + g)] == 0) {
            std::fill_n(to, dim_, 0.0f);
          } else {
            NormAndTurn(q, a_.q_norm, row, to);
          }
        }
        state.first = First(position);
        state.last = position;
        state.acc = acc + (n * group_ + g) * dim_;
        AttendBegin(state, dim_);
      }
    }
  }

  [[nodiscard]] const std::byte* Page(const Task& task, int64_t position) const {
    const KvCache& cache = Cache(*task.span);
    return cache.pages()[position / kPagePositions - cache.first_page()] + cache.HeadOffset(task.kv_head);
  }

  [[nodiscard]] const std::byte* FirstPage(const Task& task) const { return Page(task, task.first); }

  /// `after`: the page that is read after the last segment.
  void AttendSegment(const Task& task, AttendQuery* states, int64_t segment, float* unpacked,
                     const std::byte* after) const {
    const KvCache& cache = Cache(*task.span);
    AttendArgs args;
    args.layout = &cache.layout();
    args.scale = a_.scale;
    args.softcap = a_.softcap;
    args.queries = states;
    args.count = task.count * group_;
    args.pages = cache.pages();
    args.head_offset = cache.HeadOffset(task.kv_head);
    args.first_page = cache.first_page();
    args.begin = std::max(segment * kSegment, task.first / kPagePositions * kPagePositions);
    args.end = std::min((segment + 1) * kSegment, task.last + 1);
    args.after = args.end <= task.last ? Page(task, args.end) : after;
    args.unpacked = unpacked;
    pass_.kernels.attend(args);
  }

  /// Divides by the softmax sums and applies masks and output gates.
  void Finish(const Task& task, const AttendQuery* states) const {
    const uint8_t* heads = Heads(*task.span);
    for (int64_t n = 0; n < task.count; ++n) {
      for (int64_t g = 0; g < group_; ++g) {
        const int64_t row = task.row + n, head = task.kv_head * group_ + g;
        float* out = attended_ + (row * a_.heads + head) * dim_;
        if (heads != nullptr && !HasBit(heads, head)) {
          std::fill_n(out, dim_, 0.0f);
          continue;
        }
        AttendFinish(states[n * group_ + g], dim_, out);
        if (a_.has_query_gate) {
          pass_.kernels.sigmoid_mul(out, q_ + row * a_.q.rows() + head * q_stride_ + dim_, dim_, out);
        }
        if (!a_.g) continue;
        if (a_.g->rows() == a_.heads) {
          const float factor = Softplus(gate_[row * a_.heads + head]);
          for (int64_t d = 0; d < dim_; ++d) out[d] *= factor;
        } else {
          const float* gate = gate_ + (row * a_.heads + head) * dim_;
          for (int64_t d = 0; d < dim_; ++d) out[d] *= Softplus(gate[d]);
        }
      }
    }
  }

  void TurnQueries() const {
    ForRange(pass_, pass_.rows, a_.heads * dim_ * 2, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t head = 0; head < a_.heads; ++head) {
          if (is_live_[static_cast<size_t>(head)] == 0) continue;
          float* q = q_ + row * a_.q.rows() + head * q_stride_;
          NormAndTurn(q, a_.q_norm, row, q);
        }
      }
    });
  }

  Pass& pass_;
  const Attention& a_;
  const int64_t visit_, group_, dim_, q_stride_, half_;
  const float *cosines_, *sines_;
  bool has_mask_ = false;         // some row of the pass has a mask of heads
  std::vector<uint8_t> is_live_;  // by head: some row of the pass needs it
  float *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *gate_ = nullptr, *attended_ = nullptr,
        *parts_ = nullptr;
};

}  // namespace

void RunAttention(Pass& pass, const Attention& attention, int64_t visit, const float* in, float* out) {
  Runner(pass, attention, visit).Run(in, out);
}

}  // namespace cmforge::engine
