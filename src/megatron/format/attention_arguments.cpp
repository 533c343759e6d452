#include "megatron/format/attention_arguments.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "megatron/format/argument_words.h"

namespace piton {
namespace {

using Kind = PickleValue::Kind;

constexpr const char* kYarn = "yarn";

// A string, or the enumeration of AscendSpeed.
PositionKind positions_of(const ArgumentValues& arguments) {
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
  if (word == "rope" || word == "rotary" || word == kYarn) return PositionKind::kRotary;
  if (word == "alibi") return PositionKind::kAlibi;
  if (word == "none") return PositionKind::kNone;
  if (word != "learned_absolute" && word != "absolute")
    arguments.wrong(name, "learned_absolute, rope, yarn, alibi or none");
  return arguments.flag("use_rotary_position_embeddings", false) ? PositionKind::kRotary
                                                                 : PositionKind::kLearned;
}

// N of a list with a zero in every N-th place, and ones in the others.
std::int64_t zeros_every(const ArgumentValues& arguments, const char* name, std::int64_t layers) {
  const std::vector<std::int64_t> pattern = arguments.numbers(name);
  const std::int64_t every = std::ranges::find(pattern, 0) - pattern.begin() + 1;
  bool regular = std::ssize(pattern) == layers && every <= layers;
  for (std::int64_t layer = 0; regular && layer < layers; ++layer)
    regular = pattern[static_cast<std::size_t>(layer)] == ((layer + 1) % every == 0 ? 0 : 1);
  if (!regular) {
    arguments.wrong(name, fmt::format("a number N, or a list of {} ones with a zero in every N-th "
                                      "place",
                                      layers));
  }
  return every;
}

// MindSpeed-LLM has its own words, next to the defaults of Megatron-core's; those of Megatron-core
// are not given in its older versions.
struct LatentWords {
  const char* type = "rope_type";
  const char* usual_type = "yarn";
  const char* factor = "rotary_scaling_factor";
  const char* original = "original_max_position_embeddings";
  const char* numerator = "mscale";
  const char* denominator = "mscale_all_dim";
};

LatentWords latent_words(const ArgumentValues& arguments) {
  const bool own = arguments.find("rope_scaling_type") != nullptr;
  const bool older = arguments.flag("multi_head_latent_attention", false);
  if (!own && !older) return {};
  return {.type = "rope_scaling_type",
          .usual_type = "rope",
          .factor = "rope_scaling_factor",
          .original = "rope_scaling_original_max_position_embeddings",
          .numerator = "rope_scaling_mscale",
          .denominator = "rope_scaling_mscale_all_dim"};
}

// Megatron-core turns pairs of channels there, and has yarn unless told otherwise.
void set_latent_rotary(const ArgumentValues& arguments, ModelConfig& model) {
  model.rotary_base = arguments.number("rotary_base", 10000);
  model.rotary_pairs = true;
  if (arguments.flag("rotary_interleaved", false))
    arguments.wrong("rotary_interleaved", "False with multi_latent_attention");
  const LatentWords words = latent_words(arguments);
  const std::string type = arguments.word(words.type, words.usual_type);
  if (type != "rope" && type != "yarn") arguments.wrong(words.type, "rope or yarn");
  const double factor = arguments.number(words.factor, 1);
  if (type == "rope" || factor == 1) return;
  RotaryScaling& scaling = model.rotary_scaling;
  scaling = {.kind = RotaryScaling::Kind::kYarn,
             .factor = factor,
             .original_positions = arguments.size(words.original).value_or(4096)};
  scaling.fast = arguments.number(arguments.either("beta_fast", "rope_scaling_beta_fast"), 32);
  scaling.slow = arguments.number(arguments.either("beta_slow", "rope_scaling_beta_slow"), 1);
  const double numerator = arguments.number(words.numerator, 1);
  scaling.denominator = arguments.number(words.denominator, 0);
  if (scaling.denominator != 0) scaling.numerator = numerator;
  if (scaling.denominator == 0 ? numerator != 1 : !(numerator > 0)) {
    arguments.wrong(words.numerator, scaling.denominator == 0
                                         ? fmt::format("1 without {}", words.denominator)
                                         : "above 0");
  }
}

void set_latent(const ArgumentValues& arguments, ModelConfig& model) {
  LatentFacts facts;
  facts.query_rank = arguments.size("q_lora_rank").value_or(0);
  facts.rank = arguments.must("kv_lora_rank");
  facts.own = arguments.must(arguments.either("qk_head_dim", "qk_nope_head_dim"));
  facts.turned = arguments.must(arguments.either("qk_pos_emb_head_dim", "qk_rope_head_dim"));
  facts.value = arguments.must("v_head_dim");
  model.latent = facts;
  model.head_size = facts.head_size();
  model.groups = model.heads;
  if (model.positions == PositionKind::kRotary) set_latent_rotary(arguments, model);
}

// As Megatron-core's configuration has it, which no argument of Megatron-LM sets: tools write them.
void set_yarn(const ArgumentValues& arguments, ModelConfig& model) {
  const char* factor = "yarn_rotary_scaling_factor";
  if (arguments.find(factor) == nullptr) arguments.wrong(factor, "a number, with yarn");
  if (model.rotary_share != 1) arguments.wrong("rotary_percent", "1 with yarn");
  RotaryScaling& scaling = model.rotary_scaling;
  scaling = {.kind = RotaryScaling::Kind::kYarn,
             .factor = arguments.number(factor, 1),
             .original_positions = arguments.must("yarn_original_max_position_embeddings"),
             .fast = arguments.number("yarn_beta_fast", 32),
             .slow = arguments.number("yarn_beta_slow", 1),
             .whole_pairs = arguments.flag("yarn_correction_range_round_to_int", true)};
  if (arguments.find("yarn_mscale") == nullptr || arguments.find("yarn_mscale_all_dim") == nullptr)
    return;
  const double numerator = arguments.number("yarn_mscale", 1);
  scaling.denominator = arguments.number("yarn_mscale_all_dim", 0);
  if (scaling.denominator != 0) scaling.numerator = numerator;
  if (scaling.denominator == 0 && numerator != 1)
    arguments.wrong("yarn_mscale", "1, or yarn_mscale_all_dim too");
}

// Keys before and after a token, and the layers that have no such bound.
void set_window(const ArgumentValues& arguments, ModelConfig& model) {
  const char* name = "window_size";
  if (arguments.find(name) == nullptr) return;
  const std::vector<std::int64_t> window = arguments.numbers(name);
  if (window.size() != 2 || window[0] < -1 || (window[1] != 0 && window[1] != -1))
    arguments.wrong(name, "two numbers, of earlier keys (-1: all) and 0");
  if (window[0] == -1) return;
  model.window_before = window[0];
  const char* skip = "window_attn_skip_freq";
  const PickleValue* value = arguments.find(skip);
  if (value == nullptr) return;
  if (value->kind == Kind::kInt) {
    model.full_attention_every = arguments.must(skip);
  } else {
    model.full_attention_every = zeros_every(arguments, skip, model.layers);
  }
}

void set_rotary(const ArgumentValues& arguments, ModelConfig& model) {
  model.rotary_base = arguments.number("rotary_base", 10000);
  model.rotary_share = arguments.number("rotary_percent", 1);
  model.rotary_pairs = arguments.flag("rotary_interleaved", false);
  model.no_rotary_every = arguments.size("no_rope_freq").value_or(0);
  const PickleValue* word = arguments.find("position_embedding_type");
  const bool yarn = word != nullptr && word->kind == Kind::kText && word->text == kYarn;
  if (yarn) return set_yarn(arguments, model);
  const char* preset = "enable_gpt_oss";  // of Megatron-LM; it sets yarn
  if (arguments.flag(preset, false))
    arguments.wrong(preset, "False, or position_embedding_type yarn with its arguments (yarn_...)");
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

void set_delta(const ArgumentValues& arguments, ModelConfig& model) {
  model.output_gate = arguments.flag("attention_output_gate", false);
  const char* name = arguments.either("experimental_attention_variant", "linear_attention_type");
  const std::string variant = arguments.word(name, "");
  if (variant.empty()) return;
  if (variant != "gated_delta_net") arguments.wrong(name, "gated_delta_net");
  DeltaFacts facts;
  const char* frequency = "linear_attention_freq";
  const PickleValue* layers = arguments.find(frequency);
  facts.attention_every = layers == nullptr || layers->kind == Kind::kInt
                              ? arguments.must(frequency)
                              : zeros_every(arguments, frequency, model.layers);
  facts.key_heads = arguments.size("linear_num_key_heads").value_or(facts.key_heads);
  facts.value_heads = arguments.size("linear_num_value_heads").value_or(facts.value_heads);
  facts.key_size = arguments.size("linear_key_head_dim").value_or(facts.key_size);
  facts.value_size = arguments.size("linear_value_head_dim").value_or(facts.value_size);
  facts.width = arguments.size("linear_conv_kernel_dim").value_or(facts.width);
  model.delta = facts;
}

}  // namespace

void set_attention(const ArgumentValues& arguments, ModelConfig& model) {
  model.positions = positions_of(arguments);
  if (arguments.flag("multi_latent_attention", false) ||
      arguments.flag("multi_head_latent_attention", false)) {
    set_latent(arguments, model);
  } else if (model.positions == PositionKind::kRotary) {
    set_rotary(arguments, model);
  }
  set_delta(arguments, model);
  set_window(arguments, model);
}

}  // namespace piton
