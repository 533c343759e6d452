#include "parallel/schedule.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "parallel/chunked_schedules.h"

namespace piton {

std::string_view name(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kBackward:
      return "backward";
    case Pass::kBackwardInput:
      return "input backward";
    case Pass::kBackwardWeight:
      return "weight backward";
  }
  return "?";
}

std::string to_string(const Step& step) {
  return fmt::format("{} of micro-batch {} in chunk {}", name(step.pass), step.micro_batch,
                     step.chunk);
}

Schedule empty_schedule(std::string name, std::vector<int> stage_of_chunk, int stages,
                        int micro_batches) {
  if (stages < 1 || micro_batches < 1) {
    throw Error(Fault::kUsage,
                "pipeline: {} needs at least one stage and one micro-batch: got {} and {}", name,
                stages, micro_batches);
  }
  return {.name = std::move(name),
          .stages = stages,
          .micro_batches = micro_batches,
          .stage_of_chunk = std::move(stage_of_chunk),
          .steps = std::vector<std::vector<Step>>(static_cast<std::size_t>(stages))};
}

std::vector<int> Schedule::chunks_of_stage(int stage) const {
  std::vector<int> found;
  for (int chunk = 0; chunk < chunks(); ++chunk) {
    if (stage_of_chunk[chunk] == stage) found.push_back(chunk);
  }
  return found;
}

namespace {

// A schedule with one chunk per stage and without steps.
Schedule straight_pipeline(std::string name, int stages, int micro_batches) {
  std::vector<int> stage_of_chunk(static_cast<std::size_t>(std::max(stages, 0)));
  std::iota(stage_of_chunk.begin(), stage_of_chunk.end(), 0);
  return empty_schedule(std::move(name), std::move(stage_of_chunk), stages, micro_batches);
}

}  // namespace

Schedule one_forward_one_backward(int stages, int micro_batches) {
  Schedule schedule = straight_pipeline("1f1b", stages, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Step>& steps = schedule.steps[stage];
    const int warm_up = std::min(stages - stage - 1, micro_batches);
    for (int m = 0; m < warm_up; ++m) steps.push_back({Pass::kForward, m, stage});
    for (int m = 0; m < micro_batches; ++m) {
      if (warm_up + m < micro_batches) steps.push_back({Pass::kForward, warm_up + m, stage});
      steps.push_back({Pass::kBackward, m, stage});
    }
  }
  return schedule;
}

Schedule zero_bubble_h1(int stages, int micro_batches) {
  Schedule schedule = straight_pipeline("zb-h1", stages, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Step>& steps = schedule.steps[stage];
    const int warm_up = std::min(stages - stage - 1, micro_batches);
    // Stage r defers its weight gradients by r micro-batches. Its warmup has r forwards fewer than
    // that of stage 0, so with r tapes kept longer it holds as many tapes as stage 0.
    const int trail = stage;
    for (int m = 0; m < warm_up; ++m) steps.push_back({Pass::kForward, m, stage});
    for (int m = 0; m < micro_batches; ++m) {
      if (warm_up + m < micro_batches) steps.push_back({Pass::kForward, warm_up + m, stage});
      steps.push_back({Pass::kBackwardInput, m, stage});
      if (m >= trail) steps.push_back({Pass::kBackwardWeight, m - trail, stage});
    }
    for (int m = std::max(0, micro_batches - trail); m < micro_batches; ++m) {
      steps.push_back({Pass::kBackwardWeight, m, stage});
    }
  }
  return schedule;
}

int chunks_of_each_stage(const ScheduleSettings& settings) {
  switch (settings.kind) {
    case ScheduleKind::kOneForwardOneBackward:
    case ScheduleKind::kZeroBubbleH1:
      return 1;
    case ScheduleKind::kInterleaved:
    case ScheduleKind::kAllInAllOut:
      return settings.chunks;
    case ScheduleKind::kZeroBubbleV:
    case ScheduleKind::kDualPipeV:
      return 2;
  }
  PITON_ASSERT(false, "unknown schedule");
  return 1;
}

std::vector<int> stages_of_chunks(const ScheduleSettings& settings, int stages) {
  const bool turns =
      settings.kind == ScheduleKind::kZeroBubbleV || settings.kind == ScheduleKind::kDualPipeV;
  return turns ? v_stages(stages) : round_robin(stages, chunks_of_each_stage(settings));
}

void check_micro_batches(const ScheduleSettings& settings, int stages, int micro_batches) {
  const int group = settings.group > 0 ? settings.group : stages;
  if (settings.kind == ScheduleKind::kInterleaved) check_groups(stages, micro_batches, group);
  if (settings.kind == ScheduleKind::kAllInAllOut) check_multiple(stages, micro_batches);
  if (settings.kind == ScheduleKind::kDualPipeV) check_both_ways(stages, micro_batches);
}

