#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// Encoders: BERT and RoBERTa have norms after the residual sums; Megatron's BERT has them before
// each branch, and one at the end. RoBERTa has one part, and its positions begin after that of
// padding.
namespace piton {
namespace {

// `types`, `pair_head` and `first_position` of `facts` are of the family.
ModelConfig bert_like_model(const HfConfig& config, const EncoderFacts& facts) {
  ModelConfig model = bert_facts();
  model.encoder = facts;
  model.layers = config.size("num_hidden_layers");
  model.hidden = config.size("hidden_size");
  model.ffn_hidden = config.size("intermediate_size");
  model.heads = model.groups = config.size("num_attention_heads");
  if (model.hidden % model.heads != 0)
    config.refuse("num_attention_heads", "a divisor of hidden_size");
  model.head_size = model.hidden / model.heads;
  model.vocabulary = config.size("vocab_size");
  model.max_positions = config.size("max_position_embeddings", 512);
  model.encoder->token_types = config.size("type_vocab_size", 2);
  model.norm_eps = config.number("layer_norm_eps", 1e-12);
  model.activation = hf_activation(config, "hidden_act", "gelu");
  model.hidden_dropout = config.number("hidden_dropout_prob", 0.1);
  model.attention_dropout = config.number("attention_probs_dropout_prob", 0.1);
  model.init_deviation = config.number("initializer_range", 0.02);
  model.tied = true;
  if (!config.flag("tie_word_embeddings", true)) config.refuse("tie_word_embeddings", "true");
  if (config.word("position_embedding_type", "absolute") != "absolute")
    config.refuse("position_embedding_type", "absolute");
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (config.flag(key, false)) config.refuse(key, "false");
  }
  return model;
}

// The facts that the name of the architecture says.
EncoderFacts facts_of(const HfConfig& config, bool post_norm) {
  const std::vector<std::string> names = config.words("architectures");
  const std::string name = names.empty() ? "" : names.front();
  const bool labels = name.ends_with("ForSequenceClassification");  // set_label_head() adds theirs
  return {.post_norm = post_norm,
          .word_head = !name.ends_with("Model") && !labels,
          .pair_head = name.ends_with("ForPreTraining")};
}

nlohmann::ordered_json bert_like_keys(const ModelConfig& model, const std::string& name) {
  const EncoderFacts facts = model.encoder.value_or(EncoderFacts());
  return {{"architectures", {name + (facts.pair_head ? "ForPreTraining" : "ForMaskedLM")}},
          {"num_hidden_layers", model.layers},
          {"hidden_size", model.hidden},
          {"intermediate_size", model.ffn_hidden},
          {"num_attention_heads", model.heads},
          {"max_position_embeddings", model.max_positions},
          {"type_vocab_size", facts.token_types},
          {"layer_norm_eps", model.norm_eps},
          {"hidden_act", hf_activation_name(model.activation)},
          {"hidden_dropout_prob", model.hidden_dropout},
          {"attention_probs_dropout_prob", model.attention_dropout}};
}

// Names of what differs between the families.
struct BertNames {
  std::string base;            // "bert."
  std::string embedding_norm;  // "embeddings.LayerNorm"; "": none
  std::string attention_norm;  // of a layer
  std::string mlp_norm;
  std::string final_norm;  // "": none
  std::string dense;       // of the head
  std::string head_norm;
  std::string bias;
  std::string decoder;
  std::string pooler;  // of a classifier; "": the base's
  std::string labels;
};

class BertPlaces {
 public:
  void one(const std::string& canonical, const std::string& name) {
    places_.push_back({.canonical = canonical, .name = name});
  }
  void both(const std::string& canonical, const std::string& name) {
    one(canonical + ".weight", name + ".weight");
    one(canonical + ".bias", name + ".bias");
  }
  std::vector<HfPlace> take() { return std::move(places_); }

 private:
  std::vector<HfPlace> places_;
};

std::vector<HfPlace> bert_like_places(const ModelConfig& model, BertNames names) {
  BertPlaces places;
  // Files of an architecture without heads name its parts alone.
  if (!model.encoder->word_head && model.labels == 0) names.base.clear();
  const std::string embeddings = names.base + "embeddings.";
  places.one("embedding.token.weight", embeddings + "word_embeddings.weight");
  places.one("embedding.position.weight", embeddings + "position_embeddings.weight");
  if (model.encoder->token_types > 0)
    places.one("embedding.type.weight", embeddings + "token_type_embeddings.weight");
  if (!names.embedding_norm.empty())
    places.both("embedding.norm", embeddings + names.embedding_norm);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string at = fmt::format("layers.{}.", layer);
    const std::string in = fmt::format("{}encoder.layer.{}.", names.base, layer);
    places.both(at + "attention_norm", in + names.attention_norm);
    places.both(at + "attention.query", in + "attention.self.query");
    places.both(at + "attention.key", in + "attention.self.key");
    places.both(at + "attention.value", in + "attention.self.value");
    places.both(at + "attention.output", in + "attention.output.dense");
    places.both(at + "mlp_norm", in + names.mlp_norm);
    places.both(at + "mlp.up", in + "intermediate.dense");
    places.both(at + "mlp.down", in + "output.dense");
  }
  if (!names.final_norm.empty()) places.both("final_norm", names.base + names.final_norm);
  if (model.labels > 0) {
    places.both("pooler", names.pooler.empty() ? names.base + "pooler.dense" : names.pooler);
    places.both("label", names.labels);
    return places.take();
  }
  if (!model.encoder->word_head) {
    if (model.encoder->pooler) places.both("pooler", "pooler.dense");
    return places.take();
  }
  places.both("head.dense", names.dense);
  places.both("head.norm", names.head_norm);
  places.one("head.bias", names.bias);
  places.one("head.weight", names.decoder);
  if (model.encoder->pair_head) {
    places.both("pooler", names.base + "pooler.dense");
    places.both("pair_head", "cls.seq_relationship");
  }
  return places.take();
}

