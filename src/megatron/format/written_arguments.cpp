// Arguments from a model: the writing half of arguments.h.
#include <fmt/ranges.h>

#include <string_view>

#include "megatron/format/argument_words.h"
#include "megatron/format/arguments.h"
#include "megatron/format/model_parts.h"
#include "megatron/format/state_space_arguments.h"

namespace piton {
namespace {

// The head of Megatron's BERT has the exact GELU, whatever its layers have.
bool head_is_like_layers(const ModelConfig& model) {
  return model.encoder && !model.encoder->exact_gelu_head &&
         model.activation != ActivationKind::kGeluErf;
}

// A dict that read_megatron_arguments() reads, in the words of a TorchWriter.
class ArgumentsInMemory {
 public:
  using Kind = PickleValue::Kind;
  ArgumentsInMemory() : dict_(document_.make(Kind::kDict)) {}
  const PickleValue& dict() const { return dict_; }

  void text(std::string_view text) {
    PickleValue& value = document_.make(Kind::kText);
    value.text = text;
    if (name_ == nullptr) {
      name_ = &value;
    } else {
      add(value);
    }
  }
  void integer(std::int64_t integer) {
    PickleValue& value = document_.make(Kind::kInt);
    value.integer = integer;
    add(value);
  }
  void number(double number) {
    PickleValue& value = document_.make(Kind::kFloat);
    value.number = number;
    add(value);
  }
  void boolean(bool truth) {
    PickleValue& value = document_.make(Kind::kBool);
    value.truth = truth;
    add(value);
  }
  void begin_list() { list_ = &document_.make(Kind::kList); }
  void end_list() {
    const PickleValue& list = *list_;
    list_ = nullptr;
    add(list);
  }

 private:
  void add(const PickleValue& value) {
    if (list_ != nullptr) {
      list_->items.push_back(&value);
      return;
    }
    dict_.pairs.emplace_back(name_, &value);
    name_ = nullptr;
  }

  PickleDocument document_;
  PickleValue& dict_;
  const PickleValue* name_ = nullptr;  // whose value comes next
  PickleValue* list_ = nullptr;        // that is being made
};

// Names with values, in a dict or a namespace.
template <typename Out>
struct NamedValues {
  Out& out;

