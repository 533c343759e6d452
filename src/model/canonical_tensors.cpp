#include "model/canonical_tensors.h"

#include <algorithm>

#include "base/error.h"
#include "model/label_head.h"

namespace piton {
namespace {

void add_linear(std::vector<CanonicalShape>& list, const std::string& name, const Shape& shape,
                bool bias) {
  list.push_back({name + ".weight", shape});
  if (bias) list.push_back({name + ".bias", {shape[0]}});
}

// The MLPs `names`, each of width f. Their matrices that are one parameter are next to each other.
void add_mlps(std::vector<CanonicalShape>& list, const ModelConfig& config,
              const std::vector<std::string>& names, std::int64_t f) {
  for (const std::string& name : names) {
    if (config.gated) add_linear(list, name + ".gate", {f, config.hidden}, config.biases);
    add_linear(list, name + ".up", {f, config.hidden}, config.biases);
  }
  for (const std::string& name : names)
    add_linear(list, name + ".down", {config.hidden, f}, config.biases);
}

void add_experts(std::vector<CanonicalShape>& list, const ModelConfig& config,
                 const std::string& at) {
  const ExpertFacts& facts = *config.experts;
  list.push_back({at + ".router.weight", {facts.experts, config.hidden}});
  if (facts.choice_bias) list.push_back({at + ".router.bias", {facts.experts}});
  if (config.biases) list.push_back({at + ".router.logit_bias", {facts.experts}});
  std::vector<std::string> names;
  for (std::int64_t expert = 0; expert < facts.experts; ++expert)
    names.push_back(fmt::format("{}.experts.{}", at, expert));
  add_mlps(list, config, names, config.expert_ffn_hidden());
  if (facts.shared_gate) list.push_back({at + ".shared_gate.weight", {1, config.hidden}});
  if (facts.shared_ffn_hidden != 0)
    add_mlps(list, config, {at + ".shared"}, facts.shared_ffn_hidden);
}

void add_mlp(std::vector<CanonicalShape>& list, const ModelConfig& config, const std::string& at,
             bool experts) {
  if (experts) return add_experts(list, config, at);
  add_mlps(list, config, {at}, config.ffn_hidden);
}

// Heads of queries are [own | turned], those of key_value [own | value].
void add_latent_attention(std::vector<CanonicalShape>& list, const ModelConfig& config,
                          const std::string& at) {
  const LatentFacts& facts = *config.latent;
  const auto norm = [&](const std::string& name, std::int64_t width) {
    if (config.head_norms) list.push_back({name + ".weight", {width}});
  };
  if (facts.query_rank != 0) {
    add_linear(list, at + ".query_down", {facts.query_rank, config.hidden}, false);
    norm(at + ".query_down_norm", facts.query_rank);
  }
  add_linear(
      list, at + ".query",
      {config.heads * facts.head_size(), facts.query_rank != 0 ? facts.query_rank : config.hidden},
      false);
  add_linear(list, at + ".latent", {facts.rank + facts.turned, config.hidden}, false);
  norm(at + ".latent_norm", facts.rank);
  add_linear(list, at + ".key_value", {config.heads * (facts.own + facts.value), facts.rank},
             false);
  add_linear(list, at + ".output", {config.hidden, config.heads * facts.value}, config.output_bias);
}

void add_delta(std::vector<CanonicalShape>& list, const ModelConfig& config,
               const std::string& at) {
  const DeltaFacts& facts = *config.delta;
  const std::int64_t keys = facts.key_heads * facts.key_size;
  const std::int64_t values = facts.value_heads * facts.value_size;
  for (const auto& [name, rows] : {std::pair{".query", keys},
                                   {".key", keys},
                                   {".value", values},
                                   {".gate", values},
                                   {".strength", facts.value_heads},
                                   {".decay", facts.value_heads}})
    add_linear(list, at + name, {rows, config.hidden}, false);
  list.push_back({at + ".query_filter", {keys, facts.width}});
  list.push_back({at + ".key_filter", {keys, facts.width}});
  list.push_back({at + ".value_filter", {values, facts.width}});
  list.push_back({at + ".rate", {facts.value_heads}});
  list.push_back({at + ".decay_bias", {facts.value_heads}});
  list.push_back({at + ".norm.weight", {facts.value_size}});
  add_linear(list, at + ".output", {config.hidden, values}, false);
}

void add_state_space(std::vector<CanonicalShape>& list, const ModelConfig& config,
                     const std::string& at) {
  const StateSpaceFacts& facts = *config.state_space;
  const std::int64_t keys = facts.keys();
  const std::int64_t values = facts.values();
  for (const auto& [name, rows] : {std::pair{".gate", values},
                                   {".value", values},
                                   {".step", facts.heads},
                                   {".key", keys},
                                   {".query", keys}})
    add_linear(list, at + name, {rows, config.hidden}, false);
  for (const auto& [name, rows] :
       {std::pair{".value_filter", values}, {".key_filter", keys}, {".query_filter", keys}}) {
    list.push_back({at + name, {rows, facts.width}});
    list.push_back({at + name + "_bias", {rows}});
  }
  for (const char* name : {".rate", ".step_bias", ".skip"})
    list.push_back({at + name, {facts.heads}});
  list.push_back({at + ".norm.weight", {values}});
  add_linear(list, at + ".output", {config.hidden, values}, false);
}

void add_short_convolution(std::vector<CanonicalShape>& list, const ModelConfig& config,
                           const std::string& at) {
  const ShortConvolutionFacts& facts = *config.short_convolution;
  const std::int64_t h = config.hidden;
  for (const char* name : {".input_gate", ".output_gate", ".value"})
    add_linear(list, at + name, {h, h}, facts.biases);
  list.push_back({at + ".filter", {h, facts.width}});
  if (facts.biases) list.push_back({at + ".filter_bias", {h}});
  add_linear(list, at + ".output", {h, h}, facts.biases);
}

// Of a layer with states in place of attention.
void add_states(std::vector<CanonicalShape>& list, const ModelConfig& config,
                const std::string& at) {
  if (config.state_space) return add_state_space(list, config, at + "mamba");
  if (config.short_convolution) return add_short_convolution(list, config, at + "short_conv");
  add_delta(list, config, at + "delta");
}

void add_attention(std::vector<CanonicalShape>& list, const ModelConfig& config,
                   const std::string& at) {
  if (config.latent) return add_latent_attention(list, config, at);
  const std::int64_t queries = config.heads * config.head_size;
  const std::int64_t keys = config.groups * config.head_size;
  add_linear(list, at + ".query", {queries, config.hidden}, config.qkv_biases);
  add_linear(list, at + ".key", {keys, config.hidden}, config.qkv_biases);
  add_linear(list, at + ".value", {keys, config.hidden}, config.qkv_biases);
  if (config.output_gate)
    add_linear(list, at + ".gate", {queries, config.hidden}, config.qkv_biases);
  add_linear(list, at + ".output", {config.hidden, queries}, config.output_bias);
  if (config.softmax == SoftmaxKind::kLearnable) list.push_back({at + ".sinks", {config.heads}});
}

void add_norm(std::vector<CanonicalShape>& list, const ModelConfig& config,
              const std::string& name) {
  if (!config.norm_gains) return;
  list.push_back({name + ".weight", {config.hidden}});
  if (config.norm == NormKind::kLayer && config.norm_biases)
    list.push_back({name + ".bias", {config.hidden}});
}

// What a layer begins with: attention, or what has states in its place.
void add_mixer(std::vector<CanonicalShape>& list, const ModelConfig& config, const std::string& at,
               bool states) {
  if (config.start_norms) add_norm(list, config, at + "attention_norm");
  states ? add_states(list, config, at) : add_attention(list, config, at + "attention");
  if (config.end_norms) add_norm(list, config, at + "attention.end_norm");
  if (!config.head_norms || !config.norm_gains || config.latent || states) return;
  const auto width = [&](std::int64_t heads) {
    return (config.joint_head_norms ? heads : 1) * config.head_size;
  };
  list.push_back({at + "attention.query_norm.weight", {width(config.heads)}});
  list.push_back({at + "attention.key_norm.weight", {width(config.groups)}});
}

// What a layer has of what not all of them have.
struct LayerParts {
  bool cross = false;
  bool experts = false;
  bool states = false;
  bool mixer = true;
  bool mlp = true;
};

void add_layer(std::vector<CanonicalShape>& list, const ModelConfig& config, const std::string& at,
               const LayerParts& parts) {
  if (parts.mixer) add_mixer(list, config, at, parts.states);
  if (parts.cross) {
    add_norm(list, config, at + "cross_norm");
    add_attention(list, config, at + "cross");
  }
  if (!parts.mlp) return;
  if (config.start_norms && !config.single_norm) add_norm(list, config, at + "mlp_norm");
  add_mlp(list, config, at + "mlp", parts.experts);
  if (config.end_norms) add_norm(list, config, at + "mlp.end_norm");
}

// After the layers and their norm.
void add_heads(std::vector<CanonicalShape>& list, const ModelConfig& config) {
  const std::int64_t h = config.hidden;
  const auto linear = [&](const std::string& name, std::int64_t out) {
    add_linear(list, name, {out, h}, true);
  };
  if (config.encoder && !config.encoder->word_head) {
    if (config.encoder->pooler) linear("pooler", h);
    if (config.labels > 0) linear("label", config.labels);
    return;
  }
  if (config.labels > 0) list.push_back({label_tensor(config), {config.labels, h}});
  if (config.labels == 0 && !config.tied) list.push_back({"head.weight", {config.vocabulary, h}});
  if (config.head_bias || (config.encoder_decoder && config.encoder_decoder->head_bias))
    list.push_back({"head.bias", {config.vocabulary}});
  if (!config.encoder) return;
  linear("head.dense", h);
  add_norm(list, config, "head.norm");
  list.push_back({"head.bias", {config.vocabulary}});
  if (!config.encoder->pair_head) return;
  linear("pooler", h);
  linear("pair_head", 2);
}

}  // namespace

std::vector<CanonicalShape> canonical_tensors(const ModelConfig& config) {
  std::vector<CanonicalShape> list;
  const std::int64_t h = config.hidden;
  list.push_back({"embedding.token.weight", {config.vocabulary, h}});
  if (config.positions == PositionKind::kLearned)
    list.push_back({"embedding.position.weight", {config.max_positions, h}});
  if (config.encoder && config.encoder->token_types > 0)
    list.push_back({"embedding.type.weight", {config.encoder->token_types, h}});
  const bool post_norm = config.encoder && config.encoder->post_norm;
  if (config.embedding_norm || post_norm) add_norm(list, config, "embedding.norm");
  const auto distances = [&](const std::string& prefix) {
    if (config.positions == PositionKind::kRelative)
      list.push_back({prefix + "distance.weight", {config.encoder_decoder->buckets, config.heads}});
  };
  if (config.encoder_decoder) {
    distances("encoder.");
    for (std::int64_t layer = 0; layer < config.encoder_decoder->encoder_layers; ++layer)
      add_layer(list, config, fmt::format("encoder.layers.{}.", layer), {});
    add_norm(list, config, "encoder.final_norm");
  }
  distances("");
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    add_layer(list, config, fmt::format("layers.{}.", layer),
              {.cross = config.encoder_decoder.has_value(),
               .experts = config.has_experts(layer),
               .states = config.has_states(layer),
               .mixer = config.has_mixer(layer),
               .mlp = config.has_mlp(layer)});
  }
  if (!post_norm) add_norm(list, config, "final_norm");
  for (std::int64_t layer = 0; layer < config.mtp_layers; ++layer) {
    const std::string at = fmt::format("mtp.layers.{}.", layer);
    for (const char* name : {"token_norm", "hidden_norm"}) add_norm(list, config, at + name);
    add_linear(list, at + "projection", {h, 2 * h}, false);
    add_layer(list, config, at, {.experts = config.has_experts(config.layers - 1)});
    add_norm(list, config, at + "final_norm");
  }
  add_heads(list, config);
  return list;
}

