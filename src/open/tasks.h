// Task masks of an opened file (spec 5): by name, or what the file starts with.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "open/open_source.h"

namespace cmforge {

/// The word that asks for no mask.
inline constexpr std::string_view kNoTask = "none";

/// What a sequence runs with.
struct Task {
  std::string name;                         // empty: no mask
  std::shared_ptr<const ActiveSet> active;  // null: everything takes part
};

/// Everything takes part.
[[nodiscard]] bool ForbidsNothing(const ActiveSet& bits, int64_t layers);

/// The mask of that name; kNoTask is the whole model (unless a mask is called so).
/// Switching to a mask without a held-out measurement warns. A mask that forbids nothing costs nothing.
/// Fails: kNotFound naming the tasks there are.
Result<Task> FindTask(const OpenedSource& source, std::string_view name, const RunControl& control = {});

/// What the file starts with: its default task, else the fallback, else the whole model.
Result<Task> DefaultTask(const OpenedSource& source, const RunControl& control = {});

}  // namespace cmforge
