// Writing a package part by part.
#include "coreml/package_writer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/atomic_file.h"
#include "coreml/compile_part.h"
#include "coreml/graphs/graphs.h"
#include "coreml/meta_writer.h"
#include "coreml/package_meta.h"
#include "coreml/side_files.h"
#include "mil/package.h"

namespace cmforge::coreml {
namespace {

namespace fs = std::filesystem;

/// Part names are read back by patterns: what could be taken for one of their other parts has no place in a
/// prefix. Readers also switch to other rules for some prefixes.
Result<void> CheckPrefix(const std::string& prefix) {
  const auto is_fit = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  const bool is_name = !prefix.empty() && prefix[0] != '.' && prefix[0] != '-' &&
                       std::all_of(prefix.begin(), prefix.end(), is_fit);
  if (is_name && prefix.find("FFN") == prefix.npos && prefix.find("_chunk_") == prefix.npos &&
      !prefix.starts_with("gemma3"))
    return {};
  return Fail(ErrorKind::kUsage,
              fmt::format("prefix '{}': file names are made of it: give letters, digits, '_', '-', '.', "
                          "without FFN or _chunk_, not beginning with gemma3",
                          prefix));
}

/// Whether `entry` is what a package with `meta` consists of: a part named by its prefix or by meta.yaml
/// itself, or one of the files beside the parts.
bool BelongsToPackage(const fs::directory_entry& entry, const PackageMeta& meta) {
  std::error_code error;
  const std::string name = entry.path().filename().string();
  if (!fs::is_directory(entry.symlink_status(error)))
    return name == "meta.yaml" || name == ".DS_Store" || IsSideFile(name);
  if (!name.ends_with(".mlpackage") && !name.ends_with(".mlmodelc")) return false;
  const std::string stem = entry.path().stem().string();
  for (const std::string& named : {meta.embeddings, meta.lm_head, meta.ffn}) {
    if (!named.empty() && (name == named || stem == fs::path(named).stem())) return true;
  }
  const std::string prefix = meta.model_prefix.empty() ? "llama" : meta.model_prefix;
  for (const char* part : {"_embeddings", "_lm_head", "_FFN", "_prefill"}) {
    if (stem.starts_with(prefix + part)) return true;
  }
  return false;
}

/// Only an older package or nothing may be replaced: whatever else the folder holds would be lost with it.
Result<void> CheckTarget(const fs::path& target) {
  std::error_code error;
  if (!fs::exists(target, error) || (fs::is_directory(target, error) && fs::is_empty(target, error)))
    return {};
  const auto refuse = [&](const std::string& why) {
    return Fail(ErrorKind::kUsage, fmt::format("{}: {}: give another name", target.string(), why));
  };
  const auto meta = ReadPackageMeta(target);
  const bool is_package =
      meta && meta->context_length > 0 && !(meta->model_prefix.empty() && meta->ffn.empty());
  if (!is_package) return refuse("exists and is no package that could be replaced");
  std::vector<std::string> foreign;
  for (fs::directory_iterator it(target, error), end; !error && it != end; it.increment(error)) {
    if (!BelongsToPackage(*it, *meta)) foreign.push_back(it->path().filename().string());
  }
  if (error) return refuse(fmt::format("cannot be listed ({})", error.message()));
  if (foreign.empty()) return {};
  return refuse(
      fmt::format("holds '{}', which is no part of a package and would be lost if the folder were replaced",
                  *std::min_element(foreign.begin(), foreign.end())));
}

class Writer {
 public:
  Writer(const PackageSource& source, const PackageOptions& options, DecoderPlan plan, fs::path folder,
         WeightJournal* journal, ThreadPool& pool, const RunControl& control)
      : source_(source),
        options_(options),
        compression_(options.compression),
        plan_(std::move(plan)),
        folder_(std::move(folder)),
        journal_(journal),
        pool_(pool),
        control_(control) {
    prefix_ = options.prefix.empty() ? std::string(plan_.default_prefix()) : options.prefix;
    for (const TensorInfo& info : source.tensors->tensors()) {
      if (info.name.find(".mtp.") != info.name.npos) continue;
      total_ += ElementCount(info.shape).value_or(0);
    }
    if (!source.tensors->Find("lm_head.weight")) total_ += plan_.config.vocab_size * plan_.config.hidden_size;
  }

