#include "train/run/run_plan.h"

#include <algorithm>
#include <numeric>

#include "base/options/option_range.h"
#include "data/masked/masked_sets.h"
#include "train/run/best_validation.h"

namespace piton {
namespace {

constexpr double kMostEpochs = 1'000'000;
constexpr std::int64_t kMostKept = 1'000'000;
constexpr std::int64_t kMostMicroBatches = 1 << 20;  // of a step: a schedule is held in memory

// One of the three that give the length of a run.
void check_length(const LoopOptions& loop) {
  if (loop.num_train_epochs) {
    if (!(*loop.num_train_epochs > 0 && *loop.num_train_epochs <= kMostEpochs)) {
      throw Error(Fault::kUsage, "--num-train-epochs: got {}, wanted a number above 0, at most {}",
                  *loop.num_train_epochs, kMostEpochs);
    }
    if (loop.train_iters == 0 && !loop.train_samples) return;
    throw Error(Fault::kUsage, "--num-train-epochs {} and {}: give one of them",
                *loop.num_train_epochs,
                loop.train_samples ? fmt::format("--train-samples {}", *loop.train_samples)
                                   : fmt::format("--train-iters {}", loop.train_iters));
  }
  if (loop.train_samples) {
    check_range("--train-samples", *loop.train_samples, 1);
    if (loop.train_iters != 0) {
      throw Error(Fault::kUsage, "--train-iters {} and --train-samples {}: give one of them",
                  loop.train_iters, *loop.train_samples);
    }
  } else {
    if (loop.train_iters == 0)
      throw Error(Fault::kUsage,
                  "--train-iters: got 0, wanted 1 or more; or give --train-samples N or "
                  "--num-train-epochs N");
    check_range("--train-iters", loop.train_iters, 1);
  }
}

void check_ranges(const LoopOptions& loop) {
  check_length(loop);
  check_range("--micro-batch-size", loop.micro_batch_size, 1, kLargestSize);
  check_range("--seq-length", loop.sequence, 0, kLargestSize);
  check_range("--save-interval", loop.save_interval, 0);
  check_range("--log-interval", loop.log_interval, 1);
  check_range("--eval-interval", loop.eval_interval, 1);
  check_range("--eval-iters", loop.eval_iters, 0);
  for (const std::int64_t one : loop.iterations_to_skip)
    check_range("--iterations-to-skip", one, 0);
  check_range("--max-consecutive-skips", loop.max_consecutive_skips, 1);
  check_not_negative("--neftune-noise-alpha", loop.neftune_noise_alpha);
  if (loop.override_scheduler && loop.use_checkpoint_scheduler) {
    throw Error(Fault::kUsage,
                "--override-opt_param-scheduler and --use-checkpoint-opt_param-scheduler exclude "
                "each other; give one");
  }
  if (loop.no_load_lr_state && loop.use_checkpoint_scheduler) {
    throw Error(Fault::kUsage,
                "--no-load-lr-state: begins the schedules of this run, and "
                "--use-checkpoint-opt_param-scheduler continues those of the checkpoint; give one");
  }
  if (loop.exit_interval) check_range("--exit-interval", *loop.exit_interval, 1);
  if (loop.exit_duration_minutes && !(*loop.exit_duration_minutes > 0)) {
    throw Error(Fault::kUsage, "--exit-duration-in-mins: got {}, wanted more than 0",
                *loop.exit_duration_minutes);
  }
}

// Replicas to compare.
void check_hash_interval(const PretrainOptions& options) {
  const std::optional<std::int64_t>& interval =
      options.loop.check_weight_hash_across_dp_replicas_interval;
  if (!interval) return;
  check_range("--check-weight-hash-across-dp-replicas-interval", *interval, 1);
  if (options.parallel.effective_zero_stage() < 3) return;
  throw Error(Fault::kUsage,
              "--check-weight-hash-across-dp-replicas-interval: under --zero-stage 3 ranks hold "
              "other weights each; leave one of them out");
}

void check_saves(const PretrainOptions& options) {
  const LoopOptions& loop = options.loop;
  if (loop.save_interval_minutes && !(*loop.save_interval_minutes > 0)) {
    throw Error(Fault::kUsage, "--save-interval-in-mins: got {}, wanted more than 0",
                *loop.save_interval_minutes);
  }
  if (loop.keep < 0 || loop.keep > kMostKept) {
    throw Error(Fault::kUsage, "--keep: got {}, wanted 0 (all) to {}", loop.keep, kMostKept);
  }
  if (loop.retain_interval) {
    check_range("--save-retain-interval", *loop.retain_interval, 1, kLargestSize);
    if (loop.save_interval == 0 || *loop.retain_interval % loop.save_interval != 0) {
      throw Error(Fault::kUsage,
                  "--save-retain-interval: got {}, wanted a multiple of --save-interval, which is "
                  "{}",
                  *loop.retain_interval, loop.save_interval);
    }
  }
  if (loop.no_save_optim && options.optimizer.average_decay) {
    throw Error(Fault::kUsage,
                "--no-save-optim: leaves out the moving average of --ema-decay; give one of them");
  }
  if (!loop.save.empty()) return;
  if (loop.keep_best) throw Error(Fault::kUsage, "--keep-best: needs --save DIR to save to");
  for (const auto& [given, flag] :
       {std::pair{loop.keep > 0, "--keep"}, {loop.verify_saves, "--verify-saves"}}) {
    if (given) throw Error(Fault::kUsage, "{}: needs --save DIR to save to", flag);
  }
}

// Checks the totals that a run counts up to its end.
void check_totals(const LoopOptions& loop, const RunPlan& plan) {
  const std::int64_t largest = std::ranges::max(plan.sizes_of_micro_batches());
  const std::int64_t tokens =
      checked_product("--micro-batch-size", "tokens of a micro-batch", largest, plan.sequence);
  check_range("--micro-batch-size x --seq-length", tokens, 1, kLargestSize);
  checked_product("--train-iters", "tokens of the run", plan.train_iters, plan.global_batch,
                  plan.sequence);
  checked_product("--eval-iters", "samples of all evaluations", loop.eval_iters, plan.global_batch,
                  plan.train_iters / loop.eval_interval + 1);
}

// What backward computes again.
RecomputeRules recompute_rules(const PretrainOptions& options, const RunPlan& plan) {
  const ModelConfig& model = plan.session.model;
  const RecomputeRules rules = options.parallel.recompute_rules(plan.layers_of_stages());
  if (!model.gated && rules.parts.activation) {
    throw Error(Fault::kUsage,
                "{}: this model's MLP has no gate, and its activation is computed from sums that "
                "are not kept; use --recompute-granularity selective --recompute-modules mlp",
                options.parallel.recompute_activation ? "--recompute-activation-function"
                                                      : "--recompute-modules activation");
  }
  for (const std::int64_t samples : plan.sizes_of_micro_batches()) {
    const std::int64_t kept = samples * plan.rows_of_sample() * model.hidden;
    const std::int64_t of_decoder = samples * plan.decoder_sequence * model.hidden;
    const int tensor = options.parallel.tensor;
    if (!rules.distributed || (kept % tensor == 0 && of_decoder % tensor == 0)) continue;
    throw Error(Fault::kUsage,
                "--distribute-saved-activations: {} elements of a layer's input cannot be divided "
                "over {} tensor ranks; change --seq-length, or leave it out",
                kept, options.parallel.tensor);
  }
  return rules;
}

// --balance-layers: operations of the forward pass; backward has them in the same proportion.
void balance_layers(RunPlan& plan, const PipelineOptions& pipeline) {
  const int stages = plan.mesh[Axis::kPipeline];
  if (stages == 1 || pipeline.manual_allocation) {
    throw Error(Fault::kUsage, "--balance-layers: {}",
                stages == 1 ? "needs --pipeline-model-parallel-size of 2 or more"
                            : "--manual-layers gives the layers; leave one of them out");
  }
  const ModelConfig& model = plan.session.model;
  ModelConfig head = model;
  head.layers = 0;
  head.experts.reset();
  const double whole = model.forward_flops_per_token(plan.sequence);
  const double of_head = head.forward_flops_per_token(plan.sequence);
  const double of_layer = (whole - of_head) / static_cast<double>(model.layers);
  plan.session.layout.layers_of_chunks = balanced_layers(
      model.layers, stages_of_chunks(plan.session.schedule, stages), of_head / of_layer);
}

// Layers of the stages of an encoder and of those of a decoder, given by --manual-layers or equal.
void divide_both(LayoutOptions& layout, const ModelConfig& model, int stages) {
  const std::vector<std::int64_t>& given = layout.layers_of_chunks;
  const std::int64_t wanted = model.encoder_decoder->encoder_layers;
  if (given.empty()) {
    const bool fits = wanted >= layout.split_stage && model.layers >= stages - layout.split_stage;
    if (fits) layout.layers_of_chunks = LayerDivision::of(model, layout, stages).counts();
    return;
  }
  const std::int64_t sum =
      std::accumulate(given.begin(), given.begin() + layout.split_stage, std::int64_t{0});
  if (sum == wanted) return;
  throw Error(Fault::kUsage,
              "parallel: --manual-layers: the {} stages before "
              "--pipeline-model-parallel-split-rank have {} layers, wanted the {} of the encoder",
              layout.split_stage, sum, wanted);
}

// Samples and updates of the run. Needs the mesh.
void plan_batches(const PretrainOptions& options, RunPlan& plan) {
  const LoopOptions& loop = options.loop;
  plan.micro_batch = loop.micro_batch_size;
  if (options.preferences.by_rewards()) plan.updates_of_batch = options.rollouts.num_mini_batches;
  const std::int64_t share = plan.micro_batch * plan.mesh.sample_ranks() * plan.updates_of_batch;
  plan.global_batch = loop.global_batch_size.value_or(share);
  if (plan.global_batch <= 0 || plan.global_batch % share != 0) {
    throw Error(Fault::kUsage,
                "--global-batch-size: got {}, wanted a multiple of {} (--micro-batch-size {} x {} "
                "data-parallel ranks{})",
                plan.global_batch, share, loop.micro_batch_size, plan.mesh.sample_ranks(),
                plan.updates_of_batch > 1
                    ? fmt::format(" x --num-mini-batches {}", plan.updates_of_batch)
                    : "");
  }
  check_range("--global-batch-size: micro-batches of a step", plan.global_batch / share, 1,
              kMostMicroBatches);
  plan.micro_batches = static_cast<int>(plan.global_batch / share);
  plan.batches = batch_sizes(loop, plan.global_batch, share);
}

// The schedule of the stages, their layers, and the sizes of micro-batches.
void plan_pipeline(const PretrainOptions& options, RunPlan& plan) {
  const PipelineOptions& pipeline = options.parallel.schedule;
  const int stages = plan.mesh[Axis::kPipeline];
  const ModelConfig& model = plan.session.model;
  LayoutOptions& layout = plan.session.layout;
  layout.split_stage = pipeline.split_stage(stages, model.encoder_decoder.has_value());
  const std::int64_t of_encoder =
      layout.split_stage > 0 ? model.encoder_decoder->encoder_layers : 0;
  const std::int64_t layers = of_encoder + model.layers;
  const std::int64_t micro_batch = options.loop.micro_batch_size;
  const std::int64_t share = micro_batch * plan.mesh.sample_ranks() * plan.updates_of_batch;
  ScheduleSettings& schedule = plan.session.schedule;
  schedule = pipeline.settings(stages, layers);
  layout.layers_of_chunks =
      pipeline.layers_of_chunks(stages * chunks_of_each_stage(schedule), layers);
  if (layout.split_stage > 0) divide_both(layout, model, stages);
  if (pipeline.balance) balance_layers(plan, pipeline);
  for (const std::int64_t batch : plan.batches.all()) {
    check_micro_batches(schedule, stages, static_cast<int>(batch / share));
  }
  plan.micro_batch_sizes = pipeline.micro_batch_sizes(
      stages, micro_batch, plan.global_batch / plan.mesh.sample_ranks() / plan.updates_of_batch);
  if (!plan.micro_batch_sizes.empty() && plan.batches.grows()) {
    throw Error(Fault::kUsage,
                "--optimized-pipeline: --manual-mbs lists the micro-batches of one batch, and "
                "--rampup-batch-size has several; leave one of them out");
  }
  std::vector<std::int64_t> tokens;
  for (const std::int64_t samples : plan.sizes_of_micro_batches()) {
    tokens.push_back(samples * plan.rows_of_sample());
    if (plan.decoder_sequence > 0) tokens.push_back(samples * plan.decoder_sequence);
  }
  layout.linears = options.parallel.linears.strategy(tokens, plan.mesh[Axis::kTensor]);
}

}  // namespace

LayerDivision RunPlan::layer_division() const {
  return LayerDivision::of(session.model, session.layout,
                           mesh[Axis::kPipeline] * chunks_of_each_stage(session.schedule));
}

std::vector<std::int64_t> RunPlan::layers_of_stages() const {
  return layer_division().most_of_stages(stages_of_chunks(session.schedule, mesh[Axis::kPipeline]));
}

void set_length(const LoopOptions& loop, RunPlan& plan) {
  plan.train_iters =
      loop.train_samples ? plan.batches.updates(*loop.train_samples) : loop.train_iters;
  if (loop.num_train_epochs) plan.train_iters = 1;  // until the data says it
  if (plan.train_iters < 1) {
    throw Error(Fault::kUsage, "--train-samples: got {}, wanted at least {}, one global batch",
                *loop.train_samples, plan.global_batch);
  }
  check_totals(loop, plan);
  plan.train_samples = loop.train_samples.value_or(plan.train_iters * plan.global_batch);
}

BatchSizes batch_sizes(const LoopOptions& loop, std::int64_t global_batch, std::int64_t share) {
  if (loop.rampup_batch_size.empty()) return BatchSizes(global_batch);
  if (!loop.train_samples) {
    throw Error(Fault::kUsage,
                "--rampup-batch-size: needs --train-samples in place of --{}, as steps "
                "differ in size",
                loop.num_train_epochs ? "num-train-epochs" : "train-iters");
  }
  return BatchSizes(global_batch, loop.rampup_batch_size, share);
}

namespace {

// Refuses what is made for decoders alone.
void check_encoder_run(const PretrainOptions& options, const ModelConfig& model) {
  if (!model.encoder && !model.encoder_decoder) return;
  const auto refuse = [&](bool given, const char* flag) {
    if (!given) return;
    throw Error(Fault::kUsage, "{}: is for decoders, and the model is an encoder{}; leave it out",
                flag, model.encoder ? " (bert)" : " with a decoder (t5)");
  };
  const bool classifies = options.preferences.classifies() && model.encoder;
  refuse(options.lora.given() && !classifies, model.encoder
                                                  ? "--lora-target-modules without --stage classify"
                                                  : "--lora-target-modules");
  if (!classifies) {
    refuse(options.data.is_instruction_dataset, "--is-instruction-dataset (of piton finetune)");
    refuse(options.preferences.stage != TrainingStage::kSft, "--stage");
    refuse(options.loop.full_validation, "--full-validation");
  }
  refuse(!options.tasks.tasks.empty(), "--eval-tasks");
  refuse(options.teaching.given(), "--teacher-model");
  refuse(options.loop.neftune_noise_alpha > 0, "--neftune-noise-alpha");
  if (model.encoder) return;
  refuse(options.data.variable_seq_lengths, "--variable-seq-lengths");
}

// Refuses masks that the samples of a run do not have.
void check_masks(const PretrainOptions& options) {
  const AttentionOptions& attention = options.model.attention;
  const DataOptions& data = options.data;
  if (attention.divides_documents() && !data.reset_attention_mask && !data.neat_pack) {
    throw Error(Fault::kUsage,
                "--sparse-mode: mode {} is causal within each document, and rows are not divided "
                "into documents; give --reset-attention-mask too (--neat-pack of instruction data)",
                attention.sparse_mode);
  }
  if (data.reset_attention_mask && options.preferences.classifies()) {
    throw Error(Fault::kUsage,
                "--reset-attention-mask: is for rows of several texts, and --stage classify reads "
                "one text a row; leave it out");
  }
  if (!attention.has_prefix()) return;
  const auto refuse = [&](bool given, const char* why) {
    if (given) throw Error(Fault::kUsage, "--sparse-mode: mode {} {}", attention.sparse_mode, why);
  };
  refuse(!data.is_instruction_dataset,
         "is for prompts, which running text does not have; give --is-instruction-dataset too, or "
         "take mode 0");
  refuse(options.preferences.stage != TrainingStage::kSft,
         "is for --stage sft: losses of preferences are of two answers to a prompt; take mode 0");
  refuse(!options.tasks.tasks.empty() || !options.sample_prompts.file.empty(),
         "is for training: --eval-tasks and --sample-prompts decode with a cache, which shows no "
         "later tokens; leave them out, or take mode 0");
}

// Refuses losses of whole answers, and frozen layers, with layers that predict later tokens.
void check_later_run(const PretrainOptions& options, const ModelConfig& model) {
  const bool trains_all = !options.lora.given();
  if (model.mtp_layers == 0 || (trains_all && options.preferences.stage == TrainingStage::kSft))
    return;
  throw Error(Fault::kUsage,
              "--mtp-num-layers: later tokens are predicted in pretraining and --stage sft of all "
              "weights, not with {}; give --mtp-num-layers 0, or leave that out",
              trains_all ? "--stage" : "--lora-target-modules");
}

// Tokens of a row of the decoder; 0 for models without an encoder.
std::int64_t decoder_sequence(const PretrainOptions& options, const ModelConfig& model) {
  if (!model.encoder_decoder) {
    refuse_decoder_row(options.decoder);
    return 0;
  }
  const std::int64_t sequence = decoder_row(options.decoder);
  if (sequence > model.max_positions) {
    throw Error(Fault::kUsage,
                "--decoder-seq-length: got {}, wanted at most --max-position-embeddings, which is "
                "{}",
                sequence, model.max_positions);
  }
  return sequence;
}

// Refuses what needs whole samples on a rank, and lists of types that are not of the layers.
void check_context_run(const PretrainOptions& options, const ModelConfig& model) {
  if (const auto types = std::ssize(options.parallel.context_exchanges);
      types != 1 && types != model.layers) {
    throw Error(Fault::kUsage, "--cp-comm-type: got {} types, wanted 1, or {}, one for each layer",
                types, model.layers);
  }
  if (options.parallel.context == 1 || options.preferences.stage == TrainingStage::kSft) return;
  throw Error(Fault::kUsage,
              "--context-parallel-size: divides samples, and --stage needs the losses of whole "
              "answers on a rank; leave one of them out");
}

// Ranks of the expert axis gather equal numbers of rows.
void check_expert_run(const PretrainOptions& options) {
  if (options.parallel.expert == 1) return;
  const auto refuse = [](bool given, const char* flag) {
    if (!given) return;
    throw Error(Fault::kUsage,
                "--expert-model-parallel-size: gathers equal numbers of rows of its ranks, and {} "
                "gives each of them other numbers; leave one of them out",
                flag);
  };
  refuse(options.preferences.stage != TrainingStage::kSft, "--stage");
  refuse(options.data.variable_seq_lengths, "--variable-seq-lengths");
}

}  // namespace

RunPlan make_run_plan(const PretrainOptions& options, int ranks,
                      std::int64_t tokenizer_vocabulary) {
  RunPlan plan;
  const ModelConfig model = options.resolve_model(
      tokenizer_vocabulary > 0 ? std::optional(tokenizer_vocabulary) : std::nullopt);
  check_encoder_run(options, model);
  check_masks(options);
  check_later_run(options, model);
  plan.mesh = options.parallel.check(ranks);
  const LoopOptions& loop = options.loop;
  check_ranges(loop);
  loop.check_rollback();
  check_one_unit(options.learning_rate, loop.train_samples.has_value());
  plan.sequence = loop.sequence > 0 ? loop.sequence : model.longest_sequence();
  if (plan.sequence > model.longest_sequence()) {
    throw Error(Fault::kUsage,
                "--seq-length: got {}, wanted at most --max-position-embeddings{}, which is {}",
                plan.sequence, model.encoder ? " - --first-position" : "",
                model.longest_sequence());
  }
  options.parallel.check_sequence(plan.sequence, model.attention_dropout > 0);
  check_context_run(options, model);
  check_expert_run(options);
  plan.decoder_sequence = decoder_sequence(options, model);
  const bool masks_words = model.encoder && !options.preferences.classifies();
  if (masks_words) plan.masked_share = options.masking.mask_probability;
  check_best_validation(options);
  check_hash_interval(options);
  check_saves(options);
  plan.saves_optimizer = !loop.no_save_optim;
  plan_batches(options, plan);
  plan.session.model = model;
  plan_pipeline(options, plan);
  set_length(loop, plan);
  options.offload.check(plan.layer_division().most());
  if (options.optimizer.kind == OptimizerKind::kCadam &&
      (options.offload.in_host_memory() || !options.offload.state_folder().empty())) {
    throw Error(Fault::kUsage,
                "--optimizer cadam: its state stays with the weights; leave --remote-device and "
                "--cpu-optimizer out, or use another optimizer");
  }
  plan.memory_limit = options.parallel.recompute_limit();
  plan.session = {.model = model,
                  .layout = {.linears = plan.session.layout.linears,
                             .recompute = recompute_rules(options, plan),
                             .float8 = options.float8.rules(model, options.lora.quantized_base),
                             .vocabulary_multiple = options.tokenizer.make_vocab_size_divisible_by,
                             .vocabulary_rows = padded_vocabulary_size(
                                 model.vocabulary, options.tokenizer, plan.mesh[Axis::kTensor]),
                             .layers_of_chunks = plan.session.layout.layers_of_chunks,
                             .split_stage = plan.session.layout.split_stage,
                             .context = options.parallel.context_forms(),
                             .sends_rows_to_experts = options.parallel.sends_rows_to_experts},
                  .zero_stage = options.parallel.effective_zero_stage(),
                  .zero_instances = options.parallel.zero_instances,
                  .frozen_forms = options.lora.frozen_forms(),
                  .schedule = plan.session.schedule,
                  .micro_batches = plan.micro_batches,
                  .scatter_boundaries = options.parallel.schedule.scatter_boundaries,
                  .seed = loop.seed,
                  .logit_temperature = options.rollouts.temperature,
                  .embedding_noise = loop.neftune_noise_alpha,
                  .optimizer_options = options.optimizer,
                  .offload = options.offload,
                  .adapters = options.lora.resolve(model),
                  .codes = options.lora.quantized_base
                               ? codes_in(*code_format("", "nf4"), "--qlora")
                               : CodesOfParameter()};
  plan.session.optimizer_options.separate_rates = options.learning_rate.separate_groups();
  return plan;
}

PretrainOptions settled_options(const PretrainOptions& options, const RunPlan& plan) {
  PretrainOptions settled = options;
  settled.model.settle(plan.session.model);
  if (options.tokenizer.is_null()) *settled.model.vocabulary -= 1;  // as resolve_model() counts
  settled.loop.global_batch_size = plan.global_batch;
  settled.loop.sequence = plan.sequence;
  settle_decay(settled);
  return settled;
}

void settle_decay(PretrainOptions& options) {
  const LoopOptions& loop = options.loop;
  LearningRateOptions& rate = options.learning_rate;
  // A constant rate has no end, unless the warm-up is a share of it.
  if (rate.decay_style == DecayStyle::kConstant && !rate.warmup_fraction) {
    rate.decay_iters.reset();
    rate.decay_samples.reset();
    rate.decay_tokens.reset();
    return;
  }
  if (rate.decay_samples || rate.decay_iters || rate.decay_tokens) return;
  rate.decay_is_derived = true;
  const std::int64_t batch = loop.global_batch_size.value_or(1);
  if (!loop.train_samples) {
    rate.decay_iters = loop.train_iters;
  } else if (loop.rampup_batch_size.empty() && *loop.train_samples % batch == 0) {
    rate.decay_iters = *loop.train_samples / batch;
  } else {
    rate.decay_samples = loop.train_samples;
  }
}

}  // namespace piton
