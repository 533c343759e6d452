// The communication thread: the only one that calls MPI.
//
// It moves every activity forward in turn (collectives of each group, messages) and, when none can
// move, sleeps on this rank's doorbell, which other ranks of the host and this rank's own threads
// ring. Only while something waits for MPI itself, which cannot ring, does it look again after a
// short sleep.
#pragma once

#include <mpi.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi/host_board.h"
#include "comm/mpi/job_record.h"
#include "comm/mpi/mail.h"
#include "comm/mpi/world.h"

namespace piton {

class SharedRunner;

class MpiEngine {
 public:
  explicit MpiEngine(const MpiOptions& options);
  // Initializes MPI on a new thread; collective over all ranks. Where it throws while hangs(), the
  // thread still uses this object, which must then not be destroyed.
  void start();
  // Ends the thread. `orderly`: after all ranks have come here, and with MPI_Finalize; else the
  // thread is left alone if it does not end by itself.
  void stop(bool orderly);
  bool hangs() const { return hangs_; }  // in MPI: taken not to come back

  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }
  int machine_rank() const { return machine_rank_; }  // among the ranks of this machine, whatever
  int machine_size() const { return machine_size_; }  // force_messages says
  HostBoard& board() { return *board_; }
  HostMail& host_mail() { return *host_mail_; }
  double timeout_seconds() const { return options_.timeout_seconds; }

  // Runs `work` on the communication thread between two rounds of progress; returns when it has
  // run, and throws what it threw. `what` names it in a timeout. Where this throws Error(kPeer),
  // `work` may still be running: it holds nothing but what it shares in the ownership of.
  void call(const std::string& what, std::function<void()> work);

  // On the communication thread.
  void add(std::shared_ptr<Activity> activity) { activities_.push_back(std::move(activity)); }
  void remove(const Activity* activity);
  // Run in this order before MPI_Finalize: collective releases (windows, groups).
  void at_end(std::function<void()> release) { releases_.push_back(std::move(release)); }

  // The fence of an operation that is about to be asked for.
  std::shared_ptr<Job> new_job();
  // Something was added: look.
  void wake();

  // Why this rank cannot go on, if so. Any thread.
  std::optional<std::string> failure() const;

  // Ends all waits of this rank, and tells the others.
  void fail(int code, const std::string& why);
  [[noreturn]] void abort(int code);

 private:
  struct Call {
    std::function<void()> work;
    std::shared_ptr<Job> job;
    std::exception_ptr error;
  };
  void run();
  void initialise();
  void loop();
  void finalise();
  bool run_calls();
  bool watch(bool pending);
  std::string text_of(const Wait& wait) const;
  void fail_all(const std::string& why);
  void leave_hanging(const std::string& why);

  MpiOptions options_;
  std::unique_ptr<JobRecord> record_;
  int world_rank_ = 0;
  int world_size_ = 1;
  int machine_rank_ = 0;
  int machine_size_ = 1;
  double spin_us_ = 0;
  std::unique_ptr<HostBoard> board_;
  std::shared_ptr<HostMail> host_mail_;
  std::vector<std::shared_ptr<Activity>> activities_;
  std::vector<std::function<void()>> releases_;

  mutable std::mutex mutex_;              // guards the next five
  std::vector<std::weak_ptr<Job>> jobs_;  // open ones, and some that are not
  std::deque<std::shared_ptr<Call>> calls_;
  std::optional<std::string> failure_;
  enum class Stop { kNo, kOrderly, kNow } stop_ = Stop::kNo;
  std::optional<int> abort_code_;

  std::size_t jobs_to_sweep_ = 64;
  std::atomic<bool> dropped_{false};  // all that was asked for has been failed
  std::atomic<bool> stuck_{false};    // in MPI, when somebody gave up waiting for it
  std::atomic<bool> hangs_{false};
  Clock::time_point watched_{};
  Job started_;
  Job ended_;
  std::thread thread_;
};

}  // namespace piton
