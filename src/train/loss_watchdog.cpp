#include "train/loss_watchdog.h"

#include <cstdlib>
#include <string>

#include "base/error.h"

namespace piton {
namespace {

// Fact of TrainState: the number of high losses in a row. Absent: 0.
constexpr const char* kHighLossesFact = "train.high_losses";

}  // namespace

void LossWatchdog::restart(TrainState& state) { state.facts.erase(kHighLossesFact); }

void LossWatchdog::count(TrainState& state) const {
  if (!threshold_) return;
  if (state.lm_loss <= *threshold_) return restart(state);
  std::string& fact = state.facts[kHighLossesFact];
  const std::int64_t high = std::atoll(fact.c_str()) + 1;
  fact = std::to_string(high);
  if (high < patience_) return;
  throw Error(Fault::kDiverged,
              "iteration {}: the loss is {:.4f}, the last of {} in a row above "
              "--loss-watchdog-threshold {:g}; lower --lr, or continue from an earlier checkpoint",
              state.iteration, state.lm_loss, high, *threshold_);
}

}  // namespace piton
