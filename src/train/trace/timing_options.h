// Options of traces and timers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"

namespace piton {

struct TimingOptions {
  std::string trace;
  bool profile = false;
  std::optional<std::int64_t> profile_step_start;
  std::optional<std::int64_t> profile_step_end;
  std::vector<int> profile_ranks;  // empty: all
  std::int64_t timing_log_level = 0;
  std::string timing_log_option = "minmax";
  bool log_timers_to_tensorboard = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"trace",
             "file for a trace of a few steps: the kernels, communication, waits and sections of "
             "every rank, as chrome://tracing and ui.perfetto.dev show them (default: no trace)",
             {.placeholder = "FILE"}},
      trace);
    v(Option{"profile", "write the trace to trace.json in --save; --trace names another file"},
      profile);
    v(Option{"profile-step-start",
             "number of iterations that are done when the trace begins (default: two more than at "
             "the start)"},
      profile_step_start);
    v(Option{"profile-step-end",
             "number of iterations that are done when the trace ends (default: two more than at "
             "its beginning)"},
      profile_step_end);
    v(Option{"profile-ranks",
             "numbers of the ranks that are in the trace, from 0 (default: all)",
             {.placeholder = "N"}},
      profile_ranks);
    v(Option{"timing-log-level",
             "which parts of a step are timed in the log: 0: none; 1: forward and backward, "
             "sums of gradients, optimizer, saves and the load; 2: also each pass, the reading of "
             "data and logging"},
      timing_log_level);
    v(Option{"timing-log-option",
             "which of the ranks' times are logged: max: the longest; minmax: the shortest and the "
             "longest; all: those of every rank",
             {.choices = {"max", "minmax", "all"}}},
      timing_log_option);
    v(Option{"log-timers-to-tensorboard",
             "write the longest of the times of --timing-log-level to TensorBoard's files too"},
      log_timers_to_tensorboard);
  }
};

}  // namespace piton
