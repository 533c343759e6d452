// What two runs are compared by, to the bit.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ranks/setting.h"
#include "support/run_session.h"

namespace piton::ranks {

struct RunBits {
  std::vector<double> reports;  // losses and norms of steps, then the sum of an evaluation
  std::map<std::string, std::string> pieces;
};

// Of three steps of all ranks.
inline RunBits bits_of(const test::RunLayout& layout, const ModelConfig& model) {
  test::TrainingRun run(world(), layout, model);
  RunBits bits;
  for (int step = 0; step < 3; ++step) {
    const StepReport report = run.step();
    bits.reports.insert(bits.reports.end(), {report.loss, report.grad_norm});
  }
  bits.reports.push_back(run.evaluation().loss_sum);
  bits.pieces = run.pieces();
  return bits;
}

}  // namespace piton::ranks
