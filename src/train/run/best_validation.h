// The lowest validation loss of a run, for --keep-best and --early-stopping-patience. It is kept as
// a fact of the run's state, so that a run that was stopped continues to count where it was.
//
// As EarlyStoppingCallback of Transformers counts: an evaluation whose loss is lower than the best
// by more than the threshold starts the count again, others add 1 to it; the best is the lowest
// loss, whatever the threshold. A loss that is not a number is never lower.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace piton {

struct PretrainOptions;

struct BestValidation {
  std::optional<double> loss;  // absent: none was evaluated
  std::int64_t iteration = 0;  // of it
  std::int64_t waited = 0;     // evaluations since one was better by more than the threshold

  // Of the facts of a state; a new one if they have none.
  static BestValidation of(const std::map<std::string, std::string>& facts);
  void keep_in(std::map<std::string, std::string>& facts) const;

  void count(std::int64_t at_iteration, double found, double threshold);
};

// Throws Error(kUsage) that names the flag if these options need validation losses that the run
// does not have.
void check_best_validation(const PretrainOptions& options);

}  // namespace piton
