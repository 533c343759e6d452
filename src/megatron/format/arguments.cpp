#include "megatron/format/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "megatron/format/argument_words.h"

namespace piton {
namespace {

using Kind = PickleValue::Kind;

// Arguments by name; None counts as absent.
class Arguments {
 public:
  Arguments(const PickleValue& values, const std::string& where) : values_(values), where_(where) {}

  const PickleValue* find(const char* name) const {
    const PickleValue* value = values_.find(name);
    return value == nullptr || value->kind == Kind::kNone ? nullptr : value;
  }
  std::optional<std::int64_t> size(const char* name) const {
    const PickleValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->kind != Kind::kInt || value->integer < 1 || value->integer > INT32_MAX)
      wrong(name, "a positive integer below 2^31");
    return value->integer;
  }
  std::int64_t must(const char* name) const {
    const std::optional<std::int64_t> value = size(name);
    if (!value) wrong(name, "a positive integer below 2^31");
    return *value;
  }
  double number(const char* name, double otherwise) const {
    const PickleValue* value = sole(find(name));
    if (value == nullptr) return otherwise;
    if (value->kind == Kind::kInt) return static_cast<double>(value->integer);
    if (value->kind != Kind::kFloat || !std::isfinite(value->number)) wrong(name, "a number");
    return value->number;
  }
  bool flag(const char* name, bool otherwise) const {
    const PickleValue* value = find(name);
    if (value == nullptr) return otherwise;
    if (value->kind != Kind::kBool) wrong(name, "true or false");
    return value->truth;
  }
  std::string word(const char* name, const std::string& otherwise) const {
    const PickleValue* value = sole(find(name));
    if (value == nullptr) return otherwise;
    if (value->kind != Kind::kText) wrong(name, "a word");
    return value->text;
  }
  // "0,3", or a list or set of numbers.
  std::vector<std::int64_t> numbers(const char* name) const {
    const PickleValue* value = find(name);
    if (value == nullptr) return {};
    std::vector<std::int64_t> numbers;
    if (value->kind == Kind::kList) {
      for (const PickleValue* item : value->items) {
        if (item->kind != Kind::kInt) wrong(name, "whole numbers");
        numbers.push_back(item->integer);
      }
    } else if (value->kind == Kind::kText) {
      for (std::size_t at = 0; at < value->text.size();) {
        const std::size_t end = std::min(value->text.find(',', at), value->text.size());
        std::int64_t number = 0;
        const char* stop = value->text.data() + end;
        const auto [read, error] = std::from_chars(value->text.data() + at, stop, number);
        if (error != std::errc() || read != stop) wrong(name, "whole numbers with commas between");
        numbers.push_back(number);
        at = end + 1;
      }
    } else {
      wrong(name, "whole numbers with commas between");
    }
    return numbers;
  }
  [[noreturn]] void wrong(const char* name, const std::string& wanted) const {
    const PickleValue* value = find(name);
    std::string got = "nothing";
    if (value != nullptr) {
      if (value->kind == Kind::kInt) got = fmt::format("{}", value->integer);
      if (value->kind == Kind::kFloat) got = fmt::format("{}", value->number);
      if (value->kind == Kind::kBool) got = value->truth ? "True" : "False";
      if (value->kind == Kind::kText || value->kind == Kind::kObject) got = value->text;
      if (value->kind == Kind::kList) got = "a list";
      if (value->kind == Kind::kDict) got = "a dict";
    }
    throw Error(Fault::kData, "{}: argument {}: got {}, wanted {}", where_, name, got, wanted);
  }

 private:
  // What Megatron-core's flags of one or several values have: the value, or a list of one.
  static const PickleValue* sole(const PickleValue* value) {
    const bool list = value != nullptr && value->kind == Kind::kList && value->items.size() == 1;
    return list ? value->items[0] : value;
  }

