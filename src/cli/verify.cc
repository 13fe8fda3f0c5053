// cmforge verify: the whole hash chain, every tensor, every shard, the signature.
#include "cmf/verify.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cmf/signature.h"
#include "coreml/info.h"
#include "engine/model.h"
#include "mil/analysis.h"

namespace cmforge::cli {
namespace {

Json ReportJson(const cmf::VerifyReport& report) {
  Json json = {
      {"ok", report.ok()},
      {"files", report.files},
      {"checked", {{"sections", report.sections}, {"tensors", report.tensors}, {"bytes", report.bytes}}},
      {"signature", cmf::SignatureStateName(report.signature)},
      {"problems", Json::array()}};
  if (report.lone_shard)
    json["only_shard"] = {{"no", report.lone_shard->no}, {"count", report.lone_shard->count}};
  for (const cmf::Problem& problem : report.problems)
    json["problems"].push_back({{"where", problem.where}, {"what", problem.what}});
  for (const cmf::Problem& note : report.notes)
    json["notes"].push_back({{"where", note.where}, {"what", note.what}});
  return json;
}

// A package: config.json can be read, every part is there, its programs are sound, every weight they name lies in its file.
Result<cmf::VerifyReport> VerifyPackage(const OpenedSource& source) {
  cmf::VerifyReport report;
  constexpr uint64_t kMaxConfigBytes = 32 << 20;
  const std::filesystem::path config = std::filesystem::path(source.path) / "config.json";
  CMF_TRY(const std::string text, ReadTextFile(config, kMaxConfigBytes));
  CMF_TRY(const Json json, ParseJson(text, config.string()));
  if (!json.is_object())
    return Fail(ErrorKind::kCorrupt, config.string() + ": no JSON object: write the package again");
  CMF_TRY(const coreml::PackageParts parts, coreml::FindParts(source.path, *source.package));
  std::vector<std::filesystem::path> paths = {parts.embeddings};
  paths.insert(paths.end(), parts.chunks.begin(), parts.chunks.end());
  paths.push_back(parts.lm_head);
  for (const auto& path : paths) {
    CMF_TRY(const mil::Package package, mil::OpenPackage(path));
    if (auto status = mil::CheckModel(package.model, package.weights.get()); !status)
      return Fail(std::move(status).error().In(path.string()));
    CMF_TRY(const coreml::ModelInfo info, coreml::DescribeModel(package));
    report.files.push_back(path.string());
    report.bytes += info.weight_file_bytes;
    for (const coreml::WeightFormInfo& form : info.weights) report.tensors += form.tensors;
  }
  return report;
}

// A signature beside a file of any kind; a folder cannot have one.
Result<void> CheckOtherSignature(const std::string& path, const std::string& public_key,
                                 cmf::VerifyReport& report, const RunControl& control) {
  std::error_code ignored;
  std::optional<cmf::Signature> signature;
  if (!std::filesystem::is_directory(path, ignored)) {
    CMF_TRY(signature, cmf::ReadSignature(path));
  }
  if (!signature) {
    if (!public_key.empty()) report.problems.push_back({"signature", "missing: a signed file is demanded"});
    return {};
  }
  CMF_TRY(const cmf::Sha256Digest digest, cmf::HashFile(path, control));
  const auto status = cmf::CheckSignature(*signature, digest, public_key);
  report.signature = status ? cmf::SignatureState::kValid : cmf::SignatureState::kInvalid;
  if (!status) report.problems.push_back({"signature", status.error().message});
  return {};
}

/// Hashes say that the bytes are the writer's; whether a model can be made of them, the engine's own loading says. What
/// this program merely does not run is a note. So is a tensor that is not there, where hashes vouch for its never having
/// been: some files hold a part of a model.
Result<void> CheckRuns(const Cli& cli, std::shared_ptr<const TensorSource> tensors, const ModelConfig& config,
                       bool is_vouched_for, cmf::VerifyReport& report) {
  const auto say = [&](std::vector<cmf::Problem>& to, std::string_view what) {
    const std::string prefix = fmt::format("{}: ", tensors->path());
    if (what.starts_with(prefix)) what.remove_prefix(prefix.size());
    to.push_back({"model", std::string(what)});
  };
  engine::ModelOptions options;
  options.pool = cli.common.MakePool();
  options.run.cancelled = cli.Control().cancelled;
  options.run.log = [&](LogLevel level, std::string_view message) {
    if (level == LogLevel::kWarning) say(report.notes, message);
  };
  const auto model = engine::Model::Load(tensors, config, options);
  if (model) return {};
  switch (model.error().kind) {
    case ErrorKind::kCorrupt:
      say(is_vouched_for && model.error().name == engine::kMissingTensor ? report.notes : report.problems,
          model.error().message);
      return {};
    case ErrorKind::kUnsupported:
      say(report.notes, model.error().message);
      return {};
    default:
      return Fail(model.error());
  }
}

/// The whole chain, and whether the file makes a model where it should: not a shard alone, a skill (which needs its
/// base) or a file without weights.
Result<cmf::VerifyReport> VerifyCmf(const Cli& cli, const std::string& path, const std::string& public_key) {
  const auto pool = cli.common.MakePool();
  cmf::VerifyOptions options;
  options.public_key = public_key;
  CMF_TRY(cmf::VerifyReport report, cmf::Verify(path, options, *pool, cli.Control()));
  if (!report.ok() || report.lone_shard) return report;
  CMF_TRY(cmf::File opened, cmf::File::Open(path, cli.common.file_mode()));
  const auto file = std::make_shared<const cmf::File>(std::move(opened));
  if (file->is_skill_file() || file->tensors().empty()) return report;
  // Spec 12: packed image pipelines have other tensors, and nothing here runs them.
  if (std::ranges::none_of(file->tensors(), [](const TensorInfo& t) {
        return t.name.starts_with("model.") || t.name.starts_with("lm_head.");
      })) {
    report.notes.push_back(
        {"model", "no tensors of a language model: only hashes and payloads were checked"});
    return report;
  }
  const bool is_vouched_for = std::ranges::all_of(file->parts(), [](const cmf::Part& part) {
    return part.envelope.header_hash != 0 && part.envelope.directory_hash != 0;
  });
  CMF_CHECK(CheckRuns(cli, file, file->config(), is_vouched_for, report));
  return report;
}

// A checkpoint has no hashes: what can be checked is that every tensor is there, whole, and of the right
// shape.
Result<cmf::VerifyReport> VerifyOther(const Cli& cli, const std::string& path,
                                      const std::string& public_key) {
  if (!public_key.empty()) CMF_CHECK(cmf::CheckPublicKey(public_key));
  CMF_TRY(const OpenedSource source, OpenSource(path, cli.common.file_mode()));
  if (source.package) {
    CMF_TRY(cmf::VerifyReport report, VerifyPackage(source));
    CMF_CHECK(CheckOtherSignature(path, public_key, report, cli.Control()));
    return report;
  }
  cmf::VerifyReport report;
  report.files.push_back(path);
  report.tensors = static_cast<int64_t>(source.tensors->tensors().size());
  for (const TensorInfo& tensor : source.tensors->tensors()) report.bytes += tensor.nbytes;
  if (source.config)
    CMF_CHECK(CheckRuns(cli, source.tensors, *source.config, /*is_vouched_for=*/false, report));
  CMF_CHECK(CheckOtherSignature(path, public_key, report, cli.Control()));
  return report;
}

// What of its set was not looked at.
std::string OfSet(const cmf::VerifyReport& report) {
  if (!report.lone_shard) return "";
  return fmt::format("; shard {} of {}: the others are not here and were not checked", report.lone_shard->no,
                     report.lone_shard->count);
}

bool IsCmf(const std::string& path) {
  std::error_code ignored;
  return !std::filesystem::is_directory(path, ignored) &&
         std::filesystem::path(path).extension() != ".safetensors";
}

Result<int> Verify(const Cli& cli, const std::string& path, const std::string& public_key) {
  const bool is_cmf = IsCmf(path);
  const auto report = is_cmf ? VerifyCmf(cli, path, public_key) : VerifyOther(cli, path, public_key);
  if (!report) {
    if (cli.common.json) {
      cmf::VerifyReport failed;
      failed.files.push_back(path);
      const std::string where =
          report.error().name.empty() ? "open" : fmt::format("open: {}", report.error().name);
      failed.problems.push_back({where, report.error().message});
      PrintJson(DumpJson(ReportJson(failed)));
    }
    Error error = report.error();
    // For verify, a file that this program cannot open at all is not a good file, whatever the reason.
    if (error.kind == ErrorKind::kUnsupported) error.kind = ErrorKind::kCorrupt;
    return Fail(std::move(error));
  }
  if (cli.common.json) {
    PrintJson(DumpJson(ReportJson(*report)));
  } else {
    for (const cmf::Problem& problem : report->problems)
      fmt::print("{}: {}: {}\n", path, problem.where, problem.what);
    for (const cmf::Problem& note : report->notes) {
      if (cli.common.verbosity >= 0) fmt::print("{}: note: {}: {}\n", path, note.where, note.what);
    }
    if (cli.common.verbosity >= 0) {
      const std::string size = HumanBytes(static_cast<double>(report->bytes));
      if (!report->ok()) {
        fmt::print("{}: NOT RIGHT: {} problem{} in {} tensors, {}\n", path, report->problems.size(),
                   report->problems.size() == 1 ? "" : "s", report->tensors, size);
      } else if (is_cmf) {
        fmt::print("{}: OK: {} sections, {} tensors, {}, signature {}{}\n", path, report->sections,
                   report->tensors, size, cmf::SignatureStateName(report->signature), OfSet(*report));
      } else {
        fmt::print(
            "{}: OK: {} tensors, {}; such a folder carries no hashes: only its structure was checked\n", path,
            report->tensors, size);
      }
    }
  }
  return report->ok() ? kDone : kNotRight;
}

}  // namespace

void AddVerify(Cli& cli) {
  auto path = std::make_shared<std::string>();
  auto key = std::make_shared<std::string>();
  CLI::App* command =
      cli.Add("verify", "Check every hash, tensor, shard and signature", "cmforge verify model.cmf");
  command->add_option("MODEL", *path, "A .cmf file (any shard of a set) or a checkpoint")->required();
  const CLI::Option* option =
      command->add_option("--public-key", *key, "64 hex digits: demand a signature by this key");
  command->callback([&cli, path, key, option] {
    // Whoever gives a key demands a signer, even when a script's variable turns out to be empty.
    const char* variable = std::getenv(option->get_envname().c_str());
    const bool demands_signer = option->count() > 0 || variable != nullptr;
    cli.action = [&cli, path, key, demands_signer]() -> Result<int> {
      if (demands_signer) CMF_CHECK(cmf::CheckPublicKey(*key));
      return Verify(cli, *path, *key);
    };
  });
}

}  // namespace cmforge::cli