std::vector<PatternLetter> pattern_letters(const ModelConfig& config) {
  std::vector<PatternLetter> letters;
  if (!config.letters_with_attention()) return letters;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.has_mixer(layer)) letters.push_back({.layer = layer});
    if (config.has_mlp(layer)) letters.push_back({.layer = layer, .mlp = true});
  }
  return letters;
}

std::int64_t letter_number(const std::vector<PatternLetter>& letters, std::int64_t layer,
                           std::string_view part) {
  const bool mlp = part.starts_with("mlp");
  return std::ranges::find_if(
             letters,
             [&](const PatternLetter& one) { return one.layer == layer && one.mlp == mlp; }) -
         letters.begin();
}

void check_layers(const ModelConfig& config, std::int64_t tensors, const std::string& where) {
  constexpr std::int64_t kAnyway = 1000;  // of which what is missing can be listed
  const std::int64_t layers =
      config.layers + (config.encoder_decoder ? config.encoder_decoder->encoder_layers : 0);
  const std::int64_t experts = config.experts ? config.experts->experts : 0;  // ModelConfig::check
  if (layers <= std::max(kAnyway, tensors) &&
      config.expert_layers() * experts <= std::max(kAnyway, tensors))
    return;
  if (config.experts) {
    throw Error(Fault::kData,
                "{}: a model of {} layers with {} experts each, and the files hold {} tensors; is "
                "it of another size?",
                where, layers, experts, tensors);
  }
  throw Error(Fault::kData,
              "{}: a model of {} layers, and the files hold {} tensors; is it of another size?",
              where, layers, tensors);
}

}  // namespace piton