  const PickleValue& values_;
  const std::string& where_;
};

// A string, or the enumeration of AscendSpeed.
PositionKind positions_of(const Arguments& arguments) {
  const char* name = "position_embedding_type";
  const PickleValue* value = arguments.find(name);
  if (value != nullptr && value->kind == Kind::kObject) {
    const std::int64_t number = value->items.empty() ? 0 : value->items[0]->integer;
    if (number == 1) return PositionKind::kRotary;
    if (number == 2) return PositionKind::kLearned;
    if (number == 3) return PositionKind::kAlibi;
  }
  if (value != nullptr && value->kind != Kind::kText) arguments.wrong(name, "a kind of positions");
  const std::string word = arguments.word(name, "learned_absolute");
  if (word == "rope" || word == "rotary") return PositionKind::kRotary;
  if (word == "alibi") return PositionKind::kAlibi;
  if (word == "none") return PositionKind::kNone;
  if (word != "learned_absolute" && word != "absolute")
    arguments.wrong(name, "learned_absolute, rope, alibi or none");
  return arguments.flag("use_rotary_position_embeddings", false) ? PositionKind::kRotary
                                                                 : PositionKind::kLearned;
}

void refuse_absent_features(const Arguments& arguments) {
  const char* residual = "apply_residual_connection_post_layernorm";
  if (arguments.flag(residual, false)) arguments.wrong(residual, "False: Piton has no other yet");
  if (arguments.flag("quick_geglu", false))
    arguments.wrong("quick_geglu", "False: Piton reads no others of Megatron yet");
  for (const char* name : {"activation_func_clamp_value", "glu_linear_offset"}) {
    if (arguments.number(name, 0) != 0)
      arguments.wrong(name, "0: Piton reads no others of Megatron yet");
  }
}

// The layers without experts.
std::vector<std::int64_t> dense_layers(const Arguments& arguments, std::int64_t layers) {
  const char* name = "moe_layer_freq";
  const PickleValue* value = arguments.find(name);
  std::vector<std::int64_t> dense;
  if (value == nullptr) return dense;
  if (value->kind == Kind::kInt) {
    const std::int64_t every = arguments.must(name);
    for (std::int64_t layer = 0; layer < layers; ++layer)
      if (layer % every != 0) dense.push_back(layer);
    return dense;
  }
  const std::vector<std::int64_t> pattern = arguments.numbers(name);
  if (std::ssize(pattern) != layers)
    arguments.wrong(name, fmt::format("a number, or a list of {} ones and zeros", layers));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::int64_t one = pattern[static_cast<std::size_t>(layer)];
    if (one != 0 && one != 1) arguments.wrong(name, "ones and zeros");
    if (one == 0) dense.push_back(layer);
  }
  return dense;
}

void set_router(const Arguments& arguments, ExpertFacts& facts) {
  const char* score = "moe_router_score_function";
  const std::string said = arguments.word(score, "softmax");
  if (said != "softmax" && said != "sigmoid") arguments.wrong(score, "softmax or sigmoid");
  if (said == "sigmoid") {
    facts.score = ScoreKind::kSigmoid;
    facts.normalized = facts.choices > 1;  // whatever moe_router_pre_softmax is
  }
  facts.weight_factor = arguments.number("moe_router_topk_scaling_factor", 1);
  facts.choice_bias = arguments.flag("moe_router_enable_expert_bias", false);
  if (facts.choice_bias) {
    // As Megatron-core checks it.
    if (facts.score != ScoreKind::kSigmoid)
      arguments.wrong("moe_router_enable_expert_bias", "False where softmax gives the scores");
    facts.bias_rate = arguments.number("moe_router_bias_update_rate", 1e-3);
  }
  const std::optional<std::int64_t> groups = arguments.size("moe_router_num_groups");
  const std::optional<std::int64_t> chosen = arguments.size("moe_router_group_topk");
  if (!chosen) return;  // Megatron-core groups by it alone
  facts.groups = {.count = groups.value_or(1),
                  .chosen = *chosen,
                  .largest = std::max<std::int64_t>(1, facts.choices / *chosen)};
  if (facts.groups.count == 1 && facts.groups.chosen == 1) facts.groups = {};
}

