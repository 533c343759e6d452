// All options of `pretrain`. Each struct is declared where it is used; this file combines them and
// has the options of the loop itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "data/masked/masking_options.h"
#include "data/preprocess/record_file_options.h"
#include "data/samples/data_options.h"
#include "model/config.h"
#include "model/lora/lora_options.h"
#include "optim/learning_rate.h"
#include "optim/optimizer_options.h"
#include "parallel/parallel_options.h"
#include "preferences/preference_options.h"
#include "rollouts/rollout_options.h"
#include "session/fault_options.h"
#include "session/float8_options.h"
#include "session/offload_options.h"
#include "session/teaching_options.h"
#include "text/files/tokenizer_options.h"
#include "train/run/sample_prompt_options.h"
#include "train/run/task_evaluator.h"
#include "train/trace/timing_options.h"

namespace piton {

struct LoopOptions {
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> global_batch_size;  // default: micro batch x data-parallel ranks
  std::int64_t sequence = 0;
  std::int64_t train_iters = 0;
  std::optional<std::int64_t> train_samples;    // instead of train_iters
  std::optional<double> num_train_epochs;       // instead of both; settled as train_iters
  std::vector<std::int64_t> rampup_batch_size;  // as in train/run/batch_sizes.h; empty: constant
  std::optional<std::int64_t> exit_interval;
  std::optional<double> exit_duration_minutes;
  std::uint64_t seed = 1234;
  double neftune_noise_alpha = 0;
  std::string save;
  std::string load;
  std::string pretrained_checkpoint;
  std::string lora_load;
  std::optional<std::int64_t> ckpt_step;
  bool skip_train = false;
  bool dry_run = false;
  std::string tensorboard_dir;
  std::int64_t save_interval = 0;  // 0: at the end only
  std::optional<double> save_interval_minutes;
  std::int64_t keep = 0;  // 0: all, or one if retain_interval or keep_best is given
  bool keep_best = false;
  std::optional<std::int64_t> retain_interval;
  bool verify_saves = false;
  bool async_save = true;
  bool allow_fallback = false;
  bool no_save_optim = false;
  bool no_load_optim = false;
  bool no_load_lr_state = false;
  bool exit_on_missing_checkpoint = false;
  bool finetune = false;
  bool upcycles = false;  // --load has no experts (model_files/upcycling.h)
  std::int64_t upcycling_granularity = 1;
  bool override_scheduler = false;
  bool use_checkpoint_scheduler = false;
  std::int64_t log_interval = 1;
  bool log_params_norm = false;
  bool log_num_zeros = false;
  std::int64_t eval_interval = 1000;
  std::int64_t eval_iters = 0;  // 0: no evaluation
  bool full_validation = false;
  std::optional<std::int64_t> early_stopping_patience;
  double early_stopping_threshold = 0;
  std::vector<std::int64_t> iterations_to_skip;
  std::int64_t max_consecutive_skips = 10;
  std::optional<double> loss_watchdog_threshold;
  std::int64_t loss_watchdog_patience = 3;
  std::int64_t rollback_on_divergence = 0;  // so many times; 0: the run ends
  std::optional<std::int64_t> check_weight_hash_across_dp_replicas_interval;
  bool cuda_graph = true;
  bool brief_log = false;  // log lines as wide as a terminal; set if the log goes to a terminal
  // A run in --load has the weights of a new one, as other models have: --finetune is set, unless
  // the same command has started the run in --save already. Set by piton finetune.
  bool starts_from_load = false;

