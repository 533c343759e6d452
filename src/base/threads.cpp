#include "base/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/platform.h"
#include "base/signals_blocked.h"

namespace piton {
namespace {

// The index of this thread in its pool, and whether it is inside a part. A thread belongs to one
// pool at most, so this is a property of the thread, not shared state.
thread_local int t_index = 0;         // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
thread_local bool t_in_part = false;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

// How long a thread spins before it sleeps. A wake-up costs a few microseconds on bare metal and
// tens on a virtual machine, more than the time between two calls of a decoder. A pinned thread has
// its processor to itself, so it spins longer.
constexpr std::chrono::nanoseconds kSpinAlone{50'000};
constexpr std::chrono::nanoseconds kSpinShared{2'000};

// Returns once `value` differs from `old`.
void wait_for_change(const std::atomic<int>& value, int old, std::chrono::nanoseconds spin) {
  constexpr int kLooksAtValue = 16;  // looks at the value per look at the clock
  const auto end = std::chrono::steady_clock::now() + spin;
  do {
    for (int look = 0; look < kLooksAtValue; ++look) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause_spinning();
    }
  } while (std::chrono::steady_clock::now() < end);
  value.wait(old, std::memory_order_acquire);
}

// An affinity mask for as many processors as a machine may have.
class CoreMask {
 public:
  CoreMask() : cores_(kCores), mask_(CPU_ALLOC(kCores)) {
    if (mask_ == nullptr) throw std::bad_alloc();
    CPU_ZERO_S(size(), mask_);
  }
  ~CoreMask() { CPU_FREE(mask_); }
  CoreMask(const CoreMask&) = delete;
  CoreMask& operator=(const CoreMask&) = delete;

  std::size_t size() const { return CPU_ALLOC_SIZE(cores_); }
  cpu_set_t* get() const { return mask_; }
  void add(int core) { CPU_SET_S(core, size(), mask_); }
  bool has(int core) const { return CPU_ISSET_S(core, size(), mask_); }
  int cores() const { return cores_; }

 private:
  static constexpr int kCores = 8192;  // largest number of CPUs that Linux supports
  int cores_;
  cpu_set_t* mask_;
};

void pin(pthread_t thread, int core) {
  CoreMask mask;
  const bool known = core >= 0 && core < mask.cores();
  if (known) mask.add(core);
  const int code = known ? pthread_setaffinity_np(thread, mask.size(), mask.get()) : EINVAL;
  if (code != 0) {
    throw Error(Fault::kUsage,
                "threads: cannot pin a thread to processor {}: {}; is it among the processors that "
                "this process may use?",
                core, system_message(code));
  }
}

}  // namespace

struct ThreadPool::State {
  // One per worker, each on its own cache line, so that a waiting worker reads only its own.
  struct alignas(64) Worker {
    std::atomic<int> ticket{0};  // changes when there is a new job
    std::thread thread;
  };
  // The next untaken part of one thread. Its parts are its index plus multiples of `threads`.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};
  };
  // The lowest part that threw on one thread.
  struct alignas(64) Failure {
    std::int64_t part = 0;
    std::exception_ptr exception;
  };

  State(int count, bool pinned)
      : threads(count),
        spin(pinned ? kSpinAlone : kSpinShared),
        workers(count - 1),
        shares(count),
        failures(count) {}
  ~State() {
    stopping = true;
    for (Worker& worker : workers) {
      worker.ticket.fetch_add(1, std::memory_order_release);
      worker.ticket.notify_one();
    }
    for (Worker& worker : workers) {
      if (worker.thread.joinable()) worker.thread.join();
    }
    if (caller_mask) {
      pthread_setaffinity_np(caller, caller_mask->size(), caller_mask->get());
    }
  }

  // Call it after the job is closed.
  void wait_until_empty() {
    for (int now = inside.load(std::memory_order_acquire); now != kClosed;
         now = inside.load(std::memory_order_acquire)) {
      wait_for_change(inside, now, spin);
    }
  }

  void execute(int thread, std::int64_t part) {
    try {
      (*job)(part);
    } catch (...) {
      Failure& failure = failures[thread];
      if (!failure.exception || part < failure.part) failure = {part, std::current_exception()};
    }
  }

  // A thread takes its own parts first, in order, and then parts that other threads have not
  // started.
  void work(int thread) {
    t_in_part = true;
    for (int turn = 0; turn < threads; ++turn) {
      std::atomic<std::int64_t>& next = shares[(thread + turn) % threads].next;
      for (;;) {
        const std::int64_t part = next.fetch_add(threads, std::memory_order_relaxed);
        if (part >= parts) break;
        execute(thread, part);
      }
    }
    t_in_part = false;
  }

  void worker_loop(int thread) {
    t_index = thread;
    Worker& self = workers[thread - 1];
    for (int seen = 0;;) {
      wait_for_change(self.ticket, seen, spin);
      seen = self.ticket.load(std::memory_order_acquire);
      if (stopping) return;
      // A late worker finds the job closed and does nothing.
      if ((inside.fetch_add(1, std::memory_order_acq_rel) & kClosed) == 0) work(thread);
      if (inside.fetch_sub(1, std::memory_order_acq_rel) == kClosed + 1) inside.notify_one();
    }
  }

