// --dry-run: what a run would do, found out without doing it.
#include "checkpoint/collective.h"
#include "train/run/memory_check.h"
#include "train/run/resume_rules.h"
#include "train/trainer.h"

namespace piton {

void Trainer::check_all() {
  options_.data.data_cache_path.reset();  // it would be written to
  check_before_allocation();
  open_data();
  say_plan();
}

void Trainer::say_plan() {
  const LoopOptions& loop = settled_.loop;
  phase(*everyone_, 0, [&] { RunFolder::check_free(loop.save); });
  const CheckpointChoice choice(loop, *everyone_, sinks_);
  const bool resumes = !choice.folder().empty() && !foreign_ && !loop.finetune;
  if (resumes) {
    phase(*everyone_, 0, [&] {
      state_ = RunCheckpoints::checked_state(choice.folder(), settled_, state_, *data_);
    });
  }
  say_model();
  if (planner_ != nullptr) {
    const MemoryCounts need = planner_->plan_memory(plan_);
    say(fmt::format("memory of rank 0 at most: {}", memory_text(need)));
  }
  say_options();
  const std::string from = choice.folder().string();
  if (resumes) {
    say(fmt::format("it would resume {}: iteration {}, {} samples", from, state_.iteration,
                    state_.consumed_samples));
  } else {
    say(from.empty() ? "it would start from random weights"
                     : fmt::format("it would start from the weights of {}", from));
  }
  say(fmt::format("it would do {} updates, to iteration {}, and {}",
                  std::max<std::int64_t>(plan_.train_iters - state_.iteration, 0),
                  plan_.train_iters,
                  loop.save.empty() ? "keep nothing: no --save is given" : "save to " + loop.save));
  say("--dry-run: all checks passed; nothing is written");
}

}  // namespace piton
