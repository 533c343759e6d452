// What each rank of a measured step held and sent, next to the plan of it, and how long the stages
// of a pipeline worked in its passes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/sections.h"
#include "comm/communicator.h"
#include "kernels/measured/timed_kernels.h"

namespace piton {

// The passes of one step, without the sums of gradients after them.
struct PassSeconds {
  double whole = 0;  // from the first pass to the end of the last one
  double busy = 0;   // in kernel calls
};

struct MeasuredRank {
  std::int64_t planned_bytes = 0;  // peak of the arena
  std::int64_t peak_bytes = 0;
  std::int64_t planned_reserved_bytes = 0;  // segments of the arena
  std::int64_t resident_bytes = 0;          // peak of the process, before other measurements
  std::int64_t planned_sent_bytes = 0;      // in a step
  std::int64_t sent_bytes = 0;
  std::vector<PassSeconds> passes;  // of each round; empty: not measured
};

// Collective: those of all ranks, in order.
std::vector<MeasuredRank> gather_ranks(const MeasuredRank& mine, Communicator& everyone);

// Idle time of the stages in the passes of one round, as a share of the work of the busiest one.
double measured_bubble(const std::vector<MeasuredRank>& ranks, std::size_t round);

// Measures the passes of steps: give kernels() to the session, and this as its sections. Only on a
// host, where a call is complete when it returns.
class PassTimes final : public SectionObserver {
 public:
  // `inner` must outlive it.
  explicit PassTimes(Kernels& inner) : timed_(inner) {}

  Kernels& kernels() { return timed_; }
  const std::vector<PassSeconds>& steps() const { return steps_; }
  void clear() { steps_.clear(); }

  void begin_section(std::string_view name, std::int64_t number) override;
  void end_section(std::string_view name) override;

 private:
  TimedKernels timed_;
  std::chrono::steady_clock::time_point begin_{};
  std::vector<PassSeconds> steps_;
};

}  // namespace piton
