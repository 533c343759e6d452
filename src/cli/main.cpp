// The entry point: finds the command, runs it, and reports what it throws. The only `catch`.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <new>
#include <thread>

#include "base/error.h"
#include "base/options/other_names.h"
#include "base/printable.h"
#include "base/reported_elsewhere.h"
#include "base/several_errors.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/terminal/descriptors.h"

namespace piton::cli {
namespace {

constexpr std::chrono::milliseconds kTimeToSayIt{500};

void print_version() {
  const BuildInfo info = build_info();
  const std::string text = fmt::format("piton {}\ncommit: {}\nback ends: {}\nbuild: {}\n",
                                       info.version, info.commit, info.back_ends, info.build);
  std::fputs(text.c_str(), stdout);
}

using NamesGiven = std::map<std::string, std::string>;

int dispatch(const std::string& name, std::vector<std::string> words, Terminal& terminal,
             NamesGiven& other_names) {
  if (name == "--version") {
    print_version();
    return 0;
  }
  if (name.empty() || name == "--help" || name == "-h") {
    std::fputs(overview().c_str(), name.empty() ? stderr : stdout);
    return name.empty() ? static_cast<int>(Fault::kUsage) : 0;
  }
  const Command& command = find_command(name);
  Invocation invocation{command, std::move(words), terminal};
  invocation.leads = launched_rank() == 0;
  invocation.other_names = &other_names;
  if (!invocation.leads) terminal.show_no_progress();
  return command.run(invocation);
}

// Results that do not reach their destination (a full disk after >) are a failure; a reader that
// has read enough (| head) is none, where SIGPIPE does not end the command before.
void flush_results() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    if (errno == EPIPE) return;
    throw Error(Fault::kData, "standard output: cannot write: {}", system_message(errno));
  }
}

// `message`: printable.
int report(Terminal& terminal, const std::string& name, std::string_view message, int code) {
  terminal.finish();
  std::fflush(stdout);
  // Some messages of the library name the command ("train-tokenizer: ..."), for programs without a
  // command line.
  const bool names_it =
      !name.empty() && (message.starts_with(name + ":") || message.starts_with(name + " "));
  const std::string shown_name = printable(name);
  const std::string line = names_it       ? fmt::format("piton {}\n", message)
                           : name.empty() ? fmt::format("piton: {}\n", message)
                                          : fmt::format("piton {}: {}\n", shown_name, message);
  std::fputs(line.c_str(), stderr);
  return code;
}

int run(int count, char** arguments) {
  const std::vector<std::string> all(arguments, arguments + count);
  const std::string name = count > 1 ? all[1] : "";
  Terminal terminal;
  NamesGiven other_names;
  try {
    try {
      const int code =
          dispatch(name, {all.begin() + std::min(count, 2), all.end()}, terminal, other_names);
      flush_results();
      return code;
    } catch (const HelpShown&) {
      flush_results();
      return 0;
    } catch (const ReportedByAnotherRank& other) {
      // When this process ends, the launcher may end the rank that still has to report.
      std::this_thread::sleep_for(kTimeToSayIt);
      return static_cast<int>(other.fault());
    }
  } catch (const SeveralErrors& errors) {
    return report(terminal, name, errors.what(), static_cast<int>(errors.fault()));
  } catch (const Error& error) {
    return report(terminal, name, printable(with_typed_names(error.what(), other_names)),
                  static_cast<int>(error.fault()));
  } catch (const std::filesystem::filesystem_error& error) {
    return report(terminal, name,
                  printable(fmt::format("{}: {}", error.path1().string(), error.code().message())),
                  static_cast<int>(Fault::kData));
  } catch (const std::bad_alloc&) {
    return report(terminal, name, "out of memory; a smaller batch or more memory would do",
                  static_cast<int>(Fault::kMemory));
  } catch (const std::exception& error) {
    return report(terminal, name,
                  printable(fmt::format("internal error: {}; please report this", error.what())),
                  1);
  }
}

}  // namespace
}  // namespace piton::cli

int main(int count, char** arguments) {
  // A write beyond the largest file that is allowed (ulimit -f) then fails as one on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  piton::cli::open_standard_descriptors();
  return piton::cli::run(count, arguments);
}
