#include "model/block.h"

#include <cmath>

#include "ops/dropout.h"
#include "ops/recompute.h"

namespace piton {
namespace {

std::string layer_name(const Block::Place& place, const char* part) {
  return fmt::format("{}layers.{}.{}", place.stack.prefix, place.index, part);
}

// Initialization of the last projection of a branch: the deviation is divided by the square root of
// the number of branches, 2 L (GPT-2).
Initialization residual_weights(const ModelConfig& config) {
  if (config.xavier_weights) return input_weights(config);
  return {Initialization::Kind::kNormal,
          config.init_deviation / std::sqrt(2.0 * static_cast<double>(config.layers))};
}

AttentionShape attention_shape(const ModelConfig& config, const Block::Place& place,
                               const Adapters& adapters) {
  AttentionShape shape{
      .hidden = config.hidden,
      .heads = config.heads,
      .groups = config.groups,
      .head_size = config.head_size,
      .output_bias = config.output_bias,
      .qkv_biases = config.qkv_biases,
      .output_gate = config.output_gate,
      .soft_cap = config.attention_soft_cap,
      .softmax = config.softmax,
      .rotary = config.rotary_pairs ? Rotary::Convention::kPairs : Rotary::Convention::kHalves,
      .causal = place.stack.causal,
      .window_before = config.window_of(place.stack.facts_of(place.index)),
      .window_after = config.window_after,
      .block_rows = config.attention_block,
      .attention_dropout = config.attention_dropout,
      .hidden_dropout = config.hidden_dropout,
      .adapters = &adapters};
  if (config.query_scalar) shape.scale = 1 / std::sqrt(*config.query_scalar);
  if (config.score_factor) shape.scale = *config.score_factor;
  shape.output_factor = config.branch_factor;
  if (config.end_norms) shape.end_norm = norm_shape(config);
  if (config.latent) {
    shape.scale = rotary_score_factor(config.rotary_scaling) /
                  std::sqrt(static_cast<double>(config.head_size));
  }
  if (!config.head_norms || config.latent) return shape;
  shape.head_norm = NormShape{.kind = NormKind::kRms,
                              .width = config.head_size,
                              .eps = config.norm_eps,
                              .gain = config.norm_gains,
                              .gain_from_one = config.gains_from_one,
                              .of_heads = !config.joint_head_norms,
                              .over_ranks = config.joint_head_norms};
  shape.joint_norms = config.joint_head_norms;
  shape.norms_after_rotary = config.norms_after_rotary;
  return shape;
}

MlpShape mlp_shape(const ModelConfig& config, const Adapters& adapters) {
  MlpShape shape{.hidden = config.hidden,
                 .ffn_hidden = config.ffn_hidden,
                 .gated = config.gated,
                 .biases = config.biases,
                 .activation = config.activation,
                 .gate_rule = config.gate_rule,
                 .output_factor = config.branch_factor,
                 .hidden_dropout = config.hidden_dropout,
                 .adapters = &adapters};
  if (config.end_norms) shape.end_norm = norm_shape(config);
  return shape;
}

ExpertMlpShape expert_shape(const ModelConfig& config, const Adapters& adapters) {
  const ExpertFacts& facts = *config.experts;
  ExpertMlpShape shape{.hidden = config.hidden,
                       .ffn_hidden = config.expert_ffn_hidden(),
                       .experts = facts.experts,
                       .rules = {.choices = facts.choices,
                                 .normalized = facts.normalized,
                                 .score = facts.score,
                                 .factor = facts.weight_factor,
                                 .groups = facts.groups,
                                 .balance_factor = facts.balance_factor,
                                 .z_factor = facts.z_factor,
                                 .balances_samples = facts.balances_samples,
                                 .capacity_factor = facts.capacity_factor,
                                 .keeps_first = facts.keeps_first,
                                 .random = facts.random_router},
                       .weighs_inputs = facts.weighs_inputs,
                       .gated = config.gated,
                       .biases = config.biases,
                       .activation = config.activation,
                       .gate_rule = config.gate_rule,
                       .output_factor = config.branch_factor,
                       .hidden_dropout = config.hidden_dropout,
                       .adapters = &adapters};
  if (facts.choice_bias) shape.bias_rate = facts.bias_rate;
  if (facts.shared_ffn_hidden != 0)
    shape.shared = {.ffn_hidden = facts.shared_ffn_hidden, .gate = facts.shared_gate};
  if (config.end_norms) shape.end_norm = norm_shape(config);
  return shape;
}

BranchInitialization branch_weights(const ModelConfig& config) {
  return {.input = input_weights(config), .output = residual_weights(config)};
}

DeltaShape delta_shape(const ModelConfig& config, const Adapters& adapters) {
  const DeltaFacts& facts = *config.delta;
  return {.hidden = config.hidden,
          .key_heads = facts.key_heads,
          .value_heads = facts.value_heads,
          .key_size = facts.key_size,
          .value_size = facts.value_size,
          .width = facts.width,
          .norm_eps = config.norm_eps,
          .output_factor = config.branch_factor,
          .hidden_dropout = config.hidden_dropout,
          .adapters = &adapters};
}

StateSpaceShape state_space_shape(const ModelConfig& config, const Adapters& adapters) {
  const StateSpaceFacts& facts = *config.state_space;
  return {.hidden = config.hidden,
          .groups = facts.groups,
          .heads = facts.heads,
          .state_size = facts.state_size,
          .head_size = facts.head_size,
          .width = facts.width,
          .norm_eps = config.norm_eps,
          .output_factor = config.branch_factor,
          .hidden_dropout = config.hidden_dropout,
          .adapters = &adapters};
}

ShortConvolutionShape short_convolution_shape(const ModelConfig& config, const Adapters& adapters) {
  const ShortConvolutionFacts& facts = *config.short_convolution;
  return {.hidden = config.hidden,
          .width = facts.width,
          .biases = facts.biases,
          .output_factor = config.branch_factor,
          .hidden_dropout = config.hidden_dropout,
          .adapters = &adapters};
}

Mixer make_state_layer(ParameterList& parameters, const Shard& shard, const ModelConfig& config,
                       const Block::Place& place, const Adapters& adapters) {
  if (config.state_space) {
    return StateSpace(parameters, shard, layer_name(place, "mamba"),
                      state_space_shape(config, adapters), branch_weights(config));
  }
  if (config.short_convolution) {
    return ShortConvolution(parameters, shard, layer_name(place, "short_conv"),
                            short_convolution_shape(config, adapters), branch_weights(config));
  }
  return DeltaAttention(parameters, shard, layer_name(place, "delta"),
                        delta_shape(config, adapters), branch_weights(config));
}

std::optional<Mixer> make_attention(ParameterList& parameters, const Shard& shard,
                                    const ModelConfig& config, const Block::Place& place,
                                    const Adapters& adapters) {
  if (!config.has_mixer(place.stack.facts_of(place.index))) return {};
  if (config.has_states(place.stack.facts_of(place.index)))
    return make_state_layer(parameters, shard, config, place, adapters);
  const std::string name = layer_name(place, "attention");
  const AttentionShape shape = attention_shape(config, place, adapters);
  if (!config.latent) return Attention(parameters, shard, name, shape, branch_weights(config));
  const LatentFacts& facts = *config.latent;
  return LatentAttention(parameters, shard, name,
                         {.attention = shape,
                          .query_rank = facts.query_rank,
                          .rank = facts.rank,
                          .own = facts.own,
                          .turned = facts.turned,
                          .value = facts.value,
                          .norm_eps = facts.norm_eps != 0 ? facts.norm_eps : config.norm_eps,
                          .norms = config.head_norms},
                         branch_weights(config));
}

std::optional<std::variant<Mlp, ExpertMlp>> make_mlp(ParameterList& parameters, const Shard& shard,
                                                     const ModelConfig& config,
                                                     const Block::Place& place,
                                                     const Adapters& adapters) {
  if (!config.has_mlp(place.stack.facts_of(place.index))) return {};
  const std::string name = layer_name(place, "mlp");
  const BranchInitialization weights = branch_weights(config);
  if (config.has_experts(place.stack.facts_of(place.index)))
    return ExpertMlp(parameters, shard, name, expert_shape(config, adapters), weights);
  return Mlp(parameters, shard, name, mlp_shape(config, adapters), weights);
}

std::optional<Norm> attention_norm(ParameterList& parameters, const Shard& shard,
                                   const ModelConfig& config, const Block::Place& place) {
  if (!config.start_norms || !config.has_mixer(place.stack.facts_of(place.index))) return {};
  return Norm(parameters, shard, layer_name(place, "attention_norm"), norm_shape(config));
}

std::optional<Norm> mlp_norm(ParameterList& parameters, const Shard& shard,
                             const ModelConfig& config, const Block::Place& place) {
  if (config.single_norm || !config.start_norms) return {};
  if (!config.has_mlp(place.stack.facts_of(place.index))) return {};
  return Norm(parameters, shard, layer_name(place, "mlp_norm"), norm_shape(config));
}

// Parameters are in the order of the model, so these are made before those of the MLP.
std::optional<Norm> cross_norm(ParameterList& parameters, const Shard& shard,
                               const ModelConfig& config, const Block::Place& place) {
  if (!place.stack.cross) return {};
  return Norm(parameters, shard, layer_name(place, "cross_norm"), norm_shape(config));
}

std::optional<CrossAttention> cross_attention(ParameterList& parameters, const Shard& shard,
                                              const ModelConfig& config,
                                              const Block::Place& place) {
  if (!place.stack.cross) return {};
  const Adapters none;
  AttentionShape shape = attention_shape(config, place, none);
  shape.adapters = nullptr;
  return CrossAttention(parameters, shard, layer_name(place, "cross"), shape,
                        branch_weights(config));
}

}  // namespace

Initialization input_weights(const ModelConfig& config) {
  if (config.xavier_weights) return {.kind = Initialization::Kind::kXavier};
  return {.kind = Initialization::Kind::kNormal, .deviation = config.init_deviation};
}

Initialization embedding_weights(const ModelConfig& config) {
  const double deviation = config.embedding_deviation.value_or(config.init_deviation);
  if (deviation == config.init_deviation) return input_weights(config);
  return {.kind = Initialization::Kind::kNormal, .deviation = deviation};
}

NormShape norm_shape(const ModelConfig& config) {
  return {.kind = config.norm,
          .width = config.hidden,
          .eps = config.norm_eps,
          .bias = config.norm_biases,
          .gain = config.norm_gains,
          .gain_from_one = config.gains_from_one};
}

Block::Block(ParameterList& parameters, const Shard& shard, const ModelConfig& config,
             const Place& place, const Adapters& adapters)
    : post_norm_(config.encoder && config.encoder->post_norm),
      parallel_(config.parallel_residual),
      dtype_(config.dtype),
      attention_norm_(attention_norm(parameters, shard, config, place)),
      attention_(make_attention(parameters, shard, config, place, adapters)),
      cross_norm_(cross_norm(parameters, shard, config, place)),
      cross_(cross_attention(parameters, shard, config, place)),
      mlp_norm_(mlp_norm(parameters, shard, config, place)),
      mlp_(make_mlp(parameters, shard, config, place, adapters)) {}

Value Block::forward(Context& context, const Value& x, const AttentionInput& input,
                     const CrossInput* cross) const {
  if (post_norm_) return post_norm_forward(context, x, input);
  if (!attention_) return mlp(context, branch_input(context, mlp_norm_, x), x);
  const Value normed = branch_input(context, attention_norm_, x);
  Value middle = attention(context, normed, x, input);
  if (parallel_) return mlp(context, mlp_norm_ ? mlp_norm_->forward(context, x) : normed, middle);
  if (cross_) {
    PITON_ASSERT(cross != nullptr, "a block without the outputs of the encoder");
    middle = cross_->forward(context, cross_norm_->forward(context, middle), middle, *cross);
  }
  if (!mlp_) return middle;
  return mlp(context, branch_input(context, mlp_norm_, middle), middle);
}

Value Block::branch_input(Context& context, const std::optional<Norm>& norm, const Value& x) const {
  if (norm) return norm->forward(context, x);
  return x.tensor.dtype() == dtype_ ? x : converted(context, x, dtype_);
}

Value Block::post_norm_forward(Context& context, const Value& x,
                               const AttentionInput& input) const {
  const Value middle = attention_norm_->forward(context, attention(context, x, x, input));
  return mlp_norm_->forward(context, mlp(context, middle, middle));
}

bool Block::attends_to_latents() const {
  const auto* latent = std::get_if<LatentAttention>(attention_ ? &*attention_ : nullptr);
  return latent != nullptr && latent->attends_to_latents();
}

bool Block::has_states() const {
  return attention_ && (std::holds_alternative<DeltaAttention>(*attention_) ||
                        std::holds_alternative<StateSpace>(*attention_) ||
                        std::holds_alternative<ShortConvolution>(*attention_));
}

Value Block::attention(Context& context, const Value& x, const Value& residual,
                       const AttentionInput& input) const {
  return std::visit([&](const auto& one) { return one.forward(context, x, residual, input); },
                    *attention_);
}

Value Block::mlp(Context& context, const Value& x, const Value& residual) const {
  const auto forward = [this](Context& inner, const Value& x, const Value& residual) {
    return std::visit([&](const auto& mlp) { return mlp.forward(inner, x, &residual); }, *mlp_);
  };
  if (!context.recompute.mlp) return forward(context, x, residual);
  return recomputed(context, {x, residual},
                    [forward](Context& inner, const std::vector<Value>& values) {
                      return std::vector<Value>{forward(inner, values[0], values[1])};
                    })[0];
}

}  // namespace piton