void set_experts(const Arguments& arguments, ModelConfig& model) {
  const char* name = "num_experts";
  // Megatron-DeepSpeed's default is [1].
  const PickleValue* each = arguments.find(name);
  if (each == nullptr || (each->kind == Kind::kList && each->items.size() == 1 &&
                          each->items[0]->kind == Kind::kInt && each->items[0]->integer == 1))
    return;
  ExpertFacts facts{.experts = arguments.must(name)};
  facts.choices = arguments.size("moe_router_topk").value_or(2);
  facts.normalized = !arguments.flag("moe_router_pre_softmax", false);
  facts.balance_factor = arguments.number("moe_aux_loss_coeff", 0);
  facts.balances_samples =
      arguments.word("moe_router_load_balancing_type", "aux_loss") == "seq_aux_loss";
  facts.z_factor = arguments.number("moe_z_loss_coeff", 0);
  facts.capacity_factor = std::max(0.0, arguments.number("moe_expert_capacity_factor", 0));
  facts.keeps_first =
      facts.capacity_factor != 0 && arguments.word("moe_token_drop_policy", "probs") == "position";
  facts.weighs_inputs = arguments.flag("moe_apply_probs_on_input", false);
  facts.shared_ffn_hidden = arguments.size("moe_shared_expert_intermediate_size").value_or(0);
  facts.shared_gate = arguments.flag("moe_shared_expert_gate", false);
  set_router(arguments, facts);
  facts.dense_layers = dense_layers(arguments, model.layers);
  const std::int64_t width = arguments.size("moe_ffn_hidden_size").value_or(model.ffn_hidden);
  if (facts.dense_layers.empty()) model.ffn_hidden = width;
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
  model.experts = facts;
}

// Megatron-core turns pairs of channels there, and has yarn unless told otherwise.
void set_latent_rotary(const Arguments& arguments, ModelConfig& model) {
  model.rotary_base = arguments.number("rotary_base", 10000);
  model.rotary_pairs = true;
  if (arguments.flag("rotary_interleaved", false))
    arguments.wrong("rotary_interleaved", "False with multi_latent_attention");
  const std::string type = arguments.word("rope_type", "yarn");
  if (type != "rope" && type != "yarn") arguments.wrong("rope_type", "rope or yarn");
  const double factor = arguments.number("rotary_scaling_factor", 1);
  if (type == "rope" || factor == 1) return;
  RotaryScaling& scaling = model.rotary_scaling;
  scaling = {
      .kind = RotaryScaling::Kind::kYarn,
      .factor = factor,
      .original_positions = arguments.size("original_max_position_embeddings").value_or(4096)};
  scaling.fast = arguments.number("beta_fast", 32);
  scaling.slow = arguments.number("beta_slow", 1);
  const double numerator = arguments.number("mscale", 1);
  scaling.denominator = arguments.number("mscale_all_dim", 0);
  if (scaling.denominator != 0) scaling.numerator = numerator;
  if (scaling.denominator == 0 ? numerator != 1 : !(numerator > 0))
    arguments.wrong("mscale", scaling.denominator == 0 ? "1 without mscale_all_dim" : "above 0");
}

void set_latent(const Arguments& arguments, ModelConfig& model) {
  LatentFacts facts;
  facts.query_rank = arguments.size("q_lora_rank").value_or(0);
  facts.rank = arguments.must("kv_lora_rank");
  facts.own = arguments.must("qk_head_dim");
  facts.turned = arguments.must("qk_pos_emb_head_dim");
  facts.value = arguments.must("v_head_dim");
  model.latent = facts;
  model.head_size = facts.head_size();
  if (model.positions == PositionKind::kRotary) set_latent_rotary(arguments, model);
}

