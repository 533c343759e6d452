// `plan` as a function: memory and traffic of every rank of a layout.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/estimate.h"
#include "plan/step_time.h"
#include "session/machine.h"
#include "train/recompute_choice.h"
#include "train/run/run_planner.h"

namespace piton {

// One estimate per rank, for a run with `machine`'s kernels. Of more than 128 ranks, those of a
// stage are taken to be like its first one: tensor ranks are alike, and no data rank holds more
// than the first.
std::vector<RankEstimate> estimate_layout(const RunPlan& plan, const Machine& machine);
// The same for the first rank of each stage alone.
std::vector<RankEstimate> estimate_stages(const RunPlan& plan, const Machine& machine);

// The same for the rank of this process.
RankEstimate estimate_own_rank(const RunPlan& plan, const Machine& machine);

// Throws Error(kUsage) that names the flag if the layout of `plan` does not divide its model.
void check_layout(const RunPlan& plan);

// Speeds of a machine that is not this one.
struct PlannedSpeeds {
  std::optional<DeviceRates> device;      // else the calls are measured with `machine`'s kernels
  double link_bytes_per_second = 0;       // of a rank within its host; 0: transfers take no time
  double host_link_bytes_per_second = 0;  // of a rank to other hosts
  double latency_seconds = 0;             // of a message
  int ranks_of_host = 1;
};

// Times by describe() of the call, for several layouts.
using KnownTimes = std::map<std::string, double>;

StepTime estimate_time(const RunPlan& plan, const Machine& machine, const PlannedSpeeds& speeds,
                       KnownTimes& known);

// Plans runs on `machine`, which must outlive it.
class MachinePlanner final : public RunPlanner {
 public:
  explicit MachinePlanner(const Machine& machine) : machine_(machine) {}

  MemoryCounts plan_memory(const RunPlan& plan) override;
  RecomputeChoice choose_recompute(const RunPlan& plan) override;

 private:
  const Machine& machine_;
};

}  // namespace piton
