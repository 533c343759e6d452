// piton launch N COMMAND ...: starts N ranks of a run on this host, without MPI.

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/options/option_range.h"
#include "cli/command.h"
#include "cli/compatibility/meeting_place.h"
#include "cli/launcher/rank_processes.h"
#include "comm/rendezvous/connection.h"

namespace piton::cli {
namespace {

constexpr int kMostLaunchedRanks = 4096;

struct LaunchOptions {
  std::optional<std::int64_t> ranks;
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"nproc-per-node",
             "number of ranks on this host, as torchrun has it: in place of N",
             {.placeholder = "N"}},
      ranks);
    v(Option{"nnodes", "hosts of the run, on each of which piton launch starts N ranks"}, nnodes);
    v(Option{"node-rank", "number of this host, from 0 on"}, node_rank);
    v(Option{"master-addr", "host of rank 0; needed with --nnodes", {.placeholder = "HOST"}},
      master_addr);
    v(Option{"master-port",
             "port at which ranks meet (0: a free one; on several hosts 29500)",
             {.placeholder = "PORT"}},
      master_port);
  }

  void check() const {
    if (ranks) check_range("--nproc-per-node", *ranks, 1, kMostLaunchedRanks);
    check_range("--nnodes", nnodes, 1, kMostLaunchedRanks);
    check_range("--node-rank", node_rank, 0, nnodes - 1);
    check_range("--master-port", master_port, 0, kLastPort);
    if (nnodes > 1 && master_addr.empty()) {
      throw Error(Fault::kUsage, "--nnodes {}: --master-addr is missing, the host of rank 0",
                  nnodes);
    }
  }
};

// The words before N, which are the launcher's own, and the others.
std::pair<std::vector<std::string>, std::vector<std::string>> split(
    const std::vector<std::string>& words) {
  std::size_t at = 0;
  while (at < words.size() && words[at].starts_with("-")) {
    const std::string& word = words[at];
    const bool alone = word == "--help" || word == "-h" || word == kMarkdownHelp ||
                       word == "--quiet" || word.find('=') != word.npos;
    at += alone ? 1 : 2;
  }
  at = std::min(at, words.size());
  return {{words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at)},
          {words.begin() + static_cast<std::ptrdiff_t>(at), words.end()}};
}

int ranks_in(const std::vector<std::string>& words) {
  int ranks = 0;
  const std::string text = words.empty() ? "" : words[0];
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (code != std::errc() || end != text.data() + text.size() || ranks < 1 ||
      ranks > kMostLaunchedRanks) {
    throw Error(Fault::kUsage,
                "launch: got \"{}\", wanted the number of ranks, from 1 to {}: piton launch 2 "
                "pretrain ...",
                text, kMostLaunchedRanks);
  }
  return ranks;
}

const Command& command_named(const std::string& name) {
  try {
    return find_command(name);
  } catch (const Error& error) {
    throw Error(error.fault(), "launch: {}: {}, and the path of a program has a \"/\"", name,
                error.what());
  }
}

// A command of piton, or a program if it has a "/".
std::vector<std::string> program_of(std::vector<std::string> words) {
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (words.empty()) {
    throw Error(Fault::kUsage,
                "launch: no command; wanted one of piton, or the path of a program: piton launch 2 "
                "pretrain ...");
  }
  if (words[0].find('/') != std::string::npos) return words;
  if (command_named(words[0]).name == "launch") {
    throw Error(Fault::kUsage, "launch: ranks do not launch; wanted another command");
  }
  words.insert(words.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
  return words;
}

}  // namespace

int run_launch(Invocation& invocation) {
  GeneralOptions general;
  LaunchOptions options;
  OptionSet set;
  set.add("Launch", options);
  auto [own, others] = split(invocation.words);
  invocation.words = std::move(own);
  refuse_more_arguments(invocation.parse(set, general));
  for (const char* flag : {"threads", "kernels", "distributed-timeout-minutes"}) {
    if (!set.given(flag)) continue;
    throw Error(Fault::kUsage, "launch: --{} is of the ranks: give it after the command", flag);
  }
  options.check();
  RankPlan plan;
  if (options.ranks) {
    plan.ranks = static_cast<int>(*options.ranks);
  } else {
    plan.ranks = ranks_in(others);
    others.erase(others.begin());
  }
  plan.words = program_of(std::move(others));
  plan.first_rank = options.node_rank * plan.ranks;
  plan.world_size = options.nnodes * plan.ranks;
  if (!options.master_addr.empty()) plan.address = options.master_addr;
  plan.port = options.master_port;
  if (plan.port == 0) plan.port = options.nnodes > 1 ? MeetingPlace().port : RankListener(0).port();
  if (const char* grace = std::getenv("PITON_GRACE_SECONDS")) {
    plan.grace = std::chrono::duration<double>(std::max(0.0, std::atof(grace)));
  }
  RankProcesses processes(plan);
  return processes.wait();
}

}  // namespace piton::cli
