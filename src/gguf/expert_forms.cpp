// Mixtures of experts whose rules, or attention, are not those of Mixtral: Qwen 2 MoE, DeepSeek-V2
// and V3, GLM-4.5, dots.llm1, MiniMax-M2, Hunyuan, ERNIE 4.5 and OLMoE.
#include "base/error.h"
#include "gguf/forms.h"
#include "model/families.h"

namespace piton {
namespace {

constexpr std::int64_t kMostChannels = 65536;

// Latent attention. In llama.cpp it has one key-value head of a latent and the channels that all
// heads share, which key_length and value_length are of; older files have those of the heads.
void read_latent_heads(const GgufKeys& keys, ModelConfig& model) {
  LatentFacts facts{.rank = keys.size("attention.kv_lora_rank"),
                    .turned = keys.size("rope.dimension_count")};
  if (keys.has_tensor("blk.0.attn_q_a.weight"))
    facts.query_rank = keys.size("attention.q_lora_rank");
  const bool joint = keys.has("attention.key_length_mla");
  const std::string heads = joint ? "attention.key_length_mla" : "attention.key_length";
  facts.own = keys.size(heads) - facts.turned;
  if (facts.own < 1) keys.refuse(heads, "more than rope.dimension_count");
  if (facts.own > kMostChannels) keys.refuse(heads, "65536 channels of a head at most");
  const std::string values = joint ? "attention.value_length_mla" : "attention.value_length";
  facts.value = keys.size(values);
  if (facts.value > kMostChannels) keys.refuse(values, "65536 channels of a head at most");
  if (joint && keys.size("attention.key_length") != facts.rank + facts.turned)
    keys.refuse("attention.key_length", "attention.kv_lora_rank and rope.dimension_count together");
  if (joint && keys.size("attention.value_length") != facts.rank)
    keys.refuse("attention.value_length", "attention.kv_lora_rank");
  model.latent = facts;
  model.groups = model.heads;
  model.head_size = facts.head_size();
}

// llama.cpp knows the models whose queries have no latent by their layers: it reads no width of it
// there. Of all others it wants one, 0 if there is none.
bool has_layers_of_lite(const ModelConfig& model) {
  constexpr std::int64_t kLite = 27, kGigaChat = 26, kKanana = 48, kKananaVocabulary = 128256;
  return model.layers == kLite || model.layers == kGigaChat ||
         (model.layers == kKanana && model.vocabulary == kKananaVocabulary);
}

void write_latent_heads(const ModelConfig& model, GgufDescription& out) {
  const LatentFacts& facts = *model.latent;
  if (has_layers_of_lite(model) && facts.query_rank != 0) {
    throw Error(Fault::kData, "llama.cpp has no latent of queries in models of {} layers",
                model.layers);
  }
  if (!has_layers_of_lite(model))
    out.add("attention.q_lora_rank", GgufValue::u32(facts.query_rank));
  out.add("attention.kv_lora_rank", GgufValue::u32(facts.rank));
  out.add("attention.head_count_kv", GgufValue::u32(1));
  out.add("attention.key_length", GgufValue::u32(facts.rank + facts.turned));
  out.add("attention.value_length", GgufValue::u32(facts.rank));
  out.add("attention.key_length_mla", GgufValue::u32(facts.head_size()));
  out.add("attention.value_length_mla", GgufValue::u32(facts.value));
}

ModelConfig glm4_moe_form() {
  ModelConfig facts = glm4_moe_facts();
  facts.experts.reset();
  return facts;
}

void read_glm4_moe(const GgufKeys& keys, ModelConfig& model) {
  read_qkv_biases(keys, model);
  model.head_norms = keys.has_tensor("blk.0.attn_q_norm.weight");
}

ModelConfig ernie_moe_facts() {
  ModelConfig facts = llama_facts();
  facts.rotary_pairs = true;
  return facts;
}

ModelConfig dots1_facts() {
  ModelConfig facts = glm4_moe_form();
  facts.head_norms = true;
  facts.qkv_biases = false;
  facts.rotary_share = 1;
  return facts;
}

ModelConfig minimax_m2_facts() {
  ModelConfig facts = llama_facts();
  facts.head_norms = facts.joint_head_norms = true;
  return facts;
}

ModelConfig hunyuan_moe_facts() {
  ModelConfig facts = llama_facts();
  facts.head_norms = facts.norms_after_rotary = true;
  return facts;
}

// llama.cpp has tensors of experts in all layers after the first ones.
constexpr const char* kInterval = "interleave_moe_layer_step";

void read_ernie_moe(const GgufKeys& keys, ModelConfig&) {
  if (keys.size(kInterval) != 1) keys.refuse(kInterval, "1");
}

void write_ernie_moe(const ModelConfig&, GgufDescription& out) {
  out.add(kInterval, GgufValue::u32(1));
}

ModelConfig olmoe_facts() {
  ModelConfig facts = llama_facts();
  facts.head_norms = facts.joint_head_norms = true;
  return facts;
}

// Of OLMoE llama.cpp's norm of all key heads is as wide as the residual stream, of dots.llm1 keys
// are as wide as queries.
void write_a_key_for_each_head(const ModelConfig& model, GgufDescription&) {
  if (model.groups != model.heads)
    throw Error(Fault::kData, "llama.cpp has a key-value head for each head there");
}

constexpr GgufExperts kOfDeepSeek{.have = GgufPart::kMaybe,
                                  .own_width = true,
                                  .says_rule = true,
                                  .choice_bias = GgufPart::kMaybe,
                                  .dense_first = true,
                                  .shared = GgufPart::kAlways};
constexpr GgufExperts kOfGlm{.have = GgufPart::kAlways,
                             .own_width = true,
                             .says_rule = true,
                             .score = ScoreKind::kSigmoid,
                             .choice_bias = GgufPart::kAlways,
                             .dense_first = true,
                             .shared = GgufPart::kAlways};
constexpr GgufExperts kOfDots{.have = GgufPart::kAlways,
                              .own_width = true,
                              .says_rule = true,
                              .choice_bias = GgufPart::kMaybe,
                              .dense_first = true,
                              .shared = GgufPart::kAlways};
constexpr GgufExperts kOfMinimax{.have = GgufPart::kAlways,
                                 .own_width = true,
                                 .says_score = true,
                                 .choice_bias = GgufPart::kAlways};
constexpr GgufExperts kOfHunyuan{.have = GgufPart::kAlways,
                                 .own_width = true,
                                 .shared = GgufPart::kAlways,
                                 .shared_width = true};
constexpr GgufExperts kOfErnie{.have = GgufPart::kAlways,
                               .own_width = true,
                               .choice_bias = GgufPart::kMaybe,
                               .dense_first = true,
                               .shared = GgufPart::kMaybe,
                               .shared_width = true};
constexpr GgufExperts kOfQwen2{.have = GgufPart::kAlways,
                               .own_width = true,
                               .normalized = false,
                               .shared = GgufPart::kAlways,
                               .shared_width = true,
                               .shared_gate = true};

}  // namespace

std::vector<GgufArchitecture> expert_forms() {
  return {{.name = "qwen2moe",
           .families = {"qwen2_moe"},
           .facts = qwen2_moe_facts,
           .read = read_qkv_biases,
           .experts = kOfQwen2,
           .heads_fill_width = true,
           .copies_head = true},
          {.name = "deepseek2",
           .families = {"deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu"},
           .family_of_sigmoids = "deepseek_v3",
           .facts = deepseek_v2_facts,
           .read_heads = read_latent_heads,
           .write_heads = write_latent_heads,
           .experts = kOfDeepSeek,
           .keeps_pairs = true,
           .has_later_layers = true,
           .latent = true},
          {.name = "glm4moe",
           .families = {"glm4_moe"},
           .facts = glm4_moe_form,
           .read = read_glm4_moe,
           .experts = kOfGlm,
           .norm_after_attention = true,
           .has_later_layers = true},
          {.name = "dots1",
           .families = {"dots1"},
           .facts = dots1_facts,
           .write = write_a_key_for_each_head,
           .experts = kOfDots,
           .whole_heads_turn = true,
           .copies_head = true},
          {.name = "minimax-m2",
           .families = {"minimax_m2"},
           .facts = minimax_m2_facts,
           .experts = kOfMinimax,
           .copies_head = true},
          {.name = "hunyuan-moe",
           .families = {"hunyuan_v1_moe"},
           .facts = hunyuan_moe_facts,
           .read = read_qkv_biases,
           .experts = kOfHunyuan,
           .whole_heads_turn = true},
          {.name = "ernie4_5-moe",
           .families = {"ernie4_5_moe"},
           .facts = ernie_moe_facts,
           .read = read_ernie_moe,
           .write = write_ernie_moe,
           .experts = kOfErnie,
           .keeps_pairs = true,
           .whole_heads_turn = true},
          {.name = "olmoe",
           .families = {"olmoe"},
           .facts = olmoe_facts,
           .write = write_a_key_for_each_head,
           .experts = {.have = GgufPart::kAlways, .normalized = false},
           .heads_fill_width = true,
           .copies_head = true}};
}

}  // namespace piton
