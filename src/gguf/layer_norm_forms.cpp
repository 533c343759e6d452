// Architectures with layer norms: GPT-NeoX, Falcon, StarCoder 1 and 2, Nemotron, Jais 2, Command R
// and R7B, Phi, OLMo 1 and MPT.
#include "gguf/forms.h"
#include "gguf/gguf_window.h"
#include "model/families.h"

namespace piton {
namespace {

// llama.cpp computes the tanh form of GELU; the models have the exact one.
void read_gpt_neox(const GgufKeys& keys, ModelConfig& model) {
  model.parallel_residual = keys.flag("use_parallel_residual", true);
}

void write_gpt_neox(const ModelConfig& model, GgufDescription& out) {
  out.add("use_parallel_residual", GgufValue::boolean(model.parallel_residual));
}

// llama.cpp computes the tanh form of GELU here too.
ModelConfig falcon_facts() {
  ModelConfig facts = gpt_neox_facts();
  facts.biases = facts.qkv_biases = facts.output_bias = false;
  facts.parallel_residual = true;
  return facts;
}

void read_falcon(const GgufKeys& keys, ModelConfig& model) {
  model.single_norm = !keys.has_tensor("blk.0.attn_norm_2.weight");
}

ModelConfig plain_mlp_facts(ActivationKind activation) {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  facts.gated = false;
  facts.activation = activation;
  return facts;
}

ModelConfig starcoder2_facts() {
  ModelConfig facts = plain_mlp_facts(ActivationKind::kGeluTanh);
  facts.biases = facts.qkv_biases = facts.output_bias = true;
  return facts;
}

ModelConfig nemotron_facts() {
  ModelConfig facts = plain_mlp_facts(ActivationKind::kSquaredRelu);
  facts.gains_from_one = true;
  return facts;
}

void write_nemotron(const ModelConfig& model, GgufDescription&) {
  if (model.heads * model.head_size != model.hidden)
    throw Error(Fault::kData, "llama.cpp has heads that are together as wide as the stream there");
}

// llama.cpp knows no bound of queries, keys and values there.
ModelConfig olmo_facts() {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  facts.norm_biases = facts.norm_gains = false;
  return facts;
}

ModelConfig jais2_facts() {
  ModelConfig facts = plain_mlp_facts(ActivationKind::kSquaredRelu);
  facts.biases = facts.qkv_biases = facts.output_bias = true;
  return facts;
}

ModelConfig command_r_facts() {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  facts.norm_biases = false;
  facts.parallel_residual = facts.single_norm = true;
  facts.rotary_pairs = true;
  return facts;
}

void read_command_r(const GgufKeys& keys, ModelConfig& model) {
  model.logit_divisor = 1 / keys.number("logit_scale");
}

void write_command_r(const ModelConfig& model, GgufDescription& out) {
  out.add("logit_scale", GgufValue::f32(1 / model.logit_divisor));
}

// Layers without the window have no positions, which llama.cpp takes for granted.
void read_cohere2(const GgufKeys& keys, ModelConfig& model) {
  read_command_r(keys, model);
  model.window_before = keys.size("attention.sliding_window") - 1;
  read_gguf_pattern(keys, 4, model);
  model.no_rotary_every = model.full_attention_every;
}

void write_cohere2(const ModelConfig& model, GgufDescription& out) {
  write_command_r(model, out);
  write_required_gguf_window(model, out);
  ModelConfig layers = model;
  layers.window_before = model.max_positions;
  layers.full_attention_every = model.no_rotary_every;
  write_gguf_pattern(layers, 4, out);
}

}  // namespace

std::vector<GgufArchitecture> layer_norm_forms() {
  return {{.name = "gptneox",
           .families = {"gpt_neox"},
           .facts = gpt_neox_facts,
           .read = read_gpt_neox,
           .write = write_gpt_neox,
           .packed_attention = true,
           .heads_fill_width = true,
           .copies_head = true},
          {.name = "falcon",
           .families = {"falcon"},
           .facts = falcon_facts,
           .read = read_falcon,
           .packed_attention = true,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .norms_in_turn = true},
          {.name = "starcoder2",
           .families = {"starcoder2"},
           .facts = starcoder2_facts,
           .read = read_gguf_window,
           .write = write_gguf_window,
           .heads_fill_width = true},
          {.name = "nemotron",
           .families = {"nemotron"},
           .facts = nemotron_facts,
           .read = read_biases,
           .write = write_nemotron,
           .copies_head = true},
          {.name = "jais2",
           .families = {"jais2"},
           .facts = jais2_facts,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .copies_head = true},
          {.name = "olmo",
           .families = {"olmo"},
           .facts = olmo_facts,
           .pairs = true,
           .whole_heads_turn = true,
           .heads_fill_width = true},
          {.name = "starcoder",
           .families = {"gpt_bigcode"},
           .facts = gpt2_facts,
           .packed_attention = true,
           .heads_fill_width = true},
          {.name = "command-r",
           .families = {"cohere"},
           .facts = command_r_facts,
           .read = read_command_r,
           .write = write_command_r,
           .keeps_pairs = true,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .ties_head = true},
          {.name = "cohere2",
           .families = {"cohere2"},
           .facts = command_r_facts,
           .read = read_cohere2,
           .write = write_cohere2,
           .keeps_pairs = true,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .ties_head = true,
           .has_window = true},
          {.name = "phi2",
           .families = {"phi"},
           .facts = phi_facts,
           .heads_fill_width = true,
           .copies_head = true}};
}

}  // namespace piton
