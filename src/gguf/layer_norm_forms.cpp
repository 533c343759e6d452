// Architectures with layer norms: GPT-NeoX, StarCoder 2, Nemotron and Command R.
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

// Biases are those that the file has.
void read_nemotron(const GgufKeys& keys, ModelConfig& model) {
  model.qkv_biases = keys.has_tensor("blk.0.attn_q.bias");
  model.output_bias = keys.has_tensor("blk.0.attn_output.bias");
  model.biases = keys.has_tensor("blk.0.ffn_up.bias");
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
          {.name = "starcoder2",
           .families = {"starcoder2"},
           .facts = starcoder2_facts,
           .read = read_gguf_window,
           .write = write_gguf_window,
           .heads_fill_width = true},
          {.name = "nemotron",
           .families = {"nemotron"},
           .facts = nemotron_facts,
           .read = read_nemotron,
           .copies_head = true},
          {.name = "command-r",
           .families = {"cohere"},
           .facts = command_r_facts,
           .read = read_command_r,
           .write = write_command_r,
           .keeps_pairs = true,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .ties_head = true}};
}

}  // namespace piton
