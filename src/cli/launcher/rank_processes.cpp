#include "cli/launcher/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace piton::cli {
namespace {

constexpr int kSaved = 75;
// A rank needs some time before it listens to signals.
constexpr std::chrono::milliseconds kRankStarts{300};
// Not the second of two that timeout(1) sends at once.
constexpr std::chrono::milliseconds kSecondRequest{500};
// What is left of the output of ranks that have ended, if a process of theirs keeps it open.
constexpr std::chrono::milliseconds kLastOutput{500};

// Of other launchers, whose numbers would count.
constexpr std::array<std::string_view, 6> kOtherLaunchers{
    "OMPI_", "PMIX_", "PMI_", "TORCHELASTIC_", "PITON_PORT=", "SLURM_PROCID="};

sigset_t requests() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) sigaddset(&set, signal);
  // Under nohup it has no effect.
  struct sigaction hang_up {};
  if (::sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler == SIG_IGN) {
    sigdelset(&set, SIGHUP);
  }
  return set;
}

// The variables of a rank.
std::vector<std::string> variables_of(const RankPlan& plan, int number) {
  const std::vector<std::pair<std::string, std::string>> own = {
      {"RANK", std::to_string(plan.first_rank + number)},
      {"WORLD_SIZE", std::to_string(plan.world_size)},
      {"LOCAL_RANK", std::to_string(number)},
      {"LOCAL_WORLD_SIZE", std::to_string(plan.ranks)},
      {"MASTER_ADDR", plan.address},
      {"MASTER_PORT", std::to_string(plan.port)}};
  std::vector<std::string> all;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text(*at);
    const auto is_other = [&](std::string_view begin) { return text.starts_with(begin); };
    const auto is_own = [&](const auto& one) { return text.starts_with(one.first + "="); };
    if (std::ranges::none_of(kOtherLaunchers, is_other) && std::ranges::none_of(own, is_own)) {
      all.emplace_back(text);
    }
  }
  for (const auto& [name, value] : own) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::pair<int, int> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(Fault::kUsage, "launch: a pipe cannot be made: {}; see ulimit -n",
                system_message(errno));
  }
  return {ends[0], ends[1]};
}

// In a new process, which calls nothing else before it is another program.
[[noreturn]] void become(char* const* words, char* const* variables, const int (&descriptors)[3],
                         int failed) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int i = 0; i < 3; ++i) {
    if (descriptors[i] != i) ::dup2(descriptors[i], i);
  }
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(words[0], words, variables);
  const int why = errno;
  static_cast<void>(::write(failed, &why, sizeof why));
  ::_exit(127);
}

}  // namespace

RankProcesses::RankProcesses(const RankPlan& plan) : grace_(plan.grace) {
  const sigset_t set = requests();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  try {
    for (int number = 0; number < plan.ranks; ++number) start(plan, number);
  } catch (...) {
    kill_all(SIGKILL);
    throw;
  }
}

RankProcesses::~RankProcesses() {
  kill_all(SIGKILL);
  for (const Process& process : processes_) {
    if (process.id != 0) ::waitpid(process.id, nullptr, 0);
  }
  if (signals_ >= 0) ::close(signals_);
}

RankProcesses::Channels RankProcesses::channels_of(int number) {
  Channels result;
  const auto [out, out_of_rank] = make_pipe();
  relay_.add_output(out, STDOUT_FILENO);
  result.out = out_of_rank;
  const auto [error, error_of_rank] = make_pipe();
  relay_.add_output(error, STDERR_FILENO);
  result.error = error_of_rank;
  if (number > 0) {
    result.in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  } else if (::isatty(STDIN_FILENO) == 1) {
    // Its group is not the one of the terminal's foreground.
    const auto [in_of_rank, in] = make_pipe();
    relay_.set_typed_input(in);
    result.in = in_of_rank;
  } else {
    result.in = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  }
  return result;
}

