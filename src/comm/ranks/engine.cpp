#include "comm/ranks/engine.h"

#include <fmt/ranges.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/signals_blocked.h"

namespace piton {

namespace {

using std::chrono::duration;

// Interval at which a waiting rank checks that the others are alive and that the timeout has not
// passed.
constexpr double kWatchSeconds = 0.1;
// Interval of polling the transport, which cannot wake this thread. A message between hosts takes
// about 20 us.
constexpr double kPollSeconds = 20e-6;
// How long a rank that ends the run waits for the messages of the others.
constexpr double kGraceSeconds = 0.5;
// After this time a wait is announced to the others: it may be the reason why they wait for this
// rank.
constexpr double kSayWaitSeconds = 0.5;
// After this time a communication thread that does not answer is assumed to hang in the transport.
constexpr double kAnswerSeconds = 2;

}  // namespace

RankEngine::RankEngine(std::unique_ptr<Transport> transport, const RankOptions& options)
    : options_(options), transport_(std::move(transport)) {}

void RankEngine::start() {
  {
    const SignalsBlocked for_it_and_those_that_it_starts;
    thread_ = std::thread([this] { run(); });
  }
  pthread_setname_np(thread_.native_handle(), "piton-comm");
  // A transport may not report a rank that does not start.
  if (!JobEnd(started_).within(options_.timeout_seconds)) {
    hangs_ = true;
    thread_.detach();
    transport_->remove_files();
    throw Error(Fault::kPeer,
                "comm: starting {}: not all ranks started within {:.3g} s; see their messages, or "
                "allow more time if they are only slow",
                transport_->name(), options_.timeout_seconds);
  }
  try {
    started_.wait();
  } catch (...) {
    thread_.join();
    throw;
  }
}

void RankEngine::run() {
  try {
    initialize();
  } catch (const std::exception& error) {
    started_.fail(error.what());
    return;
  }
  started_.finish();
  loop();
  bool orderly = false;
  {
    const std::lock_guard lock(mutex_);
    orderly = stop_ == Stop::kOrderly && !failure_;
  }
  if (orderly) {
    try {
      finalise();
    } catch (const std::exception& error) {
      ended_.fail(error.what());
      return;
    }
  } else {
    const std::string why = failure().value_or("");
    board_->announce_abort(static_cast<int>(Fault::kPeer), why);
    transport_->announce_failure(static_cast<int>(Fault::kPeer), why);
  }
  ended_.finish();
}

void RankEngine::initialize() {
  transport_->join();
  world_rank_ = transport_->rank();
  const std::vector<int>& machine_of = transport_->machine_of();
  world_size_ = static_cast<int>(machine_of.size());
  std::vector<int> machine;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (machine_of[rank] == machine_of[world_rank_]) machine.push_back(rank);
  }
  machine_size_ = static_cast<int>(machine.size());
  machine_rank_ = static_cast<int>(std::ranges::find(machine, world_rank_) - machine.begin());
  hosts_ = HostMap(hosts_of(machine_of, options_.ranks_per_host));
  std::vector<int> world_ranks;  // of this host
  for (const int rank : machine) {
    if (hosts_.same_host(rank, world_rank_)) world_ranks.push_back(rank);
  }
  const auto host = transport_->make_channel(world_ranks);
  board_ = std::make_unique<HostBoard>(*host, std::move(world_ranks));
  host_mail_ = std::make_shared<HostMail>(*board_);
  activities_.push_back(host_mail_);
  // If every rank has a spare core, an answer often comes within a few microseconds. If ranks share
  // cores, a spinning rank delays the answer it waits for.
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  spin_us_ = cores >= 2L * machine_size_ ? 20 : 0;
}

