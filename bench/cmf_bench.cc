// Rates of the container over a file in the page cache: what reading it costs at all, what SHA-256 alone costs, and what
// verifying costs, with and without a signature. CMFORGE_BENCH_MODEL names a .cmf file; without it, one of 1 GB is made.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/cpu_limit.h"
#include "base/page_buffer.h"
#include "cmf/rewrite.h"
#include "cmf/signature.h"
#include "cmf/verify.h"

namespace {

using namespace cmforge;  // NOLINT
namespace fs = std::filesystem;

/// Many names for the same numbers.
class Repeated : public TensorSource {
 public:
  Repeated() : bytes_(kBytes) {
    unsigned seed = 1;
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>((seed = seed * 1103515245 + 12345) >> 24);
    for (int i = 0; i < 64; ++i)
      tensors_.push_back(
          {fmt::format("model.layers.{}.mlp.up_proj.weight", i), DType::kBF16, {2048, 4096}, kBytes});
  }
  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return tensors_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    for (const TensorInfo& info : tensors_) {
      if (info.name == name) return &info;
    }
    return nullptr;
  }
  Result<TensorView> Read(std::string_view) const override {
    return TensorView{DType::kBF16, {2048, 4096}, bytes_, nullptr};
  }
  [[nodiscard]] std::string_view path() const override { return "memory"; }

 private:
  static constexpr uint64_t kBytes = uint64_t{2048} * 4096 * 2;
  std::vector<std::byte> bytes_;
  std::vector<TensorInfo> tensors_;
};

/// The file, made at the first use and removed at the end.
class BenchFile {
 public:
  BenchFile() {
    if (const char* given = std::getenv("CMFORGE_BENCH_MODEL")) {
      path_ = given;
      return;
    }
    path_ = fs::temp_directory_path() / fmt::format("cmforge-bench-{}.cmf", ::getpid());
    is_ours_ = true;
    const Repeated source;
    cmf::Contents contents;
    contents.header.config.arch_name = "bench";
    contents.header.config.hidden_size = 4096;
    contents.header.config.intermediate_size = 2048;
    contents.header.config.num_layers = 64;
    contents.header.config.layer_types.assign(64, LayerKind::kFullAttention);
    contents.header.config.num_attention_heads = 32;
    contents.header.config.vocab_size = 1;
    contents.tensors = &source;
    for (const TensorInfo& info : source.tensors()) contents.names.push_back(info.name);
    if (const auto written = cmf::WriteCmf(path_, contents); !written) {
      fmt::print(stderr, "{}\n", written.error().message);
      std::exit(1);
    }
  }
  ~BenchFile() {
    if (is_ours_) fs::remove(path_);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(fs::file_size(path_)); }

 private:
  fs::path path_;
  bool is_ours_ = false;
};

const BenchFile& File() {
  static const BenchFile file;
  return file;
}

int Threads(const benchmark::State& state) {
  return state.range(0) > 0 ? static_cast<int>(state.range(0)) : UsableCpus();
}

// read(2) of the whole file in pieces of 256 KiB by that many threads: nothing can be checked faster.
void Read(benchmark::State& state) {
  const auto mapped = MappedFile::Open(File().path());
  ThreadPool pool(Threads(state));
  constexpr uint64_t kPiece = uint64_t{256} << 10;
  const uint64_t size = mapped->bytes().size();
  std::vector<PageBuffer> buffers;
  for (int worker = 0; worker < pool.threads(); ++worker) buffers.emplace_back(kPiece);
  for (auto _ : state) {
    pool.Run(static_cast<int64_t>((size + kPiece - 1) / kPiece), [&](int64_t task, int worker) {
      const uint64_t at = static_cast<uint64_t>(task) * kPiece;
      const auto status =
          mapped->ReadAt(at, buffers[static_cast<size_t>(worker)].first(std::min(kPiece, size - at)));
      benchmark::DoNotOptimize(status.has_value());
    });
  }
  state.SetBytesProcessed(state.iterations() * File().size());
}

// The crypto library's SHA-256 over memory: one thread, since the digest is one chain.
void Sha256(benchmark::State& state) {
  std::vector<std::byte> bytes(size_t{64} << 20);
  for (auto _ : state) {
    cmf::Sha256 sha;
    sha.Update(bytes);
    benchmark::DoNotOptimize(sha.Finish());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
}

void Verify(benchmark::State& state, bool is_signed) {
  const fs::path signature = cmf::SignaturePath(File().path());
  const fs::path key = fs::temp_directory_path() / fmt::format("cmforge-bench-{}.key", ::getpid());
  if (is_signed && !cmf::SignFile(File().path(), key)) return state.SkipWithError("cannot sign");
  ThreadPool pool(Threads(state));
  cmf::VerifyOptions options;
  options.check_signature = is_signed;
  for (auto _ : state) {
    const auto report = cmf::Verify(File().path(), options, pool);
    if (!report || !report->ok()) return state.SkipWithError("not right");
  }
  if (is_signed) {
    fs::remove(signature);
    fs::remove(key);
  }
  state.SetBytesProcessed(state.iterations() * File().size());
}

BENCHMARK(Read)
    ->Name("cmf/read")
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(0)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(Sha256)->Name("cmf/sha256")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Verify, unsigned, false)
    ->Name("cmf/verify/unsigned")
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(0)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Verify, signed, true)
    ->Name("cmf/verify/signed")
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(0)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
