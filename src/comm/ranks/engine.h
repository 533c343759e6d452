// The communication thread: the only one that calls the transport.
//
// It calls progress() of every activity in turn (collectives of each group, messages). If none made
// progress, it sleeps on this rank's doorbell, which other ranks of the host and this rank's own
// threads ring. A transport cannot ring it, so while an operation waits for messages of other
// hosts, the thread polls after short sleeps.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/ranks/host_board.h"
#include "comm/ranks/host_map.h"
#include "comm/ranks/mail.h"
#include "comm/ranks/transport.h"
#include "comm/ranks/world.h"

namespace piton {

class SharedRunner;

class RankEngine {
 public:
  RankEngine(std::unique_ptr<Transport> transport, const RankOptions& options);
  // Joins the ranks on a new thread; collective over all ranks. If it throws and hangs() is true,
  // the thread still uses this object: do not destroy it then.
  void start();
  // Ends the thread. `orderly`: waits for all ranks and leaves the transport. Otherwise a thread
  // that does not end by itself is left running.
  void stop(bool orderly);
  bool hangs() const {
    return hangs_;
  }  // the thread is in the transport and is assumed not to return

  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }
  int machine_rank() const { return machine_rank_; }  // among the ranks of this machine, also
  int machine_size() const { return machine_size_; }  // if ranks_per_host is set
  const HostMap& hosts() const { return hosts_; }
  // Bytes that this rank has sent to ranks of other hosts.
  std::atomic<std::int64_t>& bytes_between_hosts() { return bytes_between_hosts_; }
  Transport& transport() { return *transport_; }
  HostBoard& board() { return *board_; }
  HostMail& host_mail() { return *host_mail_; }
  double timeout_seconds() const { return options_.timeout_seconds; }

  // Runs `work` on the communication thread between two rounds of progress; on that thread at once.
  // Returns after it has run, and rethrows its exception. `what` describes it in the message of a
  // timeout. If this throws Error(kPeer), `work` may still be running, so it may use only objects
  // that it owns or shares ownership of.
  void call(const std::string& what, std::function<void()> work);

  // On the communication thread.
  void add(std::shared_ptr<Activity> activity) { activities_.push_back(std::move(activity)); }
  void remove(const Activity* activity);
  // Adds a collective release (windows, groups). They run in the order of addition before
  // this rank leaves the transport.
  void at_end(std::function<void()> release) { releases_.push_back(std::move(release)); }

  // Makes the fence of a new operation.
  std::shared_ptr<Job> new_job();
  // Wakes the communication thread to look for new work.
  void wake();

  // The reason why this rank cannot continue, if there is one. Any thread.
  std::optional<std::string> failure() const;
  // Describes a rank that has failed or is lost. Any thread.
  std::optional<std::string> lost() const;

  // Ends all waits of this rank, and informs the other ranks.
  void fail(int code, const std::string& why);
  [[noreturn]] void abort(int code);

 private:
  struct Call {
    std::string what;
    std::function<void()> work;
    std::shared_ptr<Job> job;
    std::exception_ptr error;
  };
  void run();
  void initialize();
  void loop();
  void finalise();
  bool run_calls();
  void run_call(Call& call);
  bool watch(bool pending);
  std::string text_of(const Wait& wait) const;
  void fail_all(const std::string& why);
  void leave_hanging(const std::string& why);

  RankOptions options_;
  std::unique_ptr<Transport> transport_;
  int world_rank_ = 0;
  int world_size_ = 1;
  int machine_rank_ = 0;
  int machine_size_ = 1;
  double spin_us_ = 0;
  HostMap hosts_;
  std::atomic<std::int64_t> bytes_between_hosts_{0};
  std::unique_ptr<HostBoard> board_;
  std::shared_ptr<HostMail> host_mail_;
  std::vector<std::shared_ptr<Activity>> activities_;
  std::vector<std::function<void()>> releases_;

  mutable std::mutex mutex_;              // guards the next five
  std::vector<std::weak_ptr<Job>> jobs_;  // open jobs, and finished ones not yet removed
  std::deque<std::shared_ptr<Call>> calls_;
  std::optional<std::string> failure_;
  enum class Stop { kNo, kOrderly, kNow } stop_ = Stop::kNo;
  std::optional<int> abort_code_;

  std::size_t jobs_to_sweep_ = 64;
  std::atomic<bool> dropped_{false};  // all pending operations have been failed
  std::atomic<bool> stuck_{false};    // was in the transport when a caller stopped waiting for it
  std::atomic<bool> hangs_{false};
  Clock::time_point watched_{};
  Job started_;
  Job ended_;
  std::thread thread_;
};

}  // namespace piton