  // Throws Error(kUsage) for the flag that is out of range, or has no checkpoint to go back to.
  void check_rollback() const;
  bool evaluates() const { return full_validation || eval_iters > 0; }
  // How many of the newest checkpoints stay in --save; 0: all.
  std::int64_t kept_checkpoints() const {
    return keep == 0 && (retain_interval || keep_best) ? 1 : keep;
  }

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"micro-batch-size", "number of samples per forward pass on one rank"},
      micro_batch_size);
    v(Option{"global-batch-size",
             "number of samples per update over all ranks (default: micro batch x data-parallel "
             "ranks)",
             same},
      global_batch_size);
    v(Option{"seq-length",
             "number of tokens per sample (default: --max-position-embeddings)",
             {.aliases = {"encoder-seq-length"}, .resume = Resume::kMustMatch}},
      sequence);
    visit_length(v);
    v(Option{"seed", "seed of initial weights, dropout and the order of samples", same}, seed);
    v(Option{"neftune-noise-alpha",
             "add noise to the embeddings of tokens in training: uniform, at most this over the "
             "square root of the tokens of a text times the hidden size (0: none)",
             same},
      neftune_noise_alpha);
    v(Option{"save", "folder for checkpoints, metrics and configuration", {.placeholder = "DIR"}},
      save);
    v(Option{"load",
             "folder of a run to continue from its newest checkpoint, also one of Megatron, or "
             "model of Hugging Face or GGUF file to start from",
             {.placeholder = "DIR"}},
      load);
    v(Option{"lora-load",
             "adapters to start from: folder of a run with --lora-target-modules, which continues, "
             "or of an adapter of PEFT, or GGUF file; --load names their base",
             {.placeholder = "DIR"}},
      lora_load);
    v(Option{"pretrained-checkpoint",
             "folder of a run or model to start from, as with --finetune, as long as --load has no "
             "checkpoint",
             {.placeholder = "DIR"}},
      pretrained_checkpoint);
    v(Option{"ckpt-step", "iteration of --load to take, in place of its newest"}, ckpt_step);
    v(Option{"skip-train",
             "take no step and save nothing: load, evaluate --eval-iters batches of the validation "
             "split, and exit"},
      skip_train);
    v(
        Option{
            "dry-run",
            "check everything up to the allocation, print what the run would do, and exit; nothing "
            "is written"},
        dry_run);
    v(Option{"tensorboard-dir",
             "folder for TensorBoard files (default: tensorboard in --save)",
             {.placeholder = "DIR"}},
      tensorboard_dir);
    visit_checkpoints(v);
    v(Option{"override-opt_param-scheduler",
             "resume with the learning rate and weight decay schedules of these flags, not of the "
             "checkpoint",
             {.aliases = {"override-lr-scheduler"}}},
      override_scheduler);
    v(Option{"use-checkpoint-opt_param-scheduler",
             "resume with the schedules of the checkpoint, whatever these flags say",
             {.aliases = {"use-checkpoint-lr-scheduler"}}},
      use_checkpoint_scheduler);
    visit_reports(v);
    v(Option{"max-consecutive-skips",
             "stop with exit code 5 after this many updates in a row without finite gradients"},
      max_consecutive_skips);
    visit_divergence(v);
    v(Option{"check-weight-hash-across-dp-replicas-interval",
             "compare the weights of data-parallel ranks after each of this many iterations, and "
             "end the run where a bit differs"},
      check_weight_hash_across_dp_replicas_interval);
    v(Option{"cuda-graph",
             "on one GPU, record the kernels of a step as CUDA graphs, which start without the "
             "host; --no-cuda-graph launches them one by one, with the same results"},
      cuda_graph);
  }

 private:
  // When the run ends, and what it leaves out.
  template <typename Visitor>
  void visit_length(Visitor&& v) {
    v(Option{"train-iters",
             "number of updates of the whole run; raise it to continue a finished run"},
      train_iters);
    v(Option{"train-samples", "number of samples of the whole run, instead of --train-iters"},
      train_samples);
    v(Option{"num-train-epochs",
             "number of times that the run reads its training data, instead of --train-iters; also "
             "1.5"},
      num_train_epochs);
    v(Option{"rampup-batch-size",
             "grow the batch: first size, increment, and samples until --global-batch-size is "
             "reached; needs --train-samples",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      rampup_batch_size);
    v(Option{"iterations-to-skip",
             "iterations without an update: their samples are passed over; 0 is the first one",
             {.placeholder = "N"}},
      iterations_to_skip);
    v(Option{"exit-interval", "save and stop after an iteration that is a multiple of this"},
      exit_interval);
    v(Option{"exit-duration-in-mins",
             "save and stop after the first iteration that ends this many minutes after the start"},
      exit_duration_minutes);
  }

  template <typename Visitor>
  void visit_reports(Visitor&& v) {
    v(Option{"log-interval", "iterations between log lines (default at a terminal: 10)"},
      log_interval);
    v(Option{"log-params-norm", "log the norm of all weights, at every step"}, log_params_norm);
    v(Option{"log-num-zeros-in-grad", "log how many elements of the gradient are 0"},
      log_num_zeros);
    v(Option{"eval-interval", "iterations between evaluations"}, eval_interval);
    v(Option{"eval-iters", "number of batches per evaluation (0: no evaluation)"}, eval_iters);
    v(Option{"full-validation",
             "each evaluation is of all validation samples, once each, whatever --eval-iters says"},
      full_validation);
    v(Option{"early-stopping-patience",
             "stop after this many evaluations in a row whose validation loss is not lower than "
             "the lowest one"},
      early_stopping_patience);
    v(Option{"early-stopping-threshold",
             "--early-stopping-patience: count losses that are lower by this or less as not lower"},
      early_stopping_threshold);
  }

  template <typename Visitor>
  void visit_divergence(Visitor&& v) {
    v(
        Option{
            "loss-watchdog-threshold",
            "stop with exit code 5 after --loss-watchdog-patience steps in a row with a loss above "
            "this (about twice the loss at the start)"},
        loss_watchdog_threshold);
    v(Option{"loss-watchdog-patience", "--loss-watchdog-threshold: number of steps in a row"},
      loss_watchdog_patience);
    v(Option{"rollback-on-divergence",
             "in place of stopping with exit code 5, go back to the newest checkpoint in --save "
             "from before the divergence, and pass over the samples that were read since; so many "
             "times in a run"},
      rollback_on_divergence);
  }

  // What is saved when, and what of it is loaded.
  template <typename Visitor>
  void visit_checkpoints(Visitor&& v) {
    v(Option{"save-interval", "iterations between checkpoints (0: only at the end)"},
      save_interval);
    v(Option{"save-interval-in-mins",
             "save too after the first iteration that ends this many minutes after the last save"},
      save_interval_minutes);
    v(Option{"keep",
             "number of newest checkpoints to keep in --save; older ones are removed (0: all)"},
      keep);
    v(Option{"save-retain-interval",
             "keep the checkpoints of multiples of this many iterations too, whatever --keep says; "
             "without --keep the newest one and these"},
      retain_interval);
    v(Option{"keep-best",
             "save after each evaluation with the lowest validation loss so far, and keep that "
             "checkpoint whatever --keep says; without --keep the newest one and it"},
      keep_best);
    v(Option{"verify-saves", "read every checkpoint back from disk and compare it with memory"},
      verify_saves);
    v(Option{"async-save",
             "write checkpoints between steps in the background, from a copy of the state in "
             "memory (not with --remote-device FOLDER); --no-async-save makes training wait for "
             "the disk"},
      async_save);
    v(Option{"allow-fallback",
             "if the newest checkpoint of --load is damaged, take the newest older one that is "
             "whole, and say what was skipped"},
      allow_fallback);
    v(Option{"no-save-optim",
             "save the weights alone; a run continues from them with a new optimizer "
             "(--no-load-optim)"},
      no_save_optim);
    v(Option{"no-load-optim", "start with a new optimizer state; load only the weights"},
      no_load_optim);
    v(Option{"no-load-lr-state",
             "resume with the optimizer of the checkpoint, and this run's schedules of learning "
             "rate and weight decay from their first step on"},
      no_load_lr_state);
    v(
        Option{
            "exit-on-missing-checkpoint",
            "fail where --load and --save are one folder without a checkpoint, instead of starting "
            "from random weights"},
        exit_on_missing_checkpoint);
    v(Option{"finetune",
             "start a new run from the loaded weights: iteration 0, its own data and options"},
      finetune);
    v(Option{"moe-use-upcycling",
             "start a new run of --num-experts from --load, a model without experts: each expert "
             "is a copy of its MLP"},
      upcycles);
    v(Option{"moe-upcycling-granularity",
             "--moe-use-upcycling: slices that an MLP is cut into, each an expert of so much "
             "smaller width"},
      upcycling_granularity);
  }
};