  Result<PackageReport> Write() {
    CMF_CHECK(CheckPrefix(prefix_));
    report_.architecture = plan_.architecture();
    const Compression& c = compression_;
    const std::string embeddings = prefix_ + "_embeddings" + FormSuffix(c.embeddings);
    const std::string head = prefix_ + "_lm_head" + FormSuffix(c.lmhead);
    CMF_CHECK(WritePart(embeddings, "token ids to hidden states", PlanFor(c.embeddings),
                        [&](WeightStore& weights) { return EmbeddingsModel(plan_, weights); }));
    const auto chunks = static_cast<int64_t>(plan_.chunks.size());
    const auto chunk_name = [&](int64_t chunk) {
      return fmt::format("{}_FFN_PF{}_chunk_{:02}of{:02}", prefix_, FormSuffix(c.ffn), chunk + 1, chunks);
    };
    CompressionPlan decoder = PlanFor(c.ffn);
    if (c.ffn_mixed) {
      CMF_TRY(decoder.exceptions, WiderMatrices(decoder));
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const LayerRange range = plan_.chunks[static_cast<size_t>(chunk)];
      CMF_CHECK(WritePart(
          chunk_name(chunk), fmt::format("decoder layers {}-{}", range.begin, range.end - 1), decoder,
          [&](WeightStore& weights) { return ChunkModel(plan_, chunk, weights); }, chunk));
    }
    CMF_CHECK(WritePart(head, "final hidden state to logits", PlanFor(c.lmhead),
                        [&](WeightStore& weights) { return HeadModel(plan_, weights); }));
    MetaInput meta;
    meta.plan = &plan_;
    meta.compression = &compression_;
    meta.ffn_average = ffn_average_;
    meta.name = source_.name;
    meta.prefix = prefix_;
    const char* extension = options_.forms == PackageForms::kPackage ? ".mlpackage" : ".mlmodelc";
    meta.embeddings = embeddings + extension;
    meta.lm_head = head + extension;
    meta.ffn = chunk_name(0) + extension;
    meta.sampling = source_.sampling;
    CMF_CHECK(WriteFileAtomically(folder_ / "meta.yaml", AsBytes(MetaText(meta))));
    report_.files.push_back("meta.yaml");
    CMF_TRY(std::vector<std::string> beside, WriteSideFiles(source_, folder_));
    report_.files.insert(report_.files.end(), beside.begin(), beside.end());
    Warn();
    if (journal_ != nullptr) report_.resumed = journal_->resumed();
    return std::move(report_);
  }

 private:
  [[nodiscard]] CompressionPlan PlanFor(const WeightForm& form) const {
    return {form, {}, journal_, compression_.statistics};
  }

  /// Compresses every matrix of the decoder at both widths, into the journal, and says which get the wider
  /// one.
  Result<std::map<std::string, WeightForm>> WiderMatrices(const CompressionPlan& narrow) {
    WeightForm wider = narrow.form;
    wider.bits = NextPaletteWidth(narrow.form.bits);
    for (const TensorInfo& info : source_.tensors->tensors()) {
      if (info.name.starts_with("model.layers.")) total_ += 2 * ElementCount(info.shape).value_or(0);
    }
    std::vector<PaletteCandidate> candidates;
    for (size_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) {
      WeightStore store(*source_.tensors, nullptr, narrow, pool_, control_);
      store.on_progress = [&](int64_t numbers) {
        control_.Report("weighing widths", std::min(done_ + numbers, total_), total_);
      };
      store.on_matrix = [&](const std::string& name, const WeightRows& rows) -> Result<void> {
        PaletteCandidate candidate{name, rows.rows * rows.cols, 0, 0};
        for (const bool is_wide : {false, true}) {
          const WeightForm form = FormFor(is_wide ? wider : narrow.form, rows.rows, rows.cols);
          CMF_TRY(const EncodedWeight weight, store.Compress(name, rows, form));
          (is_wide ? candidate.error_high : candidate.error_low) = weight.error;
          done_ += candidate.numbers;
        }
        candidates.push_back(std::move(candidate));
        return {};
      };
      CMF_CHECK(ChunkModel(plan_, static_cast<int64_t>(chunk), store));
    }
    const WiderChoice choice =
        ChooseWider(std::move(candidates), narrow.form.bits, wider.bits, *compression_.ffn_mixed);
    ffn_average_ = choice.average;
    std::map<std::string, WeightForm> forms;
    for (const std::string& name : choice.names) forms[name] = wider;
    return forms;
  }

