// The models and the layouts that tests of several ranks compare with one process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ranks/state_spaces.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;
using test::with_context;

inline std::vector<RunLayout> layouts(int ranks) {
  const ScheduleSettings zb{ScheduleKind::kZeroBubbleH1};
  const auto zbv = ScheduleKind::kZeroBubbleV;
  const ScheduleSettings interleaved{.kind = ScheduleKind::kInterleaved, .chunks = 2};
  const ScheduleSettings all_in{.kind = ScheduleKind::kAllInAllOut, .chunks = 2};
  if (ranks == 2) {
    return {{.name = "TP 2", .mesh = mesh(2, 1, 1)},
            {.name = "TP 2 + SP", .mesh = mesh(2, 1, 1), .sequence_parallel = true},
            {.name = "TP 2 + SP, 2 slices",
             .mesh = mesh(2, 1, 1),
             .sequence_parallel = true,
             .slices = 2},
            {.name = "TP 2, fused", .mesh = mesh(2, 1, 1), .slices = kFused},
            {.name = "TP 2 + SP, fused",
             .mesh = mesh(2, 1, 1),
             .sequence_parallel = true,
             .slices = kFused},
            {.name = "TP 2 + SP, recompute",
             .mesh = mesh(2, 1, 1),
             .sequence_parallel = true,
             .recompute = true},
            {.name = "PP 2", .mesh = mesh(1, 1, 2)},
            {.name = "PP 2, recompute", .mesh = mesh(1, 1, 2), .recompute = true},
            {.name = "PP 2, ZB-H1", .mesh = mesh(1, 1, 2), .schedule = zb},
            {.name = "PP 2, ZB-H1, recompute",
             .mesh = mesh(1, 1, 2),
             .recompute = true,
             .schedule = zb},
            {.name = "TP 2 + SP, attention again",
             .mesh = mesh(2, 1, 1),
             .sequence_parallel = true,
             .rules = {RecomputeGranularity::kSelective}},
            {.name = "TP 2, inputs of layers divided",
             .mesh = mesh(2, 1, 1),
             .rules = {.granularity = RecomputeGranularity::kFull, .distributed = true}},
            {.name = "ZeRO-3, two layers at a time again",
             .mesh = mesh(1, 2, 1),
             .zero = 3,
             .rules = {RecomputeGranularity::kFull, /*block=*/false, 2}},
            {.name = "PP 2, a V", .mesh = mesh(1, 1, 2), .own_schedule = test::letter_v(4)},
            {.name = "PP 2, interleaved, recompute",
             .mesh = mesh(1, 1, 2),
             .recompute = true,
             .schedule = interleaved},
            {.name = "PP 2, interleaved, inputs of some layers",
             .mesh = mesh(1, 1, 2),
             .schedule = interleaved,
             .rules = {.granularity = RecomputeGranularity::kFull, .block = true, .layers = 1}},
            {.name = "PP 2, Fold3D", .mesh = mesh(1, 1, 2), .schedule = all_in},
            {.name = "PP 2, ZB-V", .mesh = mesh(1, 1, 2), .schedule = {zbv}},
            {.name = "PP 2, DualPipe-V, recompute",
             .mesh = mesh(1, 1, 2),
             .recompute = true,
             .schedule = {ScheduleKind::kDualPipeV}},
            {.name = "PP 2, unequal micro-batches and stages",
             .mesh = mesh(1, 1, 2),
             .sizes = {1, 3, 3, 1},
             .layers = {3, 1}},
            {.name = "CP 2", .mesh = with_context(mesh(1, 1, 1), 2)},
            {.name = "CP 2, all-to-all, ZeRO-1",
             .mesh = with_context(mesh(1, 1, 1), 2),
             .zero = 1,
             .context = {{ContextExchange::kHeads}}},
            {.name = "DP 2", .mesh = mesh(1, 2, 1)},
            {.name = "ZeRO-1", .mesh = mesh(1, 2, 1), .zero = 1},
            {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
            {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3},
            {.name = "ZeRO-3, recompute", .mesh = mesh(1, 2, 1), .recompute = true, .zero = 3},
            {.name = "CP 2, gathered",
             .mesh = with_context(mesh(1, 1, 1), 2),
             .context = {{ContextExchange::kGather}}}};
  }
  return {
      {.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2)},
      {.name = "TP 2 x PP 2 + SP, ZB-H1, recompute",
       .mesh = mesh(2, 1, 2),
       .sequence_parallel = true,
       .recompute = true,
       .schedule = zb},
      {.name = "TP 2 x PP 2, ZB-H1, inputs of layers divided",
       .mesh = mesh(2, 1, 2),
       .schedule = zb,
       .rules = {.granularity = RecomputeGranularity::kFull, .distributed = true}},
      {.name = "TP 2 x CP 2 + SP",
       .mesh = with_context(mesh(2, 1, 1), 2),
       .sequence_parallel = true},
      {.name = "CP 2 x PP 2, ZB-H1, recompute",
       .mesh = with_context(mesh(1, 1, 2), 2),
       .recompute = true,
       .schedule = zb},
      {.name = "CP 2 x DP 2, all-to-all, ZeRO-3, 2 instances",
       .mesh = with_context(mesh(1, 2, 1), 2),
       .zero = 3,
       .instances = 2,
       .context = {{ContextExchange::kHeads}}},
      {.name = "TP 2 x DP 2", .mesh = mesh(2, 2, 1)},
      {.name = "TP 2 x PP 2, fused", .mesh = mesh(2, 1, 2), .slices = kFused},
      {.name = "TP 2 x PP 2 + SP, fused, recompute",
       .mesh = mesh(2, 1, 2),
       .sequence_parallel = true,
       .slices = kFused,
       .recompute = true},
      {.name = "TP 2 x DP 2 + SP, ZeRO-3",
       .mesh = mesh(2, 2, 1),
       .sequence_parallel = true,
       .zero = 3},
      {.name = "PP 2 x DP 2, ZeRO-1", .mesh = mesh(1, 2, 2), .zero = 1},
      {.name = "TP 2 x PP 2 + SP, interleaved",
       .mesh = mesh(2, 1, 2),
       .sequence_parallel = true,
       .schedule = interleaved},
      {.name = "TP 2 x PP 2, ZB-V", .mesh = mesh(2, 1, 2), .schedule = {zbv}},
      {.name = "PP 4, ZB-H1", .mesh = mesh(1, 1, 4), .schedule = zb},
      {.name = "PP 4, unequal micro-batches", .mesh = mesh(1, 1, 4), .sizes = {1, 2, 3, 2}},
      {.name = "PP 2 x DP 2, ZeRO-1, Fold3D", .mesh = mesh(1, 2, 2), .zero = 1, .schedule = all_in},
      {.name = "PP 2 x DP 2, ZeRO-2, interleaved",
       .mesh = mesh(1, 2, 2),
       .zero = 2,
       .schedule = interleaved},
      {.name = "PP 2 x DP 2, ZeRO-3, DualPipe-V",
       .mesh = mesh(1, 2, 2),
       .zero = 3,
       .schedule = {ScheduleKind::kDualPipeV},
       .micro = 1},
      {.name = "PP 2 x DP 2, unequal micro-batches", .mesh = mesh(1, 2, 2), .sizes = {1, 2, 1}},
      {.name = "PP 2 x DP 2, ZeRO-3, a V",
       .mesh = mesh(1, 2, 2),
       .zero = 3,
       .own_schedule = test::letter_v(2)},
      {.name = "CP 4, heads of 2, rings of 2",
       .mesh = with_context(mesh(1, 1, 1), 4),
       .context = {{ContextExchange::kHeadsAndRing}, 2}}};
}

