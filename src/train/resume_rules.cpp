#include "train/resume_rules.h"

#include <vector>

#include "base/error.h"
#include "checkpoint/store.h"

namespace piton {

namespace {

// A constant rate, and WSD's before it decays, do not depend on where the run ends, so longer or
// shorter runs may continue. True if nothing else differs: both runs have such a rate, and this run
// would have given every step of the checkpoint the same rate.
bool only_the_end_differs(const std::filesystem::path& checkpoint, const PretrainOptions& settled) {
  PretrainOptions before;
  OptionSet set;
  before.add_to(set);
  set.read_toml(checkpoint / kConfigName);
  const auto has_no_end = [](const PretrainOptions& options) {
    const DecayStyle style = options.learning_rate.decay_style;
    return style == DecayStyle::kConstant || style == DecayStyle::kWsd;
  };
  if (!has_no_end(before) || !has_no_end(settled)) return false;
  const auto rate_of = [](const PretrainOptions& options) {
    return LearningRate(options.learning_rate, options.loop.train_iters,
                        options.loop.global_batch_size.value_or(1));
  };
  const LearningRate earlier = rate_of(before);
  const LearningRate now = rate_of(settled);
  const TrainState state = read_state(checkpoint, read_manifest(checkpoint));
  for (std::int64_t step = 0; step < state.optimizer_steps; ++step) {
    if (earlier.at(step) != now.at(step)) return false;
  }
  // The next step too: a highest rate that was not reached yet is another experiment.
  return before.learning_rate.lr == settled.learning_rate.lr &&
         earlier.warmup_steps() == now.warmup_steps();
}

}  // namespace

std::string configuration_of(PretrainOptions& settled) {
  OptionSet set;
  settled.add_to(set);
  return set.to_toml();
}

std::string compare_options(const std::filesystem::path& checkpoint, PretrainOptions& settled) {
  read_config(checkpoint, read_manifest(checkpoint));  // checks its hash first
  OptionSet set;
  settled.add_to(set);
  const std::filesystem::path stored = checkpoint / kConfigName;
  const std::vector<std::string> differences = set.differences(stored);
  if (!differences.empty()) {
    throw Error(
        Fault::kUsage,
        "--load: {} is another experiment: {}; use its values, or start anew with another --save "
        "(--finetune starts from its weights)",
        checkpoint.string(), fmt::join(differences, "; "));
  }
  const std::vector<std::string> schedule = set.differences(stored, Resume::kSchedule);
  if (!schedule.empty() && !settled.loop.override_scheduler &&
      !only_the_end_differs(checkpoint, settled)) {
    throw Error(Fault::kUsage,
                "--load: {} has another learning rate ahead: {}; use its values, or give "
                "--override-opt_param-scheduler to go on with this run's",
                checkpoint.string(), fmt::join(schedule, "; "));
  }
  return fmt::format("{}", fmt::join(schedule, "; "));
}

}  // namespace piton
