// --num-train-epochs: the number of updates of a run, found in its data.
//
// With n samples an epoch and batches of B there are ceil(epochs n / B) updates: epochs follow each
// other without a gap, and the first samples of the next epoch complete the last batch. Where that
// cannot be (training_epochs(), data/samples/data_sets.h), samples that do not fill a batch are
// left out. With --padded-samples each epoch is whole batches, so that there are epochs x ceil(n /
// B). Under --stage grpo a sample is one answer: n is questions x --num-generations, and
// under --stage ppo the questions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/tokenizer.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_data.h"
#include "train/run/run_plan.h"
#include "train/run_rollouts.h"

namespace piton {

struct RunLength {
  std::int64_t train_iters = 0;
  std::optional<std::int64_t> exact_epochs;  // as of TrainingEpochs
  std::string note;                          // for the log
};

// `options`: with --num-train-epochs, and the prefixes of corpora in place of files. `tokenizer`:
// null if the run has none. Errors as of training_epochs(); Error(kUsage) for `own` samples.
RunLength length_of_epochs(const PretrainOptions& options, const RunPlan& plan,
                           const Tokenizer* tokenizer, const OwnSamples& own);

// Of a run of --stage grpo or ppo.
RunLength length_of_epochs(const PretrainOptions& options, const RunPlan& plan,
                           const RunRollouts& rollouts);

// Makes the found length that of the run, as if the options had said it.
void settle_length(const RunLength& found, PretrainOptions& options, RunPlan& plan);

}  // namespace piton
