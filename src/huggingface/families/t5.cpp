#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// T5, T5 v1.1 and FLAN-T5: relative positions, RMS norms, no biases. T5 has ReLU and a tied head;
// the later ones a gate, with tanh GELU, and a head with its own table.
namespace piton {
namespace {

constexpr const char* kGate = "gated-";

// "relu", "gated-gelu", "gated-silu", ...: in Transformers a gated "gelu" is the tanh form.
void set_activation(const HfConfig& config, ModelConfig& model) {
  const std::string word = config.word("feed_forward_proj", "relu");
  model.gated = word.starts_with(kGate);
  if (word == "gated-gelu") {
    model.activation = ActivationKind::kGeluTanh;
  } else {
    const nlohmann::json name = {
        {"feed_forward_proj", model.gated ? word.substr(std::string_view(kGate).size()) : word}};
    model.activation =
        hf_activation(HfConfig(name.dump(), config.where()), "feed_forward_proj", "relu");
  }
  // Newer files name it again.
  if (config.has("dense_act_fn") &&
      hf_activation(config, "dense_act_fn", "relu") != model.activation)
    config.refuse("dense_act_fn", "that of feed_forward_proj");
}

std::string activation_word(const ModelConfig& model) {
  if (!model.gated) return hf_activation_name(model.activation);
  if (model.activation == ActivationKind::kGeluTanh) return "gated-gelu";
  return kGate + hf_activation_name(model.activation);
}

ModelConfig t5_model(const HfConfig& config) {
  ModelConfig model = t5_facts();
  model.positions = PositionKind::kRelative;
  model.query_scalar = 1;
  model.norm = NormKind::kRms;
  model.biases = model.output_bias = model.qkv_biases = false;
  EncoderDecoderFacts& facts = *model.encoder_decoder;
  facts.encoder_layers = config.size("num_layers", 6);
  model.layers = config.size("num_decoder_layers", facts.encoder_layers);
  model.hidden = config.size("d_model", 512);
  model.head_size = config.size("d_kv", 64);
  model.ffn_hidden = config.size("d_ff", 2048);
  model.heads = model.groups = config.size("num_heads", 8);
  model.vocabulary = config.size("vocab_size", 32128);
  model.max_positions = config.size("n_positions", 512);
  facts.buckets = config.size("relative_attention_num_buckets", 32);
  facts.farthest_bucket = config.size("relative_attention_max_distance", 128);
  model.norm_eps = config.number("layer_norm_epsilon", 1e-6);
  model.hidden_dropout = model.attention_dropout = config.number("dropout_rate", 0.1);
  set_activation(config, model);
  model.tied = config.flag("tie_word_embeddings", true);
  facts.scaled_head = config.flag("scale_decoder_outputs", model.tied);
  facts.head_bias = false;
  if (!config.flag("is_encoder_decoder", true)) config.refuse("is_encoder_decoder", "true");
  return model;
}

nlohmann::ordered_json t5_keys(const ModelConfig& model) {
  const EncoderDecoderFacts facts = model.encoder_decoder.value_or(EncoderDecoderFacts());
  return {{"is_encoder_decoder", true},
          {"num_layers", facts.encoder_layers},
          {"num_decoder_layers", model.layers},
          {"d_model", model.hidden},
          {"d_kv", model.head_size},
          {"d_ff", model.ffn_hidden},
          {"num_heads", model.heads},
          {"n_positions", model.max_positions},
          {"relative_attention_num_buckets", facts.buckets},
          {"relative_attention_max_distance", facts.farthest_bucket},
          {"layer_norm_epsilon", model.norm_eps},
          {"dropout_rate", model.hidden_dropout},
          {"feed_forward_proj", activation_word(model)},
          {"scale_decoder_outputs", facts.scaled_head},
          {"pad_token_id", 0},
          {"eos_token_id", 1},
          {"decoder_start_token_id", 0}};
}

class T5Places {
 public:
  explicit T5Places(const ModelConfig& model) : model_(model) {}

  // `canonical` without the end ".weight".
  void add(const std::string& canonical, const std::string& name) {
    places_.push_back({.canonical = canonical + ".weight", .name = name + ".weight"});
  }

  // `prefix`: of canonical names; `name`: of the files, "encoder" or "decoder".
  void add_stack(const std::string& prefix, const std::string& name, std::int64_t layers,
                 bool crosses) {
    add(prefix + "distance", name + ".block.0.layer.0.SelfAttention.relative_attention_bias");
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::string at = fmt::format("{}layers.{}.", prefix, layer);
      const std::string in = fmt::format("{}.block.{}.layer.", name, layer);
      add(at + "attention_norm", in + "0.layer_norm");
      add_attention(at + "attention.", in + "0.SelfAttention.");
      if (crosses) {
        add(at + "cross_norm", in + "1.layer_norm");
        add_attention(at + "cross.", in + "1.EncDecAttention.");
      }
      const std::string mlp = in + (crosses ? "2." : "1.");
      add(at + "mlp_norm", mlp + "layer_norm");
      if (model_.gated) add(at + "mlp.gate", mlp + "DenseReluDense.wi_0");
      add(at + "mlp.up", mlp + (model_.gated ? "DenseReluDense.wi_1" : "DenseReluDense.wi"));
      add(at + "mlp.down", mlp + "DenseReluDense.wo");
    }
    add(prefix + "final_norm", name + ".final_layer_norm");
  }

  std::vector<HfPlace> take() { return std::move(places_); }

 private:
  void add_attention(const std::string& at, const std::string& in) {
    add(at + "query", in + "q");
    add(at + "key", in + "k");
    add(at + "value", in + "v");
    add(at + "output", in + "o");
  }

  const ModelConfig& model_;
  std::vector<HfPlace> places_;
};

std::vector<HfPlace> t5_places(const ModelConfig& model) {
  T5Places places(model);
  places.add("embedding.token", "shared");
  places.add_stack("encoder.", "encoder", model.encoder_decoder->encoder_layers, false);
  places.add_stack("", "decoder", model.layers, true);
  places.add("head", "lm_head");
  return places.take();
}

}  // namespace

HfFamily hf_t5() {
  return {.model_types = {"t5"},
          .architectures = {"T5ForConditionalGeneration", "T5WithLMHeadModel"},
          .model = t5_model,
          .places = t5_places,
          .keys = t5_keys,
          .optional_prefix = "",
          // The table again, and a bias that the published code does not use.
          .ignored = {"embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight"}};
}

}  // namespace piton
