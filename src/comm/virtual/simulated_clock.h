// A clock that nothing real moves: work advances it by its known time, and a wait moves it
// to the end of the transfer. With a device without memory it gives the time of a step on links and
// devices that are not at hand, as soon as the step's calls have been listed.
#pragma once

#include <algorithm>

#include "comm/virtual/link_clock.h"

namespace piton {

class SimulatedClock final : public LinkClock {
 public:
  using LinkClock::LinkClock;

  // Work of `seconds` on the one thread that uses this clock.
  void advance(double seconds) {
    now_ += std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  }
  Time now() const override { return now_; }
  bool real() const override { return false; }

 private:
  void sleep_until(Time end) override { now_ = std::max(now_, end); }

  Time now_{};
};

}  // namespace piton