  Result<void> WritePart(const std::string& name, const std::string& what, const CompressionPlan& compression,
                         const std::function<Result<mil::Model>(WeightStore&)>& build, int64_t chunk = -1) {
    const fs::path path = folder_ / (name + ".mlpackage");
    CMF_TRY(mil::PackageWriter writer, mil::PackageWriter::Create(path));
    WeightStore store(*source_.tensors, &writer.weights(), compression, pool_, control_);
    int64_t here = 0;
    store.on_progress = [&](int64_t weights) {
      here = weights;
      control_.Report(fmt::format("writing {}", name), std::min(done_ + here, total_), total_);
    };
    CMF_TRY(mil::Model model, build(store));
    done_ += here;
    model.description.metadata = MetadataOf(what, compression.form, chunk);
    WrittenPart part;
    part.name = name;
    for (const auto& [function, body] : model.program.functions) part.functions.push_back(function);
    CMF_CHECK(writer.Commit(model));
    std::error_code error;
    const auto bytes = fs::file_size(path / "Data/com.apple.CoreML/weights/weight.bin", error);
    part.weight_bytes = error ? 0 : bytes;
    CMF_CHECK(ReportCompression(store.report(), compression.form, part));
    report_.parts.push_back(std::move(part));
    if (options_.forms == PackageForms::kPackage) return {};
    {
      CMF_TRY(const mil::Package package, mil::OpenPackage(path));
      CMF_CHECK(CompilePart(package, folder_ / (name + ".mlmodelc")));
    }
    if (options_.forms == PackageForms::kCompiled) fs::remove_all(path, error);
    return {};
  }

  Result<void> ReportCompression(const CompressionReport& report, const WeightForm& form, WrittenPart& part) {
    if (report.weights == 0) return {};
    part.form = FormText(form);
    part.bits = static_cast<double>(report.bytes) * 8 / static_cast<double>(report.numbers);
    if (!std::isfinite(report.error) || !std::isfinite(report.energy)) {
      return Fail(ErrorKind::kUnsupported,
                  fmt::format("{}: its relative error is no finite number: {}", part.name,
                              compression_.statistics ? "calibrate again, or leave the statistics out"
                                                      : "give wider weights"));
    }
    part.relative_error = report.energy > 0 ? std::sqrt(report.error / report.energy) : 0;
    if (report.uneven.empty()) return {};
    report_.warnings.push_back(fmt::format(
        "{}: {} of {} matrices do not divide into groups of {}, which costs speed, no accuracy: {}{}",
        part.name, report.uneven.size(), report.weights, form.group, report.uneven[0],
        report.uneven.size() > 1 ? ", ..." : ""));
    return {};
  }