  void size(const char* name, std::int64_t value) {
    out.text(name);
    out.integer(value);
  }
  void number(const char* name, double value) {
    out.text(name);
    out.number(value);
  }
  void flag(const char* name, bool value) {
    out.text(name);
    out.boolean(value);
  }
  void word(const char* name, std::string_view value) {
    out.text(name);
    out.text(value);
  }
};

template <typename Out>
void write_experts(const ModelConfig& model, NamedValues<Out> values) {
  const ExpertFacts& facts = *model.experts;
  values.size("num_experts", facts.experts);
  values.size("moe_router_topk", facts.choices);
  values.size("moe_ffn_hidden_size", model.expert_ffn_hidden());
  values.flag("moe_router_pre_softmax", !facts.normalized);
  values.number("moe_aux_loss_coeff", facts.balance_factor);
  values.word("moe_router_load_balancing_type",
              facts.balances_samples ? "seq_aux_loss" : "aux_loss");
  if (facts.z_factor != 0) values.number("moe_z_loss_coeff", facts.z_factor);
  if (facts.capacity_factor != 0) {
    values.number("moe_expert_capacity_factor", facts.capacity_factor);
    values.word("moe_token_drop_policy", facts.keeps_first ? "position" : "probs");
  }
  if (facts.weighs_inputs) values.flag("moe_apply_probs_on_input", true);
  if (facts.score == ScoreKind::kSigmoid) values.word("moe_router_score_function", "sigmoid");
  if (facts.weight_factor != 1)
    values.number("moe_router_topk_scaling_factor", facts.weight_factor);
  if (facts.choice_bias) {
    values.flag("moe_router_enable_expert_bias", true);
    values.number("moe_router_bias_update_rate", facts.bias_rate);
  }
  if (facts.groups.divide()) {
    values.size("moe_router_num_groups", facts.groups.count);
    values.size("moe_router_group_topk", facts.groups.chosen);
  }
  values.flag("moe_grouped_gemm", false);  // one module for each expert
  if (facts.shared_ffn_hidden != 0)
    values.size("moe_shared_expert_intermediate_size", facts.shared_ffn_hidden);
  values.flag("moe_shared_expert_gate", facts.shared_gate);
  if (facts.dense_layers.empty()) return values.size("moe_layer_freq", 1);
  Out& out = values.out;
  out.text("moe_layer_freq");
  out.begin_list();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    out.integer(facts.in_layer(layer) ? 1 : 0);
  out.end_list();
}

template <typename Out>
void write_latent(const ModelConfig& model, NamedValues<Out> values) {
  const LatentFacts& facts = *model.latent;
  values.flag("multi_latent_attention", true);
  if (facts.query_rank != 0) values.size("q_lora_rank", facts.query_rank);
  values.size("kv_lora_rank", facts.rank);
  values.size("qk_head_dim", facts.own);
  values.size("qk_pos_emb_head_dim", facts.turned);
  values.size("v_head_dim", facts.value);
  values.number("rotary_base", model.rotary_base);
  const RotaryScaling& scaling = model.rotary_scaling;
  const bool yarn = scaling.kind == RotaryScaling::Kind::kYarn;
  values.word("rope_type", yarn ? "yarn" : "rope");
  values.number("rotary_scaling_factor", yarn ? scaling.factor : 1);
  if (!yarn) return;
  values.size("original_max_position_embeddings", scaling.original_positions);
  values.number("beta_fast", scaling.fast);
  values.number("beta_slow", scaling.slow);
  const bool both = scaling.numerator != 0 && scaling.denominator != 0;
  values.number("mscale", both ? scaling.numerator : 1);
  values.number("mscale_all_dim", scaling.denominator);
}

template <typename Out>
void write_delta(const DeltaFacts& facts, NamedValues<Out> values) {
  values.word("experimental_attention_variant", "gated_delta_net");
  values.size("linear_attention_freq", facts.attention_every);
  values.size("linear_num_key_heads", facts.key_heads);
  values.size("linear_num_value_heads", facts.value_heads);
  values.size("linear_key_head_dim", facts.key_size);
  values.size("linear_value_head_dim", facts.value_size);
  values.size("linear_conv_kernel_dim", facts.width);
}

template <typename Out>
void write_state_space(const ModelConfig& model, NamedValues<Out> values) {
  const StateSpaceFacts& facts = *model.state_space;
  values.flag("is_hybrid_model", true);
  values.word("hybrid_override_pattern", *StateSpaceOptions::of(model).pattern);
  values.size("mamba_num_heads", facts.heads);
  values.size("mamba_num_groups", facts.groups);
  values.size("mamba_head_dim", facts.head_size);
  values.size("mamba_state_dim", facts.state_size);
  if (facts.width != kMegatronFilterWidth) values.size("mamba_d_conv", facts.width);
}

template <typename Out>
void write_rotary(const ModelConfig& model, NamedValues<Out> values) {
  values.number("rotary_base", model.rotary_base);
  values.number("rotary_percent", model.rotary_share);
  values.flag("rotary_interleaved", model.rotary_pairs);
  if (model.no_rotary_every > 0) values.size("no_rope_freq", model.no_rotary_every);
  const RotaryScaling& scaling = model.rotary_scaling;
  if (scaling.kind == RotaryScaling::Kind::kLinear)
    values.number("rotary_seq_len_interpolation_factor", scaling.factor);
  if (scaling.kind == RotaryScaling::Kind::kYarn) {
    values.number("yarn_rotary_scaling_factor", scaling.factor);
    values.size("yarn_original_max_position_embeddings", scaling.original_positions);
    values.number("yarn_beta_fast", scaling.fast);
    values.number("yarn_beta_slow", scaling.slow);
    values.flag("yarn_correction_range_round_to_int", scaling.whole_pairs);
    if (scaling.numerator != 0 && scaling.denominator != 0) {
      values.number("yarn_mscale", scaling.numerator);
      values.number("yarn_mscale_all_dim", scaling.denominator);
    }
  }
  const bool llama3 = scaling.kind == RotaryScaling::Kind::kLlama3;
  if (llama3) values.flag("use_rope_scaling", true);
  if (llama3 || scaling.kind == RotaryScaling::Kind::kDynamic) {
    values.word("rope_scaling_type", llama3 ? "llama3" : kDynamicScaling);
    values.number("rope_scaling_factor", scaling.factor);
    values.number("original_max_position_embeddings",
                  static_cast<double>(scaling.original_positions));
    if (llama3) values.number("low_freq_factor", scaling.low);
    if (llama3) values.number("high_freq_factor", scaling.high);
  }
}

template <typename Out>
void write_gates(const ModelConfig& model, NamedValues<Out> values) {
  const bool quick = model.gated && model.activation == ActivationKind::kGeluFast;
  values.flag("swiglu", model.gated && !quick);
  if (quick) values.flag("quick_geglu", true);
  if (model.gate_rule.bound != 0)
    values.number("activation_func_clamp_value", model.gate_rule.bound);
  if (model.gate_rule.offset != 0) values.number("glu_linear_offset", model.gate_rule.offset);
}

// Of layers with a window.
template <typename Out>
void write_window(const ModelConfig& model, NamedValues<Out> values) {
  values.out.text("window_size");
  values.out.begin_list();
  values.out.integer(*model.window_before);
  values.out.integer(0);
  values.out.end_list();
  if (model.full_attention_every > 0)
    values.size("window_attn_skip_freq", model.full_attention_every);
}

// Names and values of a dict's or a namespace's.
template <typename Out>
void write_fields(const MegatronArguments& arguments, Out& out) {
  const ModelConfig& model = arguments.model;
  const MegatronLayout& layout = arguments.layout;
  NamedValues<Out> values{out};
  values.size("num_layers", megatron_layer_count(model) + std::ssize(layout.empty_layers));
  if (!layout.stage_layers.empty())
    values.word("num_layer_list", fmt::format("{}", fmt::join(layout.stage_layers, ",")));
  if (!layout.empty_layers.empty())
    values.word("noop_layers", fmt::format("{}", fmt::join(layout.empty_layers, ",")));
  values.size("hidden_size", model.hidden);
  values.size("ffn_hidden_size", model.ffn_hidden);
  values.size("num_attention_heads", model.heads);
  values.flag("group_query_attention", model.groups != model.heads);
  values.size("num_query_groups", model.groups);
  values.size("kv_channels", model.head_size);
  values.size("max_position_embeddings", model.max_positions);
  values.size("vocab_size", model.vocabulary);
  values.size("padded_vocab_size", layout.padded_vocabulary);
  values.size("tensor_model_parallel_size", layout.tensor);
  values.size("pipeline_model_parallel_size", layout.pipeline);
  if (layout.chunks > 1) values.size("virtual_pipeline_model_parallel_size", layout.chunks);
  if (layout.expert > 1) values.size("expert_model_parallel_size", layout.expert);
  if (layout.expert > 1 || layout.expert_tensor != 0) {
    values.size("expert_tensor_parallel_size",
                layout.expert_tensor == 0 ? layout.tensor : layout.expert_tensor);
  }
  write_gates(model, values);
  values.flag("squared_relu", model.activation == ActivationKind::kSquaredRelu);
  values.flag("bias_gelu_fusion", model.activation == ActivationKind::kGeluTanh);
  values.word("normalization", model.norm == NormKind::kRms ? "RMSNorm" : "LayerNorm");
  if (model.gains_from_one) values.flag("apply_layernorm_1p", true);
  values.number("norm_epsilon", model.norm_eps);
  const bool yarn = !model.latent && model.rotary_scaling.kind == RotaryScaling::Kind::kYarn;
  values.word("position_embedding_type", yarn                                       ? "yarn"
                                         : model.positions == PositionKind::kRotary ? "rope"
                                         : model.positions == PositionKind::kLearned
                                             ? "learned_absolute"
                                         : model.positions == PositionKind::kAlibi ? "alibi"
                                                                                   : "none");
  if (model.latent) {
    write_latent(model, values);
  } else {
    write_rotary(model, values);
  }
  if (model.output_gate) values.flag("attention_output_gate", true);
  if (model.delta) write_delta(*model.delta, values);
  if (model.state_space) write_state_space(model, values);
  values.flag("add_bias_linear", model.biases);
  values.flag("add_qkv_bias", model.qkv_biases);
  values.flag("add_dense_bias", model.output_bias);
  values.flag("embed_layernorm", model.embedding_norm);
  values.flag("qk_layernorm", model.head_norms);
  if (model.window_before) write_window(model, values);
  if (model.softmax == SoftmaxKind::kLearnable) values.word("softmax_type", "learnable");
  if (model.softmax == SoftmaxKind::kOffByOne) values.word("softmax_type", "off-by-one");
  if (model.normalized_head) values.flag(kNormalizedHead, true);
  if (model.experts) write_experts(model, values);
  if (model.mtp_layers > 0) {
    values.size("mtp_num_layers", model.mtp_layers);
    values.number("mtp_loss_scaling_factor", model.mtp_loss_factor);
  }
  if (model.encoder_decoder) {
    values.size("encoder_num_layers", model.encoder_decoder->encoder_layers);
    values.size("decoder_num_layers", model.layers);
  }
  if (model.encoder) values.flag("bert_binary_head", model.encoder->pair_head);
  if (head_is_like_layers(model)) values.flag(kHeadLikeLayers, true);
  values.flag("untie_embeddings_and_output_weights", !model.tied);
  values.number("hidden_dropout", model.hidden_dropout);
  values.number("attention_dropout", model.attention_dropout);
  values.number("init_method_std", model.init_deviation);
  if (model.embedding_deviation)
    values.number("embedding_init_method_std", *model.embedding_deviation);
  values.flag("init_method_xavier_uniform", model.xavier_weights);
  if (!arguments.model_type.empty()) values.word(kModelType, arguments.model_type);
}

}  // namespace

void write_megatron_arguments(const MegatronArguments& arguments, TorchWriter& out) {
  out.begin_dict();
  write_fields(arguments, out);
  out.end_dict();
}

void write_megatron_namespace(const MegatronArguments& arguments, TorchWriter& out) {
  out.begin_object("argparse", "Namespace");
  write_fields(arguments, out);
  out.end_object();
}

ModelConfig model_in_megatron(const ModelConfig& model) {
  ArgumentsInMemory arguments;
  write_fields({.model = model, .layout = {.padded_vocabulary = model.vocabulary}}, arguments);
  ModelConfig said = read_megatron_arguments(arguments.dict(), "Megatron's arguments").model;
  said.vocabulary = model.vocabulary;
  MegatronParts parts = MegatronParts::of(model);
  parts.head_like_layers = head_is_like_layers(model);
  parts.apply(said);
  return said;
}

std::string beyond_megatron(const ModelConfig& model) {
  if (model.normalized_head) return "a normalized head";
  if (head_is_like_layers(model)) return "a head with the GELU of its layers";
  if (model.state_space && model.state_space->width != kMegatronFilterWidth)
    return fmt::format("a convolution of {} rows in Mamba-2", model.state_space->width);
  const RotaryScaling& scaling = model.rotary_scaling;
  if (scaling.kind == RotaryScaling::Kind::kDynamic) return "dynamic rotary scaling";
  return "";
}

}  // namespace piton
