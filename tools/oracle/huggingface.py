"""Hugging Face folders of small random models, and what Transformers computes of them.

  python tools/oracle/huggingface.py golden tests/golden/huggingface [NAME ...]   (torch 2.15, transformers 5.23, safetensors)
  python tools/oracle/huggingface.py gradients tests/golden/huggingface [NAME ...]
  python tools/oracle/huggingface.py compare build/piton [--work DIR] [NAME ...]
  python tools/oracle/huggingface.py stories build/piton --work ../shared/data/weights/stories260K

`golden` writes a folder for each case of GOLDEN: config.json and model.safetensors as Transformers saves them, and
expected.safetensors: `tokens` (int32), `logits` (fp32 [tokens, vocabulary], computed in float64) and `greedy` (the
tokens that greedy decoding puts after the first PROMPT). `gradients` adds gradients.safetensors: `loss`, the mean over
the tokens that follow another, its gradient by every tensor under the name that the tensor has in the files, and for those
of STEPS the `losses` and `norms` of ten steps of torch.optim.AdamW (matrices decay, the rest does not; gradients clipped
to norm 1) on the batches `batches`. Models that Transformers does not have are published_models.py's. `compare` makes folders of every case, with a vocabulary of
50257, shards, 16-bit weights, padded and tied tables, and holds Piton's `score --logits` and `generate --greedy` against
Transformers: logits within 1e-4 in fp32, 64 greedy tokens equal. `stories` makes a folder of llama2.c's stories260K.bin and
holds the same against its weights_golden_260K.json, which was computed apart from all of this.
"""
import argparse
import copy
import importlib.metadata as metadata
import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import published_models
import transformers
from float64 import in_float64
from safetensors.torch import load_file, save_file

PROMPT, NEW, LENGTH = 7, 64, 40
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}


LOCAL = ["sliding_attention", "full_attention"]


def llama_like(name, model=None, vocabulary=131, **more):
    sizes = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                 intermediate_size=53, vocab_size=vocabulary, max_position_embeddings=128, tie_word_embeddings=False)
    return getattr(transformers, name + "Config")(**{**sizes, **more}), getattr(transformers, (model or name) + "ForCausalLM")


def gpt2(vocabulary=131, **more):
    sizes = dict(n_layer=2, n_embd=36, n_head=6, n_inner=53, vocab_size=vocabulary, n_positions=128)
    return transformers.GPT2Config(**{**sizes, **more}), transformers.GPT2LMHeadModel


def bloom(vocabulary=131, **more):
    sizes = dict(n_layer=2, hidden_size=36, n_head=6, vocab_size=vocabulary, seq_length=128)
    return transformers.BloomConfig(**{**sizes, **more}), transformers.BloomForCausalLM


def mamba2(vocabulary=131, **more):
    sizes = dict(num_hidden_layers=3, hidden_size=32, num_heads=4, head_dim=16, state_size=12, n_groups=2, chunk_size=8, vocab_size=vocabulary,
                 tie_word_embeddings=True)
    return transformers.Mamba2Config(**{**sizes, **more}), transformers.Mamba2ForCausalLM


def nemotron_h(pattern, **more):
    config, model = llama_like("NemotronH", hybrid_override_pattern=pattern, **{**NEMOTRON_H, **more})
    return config, model


def longrope(original, long=(1.0, 2.0, 3.0, 4.5)):
    return llama_like("Phi3", original_max_position_embeddings=original, pad_token_id=0, rope_parameters={
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": original,
        "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": list(long)})