  [[nodiscard]] mil::Metadata MetadataOf(const std::string& what, const WeightForm& form,
                                         int64_t chunk) const {
    const GraphOptions& o = plan_.options;
    mil::Metadata meta;
    meta.short_description = fmt::format("{}: {}", source_.name, what);
    meta.version = kAnemllVersion;
    meta.author = options_.tool.empty() ? "" : "Converted with " + options_.tool;
    const auto set = [&](const char* key, std::string value) {
      meta.user_defined[std::string("com.anemll.") + key] = std::move(value);
    };
    set("info", fmt::format("{} {} ({})", plan_.architecture(), what, options_.tool));
    set("context_length", std::to_string(o.context_length));
    set("state_length", std::to_string(o.context_length));
    set("batch_size", std::to_string(o.batch_size));
    set("num_chunks", std::to_string(o.num_chunks));
    set("lut_bits", form.kind == WeightForm::Kind::kPalette ? std::to_string(form.bits) : "none");
    set("vocab_size", std::to_string(plan_.config.vocab_size));
    set("lm_head_chunk_sizes", fmt::format("{}", fmt::join(plan_.head_parts, ",")));
    set("argmax_in_model", "false");
    if (chunk < 0) return meta;
    const LayerRange range = plan_.chunks[static_cast<size_t>(chunk)];
    set("chunk_no", std::to_string(chunk + 1));
    set("functions", "infer,prefill");
    set("layers", fmt::format("{}-{}", range.begin, range.end - 1));
    return meta;
  }

  /// What the Neural Engine is known to dislike.
  void Warn() {
    const GraphOptions& o = plan_.options;
    const auto warn = [&](std::string line) { report_.warnings.push_back(std::move(line)); };
    if (o.context_length % 32 != 0)
      warn(fmt::format("context-length {}: the Neural Engine wants state axes in multiples of 32",
                       o.context_length));
    if (o.context_length < 256)
      warn(fmt::format("context-length {}: older Neural Engines fail below 256", o.context_length));
    if (o.context_length > 16384)
      warn(fmt::format("context-length {}: the Neural Engine's axes end at 16384", o.context_length));
    for (const int64_t n : plan_.head_parts) {
      if (n <= 16384) continue;
      warn(fmt::format("split-lm-head {}: parts of {} logits, the Neural Engine's axes end at 16384: give {}",
                       o.split_lm_head, n, (plan_.config.vocab_size + 16383) / 16384));
      break;
    }
    if (compression_.embeddings.kind == WeightForm::Kind::kPalette)
      warn(
          "lut-embeddings: a palettized table is decompressed when the model loads: it costs time and memory "
          "that "
          "an fp16 table, of which only rows are read, does not");
    for (const WeightForm* form : {&compression_.embeddings, &compression_.ffn, &compression_.lmhead}) {
      if (form->kind != WeightForm::Kind::kScaled) continue;
      warn(form->bits == 8
               ? "int8: the Neural Engine computes garbage with scaled integers: use such a package on "
                 "CPU and GPU only, or give --lut-* instead"
               : "int4: the Neural Engine cannot compile integers with a scale a block: use such a "
                 "package on CPU and GPU only, or give --lut-* instead");
      break;
    }
    for (const WrittenPart& part : report_.parts) {
      if (part.name.find("_embeddings") == part.name.npos && part.weight_bytes > uint64_t{2} << 30)
        warn(
            fmt::format("{}: {:.1f} GB of weights, the Neural Engine takes about 2 (1 on a phone): give more "
                        "--chunks",
                        part.name, static_cast<double>(part.weight_bytes) / 1e9));
    }
  }

