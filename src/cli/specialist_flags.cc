// Turning specialist flags into a loaded model.
#include "cli/specialist_flags.h"

#include <algorithm>

#include "open/routed_model.h"

namespace cmforge::cli {
namespace {

constexpr std::string_view kAuto = "auto";

bool IsNoSkill(std::string_view id) { return id.empty() || id == "none" || id == "backbone"; }

/// What follows from the choice of a skill: the mask it is used with, where no flag names one.
Result<Task> TaskOf(const Specialist& specialist, const SpecialistFlags& flags) {
  const OpenedSource& source = specialist.all->source();
  const RunControl& control = specialist.all->control();
  if (!flags.task.empty()) return FindTask(source, flags.task, control);
  if (!flags.follows_file) return Task{};
  const cmf::SkillRecord* skill = specialist.all->FindSkill(specialist.skill);
  if (skill != nullptr && skill->input_mask_task) return FindTask(source, *skill->input_mask_task, control);
  return DefaultTask(source, control);
}

Result<void> ChooseTask(Specialist& specialist, const SpecialistFlags& flags) {
  CMF_TRY(specialist.task, TaskOf(specialist, flags));
  CMF_TRY(specialist.task.active, flags.experts.Make(specialist.all->source(), specialist.task.active));
  return specialist.Settle();
}

Result<void> RouteTo(Specialist& specialist, std::span<const TokenId> prompt) {
  CMF_TRY(specialist.ranking, specialist.all->Route(prompt));
  const std::string id = specialist.ranking->winner()->id;
  CMF_TRY(specialist.whole, specialist.all->WithSkill(id));
  specialist.skill = id;
  specialist.all->control().Info(fmt::format("skill '{}', energy {:.3f}{}", id,
                                             specialist.ranking->winner()->energy,
                                             specialist.ranking->is_novel ? ", far from all it knows" : ""));
  return {};
}

}  // namespace

void SpecialistFlags::AddTo(CLI::App* command) {
  command->add_option("--task", task,
                      follows_file ? "Run under this task mask, or none (default: the file's default task)"
                                   : "Run under this task mask (default: none)");
  command->add_option(
      "--skill", skill,
      follows_file ? "Run with this skill; none, or auto: the one that fits the prompt (default: "
                     "auto where the file's skills can be routed to)"
                   : "Run with this skill; none, or auto: the one that fits the prompt (default: none)");
  command->add_option("--blend", blend, "Mix skills: auto, or ID:WEIGHT,ID:WEIGHT");
  command->add_flag("--route-dynamic", route_dynamic, "Choose the skill anew every few tokens");
  experts.AddTo(command);
}

Result<void> SpecialistFlags::Check() const {
  if ((skill.empty() ? 0 : 1) + (blend.empty() ? 0 : 1) + (route_dynamic ? 1 : 0) > 1) {
    return Fail(ErrorKind::kUsage, "--skill, --blend and --route-dynamic exclude each other: give one");
  }
  return {};
}

Result<std::shared_ptr<Specialists>> OpenSpecialists(const Cli& cli, const OpenedSource& source,
                                                     const ComputeFlags& compute,
                                                     std::shared_ptr<engine::Profile> profile) {
  const auto pool = cli.common.MakePool();
  auto load = [&cli, source, compute, pool, profile](std::shared_ptr<const TensorSource> tensors,
                                                     uint64_t variant) {
    return LoadModelOver(cli, source, std::move(tensors), variant, compute, pool, profile);
  };
  return std::make_shared<Specialists>(source, std::move(load), cli.Control());
}

Result<Specialist> LoadSpecialist(const Cli& cli, const OpenedSource& source, const ComputeFlags& compute,
                                  const SpecialistFlags& flags, std::span<const TokenId> prompt,
                                  std::shared_ptr<engine::Profile> profile) {
  CMF_CHECK(flags.Check());
  Specialist specialist;
  specialist.copies_task = cli.common.no_mmap && !flags.route_dynamic && flags.blend.empty();
  CMF_TRY(specialist.all, OpenSpecialists(cli, source, compute, std::move(profile)));
  const bool routes_unasked = flags.follows_file && flags.skill.empty() && flags.blend.empty() &&
                              !flags.route_dynamic && specialist.all->has_routable_skill();
  specialist.routes_each_prompt = routes_unasked || flags.skill == kAuto;
  const auto needs_prompt = [&](const char* flag) -> Result<void> {
    if (!prompt.empty()) return {};
    return Fail(ErrorKind::kUsage, fmt::format("{}: there is no prompt to choose by: name a skill", flag));
  };
  if (flags.route_dynamic) {
    CMF_TRY(specialist.whole, MakeRoutedModel(specialist.all));
  } else if (!flags.blend.empty()) {
    std::vector<SkillWeight> weights;
    if (flags.blend == kAuto) {
      CMF_CHECK(needs_prompt("--blend auto"));
      CMF_TRY(weights, specialist.all->RouteBlend(prompt));
    } else {
      CMF_TRY(weights, ParseBlend(flags.blend));
    }
    CMF_TRY(specialist.whole, specialist.all->Blended(weights));
    for (const SkillWeight& part : weights)
      specialist.skill +=
          fmt::format("{}{}:{:.3g}", specialist.skill.empty() ? "" : ",", part.id, part.weight);
  } else if (specialist.routes_each_prompt && !prompt.empty()) {
    CMF_CHECK(RouteTo(specialist, prompt));
  } else if (flags.skill == kAuto && !flags.follows_file) {
    CMF_CHECK(needs_prompt("--skill auto"));
  } else {
    const std::string id = IsNoSkill(flags.skill) || flags.skill == kAuto ? "" : flags.skill;
    CMF_TRY(specialist.whole, specialist.all->WithSkill(id));
    specialist.skill = id;
  }
  CMF_CHECK(ChooseTask(specialist, flags));
  return specialist;
}

Result<void> Specialist::Settle() {
  model = whole;
  remaining = task.active;
  if (!copies_task || task.active == nullptr) return {};
  CMF_TRY(auto compact, all->WithTask(skill, task.active));
  if (!compact) return {};
  model = compact->model;
  remaining = compact->active;
  return {};
}

Result<bool> Specialist::Reroute(std::span<const TokenId> prompt, const SpecialistFlags& flags) {
  if (!routes_each_prompt || prompt.empty()) return false;
  const std::string before = skill;
  CMF_CHECK(RouteTo(*this, prompt));
  if (skill == before) {
    CMF_CHECK(Settle());
    return false;
  }
  CMF_CHECK(ChooseTask(*this, flags));
  return true;
}

Result<void> Specialist::SwitchTask(const std::string& name, const SpecialistFlags& flags) {
  CMF_TRY(Task wanted, FindTask(all->source(), name, all->control()));
  CMF_TRY(wanted.active, flags.experts.Make(all->source(), wanted.active));
  task = std::move(wanted);
  return Settle();
}

Result<void> Specialist::SwitchSkill(const std::string& id) {
  if (id == kAuto) {
    if (!all->has_routable_skill())
      return Fail(ErrorKind::kUsage, fmt::format("{}: no skill can be routed to", all->source().path));
    routes_each_prompt = true;
    return {};
  }
  const std::string wanted = IsNoSkill(id) ? "" : id;
  CMF_TRY(whole, all->WithSkill(wanted));
  skill = wanted;
  routes_each_prompt = false;
  return Settle();
}

Result<std::vector<TokenId>> RoutingTokens(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text, {.add_special = false});
}

}  // namespace cmforge::cli
