// The conversion loop.
#include "convert/converter.h"

#include <chrono>

#include "cmf/writer.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

Result<std::vector<std::byte>> EncodeTensor(const TensorView& view, const PlannedTensor& planned,
                                            const ConvertOptions& options, ThreadPool& pool) {
  CMF_TRY(const FloatRows rows, AsFloatRows(view));
  EncodeOptions encode;
  encode.mean_bits = options.mean_bits;
  encode.error_diffusion = planned.error_diffusion;
  return FindEncoding(planned.dtype)->encode(rows, encode, pool);
}

}  // namespace

Result<ConvertReport> ConvertToCmf(const ConvertInput& input, const ConvertOptions& options,
                                   const std::filesystem::path& target, ThreadPool& pool,
                                   const RunControl& control) {
  const auto begun = std::chrono::steady_clock::now();
  CMF_TRY(const QuantPlan plan, PlanQuantization(*input.tensors, options.quant, options.tensor_quant));

  cmf::Header header;
  header.config = input.config;
  header.chat = input.chat;
  header.sampling = input.sampling;
  header.provenance = input.provenance;
  std::vector<std::string> names;
  int64_t total = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    names.push_back(tensor.name);
    total += static_cast<int64_t>(input.tensors->Find(tensor.name)->nbytes);
  }
  CMF_TRY(cmf::Writer writer, cmf::Writer::Create(target, std::move(header), names));

  ConvertReport report;
  int64_t done = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    CMF_CHECK(control.CheckCancelled());
    control.Report("converting", done, total);
    CMF_TRY(const TensorView view, input.tensors->Read(planned.name));
    Bytes payload = view.bytes;
    std::vector<std::byte> encoded;
    // A tensor that already has the wanted encoding is copied, so no bit changes.
    if (view.dtype != planned.dtype || planned.error_diffusion) {
      auto result = EncodeTensor(view, planned, options, pool);
      if (!result) {
        return Fail(std::move(result).error().In(
            fmt::format("{}: tensor '{}'", input.tensors->path(), planned.name)));
      }
      encoded = std::move(*result);
      payload = encoded;
    }
    CMF_CHECK(writer.Add(planned.name, planned.dtype, planned.shape, payload));
    auto& type = report.types[planned.dtype];
    const int64_t count = ElementCount(planned.shape).value_or(0);
    ++type.tensors;
    type.weights += count;
    type.bytes += payload.size();
    report.weights += count;
    if (!planned.fallback.empty()) {
      report.fallbacks.push_back({planned.name, planned.fallback, planned.wanted, planned.dtype});
    }
    done += static_cast<int64_t>(view.bytes.size());
  }
  control.Report("converting", total, total);
  CMF_TRY(const cmf::WriteSummary summary,
          writer.Finish({.masks = nullptr, .tokenizer_json = input.tokenizer_json}));
  report.file_bytes = summary.bytes;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  CMF_CHECK(control.CheckCancelled());
  CMF_CHECK(writer.Commit());
  return report;
}

}  // namespace cmforge
