// The options of `piton plan` that say how fast devices and links are, and the time of a step.
#pragma once

#include <optional>
#include <string>

#include "api/planning.h"
#include "base/options/options.h"

namespace piton::cli {

struct SpeedOptions {
  bool step_time = false;
  std::optional<double> device_tflops;     // 10^12 operations a second
  std::optional<double> device_bandwidth;  // 10^9 bytes a second
  std::optional<double> link_bandwidth;
  std::optional<double> host_link_bandwidth;
  double link_latency = 0;  // microseconds
  int ranks_per_host = 8;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"step-time",
             "estimate the time of a step: kernel calls are measured on this machine, unless "
             "--device-tflops says how fast others are"},
      step_time);
    v(Option{"device-tflops",
             "products that a device reaches, in 10^12 operations a second, for --step-time and "
             "--search",
             {.placeholder = "TFLOPS"}},
      device_tflops);
    v(Option{"device-bandwidth",
             "memory bandwidth that a device reaches; needs --device-tflops",
             {.placeholder = "GB/s"}},
      device_bandwidth);
    v(Option{"link-bandwidth",
             "what a rank can send within its host; without it transfers take no time",
             {.placeholder = "GB/s"}},
      link_bandwidth);
    v(Option{"host-link-bandwidth",
             "what a rank can send to other hosts (default: --link-bandwidth)",
             {.placeholder = "GB/s"}},
      host_link_bandwidth);
    v(Option{"link-latency", "of each message", {.placeholder = "MICROSECONDS"}}, link_latency);
    v(Option{"ranks-per-host", "number of ranks that share a host"}, ranks_per_host);
  }

  bool any() const {
    return device_tflops || device_bandwidth || link_bandwidth || host_link_bandwidth;
  }
  // Throws Error(kUsage) naming the flag.
  PlannedSpeeds check() const;
};

// The compute threads of each of `ranks` ranks, if they share this machine's cores, or, where a
// host has fewer of them, so many.
int threads_of_rank(const PlannedSpeeds& speeds, int ranks);

// "a step takes 0.812 s: 5047 tokens/s; ..." `threads`: of this process, which measures calls.
std::string time_lines(const RunPlan& plan, const StepTime& time, const PlannedSpeeds& speeds,
                       int threads);

}  // namespace piton::cli
