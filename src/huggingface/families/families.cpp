#include "huggingface/families/families.h"

#include <utility>

namespace piton {
namespace {

// With experts or latent attention.
std::vector<HfFamily> newer_experts() {
  return {hf_dots1(),      hf_glm4_moe_lite(),     hf_youtu(),      hf_minicpm3(),
          hf_exaone_moe(), hf_hunyuan_moe(),       hf_minimax_m2(), hf_solar_open(),
          hf_mellum(),     hf_granite_moe_shared()};
}

std::vector<HfFamily> newer_families() {
  return {hf_ministral(), hf_ministral3(), hf_exaone(), hf_cwm(),      hf_iquestcoder(),
          hf_jais2(),     hf_bamba(),      hf_olmo(),   hf_nanochat(), hf_gpt_bigcode(),
          hf_gpt_neo(),   hf_mpt(),        hf_helium()};
}

}  // namespace

std::vector<HfFamily> hf_families() {
  std::vector<HfFamily> all{
      hf_gpt2(),          hf_llama(),       hf_mistral(),     hf_qwen2(),       hf_qwen3(),
      hf_bloom(),         hf_phi3(),        hf_gemma(),       hf_gemma2(),      hf_gemma3(),
      hf_stablelm(),      hf_baichuan(),    hf_internlm(),    hf_internlm2(),   hf_bert(),
      hf_megatron_bert(), hf_roberta(),     hf_t5(),          hf_mixtral(),     hf_qwen3_moe(),
      hf_qwen3_5(),       hf_qwen3_next(),  hf_qwen2_moe(),   hf_gpt_neox(),    hf_falcon(),
      hf_starcoder2(),    hf_internlm3(),   hf_ernie(),       hf_glm(),         hf_glm4(),
      hf_glm4_moe(),      hf_deepseek_v2(), hf_deepseek_v3(), hf_smollm3(),     hf_granite(),
      hf_granite4(),      hf_olmo2(),       hf_olmo3(),       hf_gptj(),        hf_phi(),
      hf_arcee(),         hf_nemotron(),    hf_seed_oss(),    hf_exaone4(),     hf_cohere(),
      hf_cohere2(),       hf_olmoe(),       hf_granite_moe(), hf_ernie_moe(),   hf_hunyuan(),
      hf_opt(),           hf_gpt_oss(),     hf_minicpm(),     hf_qwen3_5_moe(), hf_mamba2(),
      hf_nemotron_h(),    hf_lfm2(),        hf_lfm2_moe()};
  for (auto* some : {newer_experts, newer_families})
    for (HfFamily& one : some()) all.push_back(std::move(one));
  return all;
}

}  // namespace piton