void RankProcesses::start(const RankPlan& plan, int number) {
  std::vector<std::string> words = plan.words;
  std::vector<std::string> variables = variables_of(plan, number);
  const std::vector<char*> word_pointers = pointers_to(words);
  const std::vector<char*> variable_pointers = pointers_to(variables);
  const Channels channels = channels_of(plan.first_rank + number);
  const auto [failed, fails] = make_pipe();
  const int descriptors[3] = {channels.in, channels.out, channels.error};
  const pid_t id = ::fork();
  if (id == 0) become(word_pointers.data(), variable_pointers.data(), descriptors, fails);
  int why = errno;
  if (id > 0) {
    ::setpgid(id, id);
    processes_.push_back({.id = id, .rank = plan.first_rank + number});
  }
  for (const int one : {channels.in, channels.out, channels.error, fails}) ::close(one);
  const bool started = id > 0 && ::read(failed, &why, sizeof why) == 0;
  ::close(failed);
  if (!started) {
    throw Error(Fault::kUsage, "launch: {} cannot be started: {}", plan.words[0],
                system_message(why));
  }
}

int RankProcesses::wait() {
  while (any_runs()) turn();
  const auto end = Clock::now() + kLastOutput;
  while (relay_.open() && Clock::now() < end) relay_.turn(-1, 50);
  relay_.flush();
  if (at_once_) return 128 + first_end_;
  return failure_.value_or(saved_ ? kSaved : 0);
}

void RankProcesses::turn() {
  const bool waits = (first_ != 0 && !delivered_) || failure_;
  relay_.turn(signals_, waits ? 50 : -1);
  take_signals();
  reap();
  if (first_ != 0 && !delivered_ && Clock::now() - started_ > kRankStarts) deliver();
  if (failure_) end_others();
}

void RankProcesses::take_signals() {
  signalfd_siginfo one{};
  while (::read(signals_, &one, sizeof one) == sizeof one) {
    const int signal = static_cast<int>(one.ssi_signo);
    if (signal != SIGCHLD) ask(signal);
  }
}

void RankProcesses::ask(int signal) {
  if (first_ == 0) first_ = signal;
  if (signal != SIGINT && signal != SIGTERM) return;
  if (first_end_ == 0) {
    first_end_ = signal;
    first_end_at_ = Clock::now();
  } else if (Clock::now() - first_end_at_ > kSecondRequest) {
    at_once_ = true;
    kill_all(SIGKILL);
  }
}

void RankProcesses::deliver() {
  delivered_ = true;
  kill_all(SIGUSR1);
}

void RankProcesses::reap() {
  for (Process& process : processes_) {
    int status = 0;
    if (process.id == 0 || ::waitpid(process.id, &status, WNOHANG) != process.id) continue;
    note_end(process, status);
    process.id = 0;
  }
}

void RankProcesses::note_end(const Process& process, int status) {
  const bool by_signal = WIFSIGNALED(status);
  int code = by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (code == kSaved) saved_ = true;
  if (code == 0 || code == kSaved || failure_) return;
  // One that had nothing to save has ended by what it was sent.
  const bool by_request = delivered_ && code == 128 + SIGUSR1;
  if (by_request) code = 128 + first_;
  failure_ = code;
  failed_at_ = Clock::now();
  if (by_signal && !by_request && !at_once_) {
    relay_.flush();
    std::fprintf(stderr, "piton launch: rank %d (process %d) was ended by signal %d (%s)\n",
                 process.rank, process.id, WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
}

void RankProcesses::end_others() {
  if (steps_after_failure_ > 1 || Clock::now() - failed_at_ < grace_) return;
  kill_all(steps_after_failure_ == 0 ? SIGTERM : SIGKILL);
  ++steps_after_failure_;
  failed_at_ = Clock::now();
}

void RankProcesses::kill_all(int signal) const {
  for (const Process& process : processes_) {
    if (process.id != 0) ::kill(-process.id, signal);
  }
}

bool RankProcesses::any_runs() const {
  return std::ranges::any_of(processes_, [](const Process& process) { return process.id != 0; });
}

}  // namespace piton::cli
