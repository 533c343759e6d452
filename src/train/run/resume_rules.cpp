#include "train/run/resume_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/store.h"
#include "data/samples/blend_plan.h"
#include "data/samples/data_paths.h"
#include "model_files/model_tokenizer.h"
#include "optim/weight_decay.h"
#include "train/run/run_plan.h"

namespace piton {

double whole_steps(const LoopOptions& loop) {
  if (!loop.train_samples) return static_cast<double>(loop.train_iters);
  return static_cast<double>(*loop.train_samples) /
         static_cast<double>(loop.global_batch_size.value_or(1));
}

namespace {

// The first three, and how many more there are: the line has to be read.
std::string some_of(const std::vector<std::string>& differences) {
  const std::size_t shown = std::min<std::size_t>(differences.size(), 3);
  const std::size_t more = differences.size() - shown;
  const std::string text =
      fmt::format("{}", fmt::join(differences.begin(),
                                  differences.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
  return more == 0 ? text : fmt::format("{}; and {} more", text, more);
}

bool decays_differ(const PretrainOptions& before, const PretrainOptions& settled) {
  const WeightDecay earlier(before.optimizer, whole_steps(before.loop));
  const WeightDecay now(settled.optimizer, whole_steps(settled.loop));
  const bool ends_elsewhere = whole_steps(before.loop) != whole_steps(settled.loop);
  return earlier.at(0) != now.at(0) || earlier.at(1) != now.at(1) ||
         (earlier.changes() && ends_elsewhere);
}

// A constant rate, and WSD's before it falls, do not depend on where the run ends: longer or
// shorter runs continue under them. True if that is all that differs: both runs have such a rate,
// and every one of the `steps` before was taken at the rate that this run would have given it.
bool only_end_differs(const PretrainOptions& before, const PretrainOptions& settled,
                      std::int64_t steps) {
  const auto has_no_end = [](const PretrainOptions& options) {
    const DecayStyle style = options.learning_rate.decay_style;
    return style == DecayStyle::kConstant || style == DecayStyle::kWsd;
  };
  if (!has_no_end(before) || !has_no_end(settled)) return false;
  const auto rate_of = [](const PretrainOptions& options) {
    return LearningRate(options.learning_rate, whole_steps(options.loop),
                        options.loop.global_batch_size.value_or(1), options.loop.sequence);
  };
  if (decays_differ(before, settled)) return false;
  const LearningRate earlier = rate_of(before);
  const LearningRate now = rate_of(settled);
  for (std::int64_t step = 0; step < steps; ++step) {
    if (earlier.at(static_cast<double>(step)) != now.at(static_cast<double>(step))) return false;
  }
  // The next step too: a highest rate that was not reached yet is another experiment.
  const auto same = [&](auto LearningRateOptions::*field) {
    return before.learning_rate.*field == settled.learning_rate.*field;
  };
  return same(&LearningRateOptions::lr) && same(&LearningRateOptions::decoupled_lr) &&
         same(&LearningRateOptions::decoupled_min_lr) &&
         same(&LearningRateOptions::lora_plus_ratio) &&
         earlier.warmup_steps() == now.warmup_steps();
}

// The schedules of the checkpoint's run in place of this run's.
void take_schedules(const PretrainOptions& before, PretrainOptions& settled,
                    const std::string& where) {
  settled.learning_rate = before.learning_rate;
  settled.learning_rate.decay_is_derived &= whole_steps(before.loop) == whole_steps(settled.loop);
  settled.optimizer.weight_decay = before.optimizer.weight_decay;
  settled.optimizer.start_weight_decay = before.optimizer.start_weight_decay;
  settled.optimizer.end_weight_decay = before.optimizer.end_weight_decay;
  settled.optimizer.weight_decay_increase = before.optimizer.weight_decay_increase;
  if (!decays_differ(before, settled)) return;
  throw Error(Fault::kUsage,
              "--use-checkpoint-opt_param-scheduler: {} increases the weight decay over {:g} steps "
              "and this run has {:g}; give a run of that length, or "
              "--override-opt_param-scheduler",
              where, whole_steps(before.loop), whole_steps(settled.loop));
}

// The corpora may be elsewhere now: what is in them is compared by their hashes, and their number
// and shares here. A checkpoint that a conversion made names none.
std::string blend_difference(const DataOptions& before, const DataOptions& now,
                             const std::string& where) {
  const std::string then = training_blend(before);
  const std::string today = training_blend(now);
  if (then.empty() || then == today) return "";
  return fmt::format("--data-path: {} has {}, this run has {}", where, then,
                     today.empty() ? "none" : today);
}

// Rates of groups that the checkpoint's run did not have: its file has no line to compare.
std::vector<std::string> new_rates(const LearningRateOptions& before,
                                   const LearningRateOptions& now, const std::string& where) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* flag, auto LearningRateOptions::*field) {
    if (before.*field || !(now.*field)) return;
    differences.push_back(
        fmt::format("{}: {} has none, this run has {}", flag, where, *(now.*field)));
  };
  compare("--decoupled-lr", &LearningRateOptions::decoupled_lr);
  compare("--decoupled-min-lr", &LearningRateOptions::decoupled_min_lr);
  compare("--lora-plus-lr-ratio", &LearningRateOptions::lora_plus_ratio);
  return differences;
}

}  // namespace

std::string settle_schedules(const PretrainOptions& before, PretrainOptions& settled,
                             std::vector<std::string> differences, std::int64_t steps,
                             const std::string& where) {
  if (settled.loop.skip_train) return {};
  if (settled.loop.no_load_optim) return "from its first step on (--no-load-optim)";
  if (differences.empty() && decays_differ(before, settled)) {
    differences.push_back(fmt::format(
        "--train-iters: {} increases the weight decay over {:g} steps, this run over {:g}", where,
        whole_steps(before.loop), whole_steps(settled.loop)));
  }
  if (settled.loop.use_checkpoint_scheduler) {
    take_schedules(before, settled, where);
    return {};
  }
  if (settled.loop.no_load_lr_state) return "from its first step on (--no-load-lr-state)";
  if (!differences.empty() && !settled.loop.override_scheduler &&
      !only_end_differs(before, settled, steps)) {
    throw Error(
        Fault::kUsage,
        "--load: {} has another schedule of learning rate or weight decay: {}; use its values, "
        "or give --override-opt_param-scheduler to continue with this run's",
        where, fmt::join(differences, "; "));
  }
  return fmt::format("{}", fmt::join(differences, "; "));
}

std::string warning_of_zero_rate(const LearningRate& rate, double place, std::int64_t left) {
  // A warm-up begins at 0; after the decay all steps have the lowest rate.
  if (left < 1 || rate.at(place) != 0 || (left > 1 && rate.at(place + 1) != 0)) return "";
  const std::string why =
      place < rate.warmup_steps()
          ? "the warm-up begins there; give more steps, or a shorter warm-up"
          : fmt::format(
                "the decay ends after {0:g} steps (--lr-decay-iters {0:g}) at --min-lr 0; "
                "give a longer decay or another --min-lr, and "
                "--override-opt_param-scheduler if the run is resumed",
                rate.decay_steps());
  return fmt::format("the learning rate is 0 in all steps that are left ({}): {}", left, why);
}

std::string configuration_of(const PretrainOptions& settled) {
  PretrainOptions stored = settled;
  stored.loop.ckpt_step.reset();  // a resume continues from the newest
  LearningRateOptions& rate = stored.learning_rate;
  if (rate.decay_is_derived) {
    rate.decay_iters.reset();
    rate.decay_samples.reset();
  }
  stored.data = with_absolute_paths(settled.data);
  stored.tokenizer = from_anywhere(settled.tokenizer);
  const auto make_absolute = [](std::string& path) {
    if (!path.empty()) path = std::filesystem::absolute(path).lexically_normal().string();
  };
  for (std::string* path :
       {&stored.loop.save, &stored.loop.load, &stored.loop.lora_load, &stored.preferences.ref_model,
        &stored.rollouts.reward_model, &stored.rollouts.ppo.critic_model,
        &stored.teaching.teacher_model, &stored.loop.tensorboard_dir, &stored.timing.trace,
        &stored.sample_prompts.file, &stored.records.prompt_type_path}) {
    make_absolute(*path);
  }
  for (std::string& path : stored.tasks.paths) make_absolute(path);
  for (std::string& task : stored.tasks.tasks) {
    if (task.ends_with(".toml") && task.find(',') == task.npos) make_absolute(task);
  }
  for (std::string* place : {&stored.offload.remote_device, &stored.offload.activations}) {
    if (*place != "none" && *place != "cpu") make_absolute(*place);
  }
  OptionSet set;
  stored.add_to(set);
  return set.to_toml();
}

std::string compare_options(const std::filesystem::path& checkpoint, PretrainOptions& settled) {
  const std::filesystem::path stored = checkpoint / kConfigName;
  PretrainOptions before;
  OptionSet stored_set;
  before.add_to(stored_set);
  // Checks its hash first.
  stored_set.read_toml_text(read_config(checkpoint, read_manifest(checkpoint)), stored.string());
  OptionSet set;
  settled.add_to(set);
  set.mark_given(settled.changed);
  std::vector<std::string> differences = set.differences(stored);
  const std::string corpora = blend_difference(before.data, settled.data, stored.string());
  if (!corpora.empty()) differences.push_back(corpora);
  if (!differences.empty()) {
    throw Error(
        Fault::kUsage,
        "--load: {} is another experiment: {}; use its values, or start again with another --save "
        "(--finetune starts from its weights)",
        checkpoint.string(), some_of(differences));
  }
  settle_decay(before);
  differences = set.differences_from(stored_set.to_toml(), stored.string(), Resume::kSchedule);
  for (std::string& rate : new_rates(before.learning_rate, settled.learning_rate, stored.string()))
    differences.push_back(std::move(rate));
  return settle_schedules(before, settled, differences,
                          read_state(checkpoint, read_manifest(checkpoint)).optimizer_steps,
                          checkpoint.string());
}

}  // namespace piton
