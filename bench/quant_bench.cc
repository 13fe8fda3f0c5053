// Encoding and decoding rates, in weights per second: kernel/encoding/rows/cols, all threads of the machine.
#include <benchmark/benchmark.h>

#include <random>
#include <thread>

#include "base/cpu_limit.h"
#include "base/half.h"
#include "quant/encoding.h"
#include "quant/least_error.h"
#include "quant/palette.h"

namespace cmforge {
namespace {

constexpr int64_t kRows = 1024, kCols = 4096;

/// Gaussian weights as a bf16 checkpoint has them.
const FloatRows& Source() {
  static const FloatRows source = [] {
    auto bytes = std::make_shared<std::vector<std::byte>>(kRows * kCols * 2);
    std::mt19937 random(1);
    std::normal_distribution<float> gauss(0.0f, 0.02f);
    for (int64_t i = 0; i < kRows * kCols; ++i) StoreLe(bytes->data() + 2 * i, F32ToBf16(gauss(random)));
    const Bytes view(*bytes);
    return *AsFloatRows({DType::kBF16, {kRows, kCols}, view, std::move(bytes)});
  }();
  return source;
}

void EncodeWith(benchmark::State& state, EncodeFunction encode, EncodeOptions options) {
  ThreadPool pool(UsableCpus());
  for (auto _ : state) {
    auto payload = encode(Source(), options, pool);
    benchmark::DoNotOptimize(payload->data());
  }
  state.SetItemsProcessed(state.iterations() * kRows * kCols);
}

/// Palettes of groups of 8 rows of 1024 columns, one thread; f16 weights have some three times as many distinct values
/// as bf16 ones.
void FitPalette(benchmark::State& state, bool bf16) {
  const int bits = static_cast<int>(state.range(0));
  std::mt19937 random(1);
  std::normal_distribution<float> gauss(0.0f, 0.02f);
  std::vector<uint16_t> values(8 * 1024);
  for (auto& value : values) value = F32ToF16(bf16 ? Bf16ToF32(F32ToBf16(gauss(random))) : gauss(random));
  std::vector<uint16_t> table(size_t{1} << bits);
  std::vector<uint8_t> indices(values.size());
  PaletteFitter fitter;
  for (auto _ : state) benchmark::DoNotOptimize(fitter.Fit(values, {}, bits, table, indices));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(values.size()));
}
BENCHMARK_CAPTURE(FitPalette, bf16, true)->Arg(4)->Arg(6)->Arg(8);
BENCHMARK_CAPTURE(FitPalette, f16, false)->Arg(4)->Arg(6)->Arg(8);

void Encode(benchmark::State& state, const Encoding* encoding, EncodeOptions options) {
  EncodeWith(state, encoding->encode, options);
}

void Decode(benchmark::State& state, const Encoding* encoding) {
  ThreadPool pool(UsableCpus());
  const auto payload = *encoding->encode(Source(), {}, pool);
  const TensorView tensor = {encoding->dtype, {kRows, kCols}, payload, nullptr};
  // 16 rows a time into the same buffer, as a matrix product unpacks them.
  std::vector<std::vector<float>> buffers(static_cast<size_t>(pool.threads()),
                                          std::vector<float>(16 * kCols));
  for (auto _ : state) {
    pool.Run(kRows / 16, [&](int64_t task, int worker) {
      float* out = buffers[static_cast<size_t>(worker)].data();
      encoding->decode_rows(tensor, task * 16, task * 16 + 16, out);
      benchmark::DoNotOptimize(out);
      benchmark::ClobberMemory();
    });
  }
  state.SetItemsProcessed(state.iterations() * kRows * kCols);
}

const bool kRegistered = [] {
  const auto name = [](std::string_view kernel, std::string_view encoding) {
    return fmt::format("{}/{}/{}/{}", kernel, encoding, kRows, kCols);
  };
  for (const Encoding* encoding : AllEncodings()) {
    if (encoding->dtype == DType::kU8) continue;
    benchmark::RegisterBenchmark(name("encode", encoding->name).c_str(), Encode, encoding, EncodeOptions{})
        ->MeasureProcessCPUTime()
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  for (const Encoding* encoding : AllEncodings()) {
    const EncodeFunction least_error = LeastErrorEncoder(encoding->dtype);
    if (least_error == nullptr) continue;
    benchmark::RegisterBenchmark(name("encode-mse", encoding->name).c_str(), EncodeWith, least_error,
                                 EncodeOptions{})
        ->MeasureProcessCPUTime()
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  EncodeOptions diffusion;
  diffusion.error_diffusion = true;
  benchmark::RegisterBenchmark(name("encode", "q1p").c_str(), Encode, FindEncoding(DType::kQ1), diffusion)
      ->MeasureProcessCPUTime()
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  for (const Encoding* encoding : AllEncodings()) {
    if (encoding->dtype == DType::kU8) continue;
    benchmark::RegisterBenchmark(name("decode", encoding->name).c_str(), Decode, encoding)
        ->MeasureProcessCPUTime()
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace cmforge