void RankEngine::loop() {
  for (;;) {
    const std::uint32_t seen = board_->bell(board_->rank()).seen();
    bool moved = run_calls();
    try {
      moved |= !dropped_ && transport_->progress();
    } catch (const Error& error) {
      fail_all(error.what());
    }
    // Another thread has failed the run while this one was in the transport or asleep: the memory
    // of pending operations may already be freed.
    if (const auto why = failure(); why && !dropped_) fail_all(*why);
    bool pending = false;
    bool polls = false;
    for (std::size_t i = 0; i < activities_.size(); ++i) {
      Activity& activity = *activities_[i];
      try {
        moved |= activity.progress();
      } catch (const Error& error) {
        fail_all(error.what());
      }
      pending |= activity.pending();
      polls |= activity.polls();
    }
    {
      const std::lock_guard lock(mutex_);
      if (abort_code_) {
        transport_->abort(*abort_code_);
        std::_Exit(*abort_code_);
      }
      if (stop_ == Stop::kNow || (stop_ == Stop::kOrderly && (!pending || failure_))) return;
    }
    if (!pending && !dropped_) board_->report_wait(-1);
    if (watch(pending) || moved) continue;
    const double seconds = polls ? kPollSeconds : pending ? kWatchSeconds : -1;
    board_->bell(board_->rank()).wait(seen, seconds, pending ? spin_us_ : 0);
  }
}

bool RankEngine::watch(bool pending) {
  const auto now = Clock::now();
  if (!pending || duration<double>(now - watched_).count() < kWatchSeconds) return false;
  watched_ = now;
  if (failure()) return false;
  if (const auto why = lost()) {
    fail_all(fmt::format("comm: {}", *why));
    return true;
  }
  std::optional<Wait> longest;
  for (const auto& activity : activities_) {
    auto wait = activity->longest_wait(now);
    if (wait && (!longest || wait->seconds > longest->seconds)) longest = std::move(wait);
  }
  const bool long_enough = longest && longest->seconds >= kSayWaitSeconds;
  board_->report_wait(long_enough && !longest->missing.empty() ? longest->missing[0].world_rank
                                                               : -1);
  if (!longest || longest->seconds < options_.timeout_seconds) return false;
  fail_all(text_of(*longest));
  return true;
}

std::string RankEngine::text_of(const Wait& wait) const {
  std::vector<std::string> ranks;
  for (const Wait::Missing& missing : wait.missing) {
    // The cause is the last rank in the chain of ranks that wait for each other.
    std::vector<std::string> notes;
    if (!missing.progress.empty()) notes.push_back(missing.progress);
    const char* who = "it waits";
    for (const int next : board_->waits_from(missing.world_rank)) {
      notes.push_back(fmt::format("{} for rank {}", std::exchange(who, "that one"), next));
    }
    ranks.push_back(notes.empty()
                        ? fmt::format("rank {}", missing.world_rank)
                        : fmt::format("rank {} ({})", missing.world_rank, fmt::join(notes, ", ")));
  }
  return fmt::format(
      "comm: {} has waited {:.3g} s for {}; see the messages of those ranks, or allow more time if "
      "they are only slow",
      wait.what, wait.seconds, fmt::join(ranks, ", "));
}

void RankEngine::fail_all(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = why;
  }
  for (const auto& activity : activities_) activity->fail(why);
  transport_->drop();
  dropped_ = true;
}

bool RankEngine::run_calls() {
  std::deque<std::shared_ptr<Call>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const auto& call : calls) {
    try {
      run_call(*call);
    } catch (...) {
      call->error = std::current_exception();
    }
    call->job->finish();
  }
  return !calls.empty();
}

void RankEngine::run_call(Call& call) {
  // After a failure the caller no longer waits for this work: do not run it.
  if (const auto why = failure()) throw Error(Fault::kPeer, *why);
  try {
    call.work();
  } catch (const Error& error) {
    if (error.fault() != Fault::kPeer) throw;
    constexpr std::string_view kAbout = "comm: ";
    std::string_view text = error.what();
    if (text.starts_with(kAbout)) text.remove_prefix(kAbout.size());
    throw Error(Fault::kPeer, "comm: {}: {}", call.what, text);
  }
}

void RankEngine::call(const std::string& what, std::function<void()> work) {
  if (std::this_thread::get_id() == thread_.get_id()) return work();
  auto call = std::make_shared<Call>();
  call->what = what;
  call->work = std::move(work);
  call->job = std::make_shared<Job>();
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(Fault::kPeer, *failure_);
    calls_.push_back(call);
  }
  wake();
  // A thread inside the transport may not notice that a rank has died, so this thread checks.
  const auto start = Clock::now();
  const JobEnd end(*call->job);
  while (!end.within(kWatchSeconds)) {
    std::string why;
    if (const auto other = lost()) {
      why = fmt::format("comm: {}: {}", what, *other);
    } else if (duration<double>(Clock::now() - start).count() > options_.timeout_seconds) {
      why = fmt::format("comm: {}: not all of its ranks joined within {:.3g} s", what,
                        options_.timeout_seconds);
    } else {
      continue;
    }
    leave_hanging(why);
    throw Error(Fault::kPeer, why);
  }
  if (call->error) std::rethrow_exception(call->error);
}

