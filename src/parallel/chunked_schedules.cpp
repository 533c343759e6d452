#include "parallel/chunked_schedules.h"

#include <algorithm>
#include <array>
#include <deque>

#include "base/error.h"

namespace piton {

std::vector<int> round_robin(int stages, int chunks) {
  std::vector<int> stage_of_chunk;
  for (int chunk = 0; chunk < stages * chunks; ++chunk) stage_of_chunk.push_back(chunk % stages);
  return stage_of_chunk;
}

std::vector<int> v_stages(int stages) {
  std::vector<int> stage_of_chunk;
  for (int chunk = 0; chunk < 2 * stages; ++chunk) {
    stage_of_chunk.push_back(std::min(chunk, 2 * stages - 1 - chunk));
  }
  return stage_of_chunk;
}

namespace {

Schedule round_robin_schedule(const char* name, int stages, int chunks, int micro_batches) {
  if (chunks < 1) {
    throw Error(Fault::kUsage, "pipeline: {} needs at least one chunk a stage: got {}", name,
                chunks);
  }
  return empty_schedule(name, round_robin(std::max(stages, 0), chunks), stages, micro_batches);
}

// The forwards of a stage in order, as (chunk of the stage, micro-batch).
std::vector<std::pair<int, int>> order_in_groups(int chunks, int micro_batches, int group) {
  std::vector<std::pair<int, int>> order;
  for (int begin = 0; begin < micro_batches; begin += group) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int m = begin; m < std::min(begin + group, micro_batches); ++m) {
        order.emplace_back(chunk, m);
      }
    }
  }
  return order;
}

// The steps of one stage under a V, in the order in which they are added.
class TwoChunkSteps {
 public:
  TwoChunkSteps(std::vector<Step>& steps, int stages, int stage)
      : steps_(steps), chunk_{stage, 2 * stages - 1 - stage} {}

  int forwards(int which) const { return forwards_[which]; }
  void forward(int which) { steps_.push_back({Pass::kForward, forwards_[which]++, chunk_[which]}); }
  void backward(int which) {
    steps_.push_back({Pass::kBackward, backwards_[which]++, chunk_[which]});
  }
  // The weight backward waits for run_weights().
  void backward_input(int which) {
    steps_.push_back({Pass::kBackwardInput, backwards_[which], chunk_[which]});
    waiting_[which].push_back(backwards_[which]++);
    order_.push_back(which);
  }
  // The oldest one that waits; of this chunk.
  void weights(int which) {
    steps_.push_back({Pass::kBackwardWeight, waiting_[which].front(), chunk_[which]});
    waiting_[which].pop_front();
    order_.erase(std::ranges::find(order_, which));
  }
  void oldest_weights() { weights(order_.front()); }
  bool has_weights(int which) const { return !waiting_[which].empty(); }

 private:
  std::vector<Step>& steps_;
  std::array<int, 2> chunk_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> backwards_{};
  std::array<std::deque<int>, 2> waiting_;  // micro-batches
  std::deque<int> order_;                   // the chunks of all that wait
};

void zero_bubble_v_stage(TwoChunkSteps& stage, int stages, int r, int micro_batches) {
  const auto whole = [&](int which) {
    stage.backward_input(which);
    stage.weights(which);
  };
  for (int i = 0; i < 2 * (stages - r) - 1; ++i) stage.forward(0);
  for (int i = 0; i < r; ++i) {
    stage.forward(1);
    stage.forward(0);
  }
  for (int i = 0; i < stages - r; ++i) {
    stage.forward(1);
    whole(1);
  }
  while (stage.forwards(1) < micro_batches) {
    if (stage.forwards(0) < micro_batches) stage.forward(0);
    whole(0);
    stage.forward(1);
    whole(1);
  }
  for (int i = 0; i < r; ++i) {
    stage.backward_input(0);
    stage.backward_input(1);
  }
  for (int i = 0; i < stages - r; ++i) whole(0);
  // What the stages before still wait for has gone out; the rest fills their time.
  for (const int which : {1, 0}) {
    while (stage.has_weights(which)) stage.weights(which);
  }
}

void dual_pipe_v_stage(TwoChunkSteps& stage, int stages, int r, int micro_batches) {
  const int below = stages - r - 1;
  for (int i = 0; i < 2 * below; ++i) stage.forward(0);
  for (int i = 0; i <= r; ++i) {
    stage.forward(0);
    stage.forward(1);
  }
  for (int i = 0; i < below; ++i) {
    stage.backward_input(1);
    stage.oldest_weights();
    stage.forward(1);
  }
  for (int i = 0; i < micro_batches - 2 * stages + r + 1; ++i) {
    stage.forward(0);
    stage.backward(1);
    stage.forward(1);
    stage.backward(0);
  }
  for (int i = 0; i < below; ++i) {
    stage.backward(1);
    stage.forward(1);
    stage.backward(0);
  }
  // From the middle of the last backwards on, weights wait. Odd stages start with the upper chunk.
  for (int i = 0; i < 2 * (r + 1); ++i) {
    const int which = i % 2 == 0 ? 1 : 0;
    const int first_split = 2 * ((r + 1) / 2) + (r % 2 == 1 ? 0 : 1);
    if (i < first_split) {
      stage.backward(which);
    } else {
      stage.backward_input(which);
    }
  }
  for (int i = 0; i < below; ++i) {
    stage.oldest_weights();
    stage.backward_input(0);
  }
  for (int i = 0; i <= r; ++i) stage.oldest_weights();
}

}  // namespace

