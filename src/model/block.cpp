#include "model/block.h"

#include <cmath>

namespace piton {
namespace {

std::string layer_name(std::int64_t index, const char* part) {
  return fmt::format("layers.{}.{}", index, part);
}

Initialization input_weights(const ModelConfig& config) {
  return {Initialization::Kind::kNormal, config.init_deviation};
}

// Weights of the projections that end a branch. Their deviation is divided by the square root of
// the number of branches, 2 L (GPT-2).
Initialization residual_weights(const ModelConfig& config) {
  return {Initialization::Kind::kNormal,
          config.init_deviation / std::sqrt(2.0 * static_cast<double>(config.layers))};
}

}  // namespace

Block::Block(ParameterList& parameters, const Shard& shard, const ModelConfig& config,
             std::int64_t index)
    : attention_norm_(parameters, shard, layer_name(index, "attention_norm"), config.norm,
                      config.hidden, config.norm_eps),
      attention_(
          parameters, shard, layer_name(index, "attention"),
          {.hidden = config.hidden,
           .heads = config.heads,
           .groups = config.groups,
           .head_size = config.head_size,
           .output_bias = config.output_bias,
           .qkv_biases = config.qkv_biases,
           .head_norms = config.head_norms,
           .norm_eps = config.norm_eps,
           .rotary = config.rotary_pairs ? Rotary::Convention::kPairs : Rotary::Convention::kHalves,
           .window_before = config.window_before,
           .window_after = config.window_after,
           .block_rows = config.attention_block},
          input_weights(config), residual_weights(config), config.attention_dropout,
          config.hidden_dropout),
      mlp_norm_(parameters, shard, layer_name(index, "mlp_norm"), config.norm, config.hidden,
                config.norm_eps),
      mlp_(parameters, shard, layer_name(index, "mlp"),
           {.hidden = config.hidden,
            .ffn_hidden = config.ffn_hidden,
            .gated = config.gated,
            .biases = config.biases,
            .activation = config.activation},
           input_weights(config), residual_weights(config), config.hidden_dropout) {}

Value Block::forward(Context& context, const Value& x, const AttentionInput& input) const {
  const Value middle = attention_.forward(context, attention_norm_.forward(context, x), x, input);
  return mlp_.forward(context, mlp_norm_.forward(context, middle), middle);
}

}  // namespace piton
