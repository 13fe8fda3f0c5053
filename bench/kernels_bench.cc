// Matrix products on encoded weights against the machine's limits, measured side by side in one run:
//   decode   one token, weights from memory: GB/s, and the share of what the best plain read loop gets from the same
//            pages with the same threads (a neighbour may share the memory, so only the ratio means much);
//   prefill  many tokens, one matrix: GOP/s, and the share of the int8 dot (or f32 FMA) peak;
//   cached   one token, weights in L2: what the kernel could do if memory were no limit.
//   stored   the same of matrices as Core ML's weight files have them (kernels/stored.h); prefill against f32 FMA.
// Names: decode/encoding/rows/cols/isa/threads, prefill/encoding/rows/cols/tokens/isa/threads. The pages are those of
// a mapped file (4 KiB, in the page cache), as a model's are.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/guided_rows.h"
#include "kernels/kernels.h"
#include "kernels/read_loop.h"
#include "kernels/stored.h"
#include "quant/encoding.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cmforge {
namespace {

/// One thread's time on a processor, which is what the clock would show if nobody else ran here; of several threads the
/// clock itself, since one that waits for another spins.
class BusyClock {
 public:
  explicit BusyClock(int threads) : id_(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC) {}
  [[nodiscard]] double Now() const {
    timespec t;
    clock_gettime(id_, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

 private:
  clockid_t id_;
};

/// Pages of a file in memory, mapped read-only like a model's.
class FilePages {
 public:
  explicit FilePages(size_t size) : size_(size) {
    const int fd = memfd_create("weights", 0);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) std::abort();
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) std::abort();
    close(fd);
    data_ = static_cast<std::byte*>(p);
    std::memset(data_, 0x2B, size);  // f16 0.056, and codes of all kinds
  }
  ~FilePages() { munmap(data_, size_); }
  FilePages(const FilePages&) = delete;
  FilePages& operator=(const FilePages&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t size_;
};

uint64_t PayloadSize(DType dtype, int64_t rows, int64_t cols) {
  const auto r = static_cast<uint64_t>(rows), c = static_cast<uint64_t>(cols);
  switch (dtype) {
    case DType::kVbitRo:
      return r + 2 * r * c / 32 + 4 * (r + 1) + r * c / 2;
    case DType::kQ1s:
      return r * c / 32 * 6 + 4;
    case DType::kQ1t:
      return r * c / 32 * 9 + 4 * (r + 1);
    default:
      return *FindEncoding(dtype)->payload_size(std::vector<int64_t>{rows, cols});
  }
}

/// Makes the pattern of the pages a valid payload (four bits a weight for vbit_ro, no overlay).
LinearWeight WeightAt(std::byte* at, DType dtype, int64_t rows, int64_t cols) {
  const auto r = static_cast<size_t>(rows), c = static_cast<size_t>(cols);
  if (dtype == DType::kVbitRo) {
    std::memset(at, 4, r);
    for (size_t i = 0; i <= r; ++i)
      StoreLe(at + r + 2 * r * c / 32 + 4 * i, static_cast<uint32_t>(i * c / 2));
  }
  if (dtype == DType::kQ1s) std::memset(at + r * c / 32 * 6, 0, 4);
  if (dtype == DType::kQ1t) std::memset(at + r * c / 32 * 9, 0, 4 * (r + 1));
  auto weight =
      LinearWeight::Make({dtype, {rows, cols}, Bytes(at, PayloadSize(dtype, rows, cols)), nullptr}, "w");
  if (!weight) {
    fmt::print(stderr, "{}\n", weight.error().message);
    std::abort();
  }
  return *std::move(weight);
}

void ReadWithAllThreads(ThreadPool& pool, const std::byte* p, size_t size) {
  const auto part = size / static_cast<size_t>(pool.threads());
  pool.Run(pool.threads(), [&](int64_t i, int) {
    benchmark::DoNotOptimize(ReadAll({p + part * static_cast<size_t>(i), part}));
  });
}

std::vector<float> Inputs(int64_t count) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = normal(rng);
  return x;
}

constexpr size_t kFileBytes = size_t{640} << 20;

FilePages& Pages() {
  static FilePages pages(kFileBytes);
  return pages;
}

void Decode(benchmark::State& state, DType dtype, int64_t rows, int64_t cols, Isa isa, int threads) {
  ThreadPool pool(threads);
  KernelContext context(pool, isa);
  const BusyClock clock(pool.threads());
  const size_t size = PayloadSize(dtype, rows, cols), stride = AlignUp(size, 4096);
  std::vector<LinearWeight> weights;
  std::memset(Pages().data(), 0x2B, kFileBytes);
  for (size_t at = 0; at + stride <= kFileBytes; at += stride) {
    weights.push_back(WeightAt(Pages().data() + at, dtype, rows, cols));
  }
  const std::vector<float> x = Inputs(cols);
  std::vector<float> y(static_cast<size_t>(rows));
  Activations input;
  // Reads and products take turns on slices that lie far apart, so both see the same minutes of a shared machine.
  const size_t slice = std::max<size_t>(1, (size_t{16} << 20) / stride);
  double read_seconds = 0, product_seconds = 0, bytes = 0, best_read = 1e9, best_product = 1e9;
  for (auto _ : state) {
    for (size_t begin = 0; begin + slice <= weights.size(); begin += slice) {
      const size_t other = (begin + weights.size() / 2) % (weights.size() - slice + 1);
      const double t0 = clock.Now();
      ReadWithAllThreads(pool, Pages().data() + other * stride, slice * stride);
      const double t1 = clock.Now();
      for (size_t i = begin; i < begin + slice; ++i) {
        input.Set(x.data(), 1, cols);
        const MatMulJob job{&weights[i], &input, y.data(), rows, {}, {}};
        MatMul(context, std::span(&job, 1), ComputeMode::kFast);
      }
      const double t2 = clock.Now();
      const double read = (t1 - t0) * static_cast<double>(size) / static_cast<double>(stride),
                   product = t2 - t1;
      read_seconds += read;
      product_seconds += product;
      best_read = std::min(best_read, read);
      best_product = std::min(best_product, product);
      bytes += static_cast<double>(slice * size);
    }
  }
  state.counters["GB/s"] = bytes / product_seconds / 1e9;
  state.counters["read_GB/s"] = bytes / read_seconds / 1e9;
  state.counters["of_read"] = read_seconds / product_seconds;
  state.counters["best_GB/s"] = static_cast<double>(slice * size) / best_product / 1e9;
  state.counters["best_of_read"] = best_read / best_product;
}

void Cached(benchmark::State& state, DType dtype, int64_t rows, int64_t cols, Isa isa) {
  ThreadPool pool(1);
  KernelContext context(pool, isa);
  const BusyClock clock(pool.threads());
  std::memset(Pages().data(), 0x2B, size_t{16} << 20);
  const LinearWeight weight = WeightAt(Pages().data(), dtype, rows, cols);
  const std::vector<float> x = Inputs(cols);
  std::vector<float> y(static_cast<size_t>(rows));
  Activations input;
  double seconds = 1e9;
  for (auto _ : state) {
    const double t0 = clock.Now();
    for (int i = 0; i < 20; ++i) {
      input.Set(x.data(), 1, cols);
      const MatMulJob job{&weight, &input, y.data(), rows, {}, {}};
      MatMul(context, std::span(&job, 1), ComputeMode::kFast);
    }
    seconds = std::min(seconds, (clock.Now() - t0) / 20);
  }
  state.counters["best_GB/s"] = static_cast<double>(weight.bytes()) / seconds / 1e9;
  state.counters["best_Gweights/s"] = static_cast<double>(rows * cols) / seconds / 1e9;
}

#if defined(__x86_64__)
// Sixteen independent chains of the instruction, operands in registers: named ones, so that none goes to memory.
#define CMFORGE_SIXTEEN(op) \
  op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11) op(12) op(13) op(14) op(15)
