#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// OPT (Zhang et al. 2022, arXiv:2205.01068): GPT-2's decoder with ReLU. Its table of positions has
// two rows before the first position, which nothing reads.
namespace piton {
namespace {

constexpr std::int64_t kUnusedPositions = 2;

ModelConfig opt_model(const HfConfig& config) {
  ModelConfig model = gpt2_facts();
  model.layers = config.size("num_hidden_layers");
  model.hidden = config.size("hidden_size");
  model.ffn_hidden = config.size("ffn_dim");
  model.heads = model.groups = config.size("num_attention_heads");
  if (model.hidden % model.heads != 0)
    config.refuse("num_attention_heads", "a divisor of hidden_size");
  model.head_size = model.hidden / model.heads;
  model.vocabulary = config.size("vocab_size");
  model.max_positions = config.size("max_position_embeddings");
  model.activation = hf_activation(config, "activation_function", "relu");
  model.hidden_dropout = config.number("dropout", 0.1);
  model.attention_dropout = config.number("attention_dropout", 0.0);
  model.init_deviation = config.number("init_std", 0.02);
  model.tied = config.flag("tie_word_embeddings", true);
  if (!config.flag("do_layer_norm_before", true) ||
      config.size("word_embed_proj_dim", model.hidden) != model.hidden) {
    config.refuse(
        config.flag("do_layer_norm_before", true) ? "word_embed_proj_dim" : "do_layer_norm_before",
        "the other sizes than OPT-350m, which alone has norms after branches and tables "
        "of another width");
  }
  for (const char* key : {"enable_bias", "layer_norm_elementwise_affine"})
    if (!config.flag(key, true)) config.refuse(key, "true");
  if (config.flag("_remove_final_layer_norm", false))
    config.refuse("_remove_final_layer_norm", "false");
  return model;
}

nlohmann::ordered_json opt_keys(const ModelConfig& model) {
  return {{"num_hidden_layers", model.layers},
          {"hidden_size", model.hidden},
          {"word_embed_proj_dim", model.hidden},
          {"ffn_dim", model.ffn_hidden},
          {"num_attention_heads", model.heads},
          {"max_position_embeddings", model.max_positions},
          {"do_layer_norm_before", true},
          {"activation_function", hf_activation_name(model.activation)},
          {"dropout", model.hidden_dropout},
          {"attention_dropout", model.attention_dropout},
          {"init_std", model.init_deviation}};
}

std::vector<HfPlace> opt_places(const ModelConfig& model) {
  HfNames names = llama_names({{"attention_norm.", "self_attn_layer_norm."},
                               {"attention.output.", "self_attn.out_proj."},
                               {"mlp_norm.", "final_layer_norm."},
                               {"mlp.up.", "fc1."},
                               {"mlp.down.", "fc2."}});
  names.table = "model.decoder.embed_tokens.";
  names.positions = "model.decoder.embed_positions.";
  names.layers = "model.decoder.layers.";
  names.final_norm = "model.decoder.final_layer_norm.";
  std::vector<HfPlace> places = named_places(model, names);
  for (HfPlace& place : places)
    if (place.name.starts_with(names.positions)) place.first = kUnusedPositions;
  return places;
}

}  // namespace

HfFamily hf_opt() {
  return {.model_types = {"opt"},
          .architectures = {"OPTForCausalLM"},
          .model = opt_model,
          .places = opt_places,
          .keys = opt_keys,
          .optional_prefix = "model."};
}

}  // namespace piton
