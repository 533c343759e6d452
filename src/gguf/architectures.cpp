#include "gguf/architectures.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "gguf/forms.h"
#include "gguf/gguf_experts.h"
#include "gguf/gguf_places.h"
#include "gguf/gguf_rotary.h"
#include "gguf/gguf_states.h"
#include "gguf/gguf_window.h"
#include "gguf/state_keys.h"
#include "huggingface/config_keys.h"
#include "model/canonical_tensors.h"
#include "model/families.h"

namespace piton {
namespace {

constexpr const char* kLaterLayers = "nextn_predict_layers";

// As a file has it: fp32, shown in decimal.
double in_fp32(double value) { return GgufValue::f32(value).number(); }

std::int64_t rows_of_table(const GgufKeys& keys) {
  const auto found = keys.description().shapes.find(kGgufTable);
  if (found == keys.description().shapes.end() || found->second.size() != 2) {
    throw Error(Fault::kData, "{}: {}: wanted a table of two dims; is the file complete?",
                keys.where(), kGgufTable);
  }
  return found->second[0];
}

const char* eps_key(NormKind norm) {
  return norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon" : kLayerNormEps;
}

void read_grouped_heads(const GgufKeys& keys, ModelConfig& model) {
  model.groups = keys.size("attention.head_count_kv", model.heads);
  read_gguf_head_size(keys, model);
}

void write_grouped_heads(const ModelConfig& model, GgufDescription& out) {
  out.add("attention.head_count_kv", GgufValue::u32(model.groups));
  write_gguf_head_size(model, out);
}

// Of the MLP and attention, which not all models have.
void read_widths(const GgufArchitecture& architecture, const GgufKeys& keys, ModelConfig& model) {
  // read_gguf_experts() has another width for experts, which may be the only one.
  model.ffn_hidden =
      keys.size("feed_forward_length",
                keys.has(kExpertWidth) ? std::optional(keys.size(kExpertWidth)) : std::nullopt);
  model.heads = keys.size("attention.head_count");
  (architecture.read_heads != nullptr ? architecture.read_heads : read_grouped_heads)(keys, model);
}

void write_widths(const GgufArchitecture& architecture, const ModelConfig& model,
                  GgufDescription& out) {
  out.add("feed_forward_length", GgufValue::u32(model.ffn_hidden));
  out.add("attention.head_count", GgufValue::u32(model.heads));
  (architecture.write_heads != nullptr ? architecture.write_heads : write_grouped_heads)(model,
                                                                                         out);
}

void read_sizes(const GgufArchitecture& architecture, const GgufKeys& keys, ModelConfig& model) {
  model.layers = keys.size("block_count");
  if (model.layers > std::ssize(keys.description().shapes))
    keys.refuse("block_count", "no more blocks than there are tensors");
  if (architecture.has_later_layers) model.layers -= keys.count(kLaterLayers, 0);
  if (model.layers < 1) keys.refuse(kLaterLayers, "fewer than block_count");
  model.hidden = keys.size("embedding_length");
  if (architecture.states == GgufStates::kLetters) {
    read_gguf_letters(keys, model);
  } else if (architecture.states != GgufStates::kAll) {
    read_widths(architecture, keys, model);
  }
  model.max_positions = keys.size("context_length");
  model.vocabulary = rows_of_table(keys);
  const char* eps = eps_key(model.norm);
  const bool other = architecture.states == GgufStates::kLetters && !keys.has(eps);
  model.norm_eps = keys.number(other ? kLayerNormEps : eps);
}

void write_sizes(const GgufArchitecture& architecture, const ModelConfig& model,
                 GgufDescription& out) {
  const bool letters = architecture.states == GgufStates::kLetters;
  out.add("block_count",
          GgufValue::u32(letters ? std::ssize(pattern_letters(model)) : model.layers));
  out.add("context_length", GgufValue::u32(model.max_positions));
  out.add("embedding_length", GgufValue::u32(model.hidden));
  if (letters) {
    write_gguf_letters(model, out);
  } else if (architecture.states != GgufStates::kAll) {
    write_widths(architecture, model, out);
  } else {
    for (const char* none : {"feed_forward_length", "attention.head_count"})
      out.add(none, GgufValue::u32(0));
  }
  out.add(eps_key(model.norm), GgufValue::f32(model.norm_eps));
  out.add("vocab_size", GgufValue::u32(model.vocabulary));
}

void read_llama(const GgufKeys& keys, ModelConfig& model) {
  read_biases(keys, model);
  read_gguf_window(keys, model);
}

// Phi-3 with a key of 0 is one without a window.
void write_phi3(const ModelConfig& model, GgufDescription& out) {
  if (model.window_before) return write_gguf_window(model, out);
  out.add("attention.sliding_window", GgufValue::u32(0));
}

ModelConfig stablelm_facts() {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  return facts;
}

void read_stablelm(const GgufKeys& keys, ModelConfig& model) {
  read_qkv_biases(keys, model);
  if (keys.flag("use_parallel_residual", false)) keys.refuse("use_parallel_residual", "false");
}

void write_stablelm(const ModelConfig&, GgufDescription& out) {
  out.add("use_parallel_residual", GgufValue::boolean(false));
}

// llama.cpp knows by its layers which model has ALiBi, and which rotary positions.
void read_baichuan(const GgufKeys&, ModelConfig& model) {
  constexpr std::int64_t kLayersOf13B = 40;
  if (model.layers == kLayersOf13B) model.positions = PositionKind::kAlibi;
}

void write_baichuan(const ModelConfig& model, GgufDescription&) {
  constexpr std::int64_t kLayersOf7B = 32;
  if (model.positions == PositionKind::kRotary && model.layers != kLayersOf7B) {
    throw Error(Fault::kData, "llama.cpp has rotary positions in models of {} layers alone there",
                kLayersOf7B);
  }
}

ModelConfig gemma2_facts() {
  ModelConfig facts = gemma_facts();
  facts.end_norms = true;
  return facts;
}

ModelConfig gemma3_facts() {
  ModelConfig facts = gemma2_facts();
  facts.head_norms = true;
  return facts;
}

// The scale of the scores is that of the head's width, but for the 27B models, which llama.cpp
// knows by their layers.
void set_query_scalar(ModelConfig& model, std::int64_t layers_of_27b) {
  if (model.layers == layers_of_27b)
    model.query_scalar = static_cast<double>(model.hidden / model.heads);
}

void write_caps(const ModelConfig& model, GgufDescription& out) {
  if (model.attention_soft_cap > 0)
    out.add("attn_logit_softcapping", GgufValue::f32(model.attention_soft_cap));
  if (model.logit_soft_cap > 0)
    out.add("final_logit_softcapping", GgufValue::f32(model.logit_soft_cap));
}

// Where caps and window are not said, llama.cpp takes those of the published models.
void read_gemma2(const GgufKeys& keys, ModelConfig& model) {
  model.attention_soft_cap = keys.number("attn_logit_softcapping", 50.0);
  model.logit_soft_cap = keys.number("final_logit_softcapping", 30.0);
  model.window_before = keys.size("attention.sliding_window", 4096) - 1;
  read_gguf_pattern(keys, 2, model);
  set_query_scalar(model, 46);
}

void write_gemma2(const ModelConfig& model, GgufDescription& out) {
  write_required_gguf_window(model, out);
  write_gguf_pattern(model, 2, out);
  write_caps(model, out);
}

void read_gemma3(const GgufKeys& keys, ModelConfig& model) {
  model.logit_soft_cap = keys.number("final_logit_softcapping", 0.0);
  set_query_scalar(model, 62);
  read_gguf_window(keys, model);
  if (!model.window_before) return;
  read_gguf_pattern(keys, 6, model);
  model.local_rotary_base = keys.number("rope.freq_base_swa", 10000.0);
}

void write_gemma3(const ModelConfig& model, GgufDescription& out) {
  write_caps(model, out);
  write_gguf_window(model, out);
  write_gguf_pattern(model, 6, out);
  if (model.window_before) {
    out.add("rope.freq_base_swa",
            GgufValue::f32(model.local_rotary_base.value_or(model.rotary_base)));
  }
}

// A factor of one over the root of a head's width, rounded as in a file, is what models without one
// have.
void drop_usual_score_factor(ModelConfig& model) {
  if (model.score_factor == in_fp32(1 / std::sqrt(static_cast<double>(model.head_size))))
    model.score_factor.reset();
}

GgufDescription described_in(const GgufArchitecture& architecture, const ModelConfig& model) {
  GgufDescription out{.architecture = architecture.name};
  write_sizes(architecture, model, out);
  if (model.positions == PositionKind::kRotary) write_gguf_rotary(model, out);
  if (architecture.grows_queries) write_gguf_growth(model, out);
  if (architecture.has_sections) write_gguf_sections(model, out);
  if (architecture.write != nullptr) architecture.write(model, out);
  write_gguf_experts(architecture.experts, model, out);
  for (const auto& [name, shape] : gguf_shapes(architecture, model)) out.shapes[name] = shape;
  return out;
}

// What llama.cpp refuses, or passes over, in models of the architecture.
void check_architecture(const GgufArchitecture& architecture, const GgufKeys& keys,
                        const ModelConfig& model) {
  if (architecture.whole_heads_turn && model.rotary_share != 1)
    keys.refuse("rope.dimension_count", "all channels of a head");
  if (architecture.heads_fill_width && model.heads * model.head_size != model.hidden)
    keys.refuse("attention.key_length", "embedding_length over attention.head_count");
  for (const auto& [name, table] : keys.description().tables) {
    const bool divisors = name == kRopeDivisors;
    if (divisors ? architecture.divides_angles : architecture.has_longrope) continue;
    throw Error(Fault::kData, "{}: {}: a model of architecture {} has no such table", keys.where(),
                name, architecture.name);
  }
}

// Layers with a window turn by their own base.
bool has_local_base(const ModelConfig& model) {
  return model.local_rotary_base && *model.local_rotary_base != model.rotary_base;
}

std::vector<GgufArchitecture> gemmas() {
  return {{.name = "gemma", .families = {"gemma"}, .facts = gemma_facts, .ties_head = true},
          {.name = "gemma2",
           .families = {"gemma2"},
           .facts = gemma2_facts,
           .read = read_gemma2,
           .write = write_gemma2,
           .ties_head = true,
           .has_window = true},
          {.name = "gemma3",
           .families = {"gemma3_text"},
           .facts = gemma3_facts,
           .read = read_gemma3,
           .write = write_gemma3,
           .has_window = true}};
}

// Whether a model of such a family would have the architecture.
bool is_of(const GgufArchitecture& architecture, const std::string& family) {
  return std::ranges::find(architecture.families, family) != architecture.families.end();
}

}  // namespace

void read_gguf_head_size(const GgufKeys& keys, ModelConfig& model) {
  if (!keys.has("attention.key_length") && model.hidden % model.heads != 0)
    keys.refuse("attention.head_count", "a divisor of embedding_length");
  model.head_size = keys.size("attention.key_length", model.hidden / model.heads);
  if (keys.size("attention.value_length", model.head_size) != model.head_size)
    keys.refuse("attention.value_length", "the same as attention.key_length");
}

void write_gguf_head_size(const ModelConfig& model, GgufDescription& out) {
  out.add("attention.key_length", GgufValue::u32(model.head_size));
  out.add("attention.value_length", GgufValue::u32(model.head_size));
}

std::vector<GgufArchitecture> gguf_architectures() {
  std::vector<GgufArchitecture> all{
      {.name = "llama",
       .families = {"llama", "mistral", "aquila", "internlm", "mixtral"},
       .family_of_experts = "mixtral",
       .facts = llama_facts,
       .read = read_llama,
       .write = write_gguf_window,
       .experts = {.have = GgufPart::kMaybe},
       .pairs = true,
       .whole_heads_turn = true,
       .divides_angles = true,
       .has_longrope = true},
      {.name = "qwen2",
       .families = {"qwen2"},
       .facts = qwen2_facts,
       .read = read_gguf_window,
       .write = write_gguf_window,
       .heads_fill_width = true},
      {.name = "qwen3",
       .families = {"qwen3"},
       .facts = qwen3_facts,
       .read = read_gguf_window,
       .write = write_gguf_window},
      {.name = "qwen3moe",
       .families = {"qwen3_moe"},
       .facts = qwen3_moe_facts,
       .read = read_gguf_window,
       .write = write_gguf_window,
       .experts = {.have = GgufPart::kAlways, .own_width = true}},
      {.name = "gpt2",
       .families = {"gpt2"},
       .facts = gpt2_facts,
       .packed_attention = true,
       .heads_fill_width = true},
      {.name = "bloom",
       .families = {"bloom"},
       .facts = bloom_facts,
       .packed_attention = true,
       .heads_fill_width = true},
      {.name = "phi3",
       .families = {"phi3"},
       .facts = llama_facts,
       .read = read_gguf_window,
       .write = write_phi3,
       .packed_attention = true,
       .packed_mlp = true,
       .heads_fill_width = true,
       .has_longrope = true},
      {.name = "stablelm",
       .families = {"stablelm"},
       .facts = stablelm_facts,
       .read = read_stablelm,
       .write = write_stablelm,
       .heads_fill_width = true,
       .copies_head = true},
      {.name = "internlm2",
       .families = {"internlm2"},
       .facts = llama_facts,
       .pairs = true,
       .whole_heads_turn = true,
       .heads_fill_width = true,
       .copies_head = true},
      {.name = "baichuan",
       .families = {"baichuan"},
       .facts = llama_facts,
       .read = read_baichuan,
       .write = write_baichuan,
       .pairs = true,
       .whole_heads_turn = true,
       .heads_fill_width = true,
       .copies_head = true},
  };
  for (GgufArchitecture& gemma : gemmas()) all.push_back(std::move(gemma));
  for (auto* forms : {rms_norm_forms, layer_norm_forms, expert_forms, delta_forms, state_forms})
    for (GgufArchitecture& one : forms()) all.push_back(std::move(one));
  return all;
}

GgufArchitecture gguf_architecture(const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (GgufArchitecture& one : gguf_architectures()) {
    known.push_back(one.name);
    if (one.name == name) return std::move(one);
  }
  throw Error(Fault::kData, "{}: general.architecture: got \"{}\", wanted {}", where,
              name.substr(0, 60), fmt::join(known, ", "));
}

ModelConfig gguf_model(const GgufDescription& description, const std::string& where) {
  const GgufArchitecture architecture = gguf_architecture(description.architecture, where);
  const GgufKeys keys(description, where);
  const GgufValue* type = keys.find_own("general.type");
  if (type != nullptr && type->kind == GgufKind::kString && type->text == "adapter") {
    throw Error(Fault::kData,
                "{}: is an adapter, wanted a model; give its base by --load, and the adapter by "
                "--lora-load",
                where);
  }
  ModelConfig model = architecture.facts();
  model.hidden_dropout = model.attention_dropout = 0;
  read_sizes(architecture, keys, model);
  if (architecture.read != nullptr) architecture.read(keys, model);
  read_gguf_experts(architecture.experts, keys, model);
  if (model.positions == PositionKind::kRotary) read_gguf_rotary(keys, model);
  if (architecture.grows_queries) read_gguf_growth(keys, model);
  if (architecture.has_sections) check_gguf_sections(keys, model);
  if (architecture.plain_window && model.window_before &&
      model.rotary_scaling.kind != RotaryScaling::Kind::kNone)
    model.local_rotary_base = model.rotary_base;
  if (architecture.fractional_pairs && model.rotary_scaling.kind == RotaryScaling::Kind::kYarn)
    model.rotary_scaling.whole_pairs = false;
  check_architecture(architecture, keys, model);
  model.tied = architecture.ties_head || !keys.has_tensor(kGgufHead);
  model = model_in_gguf(model);
  try {
    model.check();
  } catch (const Error& error) {
    // It names flags, which the reader of this file did not give.
    throw Error(Fault::kData, "{}: describes a model that cannot be: {}", where, error.what());
  }
  return model;
}

ModelConfig model_in_gguf(ModelConfig model) {
  drop_parts_of_no_layer(model);
  model.init_deviation = ModelConfig{}.init_deviation;
  model.embedding_deviation.reset();
  if (model.latent) model.latent->norm_eps = 0;  // that of the other norms
  for (double* value :
       {&model.norm_eps, &model.rotary_base, &model.attention_soft_cap, &model.logit_soft_cap,
        &model.rotary_scaling.factor, &model.rotary_scaling.low, &model.rotary_scaling.high,
        &model.rotary_scaling.query_growth, &model.embedding_factor, &model.branch_factor,
        &model.logit_divisor})
    *value = in_fp32(*value);
  if (model.score_factor) model.score_factor = in_fp32(*model.score_factor);
  drop_usual_score_factor(model);
  if (model.local_rotary_base) model.local_rotary_base = in_fp32(*model.local_rotary_base);
  if (model.query_scalar == static_cast<double>(model.head_size)) model.query_scalar.reset();
  if (model.window_before && *model.window_before >= model.max_positions - 1 &&
      !has_local_base(model))
    model.window_before.reset();
  if (!model.window_before) {
    model.full_attention_every = model.full_attention_first = 0;
    model.local_rotary_base.reset();
  }
  if (model.experts) {
    ExpertFacts& facts = *model.experts;
    facts.weight_factor = in_fp32(facts.weight_factor);
    if (facts.groups.chosen == facts.groups.count) facts.groups = {};
    if (facts.dense_layers.empty()) model.ffn_hidden = model.expert_ffn_hidden();
    if (facts.ffn_hidden == model.ffn_hidden) facts.ffn_hidden = 0;
  }
  if (model.positions != PositionKind::kRotary) return model;
  if (!model.latent) {
    model.rotary_share =
        static_cast<double>(model.rotary_channels()) / static_cast<double>(model.head_size);
  }
  RotaryScaling& scaling = model.rotary_scaling;
  using Kind = RotaryScaling::Kind;
  if (scaling.kind == Kind::kDynamic && scaling.original_positions >= model.max_positions)
    scaling = {};
  if (scaling.kind == Kind::kYarn) scaling = yarn_in_gguf(scaling, model.latent.has_value());
  if (scaling.kind == Kind::kLinear) scaling.original_positions = model.max_positions;
  if (scaling.kind == Kind::kLongrope) {
    scaling.magnitude = in_fp32(rotary_magnitude(scaling));
    scaling.factor =
        static_cast<double>(model.max_positions) / static_cast<double>(scaling.original_positions);
    for (std::vector<double>* factors : {&scaling.short_factors, &scaling.long_factors}) {
      for (double& factor : *factors) factor = in_fp32(factor);
    }
  }
  return model;
}

GgufDescription describe_gguf(const ModelConfig& model, const std::string& preferred,
                              const std::string& where) {
  std::vector<GgufArchitecture> architectures = gguf_architectures();
  for (const std::string& family : {model.family, preferred}) {  // the last comes first
    std::stable_partition(architectures.begin(), architectures.end(),
                          [&](const GgufArchitecture& one) { return is_of(one, family); });
  }
  const ModelConfig said = model_in_gguf(model);
  std::string why;
  bool has_places = false;  // in the architecture that `why` is about
  for (const GgufArchitecture& architecture : architectures) {
    std::string fault;
    const bool placed = can_be_placed(architecture, said);
    try {
      if (!placed) throw Error(Fault::kData, "it stores these tensors in another layout");
      GgufDescription description = described_in(architecture, said);
      const std::string lost = model_difference(said, gguf_model(description, "its keys"));
      if (lost.empty()) return description;
      fault = "there is no word for " + lost;
    } catch (const Error& error) {
      fault = error.what();
    }
    // Few have layers with states: of those that do not, nothing would be said of the model.
    const bool is_nearer = placed && !has_places &&
                           (said.state_layers() > 0 || is_of(architecture, preferred) ||
                            is_of(architecture, model.family));
    if (!why.empty() && !is_nearer) continue;
    why = fmt::format("as \"{}\": {}", architecture.name, fault);
    has_places = placed;
  }
  throw Error(Fault::kData,
              "{}: no architecture of llama.cpp holds this model ({}): {}; convert it to another "
              "format",
              where, model.family, why);
}

}  // namespace piton
