#include "parallel/simulate.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace piton {
namespace {

// The end times of the passes of each (chunk, micro-batch); below 0: not yet ended.
class Ends {
 public:
  Ends(int chunks, int micro_batches)
      : micro_batches_(micro_batches),
        forward_(static_cast<std::size_t>(chunks) * micro_batches, -1.0),
        backward_(forward_) {}
  double& forward(int chunk, int m) { return forward_[index(chunk, m)]; }
  // Of the input gradients.
  double& backward(int chunk, int m) { return backward_[index(chunk, m)]; }

 private:
  std::size_t index(int chunk, int m) const {
    return static_cast<std::size_t>(chunk) * micro_batches_ + m;
  }
  int micro_batches_;
  std::vector<double> forward_;
  std::vector<double> backward_;
};

double duration(const Step& step, const StepTimes& times) {
  switch (step.pass) {
    case Pass::kForward:
      return times.forward;
    case Pass::kBackward:
      return times.backward_input + times.backward_weight;
    case Pass::kBackwardInput:
      return times.backward_input;
    case Pass::kBackwardWeight:
      return times.backward_weight;
  }
  return 0;
}

// Sets `other` to the step of another chunk whose result `step` needs. False if it needs none.
bool needed(const Schedule& schedule, const Step& step, Step* other) {
  if (step.pass == Pass::kForward && step.chunk > 0) {
    *other = {Pass::kForward, step.micro_batch, step.chunk - 1};
    return true;
  }
  const bool backward = step.pass == Pass::kBackward || step.pass == Pass::kBackwardInput;
  if (backward && step.chunk + 1 < schedule.chunks()) {
    *other = {Pass::kBackwardInput, step.micro_batch, step.chunk + 1};
    return true;
  }
  return false;
}

[[noreturn]] void report_deadlock(const Schedule& schedule, const std::vector<std::size_t>& next) {
  std::string waiting;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    if (next[stage] == schedule.steps[stage].size()) continue;
    const Step& step = schedule.steps[stage][next[stage]];
    Step other;
    const bool has = needed(schedule, step, &other);
    PITON_ASSERT(has, "a step that needs no other chunk cannot wait");
    waiting += fmt::format("{}stage {}, step {}: the {} waits for the {} on stage {}",
                           waiting.empty() ? "" : "; ", stage, next[stage], to_string(step),
                           to_string(other), schedule.stage_of_chunk[other.chunk]);
  }
  throw Error(Fault::kUsage, "pipeline: schedule \"{}\" cannot end (deadlock): {}", schedule.name,
              waiting);
}

int peak_of(const std::vector<Step>& steps) {
  int alive = 0;
  int peak = 0;
  for (const Step& step : steps) {
    if (step.pass == Pass::kForward) peak = std::max(peak, ++alive);
    if (step.pass == Pass::kBackward || step.pass == Pass::kBackwardWeight) --alive;
  }
  return peak;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const std::vector<StepTimes>& times,
                    const std::vector<std::int64_t>& sizes) {
  check(schedule);
  if (!sizes.empty() && static_cast<int>(sizes.size()) != schedule.micro_batches) {
    throw Error(Fault::kUsage, "pipeline: got sizes of {} micro-batches, wanted {}", sizes.size(),
                schedule.micro_batches);
  }
  if (times.size() != 1 && static_cast<int>(times.size()) != schedule.chunks()) {
    throw Error(Fault::kUsage, "pipeline: got step times of {} chunks, wanted 1 or {}",
                times.size(), schedule.chunks());
  }
  const auto times_of = [&](int chunk) -> const StepTimes& {
    return times.size() == 1 ? times[0] : times[chunk];
  };
  const auto size_of = [&](const Step& step) {
    return sizes.empty() ? 1.0 : static_cast<double>(sizes[step.micro_batch]);
  };
  const auto time_of = [&](const Step& step) {
    return duration(step, times_of(step.chunk)) * size_of(step);
  };

  Simulation result;
  result.start.resize(schedule.stages);
  result.end.resize(schedule.stages);
  std::vector<std::size_t> next(schedule.stages, 0);
  std::vector<double> free_at(schedule.stages, 0.0);
  Ends ends(schedule.chunks(), schedule.micro_batches);

  // In each round, every stage executes steps until one needs a step that has not ended yet. After
  // a round without progress, the schedule has ended, or is in a deadlock.
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < schedule.stages; ++stage) {
      const std::vector<Step>& steps = schedule.steps[stage];
      for (; next[stage] < steps.size(); ++next[stage]) {
        const Step& step = steps[next[stage]];
        double ready = free_at[stage];
        Step other;
        if (needed(schedule, step, &other)) {
          const double ended = other.pass == Pass::kForward
                                   ? ends.forward(other.chunk, other.micro_batch)
                                   : ends.backward(other.chunk, other.micro_batch);
          if (ended < 0) break;
          const bool local = schedule.stage_of_chunk[other.chunk] == stage;
          ready = std::max(ready,
                           ended + (local ? 0.0 : times_of(other.chunk).message * size_of(step)));
        }
        const double end = ready + time_of(step);
        result.start[stage].push_back(ready);
        result.end[stage].push_back(end);
        free_at[stage] = end;
        if (step.pass == Pass::kForward) ends.forward(step.chunk, step.micro_batch) = end;
        // kBackward computes the weight gradients of each node together with its input gradients
        // (ops/tape.h), so the input gradients of the chunk are sent when the whole step has ended.
        if (step.pass == Pass::kBackward || step.pass == Pass::kBackwardInput) {
          ends.backward(step.chunk, step.micro_batch) = end;
        }
        moved = true;
      }
    }
  }
  for (int stage = 0; stage < schedule.stages; ++stage) {
    if (next[stage] != schedule.steps[stage].size()) report_deadlock(schedule, next);
  }

  for (int stage = 0; stage < schedule.stages; ++stage) {
    double work = 0;
    for (const Step& step : schedule.steps[stage]) work += time_of(step);
    result.ideal = std::max(result.ideal, work);
    if (work > 0) {
      const double span = result.end[stage].back() - result.start[stage].front();
      result.inner_bubble = std::max(result.inner_bubble, span / work - 1);
    }
    result.time = std::max(result.time, free_at[stage]);
    result.peak_activations.push_back(peak_of(schedule.steps[stage]));
  }
  result.bubble = result.ideal > 0 ? result.time / result.ideal - 1 : 0;
  return result;
}

}  // namespace piton
