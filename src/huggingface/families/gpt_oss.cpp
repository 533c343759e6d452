#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// gpt-oss (OpenAI 2025, arXiv:2508.10925): experts one upon another, each of whose matrices is
// transposed, with the columns of gate and up in turn. As published they are in MXFP4
// (huggingface/files/mxfp4.h).
namespace piton {
namespace {

constexpr double kAlpha = 1.702;  // of the fast GELU
constexpr std::int64_t kWindow = 128;

ModelConfig gpt_oss_model(const HfConfig& config) {
  ModelConfig model =
      llama_like_model(config, gpt_oss_facts(),
                       {.norm_eps = 1e-5, .groups = 8, .head_size = 64, .rotary_base = 150000});
  refuse_partial_rotary(config, model);
  if (!config.has("rope_parameters") && !config.has("rope_scaling")) {
    model.rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                            .factor = 32,
                            .original_positions = 4096,
                            .whole_pairs = false};
  }
  if (model.activation != ActivationKind::kSilu) config.refuse("hidden_act", "silu");
  if (config.number("swiglu_alpha", kAlpha) != kAlpha) config.refuse("swiglu_alpha", "1.702");
  model.activation = ActivationKind::kGeluFast;
  model.gate_rule.bound = config.number("swiglu_limit", 7.0);
  if (!(model.gate_rule.bound > 0)) config.refuse("swiglu_limit", "a number above 0");
  model.qkv_biases = model.output_bias = config.flag("attention_bias", true);
  model.experts = hf_experts(config, {.experts = 128, .choices = 4});
  set_window_layers(config, model, {.window = kWindow, .full_every = 2});
  drop_window_of_no_layer(model);
  return model;
}

nlohmann::ordered_json gpt_oss_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");
  keys["hidden_act"] = "silu";
  keys["swiglu_alpha"] = kAlpha;
  keys["swiglu_limit"] = model.gate_rule.bound;
  keys["attention_bias"] = model.output_bias;
  // Transformers wants one, though no layer may have it.
  keys["sliding_window"] = model.window_before ? *model.window_before + 1 : kWindow;
  keys["layer_types"] = window_layer_types(model);
  if (!model.experts) return keys;
  keys["num_local_experts"] = model.experts->experts;
  keys["num_experts_per_tok"] = model.experts->choices;
  return keys;
}

std::vector<HfPlace> gpt_oss_places(const ModelConfig& model) {
  const auto stacked = [&](const char* canonical, const char* name) {
    return HfPart{.canonical = canonical,
                  .name = name,
                  .stacks = model.experts->experts,
                  .transposed = true,
                  .complete = true};
  };
  const auto in_turn = [&](const char* canonical, const char* name, std::int64_t first) {
    HfPart part = stacked(canonical, name);
    part.first = first;
    part.chunk = 1;
    part.stride = 2;
    return part;
  };
  return named_places(
      model,
      llama_names(
          {{.canonical = "attention.sinks", .name = "self_attn.sinks", .complete = true},
           {"mlp.router.weight", "mlp.router."},
           {.canonical = "mlp.router.logit_bias", .name = "mlp.router.bias", .complete = true},
           in_turn("mlp.experts.E.gate.weight", "mlp.experts.gate_up_proj", 0),
           in_turn("mlp.experts.E.gate.bias", "mlp.experts.gate_up_proj_bias", 0),
           in_turn("mlp.experts.E.up.weight", "mlp.experts.gate_up_proj", 1),
           in_turn("mlp.experts.E.up.bias", "mlp.experts.gate_up_proj_bias", 1),
           stacked("mlp.experts.E.down.weight", "mlp.experts.down_proj"),
           stacked("mlp.experts.E.down.bias", "mlp.experts.down_proj_bias")}));
}

}  // namespace

HfFamily hf_gpt_oss() {
  return {.model_types = {"gpt_oss"},
          .architectures = {"GptOssForCausalLM"},
          .model = gpt_oss_model,
          .places = gpt_oss_places,
          .keys = gpt_oss_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