inline ModelConfig small(const std::string& name) {
  const bool roots = name == "roots, prompts";
  const bool alibi = name == "alibi" || roots;
  const bool norms = name == "head norms";
  const bool gemma = name == "gemma";
  const bool branches = name == "parallel branches";
  const bool post_norm = name == "bert, post-norm";
  const bool published = name == "t5, published";
  const bool balanced = name == "experts, balanced";
  const bool shared = name == "experts, shared";
  const bool biased = name == "experts, biased";
  const bool sinks = name == "sinks";
  const bool experts = name == "experts" || balanced || shared || biased || sinks;
  const bool latent = name == "latent";
  const bool factors = name == "factors";
  const bool olmo = name == "joint norms";
  const bool plain_norms = name == "norms without gains";
  const bool growth = name == "growing queries";
  const bool states = name == "states";
  const bool mamba = name.starts_with("mamba");
  const bool convolutions = name == "convolutions";
  const bool later = name.starts_with("later tokens");
  const bool later_llama = name == "later tokens, experts";
  ModelConfig model = preset(alibi || branches || (later && !later_llama) ? "gpt2-tiny"
                             : later_llama                                ? "llama-tiny"
                             : norms || gemma || experts || latent || factors || olmo || states ||
                                     mamba || convolutions
                                 ? "llama-tiny"
                             : plain_norms || growth ? "llama-tiny"
                             : post_norm             ? "bert-tiny"
                             : published             ? "t5-tiny"
                                                     : name);
  if (post_norm) model.encoder->post_norm = true;
  if (published) {
    model.positions = PositionKind::kRelative;
    model.norm = NormKind::kRms;
    model.biases = model.output_bias = model.qkv_biases = false;
    model.query_scalar = 1;
    model.gated = true;
    model.encoder_decoder = {
        .encoder_layers = 3, .buckets = 8, .farthest_bucket = 20, .scaled_head = true};
  }
  model.head_norms |= norms;
  model.qkv_biases |= norms;
  model.output_bias |= norms;
  model.normalized_head = norms;
  if (alibi) {
    model.positions = PositionKind::kAlibi;
    model.embedding_norm = true;
    if (!roots) model.window_before = 6;
    model.heads = model.groups = 6;
    model.head_size = 10;
  }
  if (roots) {
    model.alibi = AlibiKind::kRootOfDistance;
    model.prefix = true;
  }
  if (branches) {
    model.positions = PositionKind::kRotary;
    model.rotary_share = 0.5;
    model.parallel_residual = model.single_norm = model.head_bias = true;
    model.tied = false;
  }
  if (gemma) {
    model.gains_from_one = model.end_norms = model.scaled_embedding = model.tied = true;
    model.attention_soft_cap = 2;
    model.logit_soft_cap = 3;
    model.window_before = 6;
    model.full_attention_every = 2;
    model.local_rotary_base = 500;
  }
  if (latent) {
    model.latent = {.query_rank = 28, .rank = 36, .own = 10, .turned = 6, .value = 12};
    model.head_size = 16;
    model.groups = model.heads;
    model.rotary_pairs = model.head_norms = true;
  }
  if (states) {
    model.delta = {.attention_every = 2,
                   .key_heads = 4,
                   .value_heads = 8,
                   .key_size = 6,
                   .value_size = 5,
                   .width = 3};
    model.gains_from_one = model.head_norms = model.output_gate = true;
    model.rotary_share = 0.5;
  }
  if (mamba) {
    model.state_space = small_state_spaces(name == "mamba, groups" ? 4 : 1);
    model.positions = PositionKind::kNone;
  }
  if (convolutions) {
    model.short_convolution = small_convolutions();
    model.head_norms = true;
  }
  if (factors) {
    model.embedding_factor = 3;
    model.branch_factor = 0.4;
    model.logit_divisor = 2.5;
    model.score_factor = 0.2;
    model.output_bias = true;
  }
  if (olmo) {
    model.start_norms = false;
    model.end_norms = model.head_norms = model.joint_head_norms = true;
  }
  if (plain_norms) {
    model.norm_gains = false;
    model.head_norms = model.norms_after_rotary = model.embedding_norm = true;
    model.rotary_reversed = true;
    model.window_before = 6;
    model.full_attention_every = 2;
    model.full_attention_first = 1;
  }
  if (growth) {
    model.rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                            .factor = 4,
                            .original_positions = 4,
                            .query_growth = 0.5};
  }
  if (experts)
    model.experts = ExpertFacts{.experts = 5, .choices = 2, .balance_factor = balanced ? 0.1 : 0};
  if (biased) {
    // Sizes with which no choice of these steps is near a tie, as below.
    model.experts = ExpertFacts{.experts = 6,
                                .choices = 2,
                                .score = ScoreKind::kSigmoid,
                                .weight_factor = 1.5,
                                .choice_bias = true,
                                .bias_rate = 0.02,
                                .groups = {.count = 3, .chosen = 2, .largest = 2},
                                .ffn_hidden = 48};
  }
  if (sinks) {
    model.experts->ffn_hidden = 48;
    model.biases = model.output_bias = model.qkv_biases = true;
    model.activation = ActivationKind::kGeluFast;
    model.gate_rule = {.bound = 0.5, .offset = 1};
    model.softmax = SoftmaxKind::kLearnable;
    model.window_before = 6;
    model.full_attention_every = 2;
  }
  if (shared) {
    // Widths with which no choice of these steps is so near a tie that rounding decides it.
    model.experts->ffn_hidden = 48;
    model.experts->shared_ffn_hidden = 64;
    model.experts->shared_gate = true;
    model.experts->dense_layers = {1};
  }
  if (later) {
    model.mtp_layers = later_llama ? 1 : 2;
    model.mtp_loss_factor = 0.5;
  }
  if (later_llama) model.experts = ExpertFacts{.experts = 4, .choices = 2, .ffn_hidden = 48};
  model.vocabulary = 101;  // padded rows in every split
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

