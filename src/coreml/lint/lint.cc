// Opening what is to be inspected, and gathering the findings.
#include "coreml/lint/lint.h"

#include <algorithm>

#include "coreml/lint/memory.h"
#include "coreml/lint/package.h"

namespace cmforge::coreml::lint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxMetaBytes = 1 << 20;

class Inspector {
 public:
  Inspector(fs::path path, MappedFile::Mode mode)
      : path_(std::move(path)), mode_(mode), findings_(report_.findings) {
    report_.path = path_;
  }

  Result<Report> Run() {
    CMF_CHECK(CheckIsModelOrPackage(path_));
    std::error_code error;
    if (fs::exists(path_ / "meta.yaml", error)) {
      CMF_CHECK(InspectFolder());
    } else {
      CMF_TRY(const ModelSubject model, Open(path_));
      InspectModel(model);
    }
    Sort();
    for (const auto& [name, bytes] : states_) report_.state_bytes += bytes;
    return std::move(report_);
  }

 private:
  Result<ModelSubject> Open(const fs::path& path) const {
    CMF_TRY(mil::Package package, mil::OpenPackage(path, mode_));
    return ModelSubject(std::make_shared<const mil::Package>(std::move(package)));
  }

  void InspectModel(const ModelSubject& model) {
    CheckModel(model);
    report_.parts.push_back(model.part);
    for (const FunctionView& function : model.functions) {
      for (const mil::NamedType& input : function.function().inputs) {
        const auto count = input.type.is_state() ? ElementCount(input.type.tensor.shape) : std::nullopt;
        if (count) states_[input.name] = mil::StorageBytes(input.type.tensor.dtype, *count).value_or(0);
      }
      if (function.is_ordered())
        report_.memory.push_back({model.part, function.name(), WiredBytes(function)});
    }
  }

  void CheckModel(const ModelSubject& model) {
    CheckProgram(model, findings_);
    CheckWeightFiles(model, findings_);
    CheckNumbers(model, findings_);
    CheckArithmetic(model, findings_);
    CheckStates(model, findings_);
    CheckDevices(model, findings_);
    CheckWeights(model, findings_);
  }

  /// A part; nothing, and a finding, when it does not open.
  std::optional<ModelSubject> OpenPart(const fs::path& path) {
    auto model = Open(path);
    if (model) return std::move(*model);
    const std::string name = path.filename().string(), prefix = path.string() + ": ";
    std::string reason = std::move(model).error().message;
    if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
    findings_.Add(rules::kUnreadablePart, name, std::move(reason));
    return std::nullopt;
  }

  std::optional<ModelSubject> InspectPart(const fs::path& path) {
    auto model = OpenPart(path);
    if (!model) return std::nullopt;
    InspectModel(*model);
    // Its other form is the same part, for readers that cannot take this one: it takes no memory of its own.
    fs::path other = path;
    other.replace_extension(path.extension() == ".mlmodelc" ? ".mlpackage" : ".mlmodelc");
    std::error_code error;
    if (!fs::exists(other, error)) return model;
    if (const auto twin = OpenPart(other)) CheckModel(*twin);
    return model;
  }

  Result<void> InspectFolder() {
    const std::string file = (path_ / "meta.yaml").string();
    CMF_TRY(const std::string text, ReadTextFile(file, kMaxMetaBytes));
    if (auto status = CheckMetaKeys(text, findings_); !status)
      return Fail(MetaError(std::move(status).error(), path_));
    CheckDoubleKeys(text, findings_);
    auto meta = ParsePackageMeta(text);
    if (!meta) findings_.Add(rules::kMetaValue, "meta.yaml", meta.error().message);
    CheckSideFiles(path_, meta ? meta->vocab_size : std::nullopt, findings_);
    std::optional<PackageParts> parts;
    if (meta) {
      auto found = FindParts(path_, *meta);
      if (found) {
        parts = std::move(*found);
      } else {
        AddMissing(std::move(found).error());
      }
    }
    if (!parts) {
      for (const fs::path& path : ModelsIn(path_)) (void)InspectPart(path);
      return {};
    }
    CheckMetaNames(path_, *meta, *parts, findings_);
    auto embeddings = InspectPart(parts->embeddings);
    std::vector<ModelSubject> chunks;
    for (const fs::path& path : parts->chunks) {
      if (auto chunk = InspectPart(path)) chunks.push_back(std::move(*chunk));
    }
    auto head = InspectPart(parts->lm_head);
    if (embeddings && head && chunks.size() == parts->chunks.size()) {
      CheckPackage({path_, std::move(*meta), std::move(*embeddings), std::move(*head), std::move(chunks)},
                   findings_);
    }
    return {};
  }

  void AddMissing(Error error) {
    const bool is_name = error.kind != ErrorKind::kNotFound;
    for (const std::string& prefix : {(path_ / "meta.yaml").string() + ": ", path_.string() + ": "}) {
      if (error.message.starts_with(prefix)) error.message.erase(0, prefix.size());
    }
    findings_.Add(is_name ? rules::kFfnName : rules::kMissingPart, "meta.yaml", std::move(error.message));
  }