struct PretrainOptions {
  ModelOptions model;
  LoopOptions loop;
  SamplePromptOptions sample_prompts;
  TaskEvaluationOptions tasks;
  LoraOptions lora;
  PreferenceOptions preferences;
  RolloutOptions rollouts;
  TeachingOptions teaching;
  TimingOptions timing;
  FaultOptions faults;
  ParallelOptions parallel;
  Float8Options float8;
  OffloadOptions offload;
  LearningRateOptions learning_rate;
  OptimizerOptions optimizer;
  DataOptions data;
  RecordFileOptions records;
  MaskingOptions masking;
  DecoderRowOptions decoder;
  TokenizerOptions tokenizer;
  std::vector<ChangedOption> changed;  // what the user gave, for the log

  void add_to(OptionSet& options);
  void add_without_timing_to(OptionSet& options);  // for a command with its own timing options

  // Completes the options of losses and answers by what --stage says.
  void apply_stage();

  // As resolve_model() of model_files/native_config.h.
  ModelConfig resolve_model(std::optional<std::int64_t> tokenizer_vocabulary) const;

  // Whether saves between steps run in the background. Not where the optimizer's state is in a
  // file: a copy of it would take the memory that the file saves.
  bool saves_in_background() const { return loop.async_save && offload.state_folder().empty(); }
};

}  // namespace piton
