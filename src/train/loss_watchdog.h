// --loss-watchdog-threshold and --loss-watchdog-patience, as Axolotl has them: losses above a bound
// in so many steps in a row say that a run has diverged. The count is a fact of the run's state, so
// that a run that was stopped continues to count where it was.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/manifest.h"

namespace piton {

class LossWatchdog {
 public:
  // Without a threshold nothing is counted.
  LossWatchdog(std::optional<double> threshold, std::int64_t patience)
      : threshold_(threshold), patience_(patience) {}

  // After a step: `state` has its number and its loss, also one that is not finite. Throws
  // Error(kDiverged) for the last one of `patience` high losses in a row.
  void count(TrainState& state) const;
  // The next step is the first one again.
  static void restart(TrainState& state);

 private:
  std::optional<double> threshold_;
  std::int64_t patience_;
};

}  // namespace piton
