
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// GPT-2: weights are those of Conv1D, [in, out]; query, key and value are thirds of one matrix.
// GPT-BigCode (StarCoder, Li et al. 2023, arXiv:2305.06161): [out, in], and one key and value for
// all heads. GPT-Neo (EleutherAI 2021): scores without a factor, and a window in some layers.
namespace piton {
namespace {

ModelConfig gpt2_model(const HfConfig& config) {
  ModelConfig model = gpt2_facts();
  set_gpt2_sizes(config, 0.1, model);
  model.tied = config.flag("tie_word_embeddings", true);
  if (!config.flag("scale_attn_weights", true)) config.refuse("scale_attn_weights", "true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (config.flag(key, false)) config.refuse(key, "false");
  }
  return model;
}

std::vector<HfPlace> gpt2_places(const ModelConfig& model) {
  std::vector<HfPlace> places;
  const auto add = [&](const std::string& canonical, const std::string& name) {
    places.push_back({.canonical = canonical, .name = "transformer." + name});
  };
  const auto norm = [&](const std::string& canonical, const std::string& name) {
    add(canonical + ".weight", name + ".weight");
    add(canonical + ".bias", name + ".bias");
  };
  const auto conv = [&](const std::string& canonical, const std::string& name,
                        std::int64_t first = 0) {
    norm(canonical, name);
    for (std::size_t i = places.size() - 2; i < places.size(); ++i) places[i].first = first;
    places[places.size() - 2].transposed = true;
  };
  add("embedding.token.weight", "wte.weight");
  add("embedding.position.weight", "wpe.weight");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string at = fmt::format("layers.{}.", layer);
    const std::string in = fmt::format("h.{}.", layer);
    norm(at + "attention_norm", in + "ln_1");
    conv(at + "attention.query", in + "attn.c_attn");
    conv(at + "attention.key", in + "attn.c_attn", model.hidden);
    conv(at + "attention.value", in + "attn.c_attn", 2 * model.hidden);
    conv(at + "attention.output", in + "attn.c_proj");
    norm(at + "mlp_norm", in + "ln_2");
    conv(at + "mlp.up", in + "mlp.c_fc");
    conv(at + "mlp.down", in + "mlp.c_proj");
  }
  norm("final_norm", "ln_f");
  places.push_back({.canonical = "head.weight", .name = "lm_head.weight"});
  return places;
}

ModelConfig gpt_bigcode_model(const HfConfig& config) {
  ModelConfig model = gpt2_model(config);
  model.activation = hf_activation(config, "activation_function", "gelu_pytorch_tanh");
  if (config.flag("multi_query", true)) model.groups = 1;
  return model;
}

nlohmann::ordered_json gpt_bigcode_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = gpt2_size_keys(model);
  keys["multi_query"] = model.groups != model.heads;
  return keys;
}

HfNames gpt2_names(std::vector<HfPart> parts) {
  HfNames names{.table = "transformer.wte.",
                .positions = "transformer.wpe.",
                .layers = "transformer.h.",
                .final_norm = "transformer.ln_f.",
                .parts = std::move(parts)};
  for (HfPart& part : std::vector<HfPart>{{"attention_norm.", "ln_1."},
                                          {"mlp_norm.", "ln_2."},
                                          {"mlp.up.", "mlp.c_fc."},
                                          {"mlp.down.", "mlp.c_proj."}})
    names.parts.push_back(std::move(part));
  return names;
}

std::vector<HfPlace> gpt_bigcode_places(const ModelConfig& model) {
  std::vector<HfPart> parts = model.groups == model.heads ? grouped_attention(model, "attn.c_attn.")
                                                          : packed_attention(model, "attn.c_attn.");
  parts.push_back({"attention.output.", "attn.c_proj."});
  return named_places(model, gpt2_names(std::move(parts)));
}

constexpr const char* kTypes = "attention_types";
constexpr const char* kGlobal = "global";
constexpr const char* kLocal = "local";
constexpr int kMostRuns = 10000;

// The types of layers, global or local: those of "attention_layers", or of "attention_types", which
// is a list of lists of types and of how often they come.
std::vector<std::string> gpt_neo_types(const HfConfig& config) {
  if (!config.has(kTypes)) return config.words("attention_layers");
  std::vector<std::string> types;
  const auto runs = read_json<nlohmann::ordered_json>(config.text())[kTypes];
  const auto refuse = [&](bool wrong) {
    if (wrong) config.refuse(kTypes, "lists of types of layers, global or local, and of a number");
  };
  refuse(!runs.is_array());
  for (const auto& run : runs) {
    refuse(!run.is_array() || run.size() != 2 || !run[0].is_array() ||
           !run[1].is_number_integer() || run[1] < 0 || run[1] > kMostRuns);
    for (int i = 0; i < run[1].get<int>(); ++i) {
      for (const auto& type : run[0]) {
        refuse(!type.is_string());
        types.push_back(type.get<std::string>());
      }
    }
  }
  return types;
}

