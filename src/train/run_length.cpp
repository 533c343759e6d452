#include "train/run_length.h"

#include <algorithm>

namespace piton {
namespace {

RunLength length_of(const TrainingEpochs& found, double epochs, std::int64_t batch) {
  RunLength length{.exact_epochs = found.exact_epochs};
  const std::int64_t filled = found.can_continue ? found.samples + batch - 1 : found.samples;
  length.train_iters = std::max<std::int64_t>(1, filled / batch);
  const std::int64_t beyond = length.train_iters * batch - found.samples;
  std::string rest;
  if (beyond > 0) rest = fmt::format("; {} of the next epoch complete the last batch", beyond);
  if (beyond < 0) rest = fmt::format("; {} do not fill a batch and are left out", -beyond);
  length.note =
      fmt::format("--num-train-epochs {}: {} samples, {} update{} of {}{}", epochs, found.samples,
                  length.train_iters, length.train_iters > 1 ? "s" : "", batch, rest);
  return length;
}

}  // namespace

RunLength length_of_epochs(const PretrainOptions& options, const RunPlan& plan,
                           const Tokenizer* tokenizer, const OwnSamples& own) {
  if (own.make) {
    throw Error(Fault::kUsage,
                "--num-train-epochs: counts the samples of --data-path, and this run has those of "
                "a program; give --train-iters");
  }
  const double epochs = *options.loop.num_train_epochs;
  return length_of(epochs_of_run(options, plan, tokenizer, epochs), epochs, plan.global_batch);
}

RunLength length_of_epochs(const PretrainOptions& options, const RunPlan& plan,
                           const RunRollouts& rollouts) {
  const double epochs = *options.loop.num_train_epochs;
  const std::int64_t answers = rollouts.questions()->size() * options.rollouts.group();
  const TrainingEpochs found{.samples = samples_in(static_cast<double>(answers), epochs)};
  return length_of(found, epochs, plan.global_batch);
}

void settle_length(const RunLength& found, PretrainOptions& options, RunPlan& plan) {
  options.loop.train_iters = found.train_iters;
  options.loop.num_train_epochs.reset();
  if (found.exact_epochs) options.data.train_data_exact_num_epochs = found.exact_epochs;
  set_length(options.loop, plan);
}

}  // namespace piton
