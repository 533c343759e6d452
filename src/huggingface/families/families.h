// The families of this folder: one or several of each file.
#pragma once

#include <vector>

#include "huggingface/families/hf_family.h"

namespace piton {

// All known families.
std::vector<HfFamily> hf_families();

HfFamily hf_arcee();
HfFamily hf_glm4_moe();
HfFamily hf_gpt_oss();
HfFamily hf_gptj();
HfFamily hf_granite();
HfFamily hf_granite4();
HfFamily hf_olmo2();
HfFamily hf_olmo3();
HfFamily hf_gpt2();
HfFamily hf_gpt_neox();
HfFamily hf_falcon();
HfFamily hf_smollm3();
HfFamily hf_starcoder2();
HfFamily hf_llama();
HfFamily hf_baichuan();
HfFamily hf_bert();
HfFamily hf_megatron_bert();
HfFamily hf_roberta();
HfFamily hf_bloom();
HfFamily hf_deepseek_v2();
HfFamily hf_deepseek_v3();
HfFamily hf_gemma();
HfFamily hf_gemma2();
HfFamily hf_gemma3();
HfFamily hf_internlm();
HfFamily hf_internlm2();
HfFamily hf_internlm3();
HfFamily hf_cohere();
HfFamily hf_cohere2();
HfFamily hf_ernie();
HfFamily hf_ernie_moe();
HfFamily hf_exaone4();
HfFamily hf_granite_moe();
HfFamily hf_hunyuan();
HfFamily hf_olmoe();
HfFamily hf_opt();
HfFamily hf_seed_oss();
HfFamily hf_glm();
HfFamily hf_glm4();
HfFamily hf_mamba2();
HfFamily hf_lfm2();
HfFamily hf_lfm2_moe();
HfFamily hf_minicpm();
HfFamily hf_mistral();
HfFamily hf_mixtral();
HfFamily hf_nemotron();
HfFamily hf_nemotron_h();
HfFamily hf_phi();
HfFamily hf_phi3();
HfFamily hf_qwen2();
HfFamily hf_qwen3();
HfFamily hf_qwen2_moe();
HfFamily hf_qwen3_moe();
HfFamily hf_qwen3_5();
HfFamily hf_qwen3_5_moe();
HfFamily hf_qwen3_next();
HfFamily hf_stablelm();
HfFamily hf_t5();
HfFamily hf_ministral();
HfFamily hf_ministral3();
HfFamily hf_dots1();
HfFamily hf_glm4_moe_lite();
HfFamily hf_youtu();
HfFamily hf_minicpm3();
HfFamily hf_exaone_moe();
HfFamily hf_exaone();
HfFamily hf_hunyuan_moe();
HfFamily hf_minimax_m2();
HfFamily hf_solar_open();
HfFamily hf_cwm();
HfFamily hf_iquestcoder();
HfFamily hf_jais2();
HfFamily hf_mellum();
HfFamily hf_bamba();
HfFamily hf_granite_moe_shared();
HfFamily hf_olmo();
HfFamily hf_nanochat();
HfFamily hf_gpt_bigcode();
HfFamily hf_gpt_neo();
HfFamily hf_mpt();
HfFamily hf_helium();

}  // namespace piton
