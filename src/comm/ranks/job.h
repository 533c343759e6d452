// One operation of the communication thread, as the fence that its caller waits for.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/arena.h"

namespace piton {

using Clock = std::chrono::steady_clock;

class Job final : public Fence {
 public:
  // A failed job is complete too.
  bool complete() const override { return state_.load(std::memory_order_acquire) != kOpen; }

  // If the job failed, every wait throws its Error(kPeer).
  void wait() override {
    state_.wait(kOpen, std::memory_order_acquire);
    if (state_.load(std::memory_order_acquire) == kFailed) throw Error(Fault::kPeer, failure_);
  }

  void then(std::function<void()> work) override {
    {
      const std::lock_guard lock(then_mutex_);
      if (!complete()) return then_.push_back(std::move(work));
    }
    work();
  }

  // Ready: the earlier work on its stream is done, so its memory may be touched.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  void make_ready() { ready_.store(true, std::memory_order_release); }

  // The first of finish() and fail() counts. Any thread.
  void finish() { end(kDone); }
  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (complete()) return;
    failure_ = why;
    end(kFailed);
  }

 private:
  enum State : std::uint32_t { kOpen, kDone, kFailed };
  void end(State state) {
    std::uint32_t open = kOpen;
    if (!state_.compare_exchange_strong(open, state, std::memory_order_acq_rel)) return;
    state_.notify_all();
    std::vector<std::function<void()>> work;
    {
      const std::lock_guard lock(then_mutex_);
      work.swap(then_);
    }
    for (const auto& one : work) one();
  }

  std::atomic<std::uint32_t> state_{kOpen};
  std::atomic<bool> ready_{false};
  std::mutex mutex_;     // serializes fail()
  std::string failure_;  // written before kFailed
  std::mutex then_mutex_;
  std::vector<std::function<void()>> then_;  // not run yet; guarded by then_mutex_
};

// Waits for the end of a job, for a limited time.
class JobEnd {
 public:
  explicit JobEnd(Job& job) {
    job.then([state = state_] {
      {
        const std::lock_guard lock(state->mutex);
        state->reached = true;
      }
      state->changed.notify_all();
    });
  }
  // False if `job` is still open after `seconds`.
  bool within(double seconds) const {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                    [this] { return state_->reached; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// An operation that waits for other ranks.
struct Wait {
  double seconds = 0;  // so far
  std::string what;    // "group everyone: all-reduce number 1 of fp32 [1000]"
  struct Missing {
    int world_rank = 0;
    std::string progress;  // "last joined number 0"; may be empty
  };
  std::vector<Missing> missing;
};

// Work that the communication thread advances in small steps, together with other activities. All
// functions are called on that thread.
class Activity {
 public:
  virtual ~Activity() = default;
  virtual bool progress() = 0;       // true if it made progress; never blocks
  virtual bool pending() const = 0;  // an operation is not complete
  // An operation is pending in the transport, which cannot ring the doorbell.
  virtual bool polls() const = 0;
  virtual std::optional<Wait> longest_wait(Clock::time_point now) = 0;
  virtual void fail(const std::string& why) = 0;  // fails all pending and all later operations
};

}  // namespace piton
