// Estimates the time of a step: the model's own code runs on a device without memory, against a
// clock that kernel calls advance by their time, and that waits for transfers over links of given
// speeds. What a transfer hides under work is hidden here too, because the order is that of the
// code.
//
// Of a pipeline a stage is timed as if its messages were there when it wants them; the schedule is
// then simulated with these times.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "kernels/measured/forwarding_kernels.h"
#include "train/run/run_plan.h"

namespace piton {

// What a device reaches, not what its data sheet says.
struct DeviceRates {
  double flops_per_second = 0;
  double bytes_per_second = 0;  // of its memory
};

// The longer of the times that the operations and the bytes of a call take.
double seconds_at(const DeviceRates& rates, const KernelCall& call);

// Advances a clock by the time of each call, which is asked for once for all calls that are alike.
class TimedCalls final : public ForwardingKernels {
 public:
  using Seconds = std::function<double(const KernelCall& call)>;
  using Advance = std::function<void(double seconds)>;

  // `known`: times by describe(), which it reads and adds to.
  TimedCalls(Kernels& inner, std::map<std::string, double>& known, Seconds seconds, Advance advance)
      : ForwardingKernels(inner),
        known_(known),
        seconds_(std::move(seconds)),
        advance_(std::move(advance)) {}

  double work_seconds() const { return work_seconds_; }  // of all calls so far

 private:
  void submit(const KernelCall& call, Stream& stream) override;

  std::map<std::string, double>& known_;
  Seconds seconds_;
  Advance advance_;
  double work_seconds_ = 0;
};

// Of one step of one rank, without idle time of a pipeline.
struct RankSeconds {
  double work = 0;    // in kernel calls
  double waited = 0;  // for transfers that no work hid
};
using TimeRank = std::function<RankSeconds(const RunPlan& plan, int rank)>;

struct StepTime {
  double seconds = 0;
  double work = 0;    // of the busiest stage, in kernel calls
  double waited = 0;  // of that stage, for transfers
  double idle = 0;    // of that stage, in the bubble of the pipeline
};

// Times two short steps of the first rank of each stage, and derives that of the whole batch.
StepTime estimate_step_time(const RunPlan& plan, const TimeRank& time_rank);

}  // namespace piton
