// Converting a checkpoint and opening what came out: weights encoded a second (warm cache, without the final
// sync), the time of open() and the private memory it costs. CMFORGE_BENCH_CHECKPOINT names a Hugging Face
// folder; without it, one of 190 MB with the shape of a small Qwen3 is made.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "base/cpu_limit.h"
#include "base/half.h"
#include "checkpoint/checkpoint.h"
#include "cmf/file.h"
#include "convert/converter.h"

namespace {

using namespace cmforge;  // NOLINT
namespace fs = std::filesystem;

// A checkpoint of Gaussian bf16 weights under Qwen3's names.
void WriteCheckpoint(const fs::path& folder) {
  constexpr int kHidden = 1024, kFfn = 3072, kLayers = 4, kVocab = 32768, kHead = 128, kHeads = 16,
                kKvHeads = 8;
  std::map<std::string, Shape> tensors = {{"model.embed_tokens.weight", {kVocab, kHidden}},
                                          {"model.norm.weight", {kHidden}}};
  for (int i = 0; i < kLayers; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    tensors[p + "input_layernorm.weight"] = tensors[p + "post_attention_layernorm.weight"] = {kHidden};
    tensors[p + "self_attn.q_norm.weight"] = tensors[p + "self_attn.k_norm.weight"] = {kHead};
    tensors[p + "self_attn.q_proj.weight"] = {kHeads * kHead, kHidden};
    tensors[p + "self_attn.k_proj.weight"] =
        tensors[p + "self_attn.v_proj.weight"] = {kKvHeads * kHead, kHidden};
    tensors[p + "self_attn.o_proj.weight"] = {kHidden, kHeads * kHead};
    tensors[p + "mlp.gate_proj.weight"] = tensors[p + "mlp.up_proj.weight"] = {kFfn, kHidden};
    tensors[p + "mlp.down_proj.weight"] = {kHidden, kFfn};
  }
  std::string header = "{";
  int64_t end = 0;
  for (const auto& [name, shape] : tensors) {
    const int64_t begin = end;
    end += *ElementCount(shape) * 2;
    std::string sizes = ShapeText(shape);
    header += fmt::format("{}\"{}\":{{\"dtype\":\"BF16\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", name, sizes, begin, end);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file(folder / "model.safetensors", std::ios::binary);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << header;
  std::mt19937 random(1);
  std::normal_distribution<float> gauss(0.0f, 0.02f);
  std::vector<uint16_t> block(1 << 20);
  for (auto& weight : block) weight = F32ToBf16(gauss(random));
  for (int64_t left = end; left > 0;) {
    const int64_t n = std::min<int64_t>(left, static_cast<int64_t>(block.size() * 2));
    file.write(reinterpret_cast<const char*>(block.data()), n);
    left -= n;
  }
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"model_type":"qwen3","hidden_size":{},"intermediate_size":{},"num_hidden_layers":{},"vocab_size":{},)"
      R"("num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"max_position_embeddings":4096,)"
      R"("rope_theta":1000000,"rms_norm_eps":1e-6,"tie_word_embeddings":true}})",
      kHidden, kFfn, kLayers, kVocab, kHeads, kKvHeads, kHead);
}

/// The checkpoint and what is made of it; removed at the end.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("cmforge-bench-{}", ::getpid())) {
    fs::create_directories(path_);
    if (const char* given = std::getenv("CMFORGE_BENCH_CHECKPOINT")) {
      checkpoint_ = given;
    } else {
      checkpoint_ = path_;
      WriteCheckpoint(path_);
    }
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& checkpoint() const { return checkpoint_; }
  [[nodiscard]] fs::path Output(std::string_view quant) const { return path_ / fmt::format("{}.cmf", quant); }

 private:
  fs::path path_, checkpoint_;
};

const Folder& Files() {
  static const Folder folder;
  return folder;
}

Result<ConvertReport> Convert(const Checkpoint& checkpoint, std::string_view quant) {
  ConvertInput input;
  input.tensors = checkpoint.tensors.get();
  input.header.config = checkpoint.config.model;
  ConvertOptions options;
  CMF_TRY(options.quant, ParseQuantPreset(quant));
  ThreadPool pool(UsableCpus());
  return ConvertToCmf(input, options, Files().Output(quant), pool, {});
}

void ConvertTo(benchmark::State& state, const char* quant) {
  const auto checkpoint = OpenCheckpoint(Files().checkpoint());
  if (!checkpoint) return state.SkipWithError(checkpoint.error().message.c_str());
  int64_t weights = 0;
  for (auto _ : state) {
    const auto report = Convert(*checkpoint, quant);
    if (!report) return state.SkipWithError(report.error().message.c_str());
    state.SetIterationTime(report->seconds);  // without the sync
    weights += report->weights;
  }
  state.SetItemsProcessed(weights);
}

int64_t PrivateKib() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  int64_t sum = 0;
  for (std::string key; rollup >> key;) {
    int64_t kib = 0;
    if (key == "Private_Clean:" || key == "Private_Dirty:") {
      rollup >> kib;
      sum += kib;
    }
  }
  return sum;
}

// The header, directory and masks are read, no page of the weights.
void Open(benchmark::State& state) {
  if (!fs::exists(Files().Output("q8"))) {
    const auto checkpoint = OpenCheckpoint(Files().checkpoint());
    if (!checkpoint || !Convert(*checkpoint, "q8")) return state.SkipWithError("no file to open");
  }
  int64_t private_kib = 0;
  for (auto _ : state) {
    const auto file = cmf::File::Open(Files().Output("q8"));
    benchmark::DoNotOptimize(file->tensors().data());
    state.PauseTiming();
    if (private_kib == 0) {  // what one open file holds: the second of two, when all code has run once
      const int64_t before = PrivateKib();
      const auto second = cmf::File::Open(Files().Output("q8"));
      private_kib = std::max<int64_t>(1, PrivateKib() - before);
    }
    state.ResumeTiming();
  }
  state.counters["private_KiB"] = static_cast<double>(private_kib);
  state.counters["file_MB"] = static_cast<double>(fs::file_size(Files().Output("q8"))) / 1e6;
}

BENCHMARK_CAPTURE(ConvertTo, q8, "q8")
    ->Name("convert/q8")
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(3);
BENCHMARK_CAPTURE(ConvertTo, q4t, "q4t")
    ->Name("convert/q4_tiled")
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(3);
BENCHMARK(Open)->Name("open/q8")->Unit(benchmark::kMillisecond);

}  // namespace
