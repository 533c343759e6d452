// Options of traces and timers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"

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
             "write what every rank does in a few steps, kernel by kernel, to this file, for "
             "chrome://tracing and ui.perfetto.dev",
             {.placeholder = "FILE"}},
      trace);
    v(Option{"profile", "the same in trace.json of --save, unless --trace names a file"}, profile);
    v(Option{"profile-step-start",
             "the trace begins when so many iterations are done (default: two after the start)"},
      profile_step_start);
    v(Option{"profile-step-end",
             "and ends when so many are done (default: two after --profile-step-start)"},
      profile_step_end);
    v(Option{"profile-ranks", "ranks in the trace (default: all)", {.placeholder = "N"}},
      profile_ranks);
    v(Option{"timing-log-level",
             "times in the log: 0 none, 1 of the parts of a step (forward and backward, sums of "
             "gradients, optimizer, saves), 2 also of passes and data"},
      timing_log_level);
    v(Option{"timing-log-option",
             "which of the ranks' times are logged",
             {.choices = {"max", "minmax", "all"}}},
      timing_log_option);
    v(Option{"log-timers-to-tensorboard", "the largest of these times also for TensorBoard"},
      log_timers_to_tensorboard);
  }
};

}  // namespace piton
