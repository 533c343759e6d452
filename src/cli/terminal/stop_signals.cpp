#include "cli/terminal/stop_signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace piton::cli {
namespace {

sigset_t stop_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, number);
  // nohup ignores it for its program; a blocked signal would come all the same.
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

std::string_view name_of(int number) {
  switch (number) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "SIGUSR1";
  }
}

// A second signal sooner than this after the first is the same request: timeout(1) sends each to
// the process and to its group.
constexpr std::chrono::milliseconds kSameRequest{250};

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor(int number, std::string_view what) : number_(number) {
    if (number < 0) {
      throw Error(Fault::kUsage, "signals: no {}: {}; raise the limit on open files", what,
                  system_message(errno));
    }
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

struct StopSignals::State {
  explicit State(Log& to) : log(to) {}

  void listen() {
    for (;;) {
      pollfd watched[] = {{.fd = signals.number(), .events = POLLIN, .revents = 0},
                          {.fd = end.number(), .events = POLLIN, .revents = 0}};
      if (::poll(watched, 2, -1) < 0) continue;
      if (watched[1].revents != 0) return;
      signalfd_siginfo info{};
      if (::read(signals.number(), &info, sizeof info) == sizeof info) {
        take(static_cast<int>(info.ssi_signo));
      }
    }
  }

  void take(int number) {
    const bool ends = number == SIGINT || number == SIGTERM;
    const auto now = std::chrono::steady_clock::now();
    std::string line;
    {
      const std::lock_guard lock(mutex);
      if (settled) return;
      // Nothing is flushed: flushing may block on what blocks the run.
      if (answer.empty()) {
        if (before_end) before_end();
        std::_Exit(128 + number);
      }
      if (ends && !end_asked) end_asked = now;
      if (ends && now - *end_asked > kSameRequest) std::_Exit(128 + number);
      if (first != 0) return;
      first = number;
      if (!silent) {
        line =
            fmt::format("{}: {}; a second SIGINT or SIGTERM ends at once", name_of(number), answer);
      }
    }
    if (line.empty()) return;
    // On a separate thread: a log that blocks must not delay the second signal.
    try {
      speaker = std::thread([this, line] { log.info(line); });
    } catch (const std::system_error&) {  // the system has none; the run still stops in order
      log.info(line);
    }
  }

  Log& log;
  const sigset_t set = stop_set();
  const Descriptor signals{::signalfd(-1, &set, SFD_CLOEXEC), "descriptor for signals"};
  const Descriptor end{::eventfd(0, EFD_CLOEXEC), "descriptor for the end"};
  std::mutex mutex;  // guards the next five
  std::function<void()> before_end;
  std::string answer;
  bool settled = false;
  bool silent = false;
  std::optional<std::chrono::steady_clock::time_point> end_asked;  // the first SIGINT or SIGTERM
  std::atomic<int> first{0};
  std::thread speaker;  // of the listener
  std::thread listener;
};

StopSignals::StopSignals(Log& log) : state_(std::make_unique<State>(log)) {
  pthread_sigmask(SIG_BLOCK, &state_->set, nullptr);
  state_->listener = std::thread([state = state_.get()] { state->listen(); });
  pthread_setname_np(state_->listener.native_handle(), "piton-signals");
}

StopSignals::~StopSignals() {
  const std::uint64_t one = 1;
  static_cast<void>(::write(state_->end.number(), &one, sizeof one));
  state_->listener.join();
  if (state_->speaker.joinable()) state_->speaker.join();
}

void StopSignals::before_end(std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  state_->before_end = std::move(work);
}

void StopSignals::promise(std::string answer) {
  const std::lock_guard lock(state_->mutex);
  state_->answer = std::move(answer);
}

void StopSignals::be_silent() {
  const std::lock_guard lock(state_->mutex);
  state_->silent = true;
}

void StopSignals::settle() {
  const std::lock_guard lock(state_->mutex);
  state_->settled = true;
}

int StopSignals::first() const { return state_->first; }

}  // namespace piton::cli
