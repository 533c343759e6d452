#include "cli/command.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton::cli {
namespace {

enum class Help { kNone, kShort, kAll };

Help help_asked_for(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") break;
    if (words[i] == "--help=all") return Help::kAll;
    if (words[i] != "--help" && words[i] != "-h") continue;
    return i + 1 < words.size() && words[i + 1] == "all" ? Help::kAll : Help::kShort;
  }
  return Help::kNone;
}

std::vector<std::string> words_in(std::string_view text, char separator) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// The help of a command: its purpose in one line, two examples, and its flags by group.
std::string help_of(const Command& command, const OptionSet& options, Help how) {
  std::string text =
      fmt::format("usage: piton {}{}{}\n\n{}\n\n", command.name,
                  command.arguments.empty() ? "" : " ", command.arguments, command.summary);
  const std::vector<std::string> examples = words_in(command.examples, '\n');
  for (const std::string& example : examples) {
    text += fmt::format("  piton {} {}\n", command.name, example);
  }
  if (!examples.empty()) text += "\n";
  return text + options.help(how == Help::kAll ? std::vector<std::string>{}
                                               : words_in(command.usual, ' '));
}

// Commands of other programs, and the answer to each.
struct OtherName {
  std::string_view name;
  std::string_view answer;
};
constexpr OtherName kOtherNames[] = {
    {"train", "training is piton pretrain"},
    {"version", "that is piton --version"},
    {"run", "that is piton generate"},
    {"evaluate", "that is piton eval"},
    {"perplexity", "that is piton score"},
    {"export", "that is piton convert"},
    {"encode", "that is piton tokenize"},
    {"decode", "that is piton tokenize --decode"},
    {"preprocess_data", "that is piton preprocess"},
    {"pretrain_gpt.py", "that is piton pretrain, with the same flags"},
};

// Returns `table` without the groups that an earlier command has with the same text; they are named
// at its end.
std::string without_explained(const std::string& table, const Command& command,
                              ExplainedGroups& explained) {
  constexpr std::string_view kHeading = "#### ";
  constexpr std::size_t kColumns = 120;
  std::string text;
  std::vector<std::pair<std::string, std::string>> elsewhere;  // command, names of its groups
  for (std::size_t begin = 0; begin < table.size();) {
    const std::size_t next = table.find(fmt::format("\n{}", kHeading), begin);
    const std::string group = table.substr(begin, std::min(next, table.size()) - begin);
    begin = next == table.npos ? table.size() : next + 1;
    const auto [known, is_new] = explained.emplace(group, command.name);
    if (is_new || known->second == command.name) {
      text += (text.empty() ? "" : "\n") + group;
      continue;
    }
    const std::string name = group.substr(kHeading.size(), group.find('\n') - kHeading.size());
    if (elsewhere.empty() || elsewhere.back().first != known->second) {
      elsewhere.emplace_back(known->second, name);
    } else {
      std::string& names = elsewhere.back().second;
      const std::size_t line = names.size() - (names.rfind('\n') + 1);  // its length so far
      names += (line + 2 + name.size() < kColumns ? ", " : ",\n") + name;
    }
  }
  for (const auto& [other, names] : elsewhere) {
    text += fmt::format("{}Also takes these groups of `piton {}`:\n{}.\n", text.empty() ? "" : "\n",
                        other, names);
  }
  return text;
}

// The same for docs/cli.md, without the general options, which are described once there.
std::string page_of(const Invocation& invocation, const OptionSet& options) {
  const Command& command = invocation.command;
  ExplainedGroups none;
  const std::string table = without_explained(
      options.markdown(), command, invocation.explained != nullptr ? *invocation.explained : none);
  return fmt::format("## piton {}\n\n{}.\n\n    piton {}{}{}\n{}{}\n", command.name,
                     command.summary, command.name, command.arguments.empty() ? "" : " ",
                     command.arguments, table.empty() ? "" : "\n", table);
}

// Invocation::parse, on one rank.
std::vector<std::string> parsed(const Invocation& invocation, OptionSet& options,
                                GeneralOptions& general, bool recipe,
                                const Invocation::Base& base) {
  const std::vector<std::string>& words = invocation.words;
  if (words == std::vector<std::string>{kMarkdownHelp}) {
    const std::string text = page_of(invocation, options);
    std::fputs(text.c_str(), stdout);
    throw HelpShown{};
  }
  options.add("General", general);
  if (const Help help = help_asked_for(words); help != Help::kNone) {
    const std::string text = help_of(invocation.command, options, help);
    if (invocation.leads) std::fputs(text.c_str(), stdout);
    throw HelpShown{};
  }
  std::vector<std::string> positional = options.parse(words);
  const std::string config = general.config;
  if (base) base(positional);
  std::vector<std::string> files;
  if (recipe && !positional.empty() && positional.front().ends_with(".toml")) {
    files.push_back(positional.front());
    positional.erase(positional.begin());
  }
  if (!config.empty()) files.push_back(config);
  for (const std::string& file : files) {
    options.read_toml(file);
    if (general.config == config) continue;
    throw Error(Fault::kUsage,
                "{}: config: is of the command line; inherit = \"{}\" starts from it", file,
                general.config);
  }
  if (!files.empty() || base) options.parse(words);  // flags win
  if (invocation.other_names != nullptr) *invocation.other_names = options.other_names_given();
  if (invocation.leads) {
    for (const std::string& note : options.notes()) invocation.log.info(note);
  }
  constexpr int kMostThreads = 8192;  // the most processors that Linux is built for
  check_range("--threads", general.threads, 0, kMostThreads);
  if (!(general.distributed_timeout_minutes > 0 && general.distributed_timeout_minutes <= 1e6)) {
    throw Error(Fault::kUsage,
                "--distributed-timeout-minutes: got {}, wanted more than 0, at most 1e6",
                general.distributed_timeout_minutes);
  }
  if (general.quiet) invocation.terminal.be_quiet();
  return positional;
}

}  // namespace

std::vector<std::string> Invocation::parse(OptionSet& options, GeneralOptions& general, bool recipe,
                                           const Base& base) {
  std::vector<std::string> positional;
  together([&] { positional = parsed(*this, options, general, recipe, base); });
  return positional;
}

void Invocation::warn_of_root(const GeneralOptions& general) const {
  if (!leads || general.quiet || ::geteuid() != 0) return;
  log.warning("running as root: the files belong to root; an ordinary user is enough");
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
  for (const OtherName& other : kOtherNames) {
    if (other.name == name) {
      throw Error(Fault::kUsage, "no such command: {}; piton --help lists all", other.answer);
    }
  }
  const std::string near = nearest_name(name, names);
  throw Error(Fault::kUsage, "unknown command{}; piton --help lists all",
              near.empty() ? "" : fmt::format(", did you mean {}?", near));
}

std::string overview() {
  std::string text =
      "Trains language models: from raw text to a model that writes, on CPUs and GPUs.\n\n"
      "usage: piton COMMAND [ARGUMENT ...] [OPTION ...]\n\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<15} {}\n", command.name, command.summary);
  }
  text +=
      "\npiton COMMAND --help shows the options that most runs need, --help all shows all;\n"
      "piton --version shows the version and the build.\n"
      "Exit codes: 0 done; 2 usage; 3 data or checkpoint invalid; 4 out of memory; 5 diverged;\n"
      "6 a peer lost; 75 saved after a signal, start again.\n";
  return text;
}

}  // namespace piton::cli
