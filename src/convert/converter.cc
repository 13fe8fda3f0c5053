// The conversion loop.
#include "convert/converter.h"

#include <chrono>

#include "cmf/writer.h"

namespace cmforge {

void ConvertReport::Count(DType dtype, std::span<const int64_t> shape, uint64_t bytes) {
  PerType& type = types[dtype];
  const int64_t count = ElementCount(shape).value_or(0);
  ++type.tensors;
  type.weights += count;
  type.bytes += bytes;
  weights += count;
}

Result<ConvertReport> ConvertToCmf(const ConvertInput& input, const ConvertOptions& options,
                                   const std::filesystem::path& target, ThreadPool& pool,
                                   const RunControl& control) {
  const auto begun = std::chrono::steady_clock::now();
  CMF_TRY(const QuantPlan plan, PlanQuantization(*input.tensors, options.quant, options.tensor_quant));
  std::vector<std::string> names;
  int64_t total = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    names.push_back(tensor.name);
    total += static_cast<int64_t>(input.tensors->Find(tensor.name)->nbytes);
  }
  CMF_TRY(cmf::Writer writer, cmf::Writer::Create(target, input.header, names));

  ConvertReport report;
  TensorEncoder encoder(*input.tensors, plan, options.encoders, pool, control);
  int64_t done = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    CMF_CHECK(control.CheckCancelled());
    control.Report("converting", done, total);
    CMF_TRY(const TensorView view, encoder.Read(planned));
    CMF_CHECK(writer.Add(planned.name, planned.dtype, planned.shape, view.bytes));
    report.Count(planned.dtype, planned.shape, view.bytes.size());
    if (encoder.Changes(planned)) ++report.changed;
    if (!planned.fallback.empty()) {
      report.fallbacks.push_back({planned.name, planned.fallback, planned.wanted, planned.dtype});
    }
    done += static_cast<int64_t>(input.tensors->Find(planned.name)->nbytes);
  }
  control.Report("converting", total, total);
  CMF_TRY(const cmf::WriteSummary summary, writer.Finish({.masks = input.masks,
                                                          .tokenizer_json = input.tokenizer_json,
                                                          .sparse_index = input.sparse_index}));
  report.file_bytes = summary.bytes;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  CMF_CHECK(control.CheckCancelled());
  CMF_CHECK(writer.Commit());
  return report;
}

}  // namespace cmforge
