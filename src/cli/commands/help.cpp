// piton help [COMMAND]: the overview, or what COMMAND --help prints; --markdown: docs/cli.md.

#include "cli/command.h"
#include "cli/compatibility/megatron_flags.h"

namespace piton::cli {
namespace {

struct HelpOptions {
  bool markdown = false;
  bool megatron = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"markdown", "print docs/cli.md, the options of all commands"}, markdown);
    v(Option{"megatron", "print docs/megatron_flags.md, how Megatron-LM's flags are treated"},
      megatron);
  }
};

void print_page(Terminal& terminal) {
  OptionSet options;
  GeneralOptions general;
  options.add("General", general);
  const std::string head =
      "# Commands and options\n\n"
      "Written by `piton help --markdown` (`make docs`); a test compares it. A TOML key is a flag\n"
      "without its dashes; tables in a file only group keys. `inherit = \"FILE\"` starts from "
      "another file, relative\n"
      "to this one. Flags win over files.\n\n"
      "Every command takes these:\n\n" +
      options.markdown() + "\n";
  std::fputs(head.c_str(), stdout);
  ExplainedGroups explained;
  const auto print = [&](const Command& command) {
    Invocation invocation{command, {kMarkdownHelp}, terminal};
    invocation.explained = &explained;
    try {
      command.run(invocation);
    } catch (const HelpShown&) {
      // Every command ends like this after printing its part.
    }
  };
  for (const Command& command : commands()) {
    print(command);
    if (command.name != "bench") continue;
    for (const Command& bench : benches_with_own_options()) print(bench);
  }
}

}  // namespace

int run_help(Invocation& invocation) {
  OptionSet options;
  GeneralOptions general;
  HelpOptions help;
  options.add("Help", help);
  const std::vector<std::string> names = invocation.parse(options, general);
  refuse_more_arguments(names, 1);
  if (help.markdown) {
    print_page(invocation.terminal);
    return 0;
  }
  if (help.megatron) {
    std::fputs(megatron_page().c_str(), stdout);
    return 0;
  }
  if (names.empty()) {
    std::fputs(overview().c_str(), stdout);
    return 0;
  }
  const Command& command = find_command(names.front());
  Invocation inner{command, {"--help"}, invocation.terminal};
  return command.run(inner);
}

}  // namespace piton::cli