void check_groups(int stages, int micro_batches, int group) {
  const int rest = group > 0 ? micro_batches % group : 0;
  if (group < stages || group > micro_batches || (rest > 0 && rest < stages)) {
    const std::string wanted =
        group < stages    ? fmt::format("groups of {} or more", stages)
        : group == stages ? fmt::format("a multiple of {}", group)
                          : fmt::format("a multiple of {}, or {} or more above one", group, stages);
    throw Error(Fault::kUsage,
                "pipeline: interleaved stages take micro-batches in groups of {}: got {} "
                "micro-batches a step on {} stages, wanted {}; change "
                "--global-batch-size, --micro-batch-size or "
                "--microbatch-group-size-per-virtual-pipeline-stage",
                group, micro_batches, stages, wanted);
  }
}

Schedule interleaved(int stages, int chunks, int micro_batches, int group) {
  Schedule schedule = round_robin_schedule("interleaved", stages, chunks, micro_batches);
  check_groups(stages, micro_batches, group);
  const std::vector<std::pair<int, int>> order = order_in_groups(chunks, micro_batches, group);
  const int all = static_cast<int>(order.size());
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Step>& steps = schedule.steps[stage];
    const auto forward = [&](int k) {
      const auto& [chunk, m] = order[k];
      steps.push_back({Pass::kForward, m, chunk * stages + stage});
    };
    const int warm_up = std::min(2 * (stages - stage - 1) + (chunks - 1) * group, all);
    for (int k = 0; k < warm_up; ++k) forward(k);
    for (int k = 0; k < all; ++k) {
      if (warm_up + k < all) forward(warm_up + k);
      const auto& [chunk, m] = order[k];
      steps.push_back({Pass::kBackward, m, (chunks - 1 - chunk) * stages + stage});
    }
  }
  return schedule;
}

void check_multiple(int stages, int micro_batches) {
  if (micro_batches % stages != 0) {
    throw Error(Fault::kUsage,
                "pipeline: --foldx-mode aiao: got {} micro-batches a step on {} stages, wanted a "
                "multiple; change --global-batch-size or --micro-batch-size",
                micro_batches, stages);
  }
}

Schedule all_in_all_out(int stages, int chunks, int micro_batches) {
  Schedule schedule = round_robin_schedule("aiao", stages, chunks, micro_batches);
  check_multiple(stages, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Step>& steps = schedule.steps[stage];
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int m = 0; m < micro_batches; ++m) {
        steps.push_back({Pass::kForward, m, chunk * stages + stage});
      }
    }
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
      for (int m = 0; m < micro_batches; ++m) {
        steps.push_back({Pass::kBackward, m, chunk * stages + stage});
      }
    }
  }
  return schedule;
}

Schedule zero_bubble_v(int stages, int micro_batches) {
  Schedule schedule = empty_schedule("zb-v", v_stages(std::max(stages, 0)), stages, micro_batches);
  // The order is that of at least 2p - 1 micro-batches; with fewer, the steps of the others are
  // left out.
  const int planned = std::max(2 * stages - 1, micro_batches);
  for (int r = 0; r < stages; ++r) {
    std::vector<Step>& steps = schedule.steps[r];
    TwoChunkSteps stage(steps, stages, r);
    zero_bubble_v_stage(stage, stages, r, planned);
    std::erase_if(steps, [&](const Step& step) { return step.micro_batch >= micro_batches; });
  }
  return schedule;
}

void check_both_ways(int stages, int micro_batches) {
  if (micro_batches < 2 * stages) {
    throw Error(Fault::kUsage,
                "pipeline: --pipeline-schedule dualpipe-v: got {} micro-batches a step on {} "
                "stages, wanted at least {}; change --global-batch-size or --micro-batch-size",
                micro_batches, stages, 2 * stages);
  }
}

Schedule dual_pipe_v(int stages, int micro_batches) {
  Schedule schedule =
      empty_schedule("dualpipe-v", v_stages(std::max(stages, 0)), stages, micro_batches);
  check_both_ways(stages, micro_batches);
  for (int r = 0; r < stages; ++r) {
    TwoChunkSteps stage(schedule.steps[r], stages, r);
    dual_pipe_v_stage(stage, stages, r, micro_batches);
  }
  return schedule;
}

}  // namespace piton
