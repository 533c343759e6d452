// The commands of `piton`: one file each, listed in commands.cpp.
//
// A command declares its options, parses the words, and calls the library. It returns the exit code
// of success (0 or 75); everything else is thrown as Error and reported by main.cpp, the only
// `catch`. Results go to stdout, everything else to stderr through `log`.
#pragma once

#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/options/options.h"
#include "base/progress.h"
#include "base/reported_elsewhere.h"
#include "cli/terminal/terminal.h"

namespace piton::cli {

// Options that every command takes.
struct GeneralOptions {
  std::string config;  // --config FILE.toml
  int threads = 0;     // --threads N; 0: every core this process may use, shared with local ranks
  std::string kernels = "auto";  // --kernels reference|cpu|cuda|auto
  double distributed_timeout_minutes = 10;
  bool quiet = false;  // --quiet

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"config",
             "TOML file with options; flags on the command line win",
             {.placeholder = "FILE"}},
      config);
    v(Option{"threads", "number of compute threads of this process (0: all its cores)"}, threads);
    v(
        Option{
            "kernels",
            "implementation of the kernels (reference: simple and slow, for comparison; auto: cuda "
            "where a GPU can be used, else cpu)",
            {.choices = {"reference", "cpu", "cuda", "auto"}}},
        kernels);
    v(Option{"distributed-timeout-minutes",
             "minutes that a rank waits for the others before the run fails"},
      distributed_timeout_minutes);
    v(Option{"quiet", "print only warnings and errors"}, quiet);
  }
};

struct Command;

struct HelpShown {};

// Groups of options that docs/cli.md already explains: the text of each, and its command.
using ExplainedGroups = std::map<std::string, std::string>;

struct Invocation {
  const Command& command;
  std::vector<std::string> words;  // after the command's name
  Terminal& terminal;
  Log& log = terminal;
  Progress& progress = terminal;
  ExplainedGroups* explained = nullptr;  // set while docs/cli.md is written
  bool leads = true;                     // the first of the launched ranks: reports for all
  // Gets OptionSet::other_names_given() of what parse() has read, for errors; or null.
  std::map<std::string, std::string>* other_names = nullptr;

  // Adds the general options to `options`, reads --config, parses the words, and returns the
  // positional arguments. Prints help and throws HelpShown if --help is among them.
  // A first positional argument that ends in ".toml" is read as --config where `recipe` is true,
  // and is not returned; with --config too, the recipe is read first and --config wins.
  // --quiet takes effect at once. Of several ranks only the first one prints and reports. `base`
  // gets the positional arguments after the words were read a first time, and sets options that
  // files and words win over.
  using Base = std::function<void(const std::vector<std::string>& positional)>;
  std::vector<std::string> parse(OptionSet& options, GeneralOptions& general, bool recipe = false,
                                 const Base& base = {});

  // For a command that has written files, or is about to: one line if it runs as root, unless
  // --quiet is given. Only the first rank reports it.
  void warn_of_root(const GeneralOptions& general) const;

  // The log of what all ranks would say: nothing on other ranks than the first.
  Log& log_of_all() { return leads ? log : silent_; }

  // Runs work that is the same on every rank, before ranks meet. Only the first rank reports an
  // Error.
  template <typename Work>
  void together(Work&& work) const {
    try {
      work();
    } catch (const Error& error) {
      if (leads) throw;
      throw ReportedByAnotherRank(error.fault(), error.what());
    }
  }

  SilentLog silent_ = {};
};

// The word with which a command prints its part of docs/cli.md; see help.cpp.
inline constexpr const char* kMarkdownHelp = "--help=markdown";

// For commands that take at most `most` positional arguments: throws Error(kUsage) with the first
// extra one.
void refuse_more_arguments(const std::vector<std::string>& arguments, std::size_t most = 0);

struct Command {
  std::string_view name;
  std::string_view arguments;  // "[RECIPE.toml] [OPTION ...]"
  std::string_view summary;    // one line for `piton --help`
  std::string_view examples;   // command lines, one per line, without "piton NAME"
  std::string_view usual;      // options of the short help, separated by spaces; "": all of them
  int (*run)(Invocation&);
};

// All commands, in the order of the help.
std::span<const Command> commands();

// The kinds of `piton bench` that have other options than it: "bench tokenizer".
std::span<const Command> benches_with_own_options();

// The command called `name`. Throws Error(kUsage) if there is none, with the command that people
// usually mean by it, or the nearest one.
const Command& find_command(std::string_view name);

// The text of `piton --help`.
std::string overview();

}  // namespace piton::cli
