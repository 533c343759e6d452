// Forms of LLaMA: Ministral 3, EXAONE 3, Granite, MiniCPM, OLMo 2 and 3, Arcee, SmolLM3, GLM-4,
// ERNIE 4.5, EXAONE 4, Hunyuan, Seed-OSS and gpt-oss.
#include <cmath>
#include <utility>

#include "base/error.h"
#include "gguf/forms.h"
#include "gguf/gguf_window.h"
#include "model/families.h"

namespace piton {
namespace {

// OLMo 3 is of this architecture too.
void read_olmo2(const GgufKeys& keys, ModelConfig& model) {
  read_gguf_window(keys, model);
  if (model.window_before) read_gguf_pattern(keys, 4, model);
}

void write_olmo2(const ModelConfig& model, GgufDescription& out) {
  write_gguf_window(model, out);
  write_gguf_pattern(model, 4, out);
}

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

ModelConfig exaone4_facts() {
  ModelConfig facts = llama_facts();
  facts.start_norms = false;
  facts.end_norms = facts.head_norms = true;
  return facts;
}

// llama.cpp knows the model with a window by its layers; those without it have no positions.
constexpr std::int64_t kLayersOfExaone32B = 64;

void read_exaone4(const GgufKeys& keys, ModelConfig& model) {
  if (model.layers != kLayersOfExaone32B) return;
  model.window_before = keys.size("attention.sliding_window", 4096) - 1;
  read_gguf_pattern(keys, 4, model);
  model.no_rotary_every = model.full_attention_every;
}

void write_exaone4(const ModelConfig& model, GgufDescription& out) {
  if (model.layers != kLayersOfExaone32B) return;
  write_required_gguf_window(model, out);
  write_gguf_pattern(model, 4, out);
}

ModelConfig hunyuan_facts() {
  ModelConfig facts = llama_facts();
  facts.head_norms = facts.norms_after_rotary = true;
  return facts;
}

// llama.cpp takes the bound of the gates for granted.
void read_gpt_oss(const GgufKeys& keys, ModelConfig& model) {
  read_gguf_window(keys, model);
  if (model.window_before) read_gguf_pattern(keys, 2, model);
  read_qkv_biases(keys, model);
  model.output_bias = keys.has_tensor("blk.0.attn_output.bias");
}

void write_gpt_oss(const ModelConfig& model, GgufDescription& out) {
  if (!model.output_bias)
    throw Error(Fault::kData, "llama.cpp has a bias of attention's output projection there");
  write_required_gguf_window(model, out);
  write_gguf_pattern(model, 2, out);
}

constexpr GgufExperts with_experts_always(GgufExperts form) {
  form.have = GgufPart::kAlways;
  return form;
}

// Granite and MiniCPM.
std::vector<GgufArchitecture> forms_with_factors() {
  return {{.name = "granite",
           .families = {"granite", "granitemoehybrid"},
           .facts = granite_facts,
           .read = read_granite,
           .write = write_granite,
           .pairs = true,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .divides_angles = true,
           .has_longrope = true},
          {.name = "granitemoe",
           .families = {"granitemoe", "granitemoehybrid"},
           .family_of_shared = "granitemoehybrid",
           .facts = granite_facts,
           .read = read_granite,
           .write = write_granite,
           .experts = with_experts_always(kExpertsOfGranite),
           .pairs = true,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .divides_angles = true,
           .has_longrope = true},
          {.name = "minicpm",
           .families = {"minicpm"},
           .facts = llama_facts,
           .read = read_granite,
           .write = write_granite,
           .pairs = true,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .has_longrope = true}};
}

std::vector<GgufArchitecture> other_forms() {
  return {{.name = "olmo2",
           .families = {"olmo2"},
           .facts = olmo2_facts,
           .read = read_olmo2,
           .write = write_olmo2,
           .heads_fill_width = true,
           .copies_head = true,
           .has_window = true,
           .plain_window = true},
          {.name = "arcee",
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
           .read = read_qkv_biases,
           .keeps_pairs = true,
           .packed_mlp = true,
           .heads_fill_width = true},
          {.name = "ernie4_5",
           .families = {"ernie4_5"},
           .facts = ernie4_5_facts,
           .keeps_pairs = true,
           .whole_heads_turn = true},
          {.name = "exaone4",
           .families = {"exaone4"},
           .facts = exaone4_facts,
           .read = read_exaone4,
           .write = write_exaone4,
           .whole_heads_turn = true,
           .heads_fill_width = true,
           .divides_angles = true,
           .has_window = true},
          {.name = "mistral3",
           .families = {"ministral3"},
           .facts = llama_facts,
           .pairs = true,
           .whole_heads_turn = true,
           .grows_queries = true},
          {.name = "exaone",
           .families = {"exaone"},
           .facts = llama_facts,
           .whole_heads_turn = true,
           .divides_angles = true},
          {.name = "hunyuan-dense",
           .families = {"hunyuan_v1_dense"},
           .facts = hunyuan_facts,
           .read = read_qkv_biases,
           .whole_heads_turn = true},
          {.name = "seed_oss",
           .families = {"seed_oss"},
           .facts = llama_facts,
           .read = read_qkv_biases,
           .whole_heads_turn = true,
           .norm_after_attention = true},
          {.name = "gpt-oss",
           .families = {"gpt_oss"},
           .facts = gpt_oss_facts,
           .read = read_gpt_oss,
           .write = write_gpt_oss,
           .experts = {.have = GgufPart::kAlways, .own_width = true},
           .whole_heads_turn = true,
           .norm_after_attention = true,
           .copies_head = true,
           .fractional_pairs = true,
           .has_window = true}};
}

}  // namespace

void read_granite(const GgufKeys& keys, ModelConfig& model) {
  read_biases(keys, model);
  read_gguf_window(keys, model);
  model.embedding_factor = keys.number("embedding_scale", 1.0);
  model.branch_factor = keys.number("residual_scale", 1.0);
  model.logit_divisor = keys.number("logit_scale");
  if (keys.has("attention.scale")) model.score_factor = keys.number("attention.scale");
  // llama.cpp's word for whether there are positions.
  if (!keys.flag("rope.scaling.finetuned", true)) model.positions = PositionKind::kNone;
}

void write_granite(const ModelConfig& model, GgufDescription& out) {
  write_gguf_window(model, out);
  out.add("embedding_scale", GgufValue::f32(model.embedding_factor));
  out.add("residual_scale", GgufValue::f32(model.branch_factor));
  out.add("logit_scale", GgufValue::f32(model.logit_divisor));
  // llama.cpp wants all four in the file.
  out.add("attention.scale", GgufValue::f32(model.score_factor.value_or(
                                 1 / std::sqrt(static_cast<double>(model.head_size)))));
  if (model.positions == PositionKind::kNone)
    out.add("rope.scaling.finetuned", GgufValue::boolean(false));
}

void read_qkv_biases(const GgufKeys& keys, ModelConfig& model) {
  model.qkv_biases = keys.has_tensor("blk.0.attn_q.bias");
}

void read_biases(const GgufKeys& keys, ModelConfig& model) {
  read_qkv_biases(keys, model);
  model.output_bias = keys.has_tensor("blk.0.attn_output.bias");
  model.biases = keys.has_tensor("blk.0.ffn_up.bias");
}

std::vector<GgufArchitecture> rms_norm_forms() {
  std::vector<GgufArchitecture> forms = forms_with_factors();
  for (GgufArchitecture& one : other_forms()) forms.push_back(std::move(one));
  return forms;
}

}  // namespace piton
