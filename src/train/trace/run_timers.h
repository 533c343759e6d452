// The times of a run's parts, summed on each rank and compared over ranks (--timing-log-level), in
// the words of Megatron-LM's timers. No rank waits for another to take a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/sections.h"
#include "comm/communicator.h"

namespace piton {

struct TimerTimes {
  std::string name;
  std::vector<double> rank_ms;  // 0: that rank has no such part
  double least_ms() const;      // of the ranks that have it
  double most_ms() const;
};

// The lines of Megatron-LM for these times. `option`: "max", "minmax" or "all". Empty without
// times.
std::vector<std::string> timer_lines(const std::vector<TimerTimes>& times,
                                     const std::string& option);

class RunTimers final : public SectionObserver {
 public:
  // `level`: 1 or 2.
  explicit RunTimers(std::int64_t level) : level_(level) {}

  void begin_section(std::string_view name, std::int64_t number) override;
  void end_section(std::string_view name) override;

  // Collective. The times of a step's parts since the last call, divided by `steps`. Parts that no
  // rank has are left out.
  std::vector<TimerTimes> take_parts(double steps, Communicator& everyone);
  // The same of the saves, or of the load, since the last call.
  std::vector<TimerTimes> take_saves(Communicator& everyone);
  std::vector<TimerTimes> take_loads(Communicator& everyone);

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<TimerTimes> take(const std::vector<std::string_view>& names, double divisor,
                               Communicator& everyone);

  std::int64_t level_;
  bool in_evaluation_ = false;  // whose passes are not those of a step
  std::map<std::string_view, Clock::time_point> begun_;
  std::map<std::string_view, double> seconds_;
};

}  // namespace piton