GOLDEN = {
    "gpt2": lambda: gpt2(n_inner=54),
    "llama": lambda: llama_like("Llama", rms_norm_eps=1e-6),
    "llama3": lambda: llama_like("Llama", rope_parameters=LLAMA3, tie_word_embeddings=True, intermediate_size=54),
    "qwen2": lambda: llama_like("Qwen2", tie_word_embeddings=True),
    "qwen3": lambda: llama_like("Qwen3", head_dim=12, intermediate_size=54),
    "mistral": lambda: llama_like("Mistral", sliding_window=9),
    **published_models.MODELS,
    "bloom": lambda: bloom(),
    "phi3": lambda: llama_like("Phi3", sliding_window=9, pad_token_id=0, intermediate_size=54),
}
# Soft caps that bend what they cap, and layers of both kinds.
GOLDEN |= {
    "gemma2": lambda: llama_like("Gemma2", num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=20, sliding_window=9, intermediate_size=54,
                                 attn_logit_softcapping=3.0, final_logit_softcapping=5.0, tie_word_embeddings=True),
    "gemma3": lambda: llama_like("Gemma3Text", "Gemma3", num_hidden_layers=4, head_dim=12, query_pre_attn_scalar=20,
                                 sliding_window=9, tie_word_embeddings=True, layer_types=LOCAL * 2, rope_parameters={
                                     "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                     "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}),
}
RENAMED = ("gpt2", "llama", "llama3", "qwen2", "qwen3", "mistral")  # and cut into shards by variants()
GOLDEN["stablelm"] = lambda: llama_like("StableLm", use_qkv_bias=True, rope_parameters={
    "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25})
GOLDEN["mixtral"] = lambda: llama_like("Mixtral", num_local_experts=5, num_experts_per_tok=2, intermediate_size=22)
GOLDEN["qwen3-moe"] = lambda: llama_like("Qwen3Moe", head_dim=12, num_experts=6, num_experts_per_tok=3,
                                         moe_intermediate_size=18)
GOLDEN["phi3-longrope"] = lambda: longrope(12, (4.0, 6.0, 8.0, 9.0))  # which the greedy text outgrows
GOLDEN["qwen2-moe"] = lambda: llama_like("Qwen2Moe", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=18,
                                         shared_expert_intermediate_size=26, mlp_only_layers=[0])
# The gated delta rule in three of four layers, with as many heads of values as of keys, or twice as many.
DELTA = dict(num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
             linear_value_head_dim=5)
GOLDEN["qwen3.5"] = lambda: llama_like("Qwen3_5Text", "Qwen3_5", **{**DELTA, "linear_num_value_heads": 2, "linear_value_head_dim": 7})
GOLDEN["qwen3-next"] = lambda: llama_like("Qwen3Next", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=18,
                                          shared_expert_intermediate_size=26, **DELTA)
# Values as wide as keys, which GGUF files have, and three heads of them to each of two keys. In few layers: what the rule gives is divided
# by its size, so that errors of small products grow from layer to layer.
SQUARE = {**DELTA, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 6,
          "linear_value_head_dim": 6}
GOLDEN["qwen3.5-heads"] = lambda: llama_like("Qwen3_5Text", "Qwen3_5", **{**SQUARE, "linear_key_head_dim": 8, "linear_value_head_dim": 8})
GOLDEN["qwen3.5-moe"] = lambda: llama_like("Qwen3_5MoeText", "Qwen3_5Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                                           shared_expert_intermediate_size=12, **SQUARE)
GOLDEN["gpt-neox"] = lambda: llama_like("GPTNeoX", rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                                                     "partial_rotary_factor": 0.5})
GOLDEN["falcon"] = lambda: llama_like("Falcon", new_decoder_architecture=True, num_kv_heads=2, ffn_hidden_size=53)
GOLDEN["falcon-7b"] = lambda: llama_like("Falcon", num_attention_heads=4, tie_word_embeddings=True)
GOLDEN["starcoder2"] = lambda: llama_like("Starcoder2", sliding_window=9, intermediate_size=54)
GOLDEN["smollm3"] = lambda: llama_like("SmolLM3", num_hidden_layers=4, no_rope_layer_interval=2, pad_token_id=None)
GOLDEN["internlm3"] = lambda: llama_like("InternLM3", "Llama", head_dim=12, attention_bias=True, mlp_bias=True)
GOLDEN["ernie4.5"] = lambda: llama_like("Ernie4_5", head_dim=12, tie_word_embeddings=True)
GOLDEN["glm4"] = lambda: llama_like("Glm4", head_dim=12, pad_token_id=0, eos_token_id=1, intermediate_size=54)

GOLDEN["glm4-moe"] = lambda: llama_like("Glm4Moe", n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=14, n_group=4, head_dim=12,
                                       topk_group=2, routed_scaling_factor=1.5, attention_bias=True, num_mtp_layers=0)

# All factors other than 1, and scores whose factor is not one over the root of a head's width.
FACTORS = dict(embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.5, attention_multiplier=0.2)
GOLDEN["granite"] = lambda: llama_like("Granite", intermediate_size=54, tie_word_embeddings=True, **FACTORS)
GOLDEN["granite4"] = lambda: llama_like("GraniteMoeHybrid", shared_intermediate_size=54, num_local_experts=0, num_experts_per_tok=0,
                                        layer_types=["attention"] * 2, mamba_n_heads=1, position_embedding_type="rope", **FACTORS)
# Layers of Mamba-2, whose samples are longer than a chunk. Without experts, positions or a head; with all of them, and B and C for two
# groups of heads. The embedding is small, so that greedy text is not one token all over.
MAMBA = dict(num_hidden_layers=4, layer_types=["mamba", "attention", "mamba", "mamba"], mamba_n_heads=4, mamba_d_head=16, mamba_d_state=16,
             mamba_chunk_size=8, shared_intermediate_size=54, num_local_experts=0, num_experts_per_tok=0, position_embedding_type="nope",
             tie_word_embeddings=True, **{**FACTORS, "embedding_multiplier": 0.5, "residual_multiplier": 0.8})
MAMBA_EXPERTS = {**MAMBA, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 12, "mamba_n_groups": 2, "num_local_experts": 4,
                 "num_experts_per_tok": 2, "intermediate_size": 18, "shared_intermediate_size": 26, "position_embedding_type": "rope",
                 "tie_word_embeddings": False}
GOLDEN["granite4-mamba"] = lambda: llama_like("GraniteMoeHybrid", **MAMBA)
GOLDEN["granite4-mamba-moe"] = lambda: llama_like("GraniteMoeHybrid", **MAMBA_EXPERTS)
GOLDEN["mamba2"] = mamba2
# Layers of one kind each, two of MLPs one after another. Transformers cuts off steps below time_step_min, which nobody else does, so it is next to 0.
NEMOTRON_H = dict(head_dim=12, mamba_num_heads=6, mamba_head_dim=8, ssm_state_size=12, n_groups=2, chunk_size=8, time_step_min=1e-9,
                  layer_norm_epsilon=1e-5, pad_token_id=None)
GOLDEN["nemotron-h"] = lambda: nemotron_h("M-M*--M")
GOLDEN["nemotron-h-moe"] = lambda: nemotron_h("MEM*EE-", n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=14, n_group=4,
                                              topk_group=2, routed_scaling_factor=1.5, moe_shared_expert_intermediate_size=26)
# Short convolutions of three and of five rows, without biases and with them; widths of MLPs that follow from others, and that are given.
LFM2 = dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"])
GOLDEN["lfm2"] = lambda: llama_like("Lfm2", **{**LFM2, "block_multiple_of": 6, "block_ffn_dim_multiplier": 1.3, "tie_word_embeddings": True})
GOLDEN["lfm2-biases"] = lambda: llama_like("Lfm2", **LFM2, head_dim=12, conv_bias=True, conv_L_cache=5, block_auto_adjust_ff_dim=False,
                                           intermediate_size=54)
GOLDEN["lfm2-moe"] = lambda: llama_like("Lfm2Moe", **LFM2, num_dense_layers=1, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=18,
                                        tie_word_embeddings=True, intermediate_size=54)
GOLDEN["olmo2"] = lambda: llama_like("Olmo2", intermediate_size=54, pad_token_id=None, eos_token_id=None)
GOLDEN["olmo3"] = lambda: llama_like("Olmo3", num_hidden_layers=4, sliding_window=9, pad_token_id=None, eos_token_id=None,
                                     layer_types=["sliding_attention", "full_attention"] * 2, rope_parameters={
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                         "full_attention": YARN})

GOLDEN["phi"] = lambda: llama_like("Phi", intermediate_size=54, num_key_value_heads=2, rope_parameters={
    "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25})
GOLDEN["gptj"] = lambda: (transformers.GPTJConfig(n_layer=2, n_embd=36, n_head=6, n_inner=54, vocab_size=131, n_positions=128,
                                                  rotary_dim=4), transformers.GPTJForCausalLM)

GOLDEN["arcee"] = lambda: llama_like("Arcee")
GOLDEN["nemotron"] = lambda: llama_like("Nemotron", head_dim=12)

GOLDEN["seed-oss"] = lambda: llama_like("SeedOss", head_dim=12, attention_out_bias=True)
GOLDEN["exaone4"] = lambda: llama_like("Exaone4", num_hidden_layers=4, sliding_window=9, layer_types=LOCAL * 2)
GOLDEN["cohere"] = lambda: llama_like("Cohere", logit_scale=0.3, tie_word_embeddings=True)
GOLDEN["cohere2"] = lambda: llama_like("Cohere2", num_hidden_layers=4, sliding_window=9, logit_scale=0.25, tie_word_embeddings=True,
                                       pad_token_id=None, layer_types=LOCAL * 2)
GOLDEN["olmoe"] = lambda: llama_like("Olmoe", num_experts=6, num_experts_per_tok=3, intermediate_size=18)
GOLDEN["granite-moe"] = lambda: llama_like("GraniteMoe", num_local_experts=5, num_experts_per_tok=2, intermediate_size=18, **FACTORS)
GOLDEN["ernie4.5-moe"] = lambda: llama_like("Ernie4_5_Moe", moe_num_experts=6, moe_k=3, moe_intermediate_size=18, tie_word_embeddings=True,
                                            moe_num_shared_experts=1)
GOLDEN["hunyuan"] = lambda: llama_like("HunYuanDenseV1", head_dim=12, rope_parameters={
    "rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 3.0, "factor": 1.0})
GOLDEN["opt"] = lambda: (transformers.OPTConfig(num_hidden_layers=2, hidden_size=36, num_attention_heads=6, ffn_dim=54, vocab_size=131,
                                                max_position_embeddings=128), transformers.OPTForCausalLM)


def gpt_oss(**more):
    sizes = dict(head_dim=12, num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=3, intermediate_size=18, sliding_window=9,
                 swiglu_limit=0.4, rope_parameters={**YARN, "truncate": False}, layer_types=None)
    return llama_like("GptOss", **{**sizes, **more})


GOLDEN["gpt-oss"] = lambda: gpt_oss()

# As V2-Lite is, and with all that V2 has; angles for longer texts that also scale the scores.
DEEPSEEK_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32,
                 "mscale": 0.8, "mscale_all_dim": 1.1, "beta_fast": 32, "beta_slow": 1}


def deepseek_v2(**more):
    sizes = dict(num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=6,
                 v_head_dim=12, n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=18,
                 first_k_dense_replace=1, rope_parameters=DEEPSEEK_YARN, intermediate_size=54)
    return llama_like("DeepseekV2", **{**sizes, **more})


def deepseek_v3(**more):
    sizes = dict(num_key_value_heads=4, q_lora_rank=14, kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12,
                 n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=18, n_group=4, topk_group=2,
                 first_k_dense_replace=1, rope_parameters=DEEPSEEK_YARN, intermediate_size=54, num_mtp_layers=0)
    return llama_like("DeepseekV3", **{**sizes, **more})


GOLDEN["deepseek-v2"] = lambda: deepseek_v2()
GOLDEN["deepseek-v2-ranks"] = lambda: deepseek_v2(q_lora_rank=14, first_k_dense_replace=2, v_head_dim=16, rope_parameters={
    "rope_type": "default", "rope_theta": 10000.0})
GOLDEN["deepseek-v3"] = lambda: deepseek_v3()

# No end of text and no padding, whose embedding Transformers does not train.
ENDLESS = dict(pad_token_id=None, eos_token_id=None, bos_token_id=None)
# Texts outgrow the original length five times, so that the factor of queries grows.
GOLDEN["ministral3"] = lambda: llama_like("Ministral3", head_dim=12, **ENDLESS, rope_parameters={
    **YARN, "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3})
GOLDEN["ministral"] = lambda: llama_like("Ministral", num_hidden_layers=3, sliding_window=9, head_dim=12, **ENDLESS,
                                         layer_types=["sliding_attention", "full_attention", "sliding_attention"])
ROUTED = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=14, n_group=4, topk_group=2, routed_scaling_factor=1.5)
GOLDEN["dots1"] = lambda: llama_like("Dots1", num_hidden_layers=3, head_dim=12, n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True,
                                     sliding_window=9, layer_types=[*LOCAL, LOCAL[0]], **ROUTED)
LATENTS = dict(num_key_value_heads=4, q_lora_rank=14, kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12)
GOLDEN["glm4-moe-lite"] = lambda: llama_like("Glm4MoeLite", num_hidden_layers=3, mlp_layer_types=["dense", "sparse", "dense"],
                                             **LATENTS, **ROUTED, **ENDLESS)
GOLDEN["youtu"] = lambda: llama_like("Youtu", **LATENTS, tie_word_embeddings=True, **ENDLESS)
GOLDEN["minicpm3"] = lambda: llama_like("MiniCPM3", **LATENTS, scale_emb=3, scale_depth=0.7, dim_model_base=12, **ENDLESS)
GOLDEN["exaone-moe"] = lambda: llama_like("ExaoneMoe", num_hidden_layers=4, sliding_window=9, layer_types=LOCAL * 2, num_experts=8,
                                          num_experts_per_tok=3, moe_intermediate_size=18, n_group=4, topk_group=2, num_shared_experts=2, **ENDLESS)
GOLDEN["exaone"] = lambda: llama_like("Exaone", "Llama", **ENDLESS)
GOLDEN["hunyuan-moe"] = lambda: llama_like("HunYuanMoEV1", head_dim=12, num_experts=5, moe_topk=[2, 2], intermediate_size=22, **ENDLESS,
                                           rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 3.0, "factor": 1.0})
GOLDEN["minimax-m2"] = lambda: llama_like("MiniMaxM2", head_dim=12, num_local_experts=6, num_experts_per_tok=3, intermediate_size=18, **ENDLESS,
                                          rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})
GOLDEN["solar-open"] = lambda: llama_like("SolarOpen", head_dim=12, attention_bias=True, **ROUTED, **ENDLESS)
GOLDEN["cwm"] = lambda: llama_like("Cwm", num_hidden_layers=3, head_dim=12, sliding_window=9, rope_parameters=LLAMA3,
                                   layer_types=["full_attention", "sliding_attention", "full_attention"])
GOLDEN["iquestcoder"] = lambda: llama_like("IQuestCoder", "Llama", head_dim=12, **ENDLESS)
GOLDEN["jais2"] = lambda: llama_like("Jais2", **ENDLESS)
GOLDEN["mellum"] = lambda: llama_like("Mellum", num_hidden_layers=4, head_dim=12, sliding_window=9, num_experts=6, num_experts_per_tok=3,
                                      moe_intermediate_size=18, mlp_layer_types=["sparse", "dense", "sparse", "sparse"], layer_types=LOCAL * 2,
                                      rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
                                                       "full_attention": YARN})
GOLDEN["bamba"] = lambda: llama_like("Bamba", num_hidden_layers=4, attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=8, mamba_d_state=12,
                                     mamba_n_groups=2, mamba_chunk_size=8, **ENDLESS)
GOLDEN["granite-moe-shared"] = lambda: llama_like("GraniteMoeShared", num_local_experts=5, num_experts_per_tok=2, intermediate_size=18,
                                                  shared_intermediate_size=26, **FACTORS)
GOLDEN["olmo"] = lambda: llama_like("Olmo", **ENDLESS)
GOLDEN["nanochat"] = lambda: llama_like("NanoChat", final_logit_softcapping=5.0, **ENDLESS)
GOLDEN["helium"] = lambda: llama_like("Helium", head_dim=8, **ENDLESS)
GOLDEN["gpt-bigcode"] = lambda: (transformers.GPTBigCodeConfig(n_layer=2, n_embd=36, n_head=6, n_inner=54, vocab_size=131, n_positions=128),
                                 transformers.GPTBigCodeForCausalLM)
GOLDEN["gpt-neo"] = lambda: (transformers.GPTNeoConfig(num_layers=3, hidden_size=36, num_heads=6, intermediate_size=54, vocab_size=131,
                                                       max_position_embeddings=128, window_size=9,
                                                       attention_types=[[["global", "local"], 1], [["global"], 1]]),
                             transformers.GPTNeoForCausalLM)
GOLDEN["mpt"] = lambda: (transformers.MptConfig(n_layers=2, d_model=32, n_heads=4, vocab_size=131, max_seq_len=128), transformers.MptForCausalLM)

STEPS = ("gpt2", "llama", "mixtral", "qwen3-moe", "qwen2-moe", "glm4-moe", "deepseek-v2")
MORE = {
    "gpt2-50257": lambda: gpt2(50257),
    "gpt2-untied": lambda: gpt2(tie_word_embeddings=False),
    "gpt2-erf": lambda: gpt2(activation_function="gelu"),
    "llama-50257": lambda: llama_like("Llama", vocabulary=50257),
    "llama-tied": lambda: llama_like("Llama", vocabulary=50257, tie_word_embeddings=True),
    "llama-biases": lambda: llama_like("Llama", attention_bias=True, mlp_bias=True),
    "llama-wide-heads": lambda: llama_like("Llama", head_dim=20),
    "llama-one-group": lambda: llama_like("Llama", num_key_value_heads=1),
    "llama-six-heads": lambda: llama_like("Llama", hidden_size=36, num_attention_heads=6, num_key_value_heads=3),
    "llama-linear": lambda: llama_like("Llama", rope_parameters={"rope_type": "linear", "rope_theta": 10000.0,
                                                                 "factor": 2.0}),
    "llama-yarn": lambda: llama_like("Llama", rope_parameters=YARN),
    "mistral-whole": lambda: llama_like("Mistral", sliding_window=None),
    "qwen2-untied": lambda: llama_like("Qwen2", vocabulary=50257),
    "qwen2-window": lambda: llama_like("Qwen2", use_sliding_window=True, sliding_window=9, max_window_layers=0),
    **published_models.MORE,
    "gemma": lambda: llama_like("Gemma", head_dim=12, tie_word_embeddings=True),
    "gemma2-50257": lambda: llama_like("Gemma2", vocabulary=50257, tie_word_embeddings=True, sliding_window=64),
    "gemma3-50257": lambda: llama_like("Gemma3Text", "Gemma3", 50257, num_hidden_layers=7, sliding_window=16,
                                       tie_word_embeddings=True),
    "bloom-50257": lambda: bloom(50257),
    "bloom-eight-heads": lambda: bloom(hidden_size=64, n_head=8, tie_word_embeddings=False),
    "phi3-50257": lambda: llama_like("Phi3", vocabulary=50257, num_key_value_heads=4, sliding_window=None, pad_token_id=0),
    # All sequences are longer, or all are shorter, than the original length.
    "phi3-long": lambda: longrope(4),
    "phi3-short": lambda: longrope(100),
    "phi3-partial": lambda: llama_like("Phi3", pad_token_id=0, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "qwen3-biases": lambda: llama_like("Qwen3", head_dim=12, attention_bias=True),
    "llama-attention-biases": lambda: llama_like("Llama", attention_bias=True),
    "mixtral-window": lambda: llama_like("Mixtral", vocabulary=50257, num_local_experts=4, sliding_window=9),
    "mixtral-one": lambda: llama_like("Mixtral", num_local_experts=3, num_experts_per_tok=1),
    "mixtral-all": lambda: llama_like("Mixtral", num_local_experts=3, num_experts_per_tok=3),
    "qwen3-moe-normalized": lambda: llama_like("Qwen3Moe", head_dim=12, num_experts=16, num_experts_per_tok=8, norm_topk_prob=True,
                                               moe_intermediate_size=18),
    "qwen3-moe-window": lambda: llama_like("Qwen3Moe", head_dim=12, num_experts=4, num_experts_per_tok=2, use_sliding_window=True,
                                           sliding_window=9, attention_bias=True, moe_intermediate_size=18),
    "qwen3-moe-sparse": lambda: llama_like("Qwen3Moe", num_hidden_layers=4, head_dim=12, num_experts=4, num_experts_per_tok=2,
                                           decoder_sparse_step=2, mlp_only_layers=[3], moe_intermediate_size=18),
    "qwen2-moe-normalized": lambda: llama_like("Qwen2Moe", vocabulary=50257, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True,
                                               shared_expert_intermediate_size=8, qkv_bias=False),
    "qwen3.5-50257": lambda: llama_like("Qwen3_5Text", "Qwen3_5", 50257, attention_bias=True, tie_word_embeddings=True, linear_conv_kernel_dim=2,
                                        layer_types=["linear_attention", "full_attention"] * 2, **DELTA),
    "qwen3-next-sparse": lambda: llama_like("Qwen3Next", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=18,
                                            norm_topk_prob=False, shared_expert_intermediate_size=26, mlp_only_layers=[1], **DELTA),
    "gpt-neox-50257": lambda: llama_like("GPTNeoX", vocabulary=50257),
    "gpt-neox-sequential": lambda: llama_like("GPTNeoX", use_parallel_residual=False, attention_bias=False),
    "falcon-one-norm": lambda: llama_like("Falcon", vocabulary=50257, new_decoder_architecture=True, num_kv_heads=2,
                                          num_ln_in_parallel_attn=1, bias=True),
    "falcon-sequential": lambda: llama_like("Falcon", parallel_attn=False, multi_query=False),
    "stablelm-parallel": lambda: llama_like("StableLm", use_parallel_residual=True),
    "starcoder2-plain": lambda: llama_like("Starcoder2", vocabulary=50257, use_bias=False),
    "internlm3-plain": lambda: llama_like("InternLM3", "Llama", 50257, head_dim=8),
    "ernie4.5-biases": lambda: llama_like("Ernie4_5", vocabulary=50257, head_dim=8, use_bias=True),
    "glm": lambda: llama_like("Glm", head_dim=12, pad_token_id=0, eos_token_id=1, attention_bias=False),
    "glm4-moe-norms": lambda: llama_like("Glm4Moe", vocabulary=50257, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=14,
                                         use_qk_norm=True, n_shared_experts=2, norm_topk_prob=False, first_k_dense_replace=0,
                                         num_mtp_layers=0),
    "deepseek-v2-groups": lambda: deepseek_v2(topk_method="group_limited_greedy", n_routed_experts=8, n_group=4, topk_group=2,
                                              routed_scaling_factor=16.0, eos_token_id=None),
    "deepseek-v3-plain": lambda: deepseek_v3(vocabulary=50257, q_lora_rank=None, n_group=1, topk_group=1, rope_interleave=False,
                                             first_k_dense_replace=0, norm_topk_prob=False),
    "deepseek-v2-50257": lambda: deepseek_v2(vocabulary=50257, q_lora_rank=14, first_k_dense_replace=0),
    "gpt-oss-50257": lambda: gpt_oss(vocabulary=50257, attention_bias=False, rope_parameters=None, num_hidden_layers=2),
    "gpt-oss-whole": lambda: gpt_oss(layer_types=["full_attention"] * 3, num_experts_per_tok=1),
    "phi-50257": lambda: llama_like("Phi", vocabulary=50257, num_key_value_heads=4),
    "gptj-50257": lambda: (transformers.GPTJConfig(n_layer=1, n_embd=32, n_head=4, vocab_size=50257, n_positions=128, rotary_dim=8),
                           transformers.GPTJForCausalLM),
    "granite-plain": lambda: llama_like("Granite", vocabulary=50257, attention_bias=True, mlp_bias=True, attention_multiplier=0.35),
    "granite4-no-positions": lambda: llama_like("GraniteMoeHybrid", vocabulary=50257, shared_intermediate_size=53, num_local_experts=0,
                                                layer_types=["attention"] * 2, mamba_n_heads=1, tie_word_embeddings=True),
    "granite4-mamba-biases": lambda: llama_like("GraniteMoeHybrid", vocabulary=50257, **{
        **MAMBA, "mamba_proj_bias": True, "mamba_conv_bias": False, "attention_bias": True, "mamba_n_groups": 4, "mamba_d_conv": 3}),
    "mamba2-untied": lambda: mamba2(vocabulary=50257, n_groups=1, conv_kernel=3, layer_norm_epsilon=1e-3, tie_word_embeddings=False),
    "granite4-moe": lambda: llama_like("GraniteMoeHybrid", vocabulary=50257, **{**MAMBA_EXPERTS, "layer_types": ["attention"] * 4}),
    "olmo2-biases": lambda: llama_like("Olmo2", vocabulary=50257, pad_token_id=None, eos_token_id=None, attention_bias=True,
                                       tie_word_embeddings=True),
    "olmo3-50257": lambda: llama_like("Olmo3", vocabulary=50257, num_hidden_layers=5, sliding_window=16, pad_token_id=None,
                                      eos_token_id=None),
    "lfm2-50257": lambda: llama_like("Lfm2", vocabulary=50257, **{**LFM2, "layer_types": None, "full_attn_idxs": [0, 2], "conv_L_cache": 2,
                                                                 "block_ffn_dim_multiplier": 1.5, "tie_word_embeddings": True}),
    "lfm2-attention": lambda: llama_like("Lfm2", num_key_value_heads=1, block_multiple_of=16),
    "lfm2-moe-plain": lambda: llama_like("Lfm2Moe", vocabulary=50257, **LFM2, num_dense_layers=0, num_experts=5, num_experts_per_tok=2,
                                         moe_intermediate_size=14, use_expert_bias=False, norm_topk_prob=False, routed_scaling_factor=1.5, conv_bias=True),
    "arcee-biases": lambda: llama_like("Arcee", vocabulary=50257, attention_bias=True, mlp_bias=True, head_dim=8),
    "nemotron-biases": lambda: llama_like("Nemotron", vocabulary=50257, attention_bias=True, mlp_bias=True),
    "seed-oss-50257": lambda: llama_like("SeedOss", vocabulary=50257, head_dim=8, attention_bias=False, pad_token_id=None),
    "exaone4-whole": lambda: llama_like("Exaone4", vocabulary=50257, sliding_window=None, layer_types=["full_attention"] * 2),
    "cohere-biases": lambda: llama_like("Cohere", vocabulary=50257, attention_bias=True),
    "cohere2-pattern": lambda: llama_like("Cohere2", vocabulary=50257, num_hidden_layers=5, sliding_window=16),
    "olmoe-normalized": lambda: llama_like("Olmoe", vocabulary=50257, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True),
    "granite-moe-plain": lambda: llama_like("GraniteMoe", vocabulary=50257, num_local_experts=3, attention_bias=True,
                                            tie_word_embeddings=True),
    "ernie4.5-moe-interval": lambda: llama_like("Ernie4_5_Moe", vocabulary=50257, num_hidden_layers=4, moe_num_experts=5, moe_k=2,
                                                moe_layer_interval=2, moe_layer_start_index=0, moe_num_shared_experts=0),
    "hunyuan-plain": lambda: llama_like("HunYuanDenseV1", vocabulary=50257, attention_bias=True, tie_word_embeddings=True, head_dim=8),
    "opt-untied": lambda: (transformers.OPTConfig(num_hidden_layers=2, hidden_size=36, num_attention_heads=6, ffn_dim=53,
                                                  vocab_size=50257, max_position_embeddings=128, tie_word_embeddings=False,
                                                  activation_function="gelu"), transformers.OPTForCausalLM),
    "qwen3-tied": lambda: llama_like("Qwen3", vocabulary=50257, tie_word_embeddings=True, head_dim=24),
}


def without(*keys):
    return lambda config: [config.pop(key) for key in keys]


# A golden or other model, and what becomes of its config.json: of keys that are missing, or there in two forms,
# Transformers' own reading counts.
EDITED = {
    "gpt-oss-older": ("gpt-oss", lambda config: (without("swiglu_limit", "swiglu_alpha", "attention_bias", "layer_types")(config), config.update(
        rope_scaling=config.pop("rope_parameters"), rope_theta=150000.0))),
    "phi3-no-eps": ("phi3", without("rms_norm_eps")),
    "phi3-inner-original": ("phi3-longrope", without("original_max_position_embeddings")),
    "gemma-gelu": ("gemma", lambda config: config.update(hidden_act="gelu")),
    "gemma2-erf": ("gemma2", lambda config: config.update(hidden_activation="gelu")),
    "gemma2-other-act": ("gemma2", lambda config: (config.pop("hidden_activation"), config.update(hidden_act="silu"))),
    "gemma2-sparse": ("gemma2", without("attn_logit_softcapping", "final_logit_softcapping", "sliding_window", "head_dim",
                                        "layer_types", "query_pre_attn_scalar", "rope_parameters", "rms_norm_eps")),
    "gemma3-no-theta": ("gemma3", lambda config: config["rope_parameters"]["full_attention"].pop("rope_theta")),
    "gemma3-older-theta": ("gemma3", lambda config: (config.pop("rope_parameters"), config.update(
        rope_local_base_freq=500.0, rope_scaling={"rope_type": "linear", "factor": 4.0}))),
    "llama-sparse": ("llama", without("rope_parameters", "rms_norm_eps", "hidden_act", "head_dim", "attention_bias", "mlp_bias",
                                      "num_key_value_heads", "tie_word_embeddings")),
    "llama-both-ropes": ("llama", lambda config: config.update(
        rope_theta=500.0, rope_scaling={"rope_type": "linear", "factor": 4.0})),
    "llama-two-originals": ("llama3", lambda config: config.update(original_max_position_embeddings=512)),
    "llama-dynamic-original": ("llama", lambda config: config.update(rope_parameters={
        "rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 8})),
    "mistral-no-groups": ("mistral", lambda config: (config.pop("num_key_value_heads"), config.update(
        num_attention_heads=16, head_dim=4))),
    "qwen2-sparse": ("qwen2", lambda config: (without("num_key_value_heads", "rms_norm_eps", "rope_parameters")(config),
                                              config.update(num_attention_heads=32, hidden_size=64))),
    "qwen3-no-head-dim": ("qwen3", without("head_dim")),
    "cohere-sparse": ("cohere", without("rope_parameters", "layer_norm_eps", "logit_scale", "tie_word_embeddings")),
    "cohere2-older": ("cohere2", lambda config: (config.pop("layer_types"), config.update(sliding_window_pattern=2))),
    "nemotron-older": ("nemotron", without("rope_parameters", "norm_eps", "hidden_act")),
    "exaone4-pattern": ("exaone4", lambda config: (config.pop("layer_types"), config.update(sliding_window_pattern=2))),
    "granite4-mamba-older": ("granite4-mamba", lambda config: (
        without("time_step_limit", "mamba_expand", "mamba_conv_bias", "mamba_n_groups")(config),
        config.update(mamba_d_head="auto", layer_types=MAMBA["layer_types"]))),
    "granite4-mamba-sparse": ("granite4-mamba-moe", without("position_embedding_type", "num_experts_per_tok", "mamba_d_conv",
                                                            "mamba_proj_bias", "mamba_chunk_size", "residual_multiplier")),
    "lfm2-older": ("lfm2", lambda config: (without("rope_parameters", "layer_types", "norm_eps", "tie_word_embeddings", "conv_L_cache")(config),
                                           config.update(full_attn_idxs=[1], block_ff_dim=config.pop("intermediate_size")))),
    "lfm2-moe-sparse": ("lfm2-moe", without("rope_parameters", "norm_eps", "norm_topk_prob", "use_expert_bias", "conv_bias")),
    "ernie4.5-moe-sparse": ("ernie4.5-moe", without("rope_parameters", "moe_layer_start_index", "moe_layer_end_index",
                                                    "moe_layer_interval", "tie_word_embeddings", "rms_norm_eps")),
    "stablelm-older": ("stablelm", without("rope_parameters", "layer_norm_eps")),
    "bloom-sparse": ("bloom", without("layer_norm_epsilon", "hidden_dropout", "attention_dropout", "initializer_range")),
    "bloom-two-widths": ("bloom", lambda config: config.update(n_embed=48, n_head=8)),
}


def draw_mamba(part, parameter):
    if part == "A_log":
        parameter.copy_(3.5 * torch.rand(parameter.shape) - 2.5)
    elif part == "dt_bias":
        parameter.copy_(3.5 * torch.rand(parameter.shape) - 3)
    elif part == "D":
        parameter.copy_(0.7 * torch.randn(parameter.shape))
    elif part == "conv1d.weight":
        parameter.mul_(3)


def build(make, seed=7):
    torch.manual_seed(seed)
    config, model_class = make()
    config._attn_implementation = config._experts_implementation = "eager"
    model = model_class(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            gain = parameter.ndim == 1 and "bias" not in name
            from_one = gain and any(word in type(model).__name__ for word in ("Gemma", "Nemotron"))
            parameter.copy_((0.1 * noise if from_one else 1 + 0.1 * noise) if gain else 0.15 * noise)
        for name, bias in model.named_buffers():  # after all parameters
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                bias.copy_(0.2 * torch.randn(bias.shape))
        # States that last for a token or for dozens, of inputs of both signs.
        for name, parameter in model.named_parameters():
            for module in (".mamba.", ".mixer."):
                if module in name:
                    draw_mamba(name.rpartition(module)[2], parameter)
            if name.endswith("conv.conv.weight"):  # of products, which are small
                parameter.mul_(6)
        # Positions that matter, tokens that differ; where the head is tied and layers add little, what follows is not the same token.
        small = any(word in type(model).__name__ for word in ("Mamba", "Lfm2"))
        model.get_input_embeddings().weight.mul_(1 if small else 4)
    return model


def exactly(model):
    """Mamba's states and norms are in float64 too, which the other models have in float32 whatever the type of their weights."""
    hybrid = any("Mamba" in type(module).__name__ or "Bamba" in type(module).__name__ for module in model.modules())
    return in_float64(*[model.config.model_type] * hybrid)


def expected(model, tokens, prompt=PROMPT):
    """Logits of `tokens` and what greedy decoding puts after the first of them, in float64."""
    exact = model.double()
    with torch.no_grad(), exactly(model):
        logits = exact(tokens[None]).logits[0]
        ids = tokens[:prompt].tolist()
        for _ in range(NEW):
            ids.append(int(exact(torch.tensor([ids])).logits[0, -1].argmax()))
    return logits.float(), torch.tensor(ids[prompt:], dtype=torch.int32)


def origin(what):
    return (f"tools/oracle/huggingface.py {what}, {datetime.date.today()}, torch {metadata.version('torch')}, "
            f"transformers {metadata.version('transformers')}")


def golden(folder, names):
    for name, make in GOLDEN.items():
        if names and name not in names:
            continue
        out = pathlib.Path(folder) / name
        shutil.rmtree(out, ignore_errors=True)
        model = build(make)
        model.save_pretrained(out)
        (out / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(0, model.config.vocab_size, (LENGTH,))
        logits, greedy = expected(model, tokens)
        save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous(), "greedy": greedy},
                  out / "expected.safetensors", metadata={"format": "pt", "origin": origin("golden")})


def loss_of(model, batch):
    logits = model(batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def steps(model, batches):
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
                                   {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
        losses.append(float(loss.detach()))
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def in_files(model):
    """The weights of `model` under the names and in the shapes that they have in files."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def gradients(folder, names):
    for name, make in GOLDEN.items():
        if names and name not in names:
            continue
        out = pathlib.Path(folder) / name
        model = build(make)
        saved = in_files(model)
        for key, value in load_file(out / "model.safetensors").items():
            assert torch.equal(value, saved[key]), key
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        model = model.double()
        tokens = load_file(out / "expected.safetensors")["tokens"].long()[None]
        with exactly(model):
            loss = loss_of(model, tokens)
            loss.backward()
        slopes = copy.deepcopy(model)
        with torch.no_grad():
            for parameter, weight in zip(slopes.parameters(), model.parameters(), strict=True):
                parameter.copy_(torch.zeros_like(weight) if weight.grad is None else weight.grad)
        result = {key: value.float().contiguous() for key, value in in_files(slopes).items()}
        result["loss"] = loss.detach().double().reshape(1)
        if name in STEPS:
            torch.manual_seed(11)
            batches = torch.randint(0, model.config.vocab_size, (10, 2, 25))
            result["losses"], result["norms"] = steps(model, batches)
            result["batches"] = batches.to(torch.int32)
        save_file(result, out / "gradients.safetensors", metadata={"format": "pt", "origin": origin("gradients")})


def piton(program, *arguments):
    done = subprocess.run([program, *map(str, arguments), "--threads", "2", "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{arguments}: {done.returncode}: {done.stderr}")
    return done.stdout


def logits_of(program, model, tokens):
    with tempfile.TemporaryDirectory() as work:
        ids, ours = pathlib.Path(work) / "ids.json", pathlib.Path(work) / "ours.safetensors"
        ids.write_text(json.dumps([tokens.tolist()]))
        piton(program, "score", "--load", model, "--ids-file", ids, "--logits", ours)
        return load_file(ours)["logits"]


def roughly_holds(program, folder, model, tokens):
    """The same in bfloat16, to what its rounding leaves: a root mean square of 3 % of the logits'."""
    logits, _ = expected(model, tokens)
    error = float((logits_of(program, folder, tokens) - logits).pow(2).mean().sqrt() / logits.pow(2).mean().sqrt())
    print(f"{'ok  ' if error < 0.03 else 'BAD '} {folder.name:28} computed in bfloat16: {error:.1%} away", flush=True)
    return error < 0.03


def holds(program, folder, model, tokens, tolerance=1e-4):
    """Piton reads `folder` and computes what `model` does."""
    logits, greedy = expected(model, tokens)
    worst = float((logits_of(program, folder, tokens) - logits).abs().max())
    prompt = ",".join(map(str, tokens[:PROMPT].tolist()))
    answer = json.loads(piton(program, "generate", "--load", folder, "--prompt-ids", prompt, "--greedy", "--json",
                              "--max-new-tokens", NEW))
    ids, wanted = answer["ids"], greedy.tolist()
    ended = len(ids) < NEW and ids[-1] == model.config.eos_token_id
    same = ids == wanted[:len(ids)] if ended else ids[-NEW:] == wanted
    good = worst <= tolerance and same
    print(f"{'ok  ' if good else 'BAD '} {folder.name:28} logits {worst:.2e}, greedy {'equal' if same else 'differs'}, "
          f"largest logit {float(logits.abs().max()):.1f}", flush=True)
    return good


def variants(name, model, work):
    """Folders that hold the same model: as it is saved, in shards, renamed, with copies."""
    plain = work / name
    model.save_pretrained(plain)
    yield plain
    if name not in RENAMED:
        return
    shards = work / (name + "-shards")
    model.save_pretrained(shards, max_shard_size="20KB")
    yield shards
    older = work / (name + "-older")  # the keys and dtypes of Transformers 4
    shutil.copytree(plain, older)
    config = json.loads((older / "config.json").read_text())
    config["torch_dtype"] = config.pop("dtype")
    rope = config.pop("rope_parameters", None)
    if rope:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope if rope.get("rope_type") != "default" else None
    config["a_key_of_tomorrow"] = {"any": [1, 2]}
    (older / "config.json").write_text(json.dumps(config))
    tensors = load_file(older / "model.safetensors")
    if name == "gpt2":  # as the first GPT-2 files are named, with the masks that they hold
        tensors = {key.removeprefix("transformer."): value for key, value in tensors.items()}
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
    else:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
        if model.config.tie_word_embeddings:  # a head that is the table's copy
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        for key in [key for key in tensors if key in ("lm_head.weight", "model.embed_tokens.weight")]:
            tensors[key] = torch.cat((tensors[key], tensors[key][-5:]))  # padded
    save_file(tensors, older / "model.safetensors", metadata={"format": "pt"})
    yield older


def edited(name, work):
    """The folder of a case of EDITED, and its model."""
    base, edit = EDITED[name]
    folder = work / name
    plain = build({**GOLDEN, **MORE}[base])
    plain.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    text = json.dumps(config)
    (folder / "config.json").write_text(text)
    model = build(lambda: (transformers.AutoConfig.from_pretrained(folder), type(plain)))
    model.save_pretrained(folder)
    (folder / "config.json").write_text(text)
    return folder, model


def compare(program, work, names):
    bad = 0
    for name in EDITED:
        if not names or name in names:
            folder, model = edited(name, work)
            bad += not holds(program, folder, model, torch.randint(0, model.config.vocab_size, (LENGTH,)))
    for name, make in {**GOLDEN, **MORE}.items():
        if names and name not in names:
            continue
        model = build(make)
        tokens = torch.randint(0, model.config.vocab_size, (LENGTH,))
        for folder in variants(name, model, work):
            bad += not holds(program, folder, model, tokens)
            model.float()
        if name in GOLDEN:
            half = work / (name + "-bf16")
            model.bfloat16().save_pretrained(half)
            half_model = type(model).from_pretrained(half, dtype=torch.float32, attn_implementation="eager",
                                                     experts_implementation="eager").eval()
            bad += not roughly_holds(program, half, half_model, tokens)
            config = json.loads((half / "config.json").read_text())
            for key in ("dtype", "torch_dtype"):
                if key in config:
                    config[key] = "float32"  # the weights' values are bf16, the arithmetic is not
            (half / "config.json").write_text(json.dumps(config))
            bad += not holds(program, half, half_model, tokens)
    return bad


def stories_folder(weights, folder):
    """A folder of llama2.c's stories260K.bin."""
    import numpy

    raw = (weights / "stories260K.bin").read_bytes()
    dim, hidden, layers, heads, groups, vocabulary, positions = numpy.frombuffer(raw[:28], dtype=numpy.int32).tolist()
    vocabulary, d = abs(vocabulary), dim // heads
    flat = torch.from_numpy(numpy.frombuffer(raw[28:], dtype=numpy.float32).copy())
    at = 0

    def take(*shape):
        nonlocal at
        size = int(numpy.prod(shape))
        at += size
        return flat[at - size:at].view(*shape)

    def halves(rows, count):
        """Rows of interleaved pairs as the two halves of each head."""
        return rows.view(count, d // 2, 2, dim).transpose(1, 2).reshape(count * d, dim)

    table = take(vocabulary, dim)
    parts = {"input_layernorm": take(layers, dim), "self_attn.q_proj": take(layers, dim, dim),
             "self_attn.k_proj": take(layers, groups * d, dim), "self_attn.v_proj": take(layers, groups * d, dim),
             "self_attn.o_proj": take(layers, dim, dim), "post_attention_layernorm": take(layers, dim),
             "mlp.gate_proj": take(layers, hidden, dim), "mlp.down_proj": take(layers, dim, hidden),
             "mlp.up_proj": take(layers, hidden, dim)}
    tensors = {"model.embed_tokens.weight": table, "model.norm.weight": take(dim)}
    for name, stack in parts.items():
        for layer in range(layers):
            one = stack[layer]
            if name.endswith(("q_proj", "k_proj")):
                one = halves(one, heads if "q_proj" in name else groups)
            tensors[f"model.layers.{layer}.{name}.weight"] = one.contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.clone() for key, value in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": dim, "intermediate_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": groups,
        "vocab_size": vocabulary, "max_position_embeddings": positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "torch_dtype": "float32"}))


def stories(program, weights):
    golden = json.loads((weights / "weights_golden_260K.json").read_text())["models"]["stories260K"]
    worst, good = 0.0, True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stories_folder(weights, folder)
        for case in golden["cases"]:
            ids = folder / "ids.json"
            ids.write_text(json.dumps([case["prompt_ids"]]))
            if len(case["prompt_ids"]) > 1:
                piton(program, "score", "--load", folder, "--ids-file", ids, "--logits", folder / "ours.safetensors")
            wanted = case["greedy_ids"][len(case["prompt_ids"]):]
            answer = json.loads(piton(program, "generate", "--load", folder, "--prompt-ids",
                                      ",".join(map(str, case["prompt_ids"])), "--greedy", "--json", "--max-new-tokens",
                                      len(wanted)))
            good &= answer["ids"][-len(wanted):] == wanted
            if len(case["prompt_ids"]) > 1:
                ours = load_file(folder / "ours.safetensors")["logits"][-1]
                worst = max(worst, float((ours - torch.tensor(case["last_logits"])).abs().max()))
    good &= worst <= 1e-4
    print(f"{'ok  ' if good else 'BAD '} stories260K: logits {worst:.2e}, greedy of {len(golden['cases'])} prompts")
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["golden", "gradients", "compare", "stories"])
    parser.add_argument("place")
    parser.add_argument("--work")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if options.what == "golden":
        return golden(options.place, options.names)
    if options.what == "gradients":
        return gradients(options.place, options.names)
    if options.what == "stories":
        sys.exit(stories(options.place, pathlib.Path(options.work)))
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(options.work or folder)
        sys.exit(1 if compare(options.place, work, options.names) else 0)


if __name__ == "__main__":
    main()
