// The table of commands. A new command is one file and two lines here.

#include "cli/command.h"

namespace piton::cli {

int run_help(Invocation& invocation);

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"help", "[COMMAND]", "how a command is used", run_help},
  };
  return kCommands;
}

}  // namespace piton::cli
