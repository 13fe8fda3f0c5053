// RequantInPlace: a rewriter per file, and for a set the order in which shard 1's list of directory hashes is dropped
// and written again, so that the set opens at every moment.
#include <chrono>
#include <deque>
#include <filesystem>

#include "cmf/file.h"
#include "cmf/hash64.h"
#include "cmf/in_place_file.h"
#include "cmf/slot_rewriter.h"
#include "cmf/verify.h"
#include "convert/converter.h"
#include "quant/encoding.h"

namespace cmforge {
namespace {

class InPlaceWork {
 public:
  InPlaceWork(const cmf::File& file, std::vector<cmf::InPlaceFile>& targets, const Json& requant)
      : targets_(targets) {
    for (size_t i = 0; i < file.parts().size(); ++i) {
      cmf::Header header = file.parts()[i].header;
      if (header.provenance.is_null()) header.provenance = Json::object();
      if (header.provenance.is_object()) header.provenance["requant"] = requant;
      if (header.shard) header.shard->dir_hashes.clear();  // until all shards are done
      rewriters_.emplace_back(file.parts()[i], header, targets[i]);
      headers_.push_back(std::move(header));
    }
  }
  // What a failure or an interruption leaves behind the living end is given back.
  ~InPlaceWork() {
    for (size_t i = 0; i < targets_.size(); ++i) targets_[i].CutTo(rewriters_[i].live_end());
  }
  InPlaceWork(const InPlaceWork&) = delete;
  InPlaceWork& operator=(const InPlaceWork&) = delete;

  cmf::SlotRewriter& operator[](int32_t part) { return rewriters_[static_cast<size_t>(part)]; }

  /// Before anything is replaced: shard 1 stops to vouch for the others.
  Result<void> Begin() { return rewriters_.size() > 1 ? rewriters_[0].Flush() : Result<void>(); }

  Result<void> Finish() {
    for (cmf::SlotRewriter& rewriter : rewriters_) CMF_CHECK(rewriter.Flush());
    if (rewriters_.size() > 1) {
      for (const cmf::SlotRewriter& rewriter : rewriters_)
        headers_[0].shard->dir_hashes.push_back(cmf::Hash64Hex(rewriter.directory_hash()));
      rewriters_[0].set_header(headers_[0]);
      CMF_CHECK(rewriters_[0].Flush());
    }
    return {};
  }

 private:
  std::vector<cmf::InPlaceFile>& targets_;
  std::vector<cmf::Header> headers_;
  std::deque<cmf::SlotRewriter> rewriters_;
};

}  // namespace

Result<ConvertReport> RequantInPlace(const std::filesystem::path& path, const ConvertOptions& options,
                                     const Json& requant, ThreadPool& pool, const RunControl& control) {
  const auto begun = std::chrono::steady_clock::now();
  std::vector<cmf::InPlaceFile> targets;
  {
    CMF_TRY(const cmf::File named, cmf::File::Open(path));
    for (const cmf::Part& part : named.parts()) {
      CMF_TRY(cmf::InPlaceFile target, cmf::InPlaceFile::Open(part.path));
      targets.push_back(std::move(target));
    }
  }
  CMF_TRY(const cmf::File file, cmf::File::Open(path));  // after the locks: nobody else changes it now
  if (file.parts().size() != targets.size())
    return Fail(ErrorKind::kIo,
                fmt::format("{}: another program is changing this file: try again later", path.string()));
  for (const cmf::Part& part : file.parts()) CMF_CHECK(cmf::CheckSections(part));
  CMF_TRY(const QuantPlan plan, PlanQuantization(file, options.quant, options.tensor_quant));
  TensorEncoder encoder(file, plan, options.encoders, pool, control);

  ConvertReport report;
  int64_t total = 0, done = 0;
  std::string misfit;  // the first tensor that had no room
  for (const PlannedTensor& planned : plan.tensors) {
    if (encoder.Changes(planned)) total += static_cast<int64_t>(file.Find(planned.name)->nbytes);
  }
  {
    InPlaceWork work(file, targets, requant);
    for (const PlannedTensor& planned : plan.tensors) {
      const TensorInfo& info = *file.Find(planned.name);
      if (!encoder.Changes(planned)) {
        report.Count(info.dtype, info.shape, info.nbytes);
        if (!planned.fallback.empty())
          report.fallbacks.push_back({planned.name, planned.fallback, planned.wanted, planned.dtype});
        continue;
      }
      CMF_CHECK(control.CheckCancelled());
      control.Report("rewriting", done, total, ProgressUnit::kBytes);
      done += static_cast<int64_t>(info.nbytes);
      cmf::SlotRewriter& rewriter = work[file.PlaceOf(info).part];
      const uint64_t slot = rewriter.SlotSize(info.name);
      std::optional<uint64_t> size = FindEncoding(planned.dtype)->payload_size(planned.shape);
      TensorView view;
      if (!size || *size <= slot) {
        CMF_TRY(view, encoder.Read(planned));
        size = view.bytes.size();
      }
      if (*size > slot) {
        const std::string reason = fmt::format("{} bytes do not fit the slot of {}", *size, slot);
        if (misfit.empty())
          misfit = fmt::format("tensor '{}' as {}: {}", info.name, DTypeName(planned.dtype), reason);
        report.fallbacks.push_back({planned.name, reason, planned.dtype, info.dtype});
        report.Count(info.dtype, info.shape, info.nbytes);
        continue;
      }
      if (report.changed++ == 0) CMF_CHECK(work.Begin());
      CMF_CHECK(rewriter.Replace(info.name, planned.dtype, view.bytes));
      report.Count(planned.dtype, planned.shape, *size);
      if (!planned.fallback.empty())
        report.fallbacks.push_back({planned.name, planned.fallback, planned.wanted, planned.dtype});
    }
    control.Report("rewriting", total, total, ProgressUnit::kBytes);
    if (report.changed == 0 && !misfit.empty()) {
      return Fail(ErrorKind::kUsage,
                  fmt::format("{}: {}, and nothing else fits either: use --output", path.string(), misfit));
    }
    if (report.changed > 0) CMF_CHECK(work.Finish());
  }
  for (const cmf::Part& part : file.parts()) report.file_bytes += std::filesystem::file_size(part.path);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return report;
}

}  // namespace cmforge
