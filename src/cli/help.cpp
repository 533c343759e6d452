// piton help [COMMAND]: the overview, or what COMMAND --help prints.

#include "cli/command.h"

namespace piton::cli {

int run_help(Invocation& invocation) {
  OptionSet options;
  GeneralOptions general;
  const std::vector<std::string> names = invocation.parse(options, general);
  refuse_more_arguments(names, 1);
  if (names.empty()) {
    std::fputs(overview().c_str(), stdout);
    return 0;
  }
  const Command& command = find_command(names.front());
  Invocation inner{command, {"--help"}, invocation.terminal};
  return command.run(inner);
}

}  // namespace piton::cli