  const PackageSource& source_;
  const PackageOptions& options_;
  const Compression& compression_;
  const DecoderPlan plan_;
  const fs::path folder_;
  WeightJournal* const journal_;  // null when nothing is compressed
  ThreadPool& pool_;
  const RunControl& control_;
  std::string prefix_;
  PackageReport report_;
  int64_t done_ = 0, total_ = 0;
  double ffn_average_ = 0;  // bits that mixed widths came to
};

using ChannelWeights = std::map<std::string, std::vector<float>, std::less<>>;

/// Statistics say how errors count against each other. Their products and sums must not overflow: the largest becomes 0.5
/// or more and less than 1. By a power of two, which rounds nothing.
void Normalise(ChannelWeights& weights) {
  float largest = 0;
  for (const auto& [name, values] : weights) {
    for (const float value : values) largest = std::max(largest, value);
  }
  int exponent = 0;
  (void)std::frexp(largest, &exponent);
  for (auto& [name, values] : weights) {
    for (float& value : values) value = std::ldexp(value, -exponent);
  }
}

/// A matrix whose statistics are all zero has none: its errors count all alike, as much as those of an average channel of
/// the others. By a power of two, so that its palettes are those of plain k-means in every bit. Returns its name.
std::set<std::string> FillZeros(ChannelWeights& weights) {
  std::set<std::string> names;
  double sum = 0;
  int64_t count = 0;
  for (const auto& [name, values] : weights) {
    if (std::all_of(values.begin(), values.end(), [](float value) { return value == 0; })) {
      names.insert(name);
      continue;
    }
    sum = std::accumulate(values.begin(), values.end(), sum);
    count += static_cast<int64_t>(values.size());
  }
  const float average =
      count > 0 ? std::exp2(std::floor(std::log2(static_cast<float>(sum) / static_cast<float>(count)))) : 1;
  for (const std::string& name : names) std::fill(weights[name].begin(), weights[name].end(), average);
  return names;
}

/// Makes `statistics` ready to weigh errors; what is to be said of them, as warnings.
std::vector<std::string> Prepare(ChannelStats& statistics) {
  std::vector<std::string> warnings;
  const auto warn = [&](const std::set<std::string>& names, const char* of, const char* what) {
    if (names.empty()) return;
    warnings.push_back(
        fmt::format("{}: no statistics of {} '{}'{} (all are zero): {}: calibrate with a text like those the "
                    "model will be used for",
                    statistics.origin, of, *names.begin(),
                    names.size() > 1 ? fmt::format(" and {} matrices more", names.size() - 1) : "", what));
  };
  Normalise(statistics.mean_square);
  Normalise(statistics.row_weight);
  warn(FillZeros(statistics.mean_square), "the channels of", "palettes are fitted by plain k-means there");
  warn(FillZeros(statistics.row_weight), "the rows of", "its rows count alike");
  return warnings;
}

/// The folder without the slash that may end it, and what stands beside it.
fs::path JournalPath(const fs::path& target) {
  fs::path path = target.has_filename() ? target : target.parent_path();
  path += ".part";
  return path;
}

}  // namespace

Result<PackageReport> WritePackage(const PackageSource& source, const PackageOptions& options,
                                   const fs::path& target, ThreadPool& pool, const RunControl& control) {
  CMF_TRY(DecoderPlan plan, PlanDecoder(*source.tensors, source.config, options.graph));
  PackageOptions checked = options;
  CMF_CHECK(ResolveMixed(checked.compression));
  ChannelStats statistics;
  std::vector<std::string> warnings;
  if (checked.compression.statistics != nullptr) {
    statistics = *checked.compression.statistics;
    warnings = Prepare(statistics);
    checked.compression.statistics = &statistics;
  }
  CMF_CHECK(CheckTarget(target));
  CMF_TRY(mil::StagedFolder staged, mil::StagedFolder::Create(target));
  std::optional<WeightJournal> journal;
  if (checked.compression.is_any()) {
    const std::string identity =  // the parts of the head are cut by it
        fmt::format("{}\nsplit-lm-head {}", options.identity, options.graph.split_lm_head);
    CMF_TRY(journal, WeightJournal::Open(JournalPath(target), identity, options.resume));
  }
  Writer writer(source, checked, std::move(plan), staged.path(), journal ? &*journal : nullptr, pool,
                control);
  CMF_TRY(PackageReport report, writer.Write());
  report.warnings.insert(report.warnings.end(), warnings.begin(), warnings.end());
  CMF_CHECK(control.CheckCancelled());
  if (options.before_commit) CMF_CHECK(options.before_commit());
  CMF_CHECK(CheckTarget(target));  // again: writing takes minutes
  CMF_CHECK(staged.Commit());
  if (journal) journal->Discard();
  return report;
}

}  // namespace cmforge::coreml
