#include "cli/command.h"

#include <algorithm>

#include "base/error.h"
#include "base/option_range.h"

namespace piton::cli {
namespace {

bool asks_for_help(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") return false;
    if (word == "--help" || word == "-h") return true;
  }
  return false;
}

// Every command says in one line what it wants; the flags follow by group.
std::string help_of(const Command& command, const OptionSet& options) {
  return fmt::format("usage: piton {}{}{}\n\n{}\n\n{}", command.name,
                     command.arguments.empty() ? "" : " ", command.arguments, command.summary,
                     options.help());
}

// The same for docs/cli.md, without the general options, which stand there once.
std::string page_of(const Command& command, const OptionSet& options) {
  const std::string table = options.markdown();
  return fmt::format("## piton {}\n\n{}.\n\n    piton {}{}{}\n{}{}\n", command.name,
                     command.summary, command.name, command.arguments.empty() ? "" : " ",
                     command.arguments, table.empty() ? "" : "\n", table);
}

}  // namespace

std::vector<std::string> Invocation::parse(OptionSet& options, GeneralOptions& general,
                                           bool recipe) {
  if (words == std::vector<std::string>{kMarkdownHelp}) {
    const std::string text = page_of(command, options);
    std::fputs(text.c_str(), stdout);
    throw HelpShown{};
  }
  options.add("General", general);
  if (asks_for_help(words)) {
    const std::string text = help_of(command, options);
    std::fputs(text.c_str(), stdout);
    throw HelpShown{};
  }
  std::vector<std::string> positional = options.parse(words);
  const std::string config = general.config;
  std::vector<std::string> files;
  if (recipe && !positional.empty() && positional.front().ends_with(".toml")) {
    files.push_back(positional.front());
    positional.erase(positional.begin());
  }
  if (!config.empty()) files.push_back(config);
  for (const std::string& file : files) options.read_toml(file);
  if (!files.empty()) {
    general.config = config;  // a file names no further file
    options.parse(words);     // flags win
  }
  constexpr int kMostThreads = 8192;  // the most processors that Linux is built for on x86-64
  check_range("--threads", general.threads, 0, kMostThreads);
  if (!(general.distributed_timeout_minutes > 0 && general.distributed_timeout_minutes <= 1e6)) {
    throw Error(Fault::kUsage,
                "--distributed-timeout-minutes: got {}, wanted more than 0, at most 1e6",
                general.distributed_timeout_minutes);
  }
  if (general.quiet) terminal.be_quiet();
  return positional;
}

void refuse_more_arguments(const std::vector<std::string>& arguments, std::size_t most) {
  if (arguments.size() <= most) return;
  throw Error(
      Fault::kUsage, "got \"{}\", wanted {} here; --help shows how it is used", arguments[most],
      most == 0 ? "no argument" : fmt::format("at most {} argument{}", most, most == 1 ? "" : "s"));
}

const Command& find_command(std::string_view name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.emplace_back(command.name);
  }
  const std::string near = nearest_name(name, names);
  throw Error(Fault::kUsage, "unknown command{}; piton --help lists all",
              near.empty() ? "" : fmt::format(", did you mean {}?", near));
}

std::string overview() {
  std::string text =
      "Trains language models: from raw text to an evaluated model, on processors and GPUs.\n\n"
      "usage: piton COMMAND [ARGUMENT ...] [OPTION ...]\n\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<12} {}\n", command.name, command.summary);
  }
  text +=
      "\npiton COMMAND --help shows the options of a command; piton --version what this binary "
      "is.\n"
      "Exit codes: 0 done; 2 usage; 3 data or checkpoint invalid; 4 out of memory; 5 diverged;\n"
      "6 a peer lost; 75 saved after a signal, start again.\n";
  return text;
}

}  // namespace piton::cli
