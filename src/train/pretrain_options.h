// All options of `pretrain`. Each struct is declared where it is used; this file combines them and
// has the options of the loop itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/samples/data_options.h"
#include "model/config.h"
#include "optim/learning_rate.h"
#include "optim/optimizer_options.h"
#include "parallel/parallel_options.h"
#include "text/files/tokenizer_options.h"

namespace piton {

struct LoopOptions {
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> global_batch_size;  // default: micro batch x data-parallel ranks
  std::int64_t sequence = 0;
  std::int64_t train_iters = 0;
  std::optional<std::int64_t> train_samples;    // in place of train_iters
  std::vector<std::int64_t> rampup_batch_size;  // as in train/batch_sizes.h; empty: constant
  std::optional<std::int64_t> exit_interval;
  std::optional<double> exit_duration_minutes;
  std::uint64_t seed = 1234;
  std::string save;
  std::string load;
  std::string tensorboard_dir;
  std::int64_t save_interval = 0;  // 0: at the end only
  std::int64_t keep = 0;           // 0: all
  bool verify_saves = false;
  bool no_load_optim = false;
  bool finetune = false;
  bool override_scheduler = false;
  bool use_checkpoint_scheduler = false;
  std::int64_t log_interval = 1;
  std::int64_t eval_interval = 1000;
  std::int64_t eval_iters = 0;  // 0: no evaluation
  std::int64_t max_consecutive_skips = 10;
  bool brief_log = false;  // lines for a terminal's width; set where the log is read by eye

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"micro-batch-size", "samples of one forward pass on one rank"}, micro_batch_size);
    v(Option{"global-batch-size",
             "samples of one update over all ranks (default: micro batch x data-parallel ranks)",
             same},
      global_batch_size);
    v(Option{"seq-length",
             "tokens of one sample (default: --max-position-embeddings)",
             {.aliases = {"encoder-seq-length"}, .resume = Resume::kMustMatch}},
      sequence);
    v(Option{"train-iters", "updates of the whole run; a finished run goes on with more"},
      train_iters);
    v(Option{"train-samples", "the same in samples: updates are samples / --global-batch-size"},
      train_samples);
    v(Option{"rampup-batch-size",
             "grow the batch: its first size, the increment, and the samples until it is whole; "
             "beside --train-samples",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      rampup_batch_size);
    v(Option{"exit-interval", "save and stop after an iteration that this divides"}, exit_interval);
    v(Option{"exit-duration-in-mins",
             "save and stop after the first iteration that ends this long after the start"},
      exit_duration_minutes);
    v(Option{"seed", "of initial weights, dropout and the order of samples", same}, seed);
    v(Option{"save", "folder of checkpoints, metrics and configuration", {.placeholder = "DIR"}},
      save);
    v(Option{"load",
             "continue from the newest checkpoint of this folder, or start from a "
             "model of Hugging Face or Megatron",
             {.placeholder = "DIR"}},
      load);
    v(Option{"tensorboard-dir",
             "folder of figures for TensorBoard (default: tensorboard in --save)",
             {.placeholder = "DIR"}},
      tensorboard_dir);
    v(Option{"save-interval", "iterations between checkpoints (0: only at the end)"},
      save_interval);
    v(Option{"keep", "newest checkpoints that stay in --save, older ones are removed (0: all)"},
      keep);
    v(Option{"verify-saves", "read every checkpoint back from the disk and compare it with memory"},
      verify_saves);
    v(Option{"no-load-optim", "start the optimiser anew from the loaded weights"}, no_load_optim);
    v(Option{"finetune",
             "a new run from the loaded weights: iteration 0, its own data and options"},
      finetune);
    v(Option{"override-opt_param-scheduler",
             "a resume takes this run's learning rate, its schedule and that of the weight decay, "
             "not the checkpoint's",
             {.aliases = {"override-lr-scheduler"}}},
      override_scheduler);
    v(Option{"use-checkpoint-opt_param-scheduler",
             "a resume takes those of the checkpoint, whatever this run's flags say",
             {.aliases = {"use-checkpoint-lr-scheduler"}}},
      use_checkpoint_scheduler);
    v(Option{"log-interval", "iterations between lines of the log (at a terminal: 10)"},
      log_interval);
    v(Option{"eval-interval", "iterations between evaluations"}, eval_interval);
    v(Option{"eval-iters", "batches of an evaluation (0: none)"}, eval_iters);
    v(Option{"max-consecutive-skips",
             "stop (exit code 5) after so many updates in a row without finite gradients"},
      max_consecutive_skips);
  }
};

struct PretrainOptions {
  ModelOptions model;
  LoopOptions loop;
  ParallelOptions parallel;
  LearningRateOptions learning_rate;
  OptimizerOptions optimizer;
  DataOptions data;
  TokenizerOptions tokenizer;

  void add_to(OptionSet& options);

  // The model of the flags, checked, with the tokenizer's vocabulary if there is one. With
  // NullTokenizer, an end of documents follows the --vocab-size ids, as in Megatron.
  ModelConfig resolve_model(std::optional<std::int64_t> tokenizer_vocabulary) const;
};

}  // namespace piton
