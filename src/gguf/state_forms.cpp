// Models with layers of Mamba-2: Granite 4 with some of them, and Mamba-2, which has no others.
// Nemotron-H has blocks of one kind each. LFM2 has short convolutions in most layers.
#include "base/error.h"
#include "gguf/forms.h"
#include "gguf/gguf_states.h"
#include "model/families.h"

namespace piton {
namespace {

// Biases of attention are in all layers that have it.
void read_granite_hybrid(const GgufKeys& keys, ModelConfig& model) {
  read_granite(keys, model);
  if (!model.state_space || model.state_space->attention_layers.empty()) return;
  const std::int64_t layer = model.state_space->attention_layers.front();
  model.qkv_biases = keys.has_tensor(fmt::format("blk.{}.attn_q.bias", layer));
  model.output_bias = keys.has_tensor(fmt::format("blk.{}.attn_output.bias", layer));
}

void write_granite_hybrid(const ModelConfig& model, GgufDescription& out) {
  write_granite(model, out);
  write_gguf_states(model, out);
}

void read_mamba2(const GgufKeys& keys, ModelConfig& model) {
  read_gguf_states(keys, model);
  leave_out_mlps(model);
  drop_parts_of_no_layer(model);
}

void write_mamba2(const ModelConfig& model, GgufDescription& out) {
  if (model.state_layers() != model.layers || std::ssize(model.bare_layers) != model.layers)
    throw Error(Fault::kData, "llama.cpp has layers of Mamba-2 alone there, without MLPs");
  write_gguf_states(model, out);
}

// Nemotron-H.
ModelConfig nemotron_h_facts() {
  ModelConfig facts = llama_facts();
  facts.positions = PositionKind::kNone;
  facts.rotary_base = ModelConfig{}.rotary_base;
  facts.gated = false;
  facts.activation = ActivationKind::kSquaredRelu;
  return facts;
}

GgufArchitecture nemotron_h_form() {
  return {.name = "nemotron_h",
          .families = {"nemotron_h"},
          .facts = nemotron_h_facts,
          .states = GgufStates::kLetters};
}

GgufArchitecture nemotron_h_moe_form() {
  GgufArchitecture form = nemotron_h_form();
  form.name = "nemotron_h_moe";
  form.experts = {.have = GgufPart::kAlways,
                  .own_width = true,
                  .says_rule = true,
                  .score = ScoreKind::kSigmoid,
                  .choice_bias = GgufPart::kAlways,
                  .in_letters = true,
                  .shared = GgufPart::kAlways,
                  .shared_width = true};
  return form;
}

GgufArchitecture lfm2_form() {
  return {.name = "lfm2",
          .families = {"lfm2"},
          .facts = lfm2_facts,
          .read_heads = read_convolution_heads,
          .write_heads = write_convolution_heads,
          .heads_fill_width = true,
          .convolutions = true};
}

GgufArchitecture lfm2_moe_form() {
  GgufArchitecture form = lfm2_form();
  form.name = "lfm2moe";
  form.families = {"lfm2_moe"};
  form.facts = lfm2_moe_facts;
  form.experts = {.have = GgufPart::kAlways,
                  .own_width = true,
                  .says_score = true,
                  .score = ScoreKind::kSigmoid,
                  .choice_bias = GgufPart::kAlways,
                  .dense_first = true};
  return form;
}

}  // namespace

std::vector<GgufArchitecture> state_forms() {
  return {{.name = "granitehybrid",
           .families = {"granitemoehybrid"},
           .facts = granite_facts,
           .read = read_granite_hybrid,
           .write = write_granite_hybrid,
           .read_heads = read_hybrid_heads,
           .write_heads = write_hybrid_heads,
           .experts = kExpertsOfGranite,
           .pairs = true,
           .always_pairs = true,
           .whole_heads_turn = true,
           .divides_angles = true,
           .states = GgufStates::kSome},
          {.name = "mamba2",
           .families = {"mamba2"},
           .facts = mamba2_facts,
           .read = read_mamba2,
           .write = write_mamba2,
           .states = GgufStates::kAll},
          nemotron_h_form(),
          nemotron_h_moe_form(),
          lfm2_form(),
          lfm2_moe_form()};
}

}  // namespace piton
