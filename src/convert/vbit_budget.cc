// Finding families by their names, and reading one.
#include "convert/vbit_budget.h"

#include <charconv>
#include <optional>

#include "quant/vbit_allocation.h"

namespace cmforge {
namespace {

struct ExpertName {
  std::string family;  // the name with '*' for the expert's number
  int64_t expert = 0;
  int64_t layer = -1;
};

std::optional<ExpertName> ParseExpertName(std::string_view name) {
  constexpr std::string_view kExperts = ".mlp.experts.", kLayers = "model.layers.";
  const size_t at = name.find(kExperts);
  if (at == name.npos) return std::nullopt;
  ExpertName parsed;
  const char* const end = name.data() + name.size();
  const char* const number = name.data() + at + kExperts.size();
  const auto [rest, error] = std::from_chars(number, end, parsed.expert);
  if (error != std::errc()) return std::nullopt;
  parsed.family.assign(name.data(), number).append("*").append(rest, end);
  if (name.starts_with(kLayers)) std::from_chars(name.data() + kLayers.size(), end, parsed.layer);
  return parsed;
}

}  // namespace

VbitBudget::VbitBudget(const QuantPlan& plan, double mean_bits, const RoutingCounts* routing)
    : mean_bits_(mean_bits), routing_(routing) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.dtype != DType::kVbit && tensor.dtype != DType::kVbitRo) continue;
    auto name = ParseExpertName(tensor.name);
    if (!name) continue;
    Family& family = families_[name->family];
    family.layer = name->layer;
    family.members.push_back({tensor.name, name->expert});
  }
}

Result<double> VbitBudget::BiasBits(const PlannedTensor& tensor, const TensorSource& source, ThreadPool& pool,
                                    const RunControl& control) {
  const auto name = ParseExpertName(tensor.name);
  const auto family = name ? families_.find(name->family) : families_.end();
  if (family == families_.end()) return 0.0;
  if (!bias_of_.contains(tensor.name)) CMF_CHECK(Settle(family->second, source, pool, control));
  return bias_of_[tensor.name];
}

Result<void> VbitBudget::Settle(const Family& family, const TensorSource& source, ThreadPool& pool,
                                const RunControl& control) {
  const std::vector<double>* counts = nullptr;
  if (routing_ != nullptr) {
    if (const auto it = routing_->find(family.layer); it != routing_->end()) counts = &it->second;
  }
  std::vector<std::vector<double>> amplitudes;
  std::vector<FamilyMember> members;
  for (const Member& member : family.members) {
    CMF_CHECK(control.CheckCancelled());
    CMF_TRY(TensorView view, source.Read(member.name));
    CMF_TRY(const FloatRows rows, AsFloatRows(std::move(view)));
    auto loudness = RowAmplitudes(rows, pool);
    if (!loudness) {
      return Fail(std::move(loudness).error().In(fmt::format("{}: tensor '{}'", source.path(), member.name)));
    }
    amplitudes.push_back(std::move(*loudness));
  }
  for (size_t i = 0; i < family.members.size(); ++i) {
    FamilyMember member{amplitudes[i]};
    if (counts != nullptr) {
      const auto expert = static_cast<size_t>(family.members[i].expert);
      if (expert >= counts->size()) {
        return Fail(
            ErrorKind::kUsage,
            fmt::format(
                "moe-stats: layer {} has counts of {} experts, '{}' is one more: count with this model",
                family.layer, counts->size(), family.members[i].name));
      }
      member.times_routed = (*counts)[expert];
    }
    members.push_back(member);
  }
  const std::vector<double> bias = FamilyBiasBits(members, mean_bits_, counts != nullptr);
  for (size_t i = 0; i < bias.size(); ++i) bias_of_[family.members[i].name] = bias[i];
  return {};
}

}  // namespace cmforge
