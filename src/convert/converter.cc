// The conversion loop.
#include "convert/converter.h"

#include <chrono>

#include "cmf/hash64.h"
#include "cmf/set_writer.h"
#include "cmf/shards.h"

namespace cmforge {

void ConvertReport::Count(DType dtype, std::span<const int64_t> shape, uint64_t bytes) {
  PerType& type = types[dtype];
  const int64_t count = ElementCount(shape).value_or(0);
  ++type.tensors;
  type.weights += count;
  type.bytes += bytes;
  weights += count;
}

namespace {

Result<cmf::SetPlan> PlanFiles(const QuantPlan& plan, double shard_max_gb) {
  std::vector<TensorInfo> tensors;
  for (const PlannedTensor& planned : plan.tensors)
    tensors.push_back({planned.name, planned.dtype, planned.shape, 0});
  cmf::SetPlan files;
  if (shard_max_gb > 0) {
    CMF_TRY(files.groups, cmf::PlanShards(tensors, shard_max_gb));
    files.is_set = true;
  } else {
    files.groups = {cmf::CanonicalOrder(tensors)};
  }
  return files;
}

// Stands for everything that decides the payloads.
uint64_t Identity(const QuantPlan& plan, const ConvertOptions& options) {
  std::string text = options.identity;
  for (const PlannedTensor& planned : plan.tensors) {
    text += fmt::format("\n{} {} {} {}", planned.name, DTypeName(planned.dtype), ShapeText(planned.shape),
                        planned.error_diffusion);
  }
  return cmf::Hash64(AsBytes(text));
}

}  // namespace

Result<ConvertReport> ConvertToCmf(const ConvertInput& input, const ConvertOptions& options,
                                   const std::filesystem::path& target, ThreadPool& pool,
                                   const RunControl& control) {
  const auto begun = std::chrono::steady_clock::now();
  CMF_TRY(const QuantPlan plan, PlanQuantization(*input.tensors, options.quant, options.tensor_quant));
  int64_t total = 0;
  for (const PlannedTensor& tensor : plan.tensors)
    total += static_cast<int64_t>(input.tensors->Find(tensor.name)->nbytes);
  CMF_TRY(const cmf::SetPlan files, PlanFiles(plan, options.shard_max_gb));
  const cmf::Resumption resumption = {
      .key = Identity(plan, options), .go_on = options.resume, .keep = options.resume};
  CMF_TRY(cmf::SetWriter writer, cmf::SetWriter::Create(target, input.header, files,
                                                        options.identity.empty() ? nullptr : &resumption));

  ConvertReport report;
  TensorEncoder encoder(*input.tensors, plan, options.encoders, pool, control);
  int64_t done = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    CMF_CHECK(control.CheckCancelled());
    control.Report("converting", done, total, ProgressUnit::kBytes);
    if (const cmf::DirectoryEntry* taken = writer.TakenOver(planned.name)) {
      report.Count(planned.dtype, planned.shape, taken->info.nbytes);
      ++report.resumed;
    } else {
      CMF_TRY(const TensorView view, encoder.Read(planned));
      CMF_CHECK(writer.Add(planned.name, planned.dtype, planned.shape, view.bytes));
      report.Count(planned.dtype, planned.shape, view.bytes.size());
    }
    if (encoder.Changes(planned)) ++report.changed;
    if (!planned.fallback.empty()) {
      report.fallbacks.push_back({planned.name, planned.fallback, planned.wanted, planned.dtype});
    }
    done += static_cast<int64_t>(input.tensors->Find(planned.name)->nbytes);
  }
  control.Report("converting", total, total, ProgressUnit::kBytes);
  CMF_TRY(const cmf::WriteSummary summary, writer.Finish({.masks = input.masks,
                                                          .tokenizer_json = input.tokenizer_json,
                                                          .sparse_index = input.sparse_index}));
  report.file_bytes = summary.bytes;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  CMF_CHECK(control.CheckCancelled());
  if (options.before_commit) CMF_CHECK(options.before_commit());
  CMF_CHECK(writer.Commit());
  report.files = writer.paths();
  return report;
}

}  // namespace cmforge
