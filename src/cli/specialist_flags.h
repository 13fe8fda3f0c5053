// --task, --skill, --blend and --route-dynamic: which of a file's specialists a command runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/active_flags.h"
#include "cli/model_argument.h"
#include "open/specialists.h"
#include "open/tasks.h"

namespace cmforge::cli {

struct SpecialistFlags {
  std::string task, skill, blend;
  bool route_dynamic = false;
  ActiveFlags experts;
  /// True: what the flags leave open the file decides (run, chat): its default task, routing where skills are
  /// routable. False: nothing is chosen (the measuring commands).
  bool follows_file = false;

  void AddTo(CLI::App* command);
  /// Fails: kUsage for flags that exclude each other.
  Result<void> Check() const;
};

/// A model as it shall run.
struct Specialist {
  std::shared_ptr<Specialists> all;
  std::shared_ptr<LanguageModel> model;  // what runs
  std::shared_ptr<LanguageModel>
      whole;  // the same without the task: another one where the task's weights are copied
  Task task;
  std::string skill;               // id, a blend's recipe, or empty
  std::optional<Ranking> ranking;  // where a skill was routed to
  bool routes_each_prompt = false;
  bool copies_task =
      false;  // --hot: what a task leaves alive is copied side by side, where the model allows it

  /// What `model` runs with. Null: all of it takes part.
  [[nodiscard]] const ActiveSet* active() const { return remaining.get(); }
  std::shared_ptr<const ActiveSet> remaining;

  /// Makes `model` and `remaining` of what `whole` and `task` have become.
  Result<void> Settle();

  /// Routes a new prompt (token ids without begin token) where that was asked for; true when the model changed.
  Result<bool> Reroute(std::span<const TokenId> prompt, const SpecialistFlags& flags);
  Result<void> SwitchTask(const std::string& name, const SpecialistFlags& flags);
  /// "none" or "" for the backbone, "auto" to route from now on.
  Result<void> SwitchSkill(const std::string& id);
};

/// The specialists of `source`, sharing one pool.
Result<std::shared_ptr<Specialists>> OpenSpecialists(const Cli& cli, const OpenedSource& source,
                                                     const ComputeFlags& compute,
                                                     std::shared_ptr<engine::Profile> profile = nullptr);

/// Loads what the flags ask for. `prompt`: token ids without begin token, what routing looks at; may be empty.
/// Fails: kUsage, kNotFound naming the tasks or skills there are, as LoadModel.
Result<Specialist> LoadSpecialist(const Cli& cli, const OpenedSource& source, const ComputeFlags& compute,
                                  const SpecialistFlags& flags, std::span<const TokenId> prompt,
                                  std::shared_ptr<engine::Profile> profile = nullptr);

/// The prompt as routing reads it.
Result<std::vector<TokenId>> RoutingTokens(const Tokenizer& tokenizer, std::string_view text);

}  // namespace cmforge::cli
