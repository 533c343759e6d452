// Forms of LLaMA: Arcee, SmolLM3, GLM-4, ERNIE 4.5 and gpt-oss.
#include "gguf/forms.h"
#include "gguf/gguf_window.h"
#include "model/families.h"

namespace piton {
namespace {

ModelConfig arcee_facts() {
  ModelConfig facts = llama_facts();
  facts.gated = false;
  facts.activation = ActivationKind::kSquaredRelu;
  return facts;
}

// llama.cpp takes it for granted.
void read_smollm3(const GgufKeys&, ModelConfig& model) {
  constexpr std::int64_t kNoPositionsEvery = 4;
  model.no_rotary_every = model.layers >= kNoPositionsEvery ? kNoPositionsEvery : 0;
}

ModelConfig ernie4_5_facts() {
  ModelConfig facts = llama_facts();
  facts.rotary_pairs = true;
  return facts;
}

ModelConfig glm4_facts() {
  ModelConfig facts = ernie4_5_facts();
  facts.end_norms = true;
  return facts;
}

void read_glm4(const GgufKeys& keys, ModelConfig& model) {
  model.qkv_biases = keys.has_tensor("blk.0.attn_q.bias");
}

// llama.cpp takes the bound of the gates and which layers have the window for granted.
void read_gpt_oss(const GgufKeys& keys, ModelConfig& model) {
  read_gguf_window(keys, model);
  if (model.window_before) model.full_attention_every = 2;
  model.qkv_biases = keys.has_tensor("blk.0.attn_q.bias");
  model.output_bias = keys.has_tensor("blk.0.attn_output.bias");
}

}  // namespace

std::vector<GgufArchitecture> rms_norm_forms() {
  return {{.name = "arcee",
           .families = {"arcee"},
           .facts = arcee_facts,
           .pairs = true,
           .whole_heads_turn = true},
          {.name = "smollm3",
           .families = {"smollm3"},
           .facts = llama_facts,
           .read = read_smollm3,
           .pairs = true,
           .whole_heads_turn = true},
          {.name = "glm4",
           .families = {"glm4"},
           .facts = glm4_facts,
           .read = read_glm4,
           .keeps_pairs = true,
           .packed_mlp = true,
           .heads_fill_width = true},
          {.name = "ernie4_5",
           .families = {"ernie4_5"},
           .facts = ernie4_5_facts,
           .keeps_pairs = true,
           .whole_heads_turn = true},
          {.name = "gpt-oss",
           .families = {"gpt_oss"},
           .facts = gpt_oss_facts,
           .read = read_gpt_oss,
           .write = write_gguf_window,
           .experts = GgufExperts::kAll,
           .whole_heads_turn = true,
           .norm_after_attention = true,
           .fractional_pairs = true}};
}

}  // namespace piton