BertNames bert_names(bool post_norm) {
  BertNames names{.base = "bert.",
                  .embedding_norm = "LayerNorm",
                  .attention_norm = "attention.output.LayerNorm",
                  .mlp_norm = "output.LayerNorm",
                  .final_norm = "",
                  .dense = "cls.predictions.transform.dense",
                  .head_norm = "cls.predictions.transform.LayerNorm",
                  .bias = "cls.predictions.bias",
                  .decoder = "cls.predictions.decoder.weight",
                  .pooler = "",
                  .labels = "classifier"};
  if (post_norm) return names;
  names.embedding_norm.clear();
  names.attention_norm = "attention.ln";
  names.mlp_norm = "ln";
  names.final_norm = "encoder.ln";
  return names;
}

ModelConfig bert_model(const HfConfig& config) {
  return bert_like_model(config, facts_of(config, true));
}

ModelConfig megatron_bert_model(const HfConfig& config) {
  return bert_like_model(config, facts_of(config, false));
}

ModelConfig roberta_model(const HfConfig& config) {
  EncoderFacts facts = facts_of(config, true);
  facts.first_position = static_cast<std::int64_t>(config.number("pad_token_id", 1)) + 1;
  return bert_like_model(config, facts);
}

// Of files that have heads or positions which the architecture does not name, or a head twice.
const std::vector<std::string> kOtherHeads = {
    "embeddings.position_ids", "cls.seq_relationship.weight", "cls.seq_relationship.bias",
    "pooler.dense.weight",     "pooler.dense.bias",           "cls.predictions.decoder.bias",
    "lm_head.decoder.bias"};

}  // namespace

HfFamily hf_bert() {
  return {
      .model_types = {"bert"},
      .architectures = {"BertForPreTraining", "BertForMaskedLM", "BertModel"},
      .model = bert_model,
      .places = [](const ModelConfig& model) { return bert_like_places(model, bert_names(true)); },
      .keys = [](const ModelConfig& model) { return bert_like_keys(model, "Bert"); },
      .optional_prefix = "",
      .ignored = kOtherHeads,
      .older_ends = {{"LayerNorm.gamma", "LayerNorm.weight"},
                     {"LayerNorm.beta", "LayerNorm.bias"}}};
}

HfFamily hf_megatron_bert() {
  return {
      .model_types = {"megatron-bert"},
      .architectures = {"MegatronBertForPreTraining", "MegatronBertForMaskedLM",
                        "MegatronBertModel"},
      .model = megatron_bert_model,
      .places = [](const ModelConfig& model) { return bert_like_places(model, bert_names(false)); },
      .keys = [](const ModelConfig& model) { return bert_like_keys(model, "MegatronBert"); },
      .optional_prefix = "",
      .ignored = kOtherHeads};
}

HfFamily hf_roberta() {
  return {.model_types = {"roberta", "xlm-roberta", "camembert"},
          .architectures = {"RobertaForMaskedLM", "XLMRobertaForMaskedLM", "CamembertForMaskedLM",
                            "RobertaModel", "XLMRobertaModel", "CamembertModel"},
          .model = roberta_model,
          .places =
              [](const ModelConfig& model) {
                BertNames names = bert_names(true);
                names.base = "roberta.";
                names.dense = "lm_head.dense";
                names.head_norm = "lm_head.layer_norm";
                names.bias = "lm_head.bias";
                names.decoder = "lm_head.decoder.weight";
                names.pooler = "classifier.dense";
                names.labels = "classifier.out_proj";
                return bert_like_places(model, names);
              },
          .keys =
              [](const ModelConfig& model) {
                nlohmann::ordered_json keys = bert_like_keys(model, "Roberta");
                keys["pad_token_id"] =
                    model.encoder ? model.encoder->first_position - 1 : std::int64_t{0};
                return keys;
              },
          .optional_prefix = "",
          .ignored = kOtherHeads};
}

}  // namespace piton