Schedule make_schedule(const ScheduleSettings& settings, int stages, int micro_batches) {
  const int group = settings.group > 0 ? settings.group : stages;
  switch (settings.kind) {
    case ScheduleKind::kOneForwardOneBackward:
      return one_forward_one_backward(stages, micro_batches);
    case ScheduleKind::kZeroBubbleH1:
      return zero_bubble_h1(stages, micro_batches);
    case ScheduleKind::kInterleaved:
      return interleaved(stages, settings.chunks, micro_batches, group);
    case ScheduleKind::kAllInAllOut:
      return all_in_all_out(stages, settings.chunks, micro_batches);
    case ScheduleKind::kZeroBubbleV:
      return zero_bubble_v(stages, micro_batches);
    case ScheduleKind::kDualPipeV:
      return dual_pipe_v(stages, micro_batches);
  }
  PITON_ASSERT(false, "unknown schedule");
  return {};
}

namespace {

// The passes of one (chunk, micro-batch) that were found so far.
struct PassProgress {
  bool forward = false;
  bool backward_input = false;
  bool backward_weight = false;
};

[[noreturn]] void refuse(const Schedule& schedule, const std::string& what) {
  throw Error(Fault::kUsage, "pipeline: schedule \"{}\" is not valid: {}", schedule.name, what);
}

}  // namespace

void check(const Schedule& schedule) {
  const int chunks = schedule.chunks();
  if (schedule.stages < 1 || schedule.micro_batches < 1 || chunks < 1) {
    refuse(schedule, fmt::format("it has {} stages, {} micro-batches and {} chunks",
                                 schedule.stages, schedule.micro_batches, chunks));
  }
  if (static_cast<int>(schedule.steps.size()) != schedule.stages) {
    refuse(schedule, fmt::format("it lists steps for {} stages, wanted {}", schedule.steps.size(),
                                 schedule.stages));
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int stage = schedule.stage_of_chunk[chunk];
    if (stage < 0 || stage >= schedule.stages) {
      refuse(schedule, fmt::format("chunk {} is on stage {} of {}", chunk, stage, schedule.stages));
    }
  }
  std::vector<PassProgress> progress(static_cast<std::size_t>(chunks) * schedule.micro_batches);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (const Step& step : schedule.steps[stage]) {
      if (step.chunk < 0 || step.chunk >= chunks || step.micro_batch < 0 ||
          step.micro_batch >= schedule.micro_batches) {
        refuse(schedule,
               fmt::format("stage {} has the {}: there are {} chunks and {} micro-batches", stage,
                           to_string(step), chunks, schedule.micro_batches));
      }
      if (schedule.stage_of_chunk[step.chunk] != stage) {
        refuse(schedule, fmt::format("stage {} has the {}, which is on stage {}", stage,
                                     to_string(step), schedule.stage_of_chunk[step.chunk]));
      }
      PassProgress& one = progress[static_cast<std::size_t>(step.chunk) * schedule.micro_batches +
                                   step.micro_batch];
      const bool input = step.pass == Pass::kBackward || step.pass == Pass::kBackwardInput;
      const bool weight = step.pass == Pass::kBackward || step.pass == Pass::kBackwardWeight;
      const bool again = (step.pass == Pass::kForward && one.forward) ||
                         (input && one.backward_input) || (weight && one.backward_weight);
      if (again) refuse(schedule, fmt::format("stage {} has the {} twice", stage, to_string(step)));
      if (input && !one.forward) {
        refuse(schedule,
               fmt::format("stage {} has the {} before its forward", stage, to_string(step)));
      }
      if (step.pass == Pass::kBackwardWeight && !one.backward_input) {
        refuse(schedule, fmt::format("stage {} has the {} before its input backward", stage,
                                     to_string(step)));
      }
      one.forward |= step.pass == Pass::kForward;
      one.backward_input |= input;
      one.backward_weight |= weight;
    }
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int m = 0; m < schedule.micro_batches; ++m) {
      const PassProgress& one =
          progress[static_cast<std::size_t>(chunk) * schedule.micro_batches + m];
      if (one.forward && one.backward_input && one.backward_weight) continue;
      const Pass missing = !one.forward          ? Pass::kForward
                           : !one.backward_input ? Pass::kBackwardInput
                                                 : Pass::kBackwardWeight;
      refuse(schedule, fmt::format("the {} is missing", to_string(Step{missing, m, chunk})));
    }
  }
}

}  // namespace piton