  /// Every model of the folder, the compiled form where both are there.
  static std::vector<fs::path> ModelsIn(const fs::path& folder) {
    std::map<std::string, fs::path> models;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const fs::path& path = it->path();
      if (path.extension() == ".mlmodelc" || path.extension() == ".mlpackage") {
        fs::path& chosen = models[path.stem().string()];
        if (chosen.extension() != ".mlmodelc") chosen = path;
      }
    }
    std::vector<fs::path> out;
    for (auto& [stem, path] : models) out.push_back(std::move(path));
    return out;
  }

  void Sort() {
    std::map<std::string_view, size_t> order;
    for (const Rule* rule : AllRules()) order.emplace(rule->id, order.size());
    std::stable_sort(report_.findings.begin(), report_.findings.end(),
                     [&](const Finding& a, const Finding& b) {
                       if (a.severity != b.severity) return a.severity < b.severity;
                       return order[a.rule] < order[b.rule];
                     });
  }

  const fs::path path_;
  const MappedFile::Mode mode_;
  Report report_;
  Findings findings_;
  std::map<std::string, uint64_t> states_;  // bytes
};

}  // namespace

std::string_view SeverityName(Severity severity) {
  static constexpr std::string_view kNames[] = {"error", "warning", "note"};
  return kNames[static_cast<size_t>(severity)];
}

int64_t Report::Count(Severity severity) const {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& f) { return f.severity == severity; });
}

uint64_t Report::MemoryBytes() const {
  uint64_t bytes = 0;
  for (const FunctionMemory& one : memory) bytes += one.weight_bytes;
  return bytes;
}

Result<Report> Inspect(const fs::path& path, MappedFile::Mode mode) { return Inspector(path, mode).Run(); }

std::span<const Rule* const> AllRules() {
  using namespace rules;
  static constexpr const Rule* kAll[] = {
      // errors
      &kMetaPlace, &kMetaKey, &kMetaValue, &kMetaTwice, &kMissingPart, &kUnreadablePart, &kFfnName,
      &kChunkFiles, &kHeadSizes, &kContract, &kFirstToken, &kOutputShape, &kTokenizer, &kEndOutside,
      &kProgram, &kWeightFile, &kDescription, &kVersion, &kOpenShape, &kNotFinite, &kSubByteValue,
      &kIntegerDivision, &kStateType, &kStateTrailing3, &kStateUnread, &kStateUnwritten, &kStatesDiffer,
      &kSingleHeadUpdates, &kLinearInt8, &kLinearInt4,
      // warnings
      &kHeadSplitUnsaid, &kMetaVariant, &kMetaStates, &kWindowPrefix, &kNoTokenizer, &kNoEnd, &kNativeSigmoid,
      &kGeluOverflow, &kOmittedEpsilon, &kVanishingEpsilon, &kSubnormalState, &kStateWidth, &kStateDim1,
      &kLargeUpdate, &kFlexibleState, &kShortContext, &kCpuBetween, &kFloat32, &kRank, &kAxisLimit,
      &kRuntimeShape, &kCompressedTable, &kCompressedRouter, &kRopeTable, &kLargeModel,
      // notes
      &kSampling, &kMetaWeights, &kStockPrefill, &kExtension, &kUnknownOperation, &kNormEpsilon, &kEinsum,
      &kStateLength, &kMixedStates, &kLut4State, &kCpuOnly, &kCpuEdge, &kLongAxis, &kLutOneChannel,
      &kLutTwoChannels, &kLutThreeBits, &kFoldableScale, &kLargeForPhones};
  return kAll;
}

Json ToJson(const Report& report) {
  Json findings = Json::array(), memory = Json::array();
  for (const Finding& f : report.findings) {
    Json one{{"severity", SeverityName(f.severity)}, {"rule", f.rule}, {"part", f.part}};
    if (!f.function.empty()) one["function"] = f.function;
    if (!f.operation.empty()) one["operation"] = f.operation;
    one["reason"] = f.reason;
    one["remedy"] = f.remedy;
    findings.push_back(std::move(one));
  }
  for (const FunctionMemory& one : report.memory)
    memory.push_back({{"part", one.part}, {"function", one.function}, {"weight_bytes", one.weight_bytes}});
  return {{"path", report.path.string()},
          {"ok", report.Count(Severity::kError) == 0},
          {"errors", report.Count(Severity::kError)},
          {"warnings", report.Count(Severity::kWarning)},
          {"notes", report.Count(Severity::kNote)},
          {"parts", report.parts},
          {"findings", std::move(findings)},
          {"wired_memory",
           {{"functions", std::move(memory)},
            {"weight_bytes", report.MemoryBytes()},
            {"state_bytes", report.state_bytes}}}};
}

}  // namespace cmforge::coreml::lint
