#include "megatron/format/arguments.h"

#include <algorithm>

#include "megatron/format/argument_values.h"
#include "megatron/format/argument_words.h"
#include "megatron/format/attention_arguments.h"
#include "megatron/format/expert_arguments.h"
#include "megatron/format/state_space_arguments.h"

namespace piton {
namespace {

void refuse_absent_features(const ArgumentValues& arguments) {
  const char* residual = "apply_residual_connection_post_layernorm";
  if (arguments.flag(residual, false)) arguments.wrong(residual, "False: Piton has no other yet");
}

// The family by whose name other formats know the model.
std::string family_of(const ModelConfig& model) {
  if (model.latent) {
    if (!model.experts) return "llama";  // those of DeepSeek have experts
    return model.experts->score == ScoreKind::kSigmoid ? "deepseek_v3" : "deepseek_v2";
  }
  if (model.experts && model.softmax == SoftmaxKind::kLearnable) return "gpt_oss";
  if (model.delta) return model.experts ? "qwen3_next" : "qwen3_5";
  if (model.state_space) return "mamba2";
  if (model.embedding_norm && model.positions == PositionKind::kAlibi) return "bloom";
  if (model.positions != PositionKind::kRotary || model.norm != NormKind::kRms || !model.gated)
    return "gpt2";
  if (model.head_norms) return "qwen3";
  return model.qkv_biases && !model.biases ? "qwen2" : "llama";
}

}  // namespace

MegatronArguments read_megatron_arguments(const PickleValue& values, const std::string& where) {
  const ArgumentValues arguments(values, where);
  refuse_absent_features(arguments);
  MegatronArguments result;
  ModelConfig& model = result.model;
  result.layout.stage_layers = arguments.numbers("num_layer_list");
  result.layout.empty_layers = arguments.numbers("noop_layers");
  std::ranges::sort(result.layout.empty_layers);
  model.layers = arguments.must("num_layers") - std::ssize(result.layout.empty_layers);
  model.hidden = arguments.must("hidden_size");
  model.heads = arguments.must("num_attention_heads");
  model.groups = arguments.flag("group_query_attention", false) ? arguments.must("num_query_groups")
                                                                : model.heads;
  model.head_size = arguments.size("kv_channels").value_or(model.hidden / model.heads);
  model.max_positions = arguments.must("max_position_embeddings");
  const bool quick = arguments.flag("quick_geglu", false);
  model.gated = quick || arguments.flag("swiglu", false);
  model.ffn_hidden = arguments.size("ffn_hidden_size")
                         .value_or(model.gated ? model.hidden * 8 / 3 / 64 * 64 : 4 * model.hidden);
  model.activation =
      arguments.flag("squared_relu", false) ? ActivationKind::kSquaredRelu
      : quick                               ? ActivationKind::kGeluFast
      : model.gated                         ? ActivationKind::kSilu
      : arguments.flag("bias_gelu_fusion", true) || arguments.flag("openai_gelu", false)
          ? ActivationKind::kGeluTanh
          : ActivationKind::kGeluErf;
  if (model.gated) {
    model.gate_rule = {.bound = arguments.number("activation_func_clamp_value", 0),
                       .offset = arguments.number("glu_linear_offset", 0)};
  }
  const std::string norm = arguments.word("normalization", "LayerNorm");
  if (norm != "LayerNorm" && norm != "RMSNorm")
    arguments.wrong("normalization", "LayerNorm or RMSNorm");
  model.norm = norm == "RMSNorm" ? NormKind::kRms : NormKind::kLayer;
  model.gains_from_one = arguments.flag("apply_layernorm_1p", false);
  model.norm_eps = arguments.number("norm_epsilon", arguments.number("layernorm_epsilon", 1e-5));
  const StateSpaceOptions letters = state_space_options(arguments);
  set_state_space(arguments, letters, model);
  set_attention(arguments, model);
  set_experts(arguments, result.layout.empty_layers, letters, model);
  model.mtp_layers = arguments.size("mtp_num_layers").value_or(0);
  if (model.mtp_layers > 0)
    model.mtp_loss_factor = arguments.number("mtp_loss_scaling_factor", model.mtp_loss_factor);
  model.biases = arguments.flag("add_bias_linear", true);
  model.qkv_biases = model.biases || arguments.flag("add_qkv_bias", false);
  model.output_bias = model.biases || arguments.flag("add_dense_bias", false);
  const std::string softmax = arguments.word("softmax_type", "vanilla");
  if (softmax != "vanilla" && softmax != "off-by-one" && softmax != "learnable")
    arguments.wrong("softmax_type", "vanilla, off-by-one or learnable");
  if (softmax == "learnable") model.softmax = SoftmaxKind::kLearnable;
  if (softmax == "off-by-one") model.softmax = SoftmaxKind::kOffByOne;
  model.embedding_norm = arguments.flag("embed_layernorm", false);
  model.head_norms = arguments.flag("qk_layernorm", false);
  if (model.head_norms && model.norm != NormKind::kRms)
    arguments.wrong("qk_layernorm", "False, or a normalization of RMSNorm");
  model.normalized_head = arguments.flag(kNormalizedHead, false);
  model.tied = !arguments.flag("untie_embeddings_and_output_weights", false);
  model.hidden_dropout = arguments.number("hidden_dropout", 0.1);
  model.attention_dropout = arguments.number("attention_dropout", 0.1);
  model.init_deviation = arguments.number("init_method_std", 0.02);
  const double embeddings = arguments.number("embedding_init_method_std", model.init_deviation);
  if (embeddings != model.init_deviation) model.embedding_deviation = embeddings;
  model.xavier_weights = arguments.flag("init_method_xavier_uniform", false);
  model.family = family_of(model);

  MegatronLayout& layout = result.layout;
  layout.tensor = static_cast<int>(arguments.size("tensor_model_parallel_size").value_or(1));
  layout.pipeline = static_cast<int>(arguments.size("pipeline_model_parallel_size").value_or(1));
  layout.chunks =
      static_cast<int>(arguments.size("virtual_pipeline_model_parallel_size").value_or(1));
  layout.expert = static_cast<int>(arguments.size("expert_model_parallel_size").value_or(1));
  layout.expert_tensor =
      static_cast<int>(arguments.size("expert_tensor_parallel_size").value_or(0));
  layout.padded_vocabulary = arguments.size("padded_vocab_size").value_or(0);
  layout.split_latents = arguments.word("transformer_impl", "local") == "local";
  result.vocabulary = arguments.size("vocab_size");
  result.model_type = arguments.word(kModelType, "");
  result.head_like_layers = arguments.flag(kHeadLikeLayers, false);
  return result;
}

}  // namespace piton
