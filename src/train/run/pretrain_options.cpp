#include "train/run/pretrain_options.h"

#include "base/error.h"
#include "base/options/option_range.h"
#include "model_files/native_config.h"

namespace piton {

void LoopOptions::check_rollback() const {
  check_range("--loss-watchdog-patience", loss_watchdog_patience, 1);
  check_range("--rollback-on-divergence", rollback_on_divergence, 0);
  if (rollback_on_divergence == 0) return;
  const auto refuse = [](const char* why) {
    throw Error(Fault::kUsage, "--rollback-on-divergence: {}", why);
  };
  if (save.empty()) refuse("goes back to a checkpoint of this run; give --save");
  if (save_interval == 0 && !save_interval_minutes)
    refuse("goes back to a checkpoint of this run; give --save-interval");
  if (no_save_optim) refuse("goes back to weights and optimizer; leave out --no-save-optim");
}

// Not in the header: the code for every option takes seconds to compile.
void PretrainOptions::add_to(OptionSet& options) {
  add_without_timing_to(options);
  options.add("Traces and timers", timing);
  options.add("Fault injection", faults);
}

void PretrainOptions::add_without_timing_to(OptionSet& options) {
  options.add("Model", model);
  options.add("Training", loop);
  options.add("Training", sample_prompts);
  options.add("Evaluation on tasks", tasks);
  options.add("Adapters", lora);
  options.add("Preferences", preferences);
  options.add("Reinforcement", rollouts);
  options.add("Distillation", teaching);
  options.add("Parallelism", parallel);
  options.add("FP8", float8);
  options.add("Offload", offload);
  options.add("Learning rate", learning_rate);
  options.add("Optimizer", optimizer);
  options.add("Data", data);
  options.add("Data", records);
  options.add("Data", masking);
  options.add("Data", decoder);
  options.add("Tokenizer", tokenizer);
}

void PretrainOptions::apply_stage() {
  preferences.apply_short_names();
  rollouts.by_ppo = preferences.has_critic();
}

ModelConfig PretrainOptions::resolve_model(std::optional<std::int64_t> tokenizer_vocabulary) const {
  return piton::resolve_model(model, tokenizer, tokenizer_vocabulary);
}

}  // namespace piton
