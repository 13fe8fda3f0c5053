// What `run` and `chat` take.
#pragma once

#include <string>
#include <vector>

#include "cli/model_argument.h"
#include "cli/sampling_flags.h"
#include "cli/specialist_flags.h"
#include "generate/chat_session.h"

namespace cmforge::cli {

struct RunOptions {
  ModelArgument model;
  ComputeFlags compute;
  SamplingFlags sampling;
  SpecialistFlags specialist{.follows_file = true};
  std::string prompt, system, tools, save_state, state;
  std::vector<std::string> stop;
  int64_t max_tokens = 256;
  bool has_prompt = false, raw = false, no_think = false;
};

/// One answer as `run --json` and every line of `chat --json` have it.
[[nodiscard]] Json TurnJson(const std::string& prompt, const ChatTurn& turn);

/// The conversation in the terminal (or through a pipe): reads messages until the input ends. With --json stdout has one
/// object a line: an answer, {"info"} from a command, or {"error"} for a line that failed.
Result<int> ChatInTerminal(const Cli& cli, const RunOptions& options, ChatSession& session,
                           Specialist& specialist, const Tokenizer& tokenizer);

}  // namespace cmforge::cli
