#include "train/run_plan.h"

namespace piton {
namespace {

constexpr std::int64_t kMostKept = 1'000'000;

}  // namespace

RunPlan make_run_plan(const PretrainOptions& options, int ranks,
                      std::int64_t tokenizer_vocabulary) {
  RunPlan plan;
  const ModelConfig model = options.model.resolve(
      tokenizer_vocabulary > 0 ? std::optional(tokenizer_vocabulary) : std::nullopt);
  plan.mesh = options.parallel.check(ranks);
  const LoopOptions& loop = options.loop;
  plan.sequence = loop.sequence > 0 ? loop.sequence : model.max_positions;
  if (plan.sequence > model.max_positions) {
    throw Error(Fault::kUsage,
                "--seq-length: got {}, wanted at most --max-position-embeddings, which is {}",
                plan.sequence, model.max_positions);
  }
  if (loop.train_iters <= 0)
    throw Error(Fault::kUsage, "--train-iters: got {}, wanted 1 or more", loop.train_iters);
  if (loop.micro_batch_size <= 0)
    throw Error(Fault::kUsage, "--micro-batch-size: got {}, wanted 1 or more",
                loop.micro_batch_size);
  if (loop.save_interval < 0 || loop.log_interval < 1 || loop.eval_interval < 1 ||
      loop.eval_iters < 0) {
    throw Error(Fault::kUsage,
                "--save-interval, --log-interval, --eval-interval, --eval-iters: got {}, {}, {}, "
                "{}; wanted 0 or more, 1 or more, 1 or more, 0 or more",
                loop.save_interval, loop.log_interval, loop.eval_interval, loop.eval_iters);
  }
  if (loop.save_interval > 0 && loop.save.empty())
    throw Error(Fault::kUsage, "--save-interval: needs --save DIR to save to");
  if (loop.keep < 0 || loop.keep > kMostKept) {
    throw Error(Fault::kUsage, "--keep: got {}, wanted 0 (all) to {}", loop.keep, kMostKept);
  }
  if ((loop.keep > 0 || loop.verify_saves) && loop.save.empty()) {
    throw Error(Fault::kUsage, "--keep, --verify-saves: need --save DIR to save to");
  }
  const std::int64_t share = loop.micro_batch_size * plan.mesh[Axis::kData];
  plan.global_batch = loop.global_batch_size.value_or(share);
  if (plan.global_batch <= 0 || plan.global_batch % share != 0) {
    throw Error(Fault::kUsage,
                "--global-batch-size: got {}, wanted a multiple of {} (--micro-batch-size {} x {} "
                "data-parallel ranks)",
                plan.global_batch, share, loop.micro_batch_size, plan.mesh[Axis::kData]);
  }
  const int t = plan.mesh[Axis::kTensor];
  if (options.parallel.sequence_parallel && loop.micro_batch_size * plan.sequence % t != 0) {
    throw Error(Fault::kUsage,
                "--sequence-parallel: {} tokens of a micro-batch cannot be split over {} tensor "
                "ranks; change --seq-length",
                loop.micro_batch_size * plan.sequence, t);
  }
  plan.micro_batches = static_cast<int>(plan.global_batch / share);
  plan.session = {.model = model,
                  .sequence_parallel = options.parallel.sequence_parallel,
                  .linear_slices = options.parallel.linear_slices,
                  .recompute = options.parallel.recompute == RecomputeGranularity::kFull,
                  .vocabulary_multiple = options.tokenizer.make_vocab_size_divisible_by,
                  .vocabulary_rows = padded_vocabulary_size(model.vocabulary, options.tokenizer,
                                                            plan.mesh[Axis::kTensor]),
                  .zero_stage = options.parallel.effective_zero_stage(),
                  .schedule = options.parallel.schedule,
                  .micro_batches = plan.micro_batches,
                  .seed = loop.seed,
                  .optimizer_options = options.optimizer};
  return plan;
}

}  // namespace piton
