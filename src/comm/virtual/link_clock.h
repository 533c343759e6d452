// Times of communication between ranks that do not exist, in real time: a transfer takes latency +
// bytes / bandwidth of its class of links, and uses no core meanwhile. So one process shows how
// much communication the work of a rank hides.
//
// All other ranks are assumed to keep pace with this one: a collective begins when this rank is
// ready for it. Transfers of one class of links run one after another.
#pragma once

#include <chrono>
#include <mutex>

#include "device/device.h"

namespace piton {

struct LinkSpeed {
  double latency_seconds = 0;   // of one message
  double bytes_per_second = 0;  // that a rank sends, and receives at the same time
};

struct VirtualLinks {
  LinkSpeed within_hosts;
  LinkSpeed between_hosts;
  int ranks_of_host = 1;  // consecutive world ranks
};

enum class LinkClass : std::uint8_t { kWithinHosts, kBetweenHosts };

struct LinkTimes {
  double transfers_seconds = 0;  // of all transfers, one after another
  double waited_seconds = 0;     // that threads have waited for transfers
};

class LinkClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit LinkClock(const VirtualLinks& links) : links_(links) {}
  virtual ~LinkClock() = default;

  const VirtualLinks& links() const { return links_; }
  // The end of a transfer of `bytes` in `messages` that follow one another, which begins when the
  // link is free, and not before `ready`.
  Time transfer(LinkClass link, double bytes, int messages, Time ready);
  // Sleeps until `end`.
  void wait_until(Time end);
  LinkTimes times() const;

  virtual Time now() const { return std::chrono::steady_clock::now(); }
  // Memory of ranks that do not exist has bytes: the work of this rank is real.
  virtual bool real() const { return true; }

 private:
  virtual void sleep_until(Time end);

  VirtualLinks links_;
  mutable std::mutex mutex_;
  Time free_[2] = {};
  LinkTimes times_;
};

// Complete from `end` on.
class TimedFence final : public Fence {
 public:
  TimedFence(LinkClock& clock, LinkClock::Time end) : clock_(clock), end_(end) {}
  bool complete() const override { return clock_.now() >= end_; }
  void wait() override { clock_.wait_until(end_); }
  LinkClock::Time end() const { return end_; }

 private:
  LinkClock& clock_;
  LinkClock::Time end_;
};

}  // namespace piton
