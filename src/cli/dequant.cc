// cmforge dequant: tensors as plain float32, to a file, to a pipe, or as figures.
#include <cstdio>

#include "base/atomic_file.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/model_argument.h"
#include "cmf/hash64.h"
#include "open/skill_overlay.h"
#include "quant/encoding.h"

namespace cmforge::cli {
namespace {

struct Options {
  ModelArgument model;
  std::string tensor, skill, out;
  bool all = false;
};

/// Calls use(values) for blocks of rows, in order.
template <class Use>
Result<void> EachBlock(const TensorView& view, const RunControl& control, Use&& use) {
  CMF_TRY(const FloatRows rows, AsFloatRows(view));
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 20) / std::max<int64_t>(1, rows.cols));
  std::vector<float> block;
  for (int64_t at = 0; at < rows.rows; at += step) {
    CMF_CHECK(control.CheckCancelled());
    const int64_t end = std::min(rows.rows, at + step);
    block.resize(static_cast<size_t>((end - at) * rows.cols));
    rows.Read(at, end, block.data());
    CMF_CHECK(use(std::span<const float>(block)));
  }
  return {};
}

Result<Json> Describe(const TensorInfo& info, const std::string& shown_name, const TensorView& view,
                      const RunControl& control) {
  double sum = 0;
  cmf::Hash64Stream hash;
  Json first = Json::array();
  CMF_CHECK(EachBlock(view, control, [&](std::span<const float> values) -> Result<void> {
    for (const float v : values) {
      sum += v;
      if (first.size() < 8) first.push_back(v);
    }
    hash.Update(std::as_bytes(values));
    return {};
  }));
  return Json{{"name", shown_name},
              {"dtype", DTypeName(info.dtype)},
              {"shape", info.shape},
              {"nbytes", view.bytes.size()},
              {"hash", cmf::Hash64Hex(cmf::Hash64(view.bytes))},
              {"sum", sum},
              {"first", first},
              {"f32_hash64", cmf::Hash64Hex(hash.Finish())}};
}

Result<int> Dequant(const Cli& cli, const Options& options) {
  const RunControl control = cli.Control();
  if (options.all == !options.tensor.empty()) {
    return Fail(ErrorKind::kUsage, "dequant: give either --tensor NAME or --all");
  }
  CMF_TRY(const OpenedSource source, options.model.Open(cli));
  CMF_CHECK(RequireTensors(source));
  if (options.all) {
    for (const TensorInfo& info : source.tensors->tensors()) {
      CMF_TRY(const TensorView view, source.tensors->Read(info.name));
      auto described = Describe(info, info.name, view, control);
      if (!described)
        return Fail(std::move(described).error().In(fmt::format("{}: tensor '{}'", source.path, info.name)));
      PrintJson(DumpJson(*described));
    }
    return kDone;
  }
  const std::string& name = options.tensor;
  std::shared_ptr<const TensorSource> tensors = source.tensors;
  if (!options.skill.empty() && options.skill != "none") {
    const auto skills =
        source.cmf ? std::span(source.cmf->header().skills) : std::span<const cmf::SkillRecord>();
    CMF_TRY(tensors, MakeSkillOverlay(source.tensors, options.skill, skills));
  }
  const TensorInfo* info = tensors->Find(name);
  if (!info) {
    return Fail(ErrorKind::kNotFound,
                fmt::format("{}: no tensor '{}': see `cmforge info --tensors`", source.path, name));
  }
  CMF_TRY(const TensorView view, tensors->Read(name));
  if (!options.out.empty()) {
    CMF_CHECK(CheckOutput(source, options.out));
    CMF_TRY(AtomicFile file, AtomicFile::Create(options.out));
    CMF_CHECK(EachBlock(view, control,
                        [&](std::span<const float> values) { return file.Write(std::as_bytes(values)); }));
    CMF_CHECK(file.Commit());
  }
  if (cli.common.json) {
    auto described = Describe(*info, options.tensor, view, control);
    if (!described)
      return Fail(std::move(described).error().In(fmt::format("{}: tensor '{}'", source.path, name)));
    PrintJson(DumpJson(*described));
  } else if (options.out.empty()) {
    if (StdoutIsTerminal()) {
      return Fail(ErrorKind::kUsage,
                  "dequant: raw floats would go to the terminal: give --out FILE, --json, or pipe them");
    }
    CMF_CHECK(EachBlock(view, control, [](std::span<const float> values) -> Result<void> {
      if (std::fwrite(values.data(), sizeof(float), values.size(), stdout) != values.size()) {
        return Fail(ErrorKind::kIo, "standard output: writing failed");
      }
      return {};
    }));
  }
  return kDone;
}

}  // namespace

void AddDequant(Cli& cli) {
  auto options = std::make_shared<Options>();
  CLI::App* command = cli.Add("dequant", "Decode a tensor to float32",
                              "cmforge dequant model.cmf --tensor model.norm.weight --out norm.f32");
  options->model.AddTo(command);
  command->add_option("--tensor", options->tensor, "Name of the tensor");
  command->add_option("--skill", options->skill, "Read the skill's replacement where it has one");
  command->add_option("--out", options->out, "Write raw little-endian float32, row-major, to this file");
  command->add_flag("--all", options->all, "One JSON line for every tensor");
  command->callback([&cli, options] { cli.action = [&cli, options] { return Dequant(cli, *options); }; });
}

}  // namespace cmforge::cli