__attribute__((target("avx512f,avx512vnni"))) void DotLoop(int64_t count) {
#define CMFORGE_DECLARE(k) __m512i c##k = _mm512_setzero_si512();
#define CMFORGE_DOT(k) __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(c##k) : "v"(a));
  CMFORGE_SIXTEEN(CMFORGE_DECLARE)
  const __m512i a = _mm512_set1_epi8(3);
  for (int64_t i = 0; i < count; ++i) {
    CMFORGE_SIXTEEN(CMFORGE_DOT)
  }
}
__attribute__((target("avx512f"))) void FmaLoop(int64_t count) {
#define CMFORGE_FMA(k) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(c##k) : "v"(a));
  CMFORGE_SIXTEEN(CMFORGE_DECLARE)
  const __m512i a = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; ++i) {
    CMFORGE_SIXTEEN(CMFORGE_FMA)
  }
}

// The same of AVX2, twelve chains. A product of bytes is three instructions there, since few sums fit 16 bits.
#define CMFORGE_TWELVE(op) op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)
__attribute__((target("avx2"))) void DotLoopAvx2(int64_t count) {
#define CMFORGE_DECLARE_256(k) __m256i c##k = _mm256_setzero_si256();
#define CMFORGE_DOT_256(k)                                                             \
  __asm__ volatile("vpmaddubsw %2, %2, %1\n\tvpmaddwd %2, %1, %1\n\tvpaddd %1, %0, %0" \
                   : "+x"(c##k), "=&x"(product)                                        \
                   : "x"(a));
  CMFORGE_TWELVE(CMFORGE_DECLARE_256)
  const __m256i a = _mm256_set1_epi8(3);
  __m256i product;
  for (int64_t i = 0; i < count; ++i) {
    CMFORGE_TWELVE(CMFORGE_DOT_256)
  }
}
__attribute__((target("avx2,fma"))) void FmaLoopAvx2(int64_t count) {
#define CMFORGE_FMA_256(k) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(c##k) : "x"(a));
  CMFORGE_TWELVE(CMFORGE_DECLARE_256)
  const __m256i a = _mm256_setzero_si256();
  for (int64_t i = 0; i < count; ++i) {
    CMFORGE_TWELVE(CMFORGE_FMA_256)
  }
}
#endif

/// Billions of operations a second of the bare instructions on all threads, over about a millisecond.
double PeakGops(ThreadPool& pool, bool is_integer) {
#if defined(__x86_64__)
  constexpr int64_t kCount = 20000, kTasks = 10;  // of each thread, so that none does another's
  const auto rate = [&](void (*loop)(int64_t), int64_t operations) {
    const BusyClock clock(pool.threads());
    const double t0 = clock.Now();
    pool.Run(kTasks * pool.threads(), [&](int64_t, int) { loop(kCount); });
    return static_cast<double>(kTasks * kCount * operations * pool.threads()) / (clock.Now() - t0) / 1e9;
  };
  if (RunsHere(Isa::kAvx512)) return is_integer ? rate(DotLoop, 16 * 128) : rate(FmaLoop, 16 * 32);
  if (RunsHere(Isa::kAvx2)) return is_integer ? rate(DotLoopAvx2, 12 * 64) : rate(FmaLoopAvx2, 12 * 16);
#endif
  (void)pool, (void)is_integer;
  return NAN;
}

void Prefill(benchmark::State& state, DType dtype, int64_t rows, int64_t cols, int64_t tokens, Isa isa,
             int threads, ComputeMode mode) {
  ThreadPool pool(threads);
  KernelContext context(pool, isa);
  const BusyClock clock(pool.threads());
  std::memset(Pages().data(), 0x2B, size_t{64} << 20);
  const LinearWeight weight = WeightAt(Pages().data(), dtype, rows, cols);
  const std::vector<float> x = Inputs(tokens * cols);
  std::vector<float> y(static_cast<size_t>(tokens * rows));
  Activations input;
  const bool is_integer =
      mode == ComputeMode::kFast && dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kF32;
  std::vector<double> shares, rates;
  for (auto _ : state) {
    const double peak = PeakGops(pool, is_integer);
    const double t0 = clock.Now();
    input.Set(x.data(), tokens, cols);
    const MatMulJob job{&weight, &input, y.data(), rows, {}, {}};
    MatMul(context, std::span(&job, 1), mode);
    const double rate = 2.0 * static_cast<double>(rows * cols * tokens) / (clock.Now() - t0) / 1e9;
    rates.push_back(rate);
    shares.push_back(rate / peak);
  }
  std::sort(shares.begin(), shares.end());
  std::sort(rates.begin(), rates.end());
  state.counters["GOP/s"] = rates[rates.size() / 2];
  state.counters["best_GOP/s"] = rates.back();
  state.counters["of_peak"] = shares[shares.size() / 2];
  state.counters["best_of_peak"] = shares.back();
}

// ---- stored matrices

struct StoredForm {
  const char* name;
  StoredMatrix::Form form;
  int bits;
  int64_t cols_per_scale;  // 0: a row
};

constexpr StoredForm kStoredForms[] = {{"f16", StoredMatrix::Form::kF16, 16, 0},
                                       {"lut1", StoredMatrix::Form::kPalette, 1, 0},
                                       {"lut2", StoredMatrix::Form::kPalette, 2, 0},
                                       {"lut3", StoredMatrix::Form::kPalette, 3, 0},
                                       {"lut4", StoredMatrix::Form::kPalette, 4, 0},
                                       {"lut6", StoredMatrix::Form::kPalette, 6, 0},
                                       {"lut8", StoredMatrix::Form::kPalette, 8, 0},
                                       {"int8", StoredMatrix::Form::kScaled, 8, 0},
                                       {"int4_block32", StoredMatrix::Form::kScaled, 4, 32}};

/// Eight rows share a table; tables and scales lie behind the codes.
StoredMatrix StoredAt(const StoredKernels& kernels, const std::byte* at, const StoredForm& form, int64_t rows,
                      int64_t cols) {
  StoredMatrix w;
  w.form = form.form;
  w.bits = form.bits;
  w.is_signed = form.form == StoredMatrix::Form::kScaled;
  w.rows = rows;
  w.cols = cols;
  w.data = at;
  const std::byte* side = at + rows * cols * form.bits / 8;
  w.rows_per_table = 8;
  if (form.form == StoredMatrix::Form::kPalette) w.tables = side;
  if (form.form == StoredMatrix::Form::kScaled) w.scales = side;
  w.cols_per_scale = form.cols_per_scale == 0 ? cols : form.cols_per_scale;
  w.scales_per_row = cols / w.cols_per_scale;
  w.ahead = AheadOfStored(kernels);
  return w;
}

size_t StoredBytes(const StoredForm& form, int64_t rows, int64_t cols) {
  int64_t side = 0;
  if (form.form == StoredMatrix::Form::kPalette) side = (rows / 8) * 2 << form.bits;
  if (form.form == StoredMatrix::Form::kScaled)
    side = 2 * rows * (form.cols_per_scale == 0 ? 1 : cols / form.cols_per_scale);
  return static_cast<size_t>(rows * cols * form.bits / 8 + side);
}

/// Floats on whole cache lines, as the interpreter's are.
class LineFloats {
 public:
  void Resize(int64_t count) {
    if (count <= size_) return;
    size_ = count;
    memory_.resize(static_cast<size_t>(count) + 16);
    data_ = reinterpret_cast<float*>(AlignUp(reinterpret_cast<uintptr_t>(memory_.data()), 64));
  }
  explicit LineFloats(const std::vector<float>& values = {}) {
    Resize(static_cast<int64_t>(values.size()) + 1);
    std::copy(values.begin(), values.end(), data_);
  }
  LineFloats(const LineFloats&) = delete;
  LineFloats& operator=(const LineFloats&) = delete;
  [[nodiscard]] float* data() const { return data_; }

 private:
  std::vector<float> memory_;
  float* data_ = nullptr;
  int64_t size_ = 0;
};

/// All rows in tasks, as the interpreter cuts them.
void RunStored(ThreadPool& pool, const StoredKernels& kernels, const StoredMatrix& w, const float* x,
               int64_t tokens, float* y, LineFloats& scratch) {
  const auto own = StoredScratchFloats(w.cols);
  scratch.Resize(own * pool.threads());
  const int64_t bytes = std::max<int64_t>(1, w.cols * w.bits / 8) * std::min<int64_t>(tokens, 64);
  std::vector<int64_t> cuts = {0};
  while (cuts.back() < w.rows) {
    const int64_t left = w.rows - cuts.back();
    cuts.push_back(cuts.back() + (pool.threads() == 1
                                      ? left
                                      : GuidedRows(left, bytes, left * bytes, kPanelRows, pool.threads())));
  }
  pool.Run(static_cast<int64_t>(cuts.size()) - 1, [&](int64_t task, int worker) {
    const int64_t begin = cuts[static_cast<size_t>(task)];
    MultiplyStored(kernels, w, begin, cuts[static_cast<size_t>(task) + 1], x, w.cols, tokens, nullptr,
                   y + begin * tokens, tokens, 1, scratch.data() + own * worker);
  });
}

void StoredDecode(benchmark::State& state, const StoredForm& form, int64_t rows, int64_t cols, Isa isa,
                  int threads) {
  ThreadPool pool(threads);
  const StoredKernels& kernels = StoredKernelsOf(isa);
  const BusyClock clock(pool.threads());
  const size_t size = StoredBytes(form, rows, cols), stride = AlignUp(size, 4096);
  std::memset(Pages().data(), 0x2B, kFileBytes);
  const size_t count = kFileBytes / stride;
  const LineFloats x(Inputs(cols));
  std::vector<float> y(static_cast<size_t>(rows));
  LineFloats scratch;
  const size_t slice = std::max<size_t>(1, (size_t{16} << 20) / stride);
  double read_seconds = 0, product_seconds = 0, bytes = 0, best = 1e9;
  for (auto _ : state) {
    for (size_t begin = 0; begin + slice <= count; begin += slice) {
      const size_t other = (begin + count / 2) % (count - slice + 1);
      const double t0 = clock.Now();
      ReadWithAllThreads(pool, Pages().data() + other * stride, slice * stride);
      const double t1 = clock.Now();
      for (size_t i = begin; i < begin + slice; ++i)
        RunStored(pool, kernels, StoredAt(kernels, Pages().data() + i * stride, form, rows, cols), x.data(),
                  1, y.data(), scratch);
      const double product = clock.Now() - t1;
      read_seconds += (t1 - t0) * static_cast<double>(size) / static_cast<double>(stride);
      product_seconds += product;
      best = std::min(best, product);
      bytes += static_cast<double>(slice * size);
    }
  }
  state.counters["GB/s"] = bytes / product_seconds / 1e9;
  state.counters["of_read"] = read_seconds / product_seconds;
  state.counters["best_Gweights/s"] =
      static_cast<double>(slice) * static_cast<double>(rows * cols) / best / 1e9;
}

void StoredCached(benchmark::State& state, const StoredForm& form, Isa isa) {
  constexpr int64_t kRows = 256, kCols = 1024;
  ThreadPool pool(1);
  const BusyClock clock(1);
  std::memset(Pages().data(), 0x2B, size_t{16} << 20);
  const StoredKernels& kernels =
      StoredKernelsOf(isa);  // asks the processor, which takes long in a virtual machine
  const StoredMatrix w = StoredAt(kernels, Pages().data(), form, kRows, kCols);
  const LineFloats x(Inputs(kCols));
  std::vector<float> y(kRows);
  LineFloats scratch;
  double seconds = 1e9;
  for (auto _ : state) {
    const double t0 = clock.Now();
    for (int i = 0; i < 20; ++i) RunStored(pool, kernels, w, x.data(), 1, y.data(), scratch);
    seconds = std::min(seconds, (clock.Now() - t0) / 20);
  }
  state.counters["best_Gweights/s"] = static_cast<double>(kRows * kCols) / seconds / 1e9;
}

void StoredPrefill(benchmark::State& state, const StoredForm& form, int64_t rows, int64_t cols,
                   int64_t tokens, Isa isa, int threads) {
  ThreadPool pool(threads);
  const BusyClock clock(pool.threads());
  std::memset(Pages().data(), 0x2B, size_t{64} << 20);
  const StoredKernels& kernels = StoredKernelsOf(isa);
  const StoredMatrix w = StoredAt(kernels, Pages().data(), form, rows, cols);
  const LineFloats x(Inputs(tokens * cols));
  std::vector<float> y(static_cast<size_t>(tokens * rows));
  LineFloats scratch;
  std::vector<double> shares, rates;
  for (auto _ : state) {
    const double peak = PeakGops(pool, false), t0 = clock.Now();
    RunStored(pool, kernels, w, x.data(), tokens, y.data(), scratch);
    rates.push_back(2.0 * static_cast<double>(rows * cols * tokens) / (clock.Now() - t0) / 1e9);
    shares.push_back(rates.back() / peak);
  }
  std::sort(shares.begin(), shares.end());
  std::sort(rates.begin(), rates.end());
  state.counters["GFLOP/s"] = rates[rates.size() / 2];
  state.counters["of_peak"] = shares[shares.size() / 2];
  state.counters["best_of_peak"] = shares.back();
}

void RegisterStored() {
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  for (const Isa isa : IsasThatRun()) {
    if (isa == Isa::kReference || StoredKernelsOf(isa).isa != isa) continue;
    const std::string_view name = IsaName(isa);
    for (const StoredForm& form : kStoredForms) {
      benchmark::RegisterBenchmark(fmt::format("stored/cached/{}/256/1024/{}", form.name, name).c_str(),
                                   StoredCached, form, isa)
          ->Iterations(200);
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{3072, 1024}, {1024, 3072}}) {
        for (int threads = 1; threads <= cpus; threads *= 2) {
          benchmark::RegisterBenchmark(
              fmt::format("stored/decode/{}/{}/{}/{}/{}", form.name, rows, cols, name, threads).c_str(),
              StoredDecode, form, rows, cols, isa, threads)
              ->Unit(benchmark::kMillisecond)
              ->Iterations(2);
          benchmark::RegisterBenchmark(
              fmt::format("stored/prefill/{}/{}/{}/64/{}/{}", form.name, rows, cols, name, threads).c_str(),
              StoredPrefill, form, rows, cols, 64, isa, threads)
              ->Unit(benchmark::kMillisecond)
              ->Iterations(15);
        }
      }
    }
  }
}