void set_rotary(const Arguments& arguments, ModelConfig& model) {
  model.rotary_base = arguments.number("rotary_base", 10000);
  model.rotary_share = arguments.number("rotary_percent", 1);
  model.rotary_pairs = arguments.flag("rotary_interleaved", false);
  model.no_rotary_every = arguments.size("no_rope_freq").value_or(0);
  const double linear = arguments.number("rotary_seq_len_interpolation_factor", 1);
  if (linear != 1) {
    model.rotary_scaling = {.kind = RotaryScaling::Kind::kLinear,
                            .factor = linear,
                            .original_positions = model.max_positions};
  }
  const bool llama3 = arguments.flag("use_rope_scaling", false);
  const char* type = "rope_scaling_type";  // of MindSpeed
  const std::string kind = arguments.word(type, llama3 ? "llama3" : "");
  if (kind.empty()) return;
  if (kind != "llama3" && kind != kDynamicScaling) arguments.wrong(type, "llama3 or dynamic");
  const double positions =
      arguments.number("original_max_position_embeddings",
                       kind == "llama3" ? 8192 : static_cast<double>(model.max_positions));
  if (positions < 1 || positions > INT32_MAX || positions != std::floor(positions))
    arguments.wrong("original_max_position_embeddings", "a positive integer below 2^31");
  model.rotary_scaling = {
      .kind = kind == "llama3" ? RotaryScaling::Kind::kLlama3 : RotaryScaling::Kind::kDynamic,
      .factor = arguments.number("rope_scaling_factor", kind == "llama3" ? 8 : 1),
      .original_positions = static_cast<std::int64_t>(positions)};
  model.rotary_scaling.low = arguments.number("low_freq_factor", model.rotary_scaling.low);
  model.rotary_scaling.high = arguments.number("high_freq_factor", model.rotary_scaling.high);
}

// The family by whose name other formats know the model.
std::string family_of(const ModelConfig& model) {
  if (model.latent) {
    if (!model.experts) return "llama";  // those of DeepSeek have experts
    return model.experts->score == ScoreKind::kSigmoid ? "deepseek_v3" : "deepseek_v2";
  }
  if (model.embedding_norm && model.positions == PositionKind::kAlibi) return "bloom";
  if (model.positions != PositionKind::kRotary || model.norm != NormKind::kRms || !model.gated)
    return "gpt2";
  if (model.head_norms) return "qwen3";
  return model.qkv_biases && !model.biases ? "qwen2" : "llama";
}

}  // namespace

MegatronArguments read_megatron_arguments(const PickleValue& values, const std::string& where) {
  const Arguments arguments(values, where);
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
  model.gated = arguments.flag("swiglu", false);
  model.ffn_hidden = arguments.size("ffn_hidden_size")
                         .value_or(model.gated ? model.hidden * 8 / 3 / 64 * 64 : 4 * model.hidden);
  model.activation =
      arguments.flag("squared_relu", false) ? ActivationKind::kSquaredRelu
      : model.gated                         ? ActivationKind::kSilu
      : arguments.flag("bias_gelu_fusion", true) || arguments.flag("openai_gelu", false)
          ? ActivationKind::kGeluTanh
          : ActivationKind::kGeluErf;
  const std::string norm = arguments.word("normalization", "LayerNorm");
  if (norm != "LayerNorm" && norm != "RMSNorm")
    arguments.wrong("normalization", "LayerNorm or RMSNorm");
  model.norm = norm == "RMSNorm" ? NormKind::kRms : NormKind::kLayer;
  model.gains_from_one = arguments.flag("apply_layernorm_1p", false);
  model.norm_eps = arguments.number("norm_epsilon", arguments.number("layernorm_epsilon", 1e-5));
  model.positions = positions_of(arguments);
  if (arguments.flag("multi_latent_attention", false)) {
    set_latent(arguments, model);
  } else if (model.positions == PositionKind::kRotary) {
    set_rotary(arguments, model);
  }
  set_experts(arguments, model);
  model.mtp_layers = arguments.size("mtp_num_layers").value_or(0);
  if (model.mtp_layers > 0)
    model.mtp_loss_factor = arguments.number("mtp_loss_scaling_factor", model.mtp_loss_factor);
  model.biases = arguments.flag("add_bias_linear", true);
  model.qkv_biases = model.biases || arguments.flag("add_qkv_bias", false);
  model.output_bias = model.biases || arguments.flag("add_dense_bias", false);
  if (model.experts && model.biases)
    arguments.wrong("add_bias_linear", "False: Piton reads no experts with biases of Megatron yet");
  const std::string softmax = arguments.word("softmax_type", "vanilla");
  if (softmax != "vanilla" && softmax != "off-by-one")
    arguments.wrong("softmax_type", "vanilla or off-by-one");
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
  result.vocabulary = arguments.size("vocab_size");
  result.model_type = arguments.word(kModelType, "");
  result.head_like_layers = arguments.flag(kHeadLikeLayers, false);
  return result;
}

}  // namespace piton