ModelConfig gpt_neo_model(const HfConfig& config) {
  ModelConfig model = llama_facts();
  model.norm = NormKind::kLayer;
  model.positions = PositionKind::kLearned;
  model.gated = false;
  model.biases = model.output_bias = true;
  model.layers = config.size("num_layers", config.size("num_hidden_layers", 24));
  model.hidden = config.size("hidden_size", 2048);
  model.ffn_hidden = config.size("intermediate_size", 4 * model.hidden);
  const std::int64_t heads = config.size("num_attention_heads", 16);
  model.heads = model.groups = config.size("num_heads", heads);
  if (model.hidden % model.heads != 0) config.refuse("num_heads", "a divisor of hidden_size");
  model.head_size = model.hidden / model.heads;
  model.vocabulary = config.size("vocab_size");
  model.max_positions = config.size("max_position_embeddings", 2048);
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  model.activation = hf_activation(config, "activation_function", "gelu_new");
  model.score_factor = 1;
  model.hidden_dropout = config.number("resid_dropout", 0.0);
  if (config.number("embed_dropout", 0.0) != model.hidden_dropout)
    config.refuse("embed_dropout", "the same as resid_dropout");
  model.attention_dropout = config.number("attention_dropout", 0.0);
  model.init_deviation = config.number("initializer_range", 0.02);
  model.tied = config.flag("tie_word_embeddings", true);
  const std::vector<std::string> types = gpt_neo_types(config);
  if (!types.empty() && std::ssize(types) != model.layers)
    config.refuse(kTypes, fmt::format("types of {} layers (num_layers)", model.layers));
  model.window_before = config.size("window_size", 256) - 1;
  set_full_layers(types.empty() ? std::vector<std::string>{kGlobal, kLocal} : types, kGlobal,
                  model);
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const bool window = model.window_of(static_cast<std::int64_t>(layer)).has_value();
    if (types[layer] != (window ? kLocal : kGlobal))
      config.refuse(kTypes, "local, and global in layers with equal distances");
  }
  drop_window_of_no_layer(model);
  return model;
}

nlohmann::ordered_json gpt_neo_keys(const ModelConfig& model) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    types.push_back(model.window_of(layer) ? kLocal : kGlobal);
  nlohmann::ordered_json run = nlohmann::ordered_json::array({types, 1});
  return {{"num_layers", model.layers},
          {"hidden_size", model.hidden},
          {"intermediate_size", model.ffn_hidden},
          {"num_heads", model.heads},
          {"max_position_embeddings", model.max_positions},
          {"layer_norm_epsilon", model.norm_eps},
          {"activation_function", hf_activation_name(model.activation)},
          {"resid_dropout", model.hidden_dropout},
          {"embed_dropout", model.hidden_dropout},
          {"attention_dropout", model.attention_dropout},
          {"window_size", model.window_before ? *model.window_before + 1 : 256},
          {"attention_types", nlohmann::ordered_json::array({run})},
          {"attention_layers", types}};
}

std::vector<HfPlace> gpt_neo_places(const ModelConfig& model) {
  return named_places(model, gpt2_names({{"attention.query.", "attn.attention.q_proj."},
                                         {"attention.key.", "attn.attention.k_proj."},
                                         {"attention.value.", "attn.attention.v_proj."},
                                         {"attention.output.", "attn.attention.out_proj."}}));
}

}  // namespace

HfFamily hf_gpt2() {
  return {.model_types = {"gpt2"},
          .architectures = {"GPT2LMHeadModel"},
          .model = gpt2_model,
          .places = gpt2_places,
          .keys = gpt2_size_keys,
          .optional_prefix = "transformer.",
          .ignored = {".attn.bias", ".attn.masked_bias"}};
}

HfFamily hf_gpt_bigcode() {
  return {.model_types = {"gpt_bigcode"},
          .architectures = {"GPTBigCodeForCausalLM"},
          .model = gpt_bigcode_model,
          .places = gpt_bigcode_places,
          .keys = gpt_bigcode_keys,
          .optional_prefix = "transformer.",
          .ignored = {".attn.bias", ".attn.masked_bias"}};
}

HfFamily hf_gpt_neo() {
  return {.model_types = {"gpt_neo"},
          .architectures = {"GPTNeoForCausalLM"},
          .model = gpt_neo_model,
          .places = gpt_neo_places,
          .keys = gpt_neo_keys,
          .optional_prefix = "transformer.",
          .ignored = {".attn.attention.bias", ".attn.attention.masked_bias"}};
}

}  // namespace piton
