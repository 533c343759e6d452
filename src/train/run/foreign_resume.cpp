#include "train/run/foreign_resume.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"
#include "optim/learning_rate.h"
#include "train/run/resume_rules.h"

namespace piton {
namespace {

std::int64_t batch_of(const PretrainOptions& options) {
  return options.loop.global_batch_size.value_or(1);
}

// A length in samples as the options that say it; fractions of a step as well.
struct Lengths {
  std::optional<std::int64_t> iters;
  std::optional<std::int64_t> samples;
};

Lengths lengths(double samples, std::int64_t batch) {
  const double steps = samples / static_cast<double>(batch);
  if (steps == std::floor(steps)) return {.iters = static_cast<std::int64_t>(steps)};
  return {.samples = static_cast<std::int64_t>(samples)};
}

void check_length(double samples, const char* name, const std::string& where) {
  if (samples >= 0 && samples < 0x1p53) return;
  throw Error(Fault::kData, "{}: opt_param_scheduler: {}: got {}, wanted 0 or more samples", where,
              name, samples);
}

template <typename E>
struct ChoiceOf {
  const std::string& wanted;
  const char* option;
  E& to;
  bool found = false;

  template <typename T>
  void operator()(const Option&, T&&) {}
  void operator()(const Option& one, Choice<E> choice) {
    if (one.name != option) return;
    for (const auto& [spelled, value] : choice.names()) {
      if (spelled != wanted) continue;
      to = value;
      found = true;
    }
  }
};

// The value that an option's word means.
template <typename E, typename Struct>
E choice_named(const char* option, const std::string& word, const std::string& where) {
  Struct options;
  E value{};
  ChoiceOf<E> visitor{word, option, value};
  options.visit(visitor);
  if (visitor.found) return value;
  throw Error(Fault::kData, "{}: opt_param_scheduler: --{} {} is not known", where, option, word);
}

// Sets the schedules of `options` to those of the checkpoint.
void set_schedules(const MegatronSchedule& from, const std::string& where,
                   PretrainOptions& options) {
  check_length(from.warmup, "lr_warmup_steps", where);
  check_length(from.decay, "lr_decay_steps", where);
  check_length(from.weight_decay_samples, "wd_incr_steps", where);
  const std::int64_t batch = batch_of(options);
  LearningRateOptions& rate = options.learning_rate;
  rate.lr = from.max_rate;
  rate.min_lr = from.min_rate;
  rate.decay_style =
      choice_named<DecayStyle, LearningRateOptions>("lr-decay-style", from.decay_style, where);
  const Lengths decay = lengths(from.decay, batch);
  rate.decay_iters = decay.iters;
  rate.decay_samples = decay.samples;
  rate.decay_tokens.reset();
  rate.warmup_iters = 0;
  rate.warmup_samples.reset();
  rate.warmup_tokens.reset();
  rate.warmup_fraction.reset();
  if (from.warmup == 0) rate.warmup_init = 0;  // says nothing then
  const Lengths warmup = lengths(from.warmup, batch);
  if (warmup.iters) {
    rate.warmup_iters = *warmup.iters;
  } else if (from.warmup == std::floor(from.warmup)) {
    rate.warmup_samples = warmup.samples;
  } else {
    rate.warmup_fraction = from.warmup / from.decay;
  }
  if (rate.decay_style == DecayStyle::kConstant && !rate.warmup_fraction) {
    rate.decay_iters.reset();
    rate.decay_samples.reset();
  }
  if (rate.decay_style != DecayStyle::kWsd) {
    rate.annealing_iters.reset();
    rate.annealing_samples.reset();
  }
  if (!from.has_weight_decay) return;
  OptimizerOptions& optimizer = options.optimizer;
  optimizer.weight_decay_increase = choice_named<WeightDecayIncrease, OptimizerOptions>(
      "weight-decay-incr-style", from.weight_decay_increase, where);
  if (optimizer.weight_decay_increase == WeightDecayIncrease::kConstant) {
    optimizer.weight_decay = from.end_weight_decay;
    optimizer.start_weight_decay.reset();
    optimizer.end_weight_decay.reset();
    return;
  }
  optimizer.start_weight_decay = from.start_weight_decay;
  optimizer.end_weight_decay = from.end_weight_decay;
  const Lengths length = lengths(from.weight_decay_samples, batch);
  options.loop.train_iters = length.iters.value_or(0);
  options.loop.train_samples = length.samples;
}

// What differs ahead, one message for each.
std::vector<std::string> schedule_differences(const PretrainOptions& before,
                                              const PretrainOptions& settled,
                                              const std::string& where) {
  std::vector<std::string> differences;
  const auto same = [&](const char* flag, const auto& then, const auto& now, const char* unit) {
    if (then == now) return;
    differences.push_back(
        fmt::format("{}: {} has {}{}, this run has {}{}", flag, where, then, unit, now, unit));
  };
  const LearningRateOptions& then = before.learning_rate;
  const LearningRateOptions& now = settled.learning_rate;
  const LearningRate earlier(then, whole_steps(before.loop), batch_of(before),
                             before.loop.sequence);
  const LearningRate later(now, whole_steps(settled.loop), batch_of(settled),
                           settled.loop.sequence);
  same("--lr", then.lr, now.lr, "");
  same("--min-lr", then.min_lr, now.min_lr, "");
  if (then.decay_style != now.decay_style) {
    differences.push_back(fmt::format("--lr-decay-style: not that of {}", where));
  } else if (then.decay_style != DecayStyle::kConstant) {
    same("--lr-decay-iters", earlier.decay_steps(), later.decay_steps(), " steps");
  }
  same("--lr-warmup-iters", earlier.warmup_steps(), later.warmup_steps(), " steps");
  const auto annealing = [](const LearningRateOptions& rate, std::int64_t batch) {
    return rate.annealing_samples
               ? static_cast<double>(*rate.annealing_samples) / static_cast<double>(batch)
               : static_cast<double>(rate.annealing_iters.value_or(0));
  };
  if (then.decay_style == DecayStyle::kWsd && now.decay_style == DecayStyle::kWsd) {
    same("--lr-wsd-decay-iters", annealing(then, batch_of(before)),
         annealing(now, batch_of(settled)), " steps");
    if (then.annealing_style != now.annealing_style)
      differences.push_back(fmt::format("--lr-wsd-decay-style: not that of {}", where));
  }
  const OptimizerOptions& decay = before.optimizer;
  const OptimizerOptions& decay_now = settled.optimizer;
  if (decay.weight_decay_increase != decay_now.weight_decay_increase) {
    differences.push_back(fmt::format("--weight-decay-incr-style: not that of {}", where));
  } else if (decay.weight_decay_increase == WeightDecayIncrease::kConstant) {
    same("--weight-decay", decay.weight_decay, decay_now.weight_decay, "");
  } else {
    same("--start-weight-decay", decay.start_weight_decay.value_or(0),
         decay_now.start_weight_decay.value_or(0), "");
    same("--end-weight-decay", decay.end_weight_decay.value_or(0),
         decay_now.end_weight_decay.value_or(0), "");
  }
  return differences;
}

}  // namespace

std::string compare_with_megatron(const MegatronRun& run, const std::string& where,
                                  PretrainOptions& settled) {
  PretrainOptions before = settled;
  OptionSet before_set;
  before.add_to(before_set);
  std::string table;
  for (const auto& [flag, value] : run.options) table += fmt::format("{} = {}\n", flag, value);
  before_set.read_toml_text(table, where);
  if (run.options.contains("lr-wsd-decay-iters")) before.learning_rate.annealing_samples.reset();
  if (run.options.contains("lr-wsd-decay-samples")) before.learning_rate.annealing_iters.reset();
  OptionSet set;
  settled.add_to(set);
  const std::vector<std::string> differences = set.differences_from(before_set.to_toml(), where);
  if (!differences.empty()) {
    throw Error(
        Fault::kUsage,
        "--load: {} is another experiment: {}; use its values, or start again (--finetune starts "
        "from its weights)",
        where, fmt::join(differences, "; "));
  }
  if (settled.loop.no_load_optim || !(run.schedule || settled.loop.no_load_lr_state)) return {};
  if (settled.loop.no_load_lr_state) return settle_schedules(before, settled, {}, run.steps, where);
  set_schedules(*run.schedule, where, before);
  return settle_schedules(before, settled, schedule_differences(before, settled, where), run.steps,
                          where);
}

TrainState state_of_megatron(const MegatronRun& run, const TrainState& fresh,
                             const PretrainOptions& settled) {
  TrainState state = fresh;
  state.iteration = run.iteration;
  state.consumed_samples = run.consumed_samples;
  state.consumed_tokens = run.consumed_samples * settled.loop.sequence;
  state.scheduled_samples = 0;
  if (settled.loop.no_load_optim) return state;
  state.optimizer_steps = run.steps;
  state.skipped_steps = std::max<std::int64_t>(run.iteration - run.steps, 0);
  if (settled.loop.no_load_lr_state) return state;
  state.scheduled_samples = run.schedule ? run.schedule->position : run.steps * batch_of(settled);
  return state;
}

}  // namespace piton