// Fails all jobs from the calling thread: the communication thread is in the transport, perhaps
// forever, and cannot.
void RankEngine::leave_hanging(const std::string& why) {
  stuck_ = true;
  std::vector<std::weak_ptr<Job>> jobs;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = why;
    jobs.swap(jobs_);
  }
  for (const auto& weak : jobs) {
    if (const auto job = weak.lock()) job->fail(why);
  }
}

std::shared_ptr<Job> RankEngine::new_job() {
  auto job = std::make_shared<Job>();
  const std::lock_guard lock(mutex_);
  if (jobs_.size() >= jobs_to_sweep_) {
    std::erase_if(jobs_, [](const auto& weak) {
      const auto old = weak.lock();
      return !old || old->complete();
    });
    jobs_to_sweep_ = std::max<std::size_t>(64, 2 * jobs_.size());
  }
  jobs_.push_back(job);
  return job;
}

void RankEngine::remove(const Activity* activity) {
  std::erase_if(activities_, [&](const auto& a) { return a.get() == activity; });
}

void RankEngine::wake() { board_->bell(board_->rank()).ring(); }

std::optional<std::string> RankEngine::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<std::string> RankEngine::lost() const {
  // The host's own reason names the process, so it is preferred. It is read last: of a rank that
  // ends between the two, the board then knows.
  auto why = transport_->failure();
  if (auto of_host = board_->lost()) return of_host;
  return why;
}

void RankEngine::fail(int code, const std::string& why) {
  board_->announce_abort(code, why);
  transport_->announce_failure(code, why);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = why;
  }
  wake();
  // After the communication thread has dropped all operations, it touches no tensor.
  const auto end = Clock::now() + duration<double>(stuck_ ? 0 : kAnswerSeconds);
  while (!dropped_ && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!dropped_) leave_hanging(why);
}

void RankEngine::stop(bool orderly) {
  {
    const std::lock_guard lock(mutex_);
    stop_ = orderly ? Stop::kOrderly : Stop::kNow;
  }
  wake();
  // In an orderly end all ranks come here. If one does not (stopped, or lost at the last moment),
  // the transport may wait for it without limit.
  const double limit = orderly  ? options_.timeout_seconds + kAnswerSeconds
                       : stuck_ ? 0
                                : kAnswerSeconds;
  const bool ended = JobEnd(ended_).within(limit);
  if (!orderly) {
    // When this process ends, the launcher ends the others; give them time to print their messages.
    std::this_thread::sleep_for(duration<double>(kGraceSeconds));
  }
  if (ended) {
    thread_.join();
  } else {
    hangs_ = true;
    thread_.detach();
  }
  transport_->remove_files();
}

void RankEngine::finalise() {
  // No rank frees what another still uses, and none waits forever for a lost rank.
  const auto start = Clock::now();
  transport_->final_barrier([&] {
    if (const auto why = lost()) throw Error(Fault::kPeer, *why);
    if (duration<double>(Clock::now() - start).count() > options_.timeout_seconds) {
      throw Error(Fault::kPeer, "comm: not all ranks reached the end of the run");
    }
  });
  board_->announce_end();
  for (const auto& release : releases_) release();
  board_->free();
  transport_->leave();
}

void RankEngine::abort(int code) {
  board_->announce_abort(code, "");
  transport_->announce_failure(code, "");
  std::this_thread::sleep_for(duration<double>(kGraceSeconds));
  transport_->remove_files();
  {
    const std::lock_guard lock(mutex_);
    abort_code_ = code;
  }
  wake();
  // The communication thread ends this process. If it hangs in the transport, exit here: a launcher
  // also ends the others when a process leaves too early.
  std::this_thread::sleep_for(duration<double>(kAnswerSeconds));
  std::_Exit(code);
}

}  // namespace piton
