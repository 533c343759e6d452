#include "comm/virtual/link_clock.h"

#include <algorithm>
#include <thread>

namespace piton {

LinkClock::Time LinkClock::transfer(LinkClass link, double bytes, int messages, Time ready) {
  const LinkSpeed& speed =
      link == LinkClass::kWithinHosts ? links_.within_hosts : links_.between_hosts;
  const double seconds = messages * speed.latency_seconds + bytes / speed.bytes_per_second;
  const std::lock_guard lock(mutex_);
  Time& free = free_[static_cast<int>(link)];
  free = std::max(free, ready) +
         std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  times_.transfers_seconds += seconds;
  return free;
}

void LinkClock::wait_until(Time end) {
  const Time begin = now();
  if (begin >= end) return;
  sleep_until(end);
  const std::lock_guard lock(mutex_);
  times_.waited_seconds += std::chrono::duration<double>(end - begin).count();
}

void LinkClock::sleep_until(Time end) { std::this_thread::sleep_until(end); }

LinkTimes LinkClock::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

}  // namespace piton