// Those that a model of an encoder and a decoder can have: with one chunk a stage, the encoder on
// the first half of the stages; and some more.
inline std::vector<RunLayout> with_split(std::vector<RunLayout> all) {
  std::erase_if(all, [](const RunLayout& one) {
    return one.own_schedule || chunks_of_each_stage(one.schedule) > 1;
  });
  for (RunLayout& one : all) {
    one.split = one.mesh[Axis::kPipeline] / 2;
    one.layers = {};
  }
  if (all.front().mesh.ranks() == 2) return all;
  const RunLayout four{.name = "PP 4", .mesh = mesh(1, 1, 4), .split = 2};
  all.push_back(four);
  all.push_back(four);
  all.back().name = "PP 4, recompute, boundaries whole";
  all.back().recompute = true;
  all.back().scatters = false;
  for (const int zero : {2, 3}) {
    all.push_back({.name = fmt::format("PP 2 x DP 2, ZeRO-{}", zero),
                   .mesh = mesh(1, 2, 2),
                   .recompute = zero == 3,
                   .zero = zero,
                   .split = 1});
  }
  all.push_back(
      {.name = "TP 2 x PP 2 + SP", .mesh = mesh(2, 1, 2), .sequence_parallel = true, .split = 1});
  return all;
}

// All layouts that a model can have. Rows of encoders, of prompts and of tables of distances are
// not divided over context ranks.
inline std::vector<RunLayout> all_layouts_of(const std::string& model, int ranks) {
  std::vector<RunLayout> all = layouts(ranks);
  if (small(model).encoder_decoder) all = with_split(std::move(all));
  if (small(model).encoder || small(model).encoder_decoder || small(model).prefix)
    std::erase_if(all, [](const RunLayout& one) { return one.mesh[Axis::kContext] > 1; });
  // The balance is one of whole micro-batches, so these are the same in every layout.
  if (small(model).experts && small(model).experts->balance_factor > 0) {
    std::erase_if(all, [](const RunLayout& one) {
      return !one.sizes.empty() || one.micro != RunLayout{}.micro;
    });
  }
  return all;
}

// At night all of them. By day GPT-2 and LLaMA meet half each, which together are all, the other
// presets a third, and variants a sixth; `part` of these.
inline std::vector<RunLayout> layouts_of(const std::string& model, int ranks, int part = 1) {
  const bool decoder = model == "gpt2-tiny" || model == "llama-tiny";
  const int stride = decoder ? 2 : model.ends_with("-tiny") ? 3 : 6;
  return test::sampled(all_layouts_of(model, ranks), static_cast<std::size_t>(stride * part),
                       static_cast<std::size_t>(model.front()));
}

// T5 with learned positions passes, at its 17th step, a place where the loss of one process moves
// by 1e-2 if a single weight is moved by 4.5e-5. A step of AdamW makes such differences out of the
// rounding of gradients near its eps, so that is larger there.
inline OptimizerOptions optimizer_of(const std::string& model) {
  OptimizerOptions optimizer;
  if (model == "t5-tiny") optimizer.eps = 1e-5;
  return optimizer;
}

}  // namespace piton::ranks