  const int threads;
  const std::chrono::nanoseconds spin;
  std::vector<Worker> workers;    // thread i is workers[i - 1]
  std::vector<Share> shares;      // by thread
  std::vector<Failure> failures;  // by thread
  std::mutex one_job;             // two outside threads that share a pool take turns

  // The job: written while it is closed, read while it is open.
  std::optional<PartFunction> job;
  std::int64_t parts = 0;
  std::atomic<bool> stopping{false};
  // Number of workers inside the job, plus kClosed if the job is closed. The job above changes only
  // while it is closed and no worker is inside.
  static constexpr int kClosed = 1 << 30;
  alignas(64) std::atomic<int> inside{kClosed};

  pthread_t caller{};
  std::unique_ptr<CoreMask> caller_mask;  // the caller's affinity, restored at the end
};

ThreadPool::ThreadPool(int threads, std::vector<int> cores, std::function<void()> on_start) {
  if (threads < 1) throw Error(Fault::kUsage, "threads: got {}, wanted at least 1", threads);
  PITON_ASSERT(cores.empty() || cores.size() >= static_cast<std::size_t>(threads),
               "{} processors for {} threads", cores.size(), threads);
  state_ = std::make_unique<State>(threads, !cores.empty());
  State* state = state_.get();
  const SignalsBlocked for_workers;
  for (int thread = 1; thread < threads; ++thread) {
    try {
      state->workers[thread - 1].thread = std::thread([=] { state->worker_loop(thread); });
    } catch (const std::system_error& error) {
      throw Error(Fault::kUsage,
                  "threads: the system refused thread {} of {}: {}; use fewer (--threads) or raise "
                  "the limit on processes",
                  thread + 1, threads, error.code().message());
    }
  }
  if (!cores.empty()) {
    // Pin the caller last: threads that it starts afterwards inherit its one processor.
    for (int thread = 1; thread < threads; ++thread) {
      pin(state->workers[thread - 1].thread.native_handle(), cores[thread]);
    }
    auto before = std::make_unique<CoreMask>();
    state->caller = pthread_self();
    const int code = pthread_getaffinity_np(state->caller, before->size(), before->get());
    pin(state->caller, cores[0]);
    if (code == 0) state->caller_mask = std::move(before);
  }
  if (!on_start) return;
  // A part waits until all threads have one, so each thread runs exactly one.
  std::atomic<int> arrived{0};
  run(threads, [&](std::int64_t) {
    ++arrived;
    while (arrived < threads) std::this_thread::yield();
    on_start();
  });
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return state_->threads; }

void ThreadPool::run(std::int64_t parts, PartFunction part) {
  if (parts <= 0) return;
  State& state = *state_;
  if (t_in_part) {
    // Inside a part: this thread does all of it. A failure must not keep later parts from running.
    std::exception_ptr first;
    for (std::int64_t i = 0; i < parts; ++i) {
      try {
        part(i);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
    return;
  }
  const std::lock_guard lock(state.one_job);
  const int woken = static_cast<int>(std::min<std::int64_t>(state.threads, parts)) - 1;
  state.wait_until_empty();
  state.job = part;
  state.parts = parts;
  for (int thread = 0; thread < state.threads; ++thread) {
    state.shares[thread].next.store(thread, std::memory_order_relaxed);
  }
  if (woken > 0) {
    state.inside.fetch_and(~State::kClosed, std::memory_order_release);
    for (int i = 0; i < woken; ++i) {
      state.workers[i].ticket.fetch_add(1, std::memory_order_release);
      state.workers[i].ticket.notify_one();
    }
  }
  state.work(0);
  if (woken > 0) {
    state.inside.fetch_or(State::kClosed, std::memory_order_acq_rel);
    state.wait_until_empty();
  }
  State::Failure* first = nullptr;
  for (State::Failure& failure : state.failures) {
    if (failure.exception && (first == nullptr || failure.part < first->part)) first = &failure;
  }
  if (first != nullptr) {
    const std::exception_ptr exception = first->exception;
    for (State::Failure& failure : state.failures) failure.exception = nullptr;
    std::rethrow_exception(exception);
  }
}

void ThreadPool::unpin_this_thread() const {
  if (!state_->caller_mask) return;
  const CoreMask& mask = *state_->caller_mask;
  // If it fails, the thread only stays where it is.
  static_cast<void>(pthread_setaffinity_np(pthread_self(), mask.size(), mask.get()));
}

int ThreadPool::thread_index() { return t_index; }

std::vector<int> available_cores() {
  CoreMask mask;
  std::vector<int> cores;
  if (sched_getaffinity(0, mask.size(), mask.get()) == 0) {
    for (int core = 0; core < mask.cores(); ++core) {
      if (mask.has(core)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::vector<int> cores_of_rank(const std::vector<int>& cores, int rank, int ranks) {
  PITON_ASSERT(!cores.empty() && ranks > 0 && rank >= 0 && rank < ranks,
               "{} processors, rank {} of {}", cores.size(), rank, ranks);
  const auto count = static_cast<std::int64_t>(cores.size());
  if (ranks >= count) return {cores[static_cast<std::size_t>(rank % count)]};
  const std::int64_t begin = count * rank / ranks;
  const std::int64_t end = count * (rank + std::int64_t{1}) / ranks;
  return {cores.begin() + begin, cores.begin() + end};
}

}  // namespace piton