int RegisterAll() {
  RegisterStored();
  const DType dtypes[] = {DType::kQ8Row, DType::kQ8TwoField, DType::kQ4Block, DType::kQ4Tiled, DType::kQ4tp,
                          DType::kQ2tp,  DType::kVbitRo,     DType::kQ1,      DType::kQ1s,     DType::kQ1t,
                          DType::kF16,   DType::kBF16,       DType::kF32};
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  for (const Isa isa : IsasThatRun()) {
    if (isa == Isa::kReference) continue;
    const std::string_view name = IsaName(isa);
    for (const DType dtype : dtypes) {
      if (FindEncoding(dtype) == nullptr) continue;
      const std::string_view encoding = DTypeName(dtype);
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{3072, 1024}, {2048, 6144}}) {
        for (int threads = 1; threads <= cpus; threads *= 2) {
          benchmark::RegisterBenchmark(
              fmt::format("decode/{}/{}/{}/{}/{}", encoding, rows, cols, name, threads).c_str(), Decode,
              dtype, rows, cols, isa, threads)
              ->Unit(benchmark::kMillisecond)
              ->Iterations(3);
          for (const int64_t tokens : {32, 128, 512}) {
            benchmark::RegisterBenchmark(
                fmt::format("prefill/{}/{}/{}/{}/{}/{}", encoding, rows, cols, tokens, name, threads).c_str(),
                Prefill, dtype, rows, cols, tokens, isa, threads, ComputeMode::kFast)
                ->Unit(benchmark::kMillisecond)
                ->Iterations(15);
          }
        }
      }
      benchmark::RegisterBenchmark(fmt::format("cached/{}/256/1024/{}", encoding, name).c_str(), Cached,
                                   dtype, 256, 1024, isa)
          ->Iterations(200);
      benchmark::RegisterBenchmark(fmt::format("exact/{}/3072/1024/512/{}/{}", encoding, name, cpus).c_str(),
                                   Prefill, dtype, 3072, 1024, 512, isa, cpus, ComputeMode::kExact)
          ->Iterations(5);
    }
  }
  return 0;
}

const int kRegistered = RegisterAll();

}  // namespace
}  // namespace cmforge
