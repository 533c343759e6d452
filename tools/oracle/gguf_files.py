"""GGUF files, held against the `gguf` package, llama.cpp and Transformers.

  python tools/oracle/gguf_files.py golden tests/golden [NAME ...]                  (gguf 0.19, safetensors)
  python tools/oracle/gguf_files.py compare build/piton [--work DIR] [NAME ...]     (also llama-cpp-python 0.3 or xllamacpp
                                                                                    2026.10, torch 2.15,
                                                                                    transformers 5.23)
  python tools/oracle/gguf_files.py converted build/piton LLAMA.CPP ../shared/data/tokenizers [NAME ...]
  python tools/oracle/gguf_files.py stories build/piton --work ../shared/data/weights/stories260K
  python tools/oracle/gguf_files.py tokenizers build/piton ../shared/data/tokenizers

`golden` writes gguf/blocks.safetensors, numbers and what gguf.quants makes of them, gguf/read_only_blocks.safetensors, blocks and
their values, gguf/read_only.gguf, a model in such types with the values of its matrices, and gguf/NAME.gguf of each of MODELS from
the folder huggingface/NAME: tensors are named, divided and turned here, apart from Piton's tables. `compare` makes GGUF files of
small models of every family in every type and holds llama.cpp's logits and greedy tokens against those of Transformers (F32), of
Piton on the same file (all types). `converted` holds files of llama.cpp's convert_hf_to_gguf.py, which is in the folder LLAMA.CPP,
against Piton's, for mixtures of experts and the gated delta rule. `stories` is the same of a model that was trained, with its tokenizer:
the text. `tokenizers` holds the ids of llama.cpp against those of Piton.
"""
import argparse
import ctypes
import functools
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import gguf
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file, save_file

PROMPT, NEW, LENGTH = 7, 48, 40

# ---------------------------------------------------------------------------------------------------------------- golden


def blocks():
    generator = numpy.random.default_rng(5)
    x = generator.standard_normal((64, 64)).astype(numpy.float32)
    x[1] *= 1e-4
    x[2] *= 1e4
    x[3] = 0
    x[4, :32] = 0.25  # all alike
    x[5, :32] = numpy.linspace(-1, 1, 32)
    x[6, :32] = numpy.arange(32) / 16 - 1  # on the borders of the steps
    x[7, :32] = numpy.where(numpy.arange(32) % 2, 3.5, -3.5)  # two of the largest
    x[8] *= 1e-9
    x[9, :32] = numpy.arange(32, dtype=numpy.float32) * numpy.float32(127 / 254)  # halves of steps
    result = {"values": x}
    for type in (Type.Q8_0, Type.Q4_0):
        data = gguf.quants.quantize(x, type)
        result[type.name] = data
        result[type.name + ".values"] = gguf.quants.dequantize(data, type).astype(numpy.float32)
    return result


# Types that Piton reads and does not write: in a block, where its fp16 numbers are.
READ_ONLY = {Type.Q4_1: (0, 2), Type.Q5_0: (0,), Type.Q5_1: (0, 2), Type.IQ4_NL: (0,), Type.MXFP4: (), Type.Q2_K: (80, 82),
             Type.Q3_K: (108,), Type.IQ4_XS: (0,), Type.TQ1_0: (52,), Type.TQ2_0: (64,)}


def read_only_blocks():
    """Blocks of random bits, and their values."""
    generator = numpy.random.default_rng(31)
    result = {}
    for type, halves in READ_ONLY.items():
        values, size = gguf.GGML_QUANT_SIZES[type]
        data = generator.integers(0, 256, (1024 // values, size), dtype=numpy.uint8)
        for at in halves:
            numbers = (generator.standard_normal(len(data)) * 10.0 ** generator.integers(-6, 3, len(data))).astype(numpy.float16)
            data[:, at:at + 2] = numbers.view(numpy.uint8).reshape(-1, 2)
        if type == Type.MXFP4:
            data[:, 0] = numpy.linspace(0, 250, len(data))  # subnormal ones too
            data[1, 0] = 1
        result[type.name] = data
        result[type.name + ".values"] = gguf.quants.dequantize(data, type).astype(numpy.float32)
    return result


LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up", "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down", "block_sparse_moe.gate": "ffn_gate_inp",
}
GEMMA_LAYER = {**LAYER, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}
ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "wte": "token_embd", "wpe": "position_embd",
        "ln_f": "output_norm", "word_embeddings": "token_embd", "word_embeddings_layernorm": "token_embd_norm"}
# Of each the architecture, and the type of its matrices.
MODELS = {"llama": ("llama", Type.Q4_0), "qwen2": ("qwen2", Type.Q8_0), "gemma3": ("gemma3", Type.F16), "phi3": ("phi3", Type.BF16),
          "gpt2": ("gpt2", Type.F32), "bloom": ("bloom", Type.F32), "mixtral": ("llama", Type.Q8_0), "gpt-neox": ("gptneox", Type.F32),
          "nemotron": ("nemotron", Type.F16), "cohere": ("command-r", Type.Q8_0), "arcee": ("arcee", Type.BF16),
          "ernie4.5": ("ernie4_5", Type.F16), "deepseek-v2": ("deepseek2", Type.F32), "deepseek-v2-ranks": ("deepseek2", Type.F16),
          "deepseek-v3": ("deepseek2", Type.Q8_0), "glm4-moe": ("glm4moe", Type.F16), "ernie4.5-moe": ("ernie4_5-moe", Type.F32),
          "falcon": ("falcon", Type.Q8_0), "falcon-7b": ("falcon", Type.F16), "olmo3": ("olmo2", Type.F16),
          "qwen3.5-heads": ("qwen35", Type.Q8_0), "qwen3.5-moe": ("qwen35moe", Type.BF16), "qwen3-next": ("qwen3next", Type.F16),
          "qwen3-next-older": ("qwen3next", Type.F32), "granite-moe": ("granitemoe", Type.F16), "granite4-mamba": ("granitehybrid", Type.Q8_0),
          "granite4-mamba-moe": ("granitehybrid", Type.BF16), "mamba2": ("mamba2", Type.F16),
          "lfm2": ("lfm2", Type.Q8_0), "lfm2-moe": ("lfm2moe", Type.F16), "nemotron-h": ("nemotron_h", Type.F16)}
FOLDERS = {"qwen3-next": "qwen3.5-moe", "qwen3-next-older": "qwen3.5-moe"}  # where it is not that of the name
MAPPED = ("gptneox", "nemotron", "command-r", "arcee", "ernie4_5", "deepseek2", "glm4moe", "ernie4_5-moe", "falcon",
          "olmo2", "qwen35", "qwen35moe", "qwen3next", "granitemoe", "granitehybrid", "mamba2", "lfm2", "lfm2moe",
          "nemotron_h")  # names by gguf.TensorNameMap
DELTA = ("qwen35", "qwen35moe", "qwen3next")
GRANITE = ("granitemoe", "granitehybrid")
LFM2 = ("lfm2", "lfm2moe")
PAIRS = ("llama", "arcee", *GRANITE)  # rows of query and key are turned
EXPERT = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps",
          "gate_proj": "ffn_gate_exps", "down_proj": "ffn_down_exps", "up_proj": "ffn_up_exps"}


def with_equal_factors(config):
    """llama.cpp has one number for both factors of yarn."""
    if config.get("rope_parameters", {}).get("mscale"):
        config["rope_parameters"]["mscale"] = config["rope_parameters"]["mscale_all_dim"]
    return config


def mapped_name(name, architecture, layers):
    number = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    name = name.replace("e_score_correction_bias", "e_score_correction.bias").replace(".expert_bias", ".expert_bias.bias")
    return gguf.get_tensor_name_map(number, layers).get_name(name, try_suffixes=(".weight", ".bias"))


def gguf_name(name, gemma):
    name = name.removeprefix("transformer.")
    stem, end = name.rsplit(".", 1)
    if stem in ENDS:
        return f"{ENDS[stem]}.{end}"
    _, number, part = stem.removeprefix("model.").split(".", 2)
    return f"blk.{number}.{(GEMMA_LAYER if gemma else LAYER)[part]}.{end}"


def with_stacked_experts(tensors):
    """Matrices of experts as one of each layer: under the name in a GGUF file, of all others theirs."""
    result, experts = {}, {}
    for name, x in tensors.items():
        plain = name.replace(".block_sparse_moe.", ".mlp.")
        layer, _, expert = plain.replace(".feed_forward.experts.", ".mlp.experts.").partition(".mlp.experts.")
        if not expert:
            result[name] = x
            continue
        number, matrix, _ = expert.split(".")
        experts.setdefault(f"blk.{layer.rsplit('.', 1)[1]}.{EXPERT[matrix]}.weight", {})[int(number)] = x
    return result | {name: numpy.stack([of[i] for i in range(len(of))]) for name, of in experts.items()}


def with_heads_of_latents(tensors, config):
    """Keys of each head turned, its values as they are, as llama.cpp has had them since it keeps latents in its cache."""
    result = {}
    for name, x in tensors.items():
        if "kv_b_proj" not in name:
            result[name] = x
            continue
        heads = x.reshape(config["num_attention_heads"], -1, x.shape[-1])
        own = config["qk_nope_head_dim"]
        result[name.replace("kv_b_proj", "k_b_proj")] = heads[:, :own].swapaxes(1, 2)
        result[name.replace("kv_b_proj", "v_b_proj")] = heads[:, own:]
    return result


def by_key_head(parts, heads):
    """Rows of several matrices, those of a key head of each in turn."""
    return numpy.concatenate([x.reshape(heads, x.shape[0] // heads, -1) for x in parts], axis=1).reshape(-1, parts[0].shape[1])


def with_states(tensors, config, name):
    """The tensors of Qwen 3.5's gated delta rule as llama.cpp has them: value heads so that a key head is that of every N-th one, or,
    of Qwen3-Next, decay and strength of each key head in turn, in older files also query, key, value and gate."""
    result = dict(tensors)
    keys, values, d = (config[f"linear_{word}"] for word in ("num_key_heads", "num_value_heads", "key_head_dim"))

    def tiled(x, size):
        return x.reshape(keys, values // keys, size, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    for layer in (key.removesuffix("A_log") for key in tensors if key.endswith("A_log")):
        def take(part):
            return result.pop(f"{layer}{part}")

        result[f"{layer}A_log"] = -numpy.exp(take("A_log").astype(numpy.float64)).astype(numpy.float32)
        result[f"{layer}dt_proj.bias"] = take("dt_bias")
        result[f"{layer}conv1d.weight"] = take("conv1d.weight").squeeze(1)
        if name == "qwen3-next" or name == "qwen3-next-older":
            b, a = take("in_proj_b.weight"), take("in_proj_a.weight")
            result[f"{layer}in_proj_ba.weight"] = by_key_head([b, a], keys)
        if name == "qwen3-next-older":
            all, z = take("in_proj_qkv.weight"), take("in_proj_z.weight")
            q, k, v = numpy.split(all, [keys * d, 2 * keys * d])
            result[f"blk.{layer.split('.')[2]}.ssm_in.weight"] = by_key_head([q, k, v, z], keys)
        if not name.startswith("qwen3.5"):
            continue
        for part in ("in_proj_qkv.weight", "conv1d.weight"):
            x = result[f"{layer}{part}"]
            result[f"{layer}{part}"] = numpy.concatenate([x[:2 * keys * d], tiled(x[2 * keys * d:], d)])
        for part, size in (("in_proj_z.weight", d), ("in_proj_b.weight", 1), ("in_proj_a.weight", 1), ("A_log", 1), ("dt_proj.bias", 1)):
            result[f"{layer}{part}"] = tiled(result[f"{layer}{part}"], size)
        result[f"{layer}out_proj.weight"] = tiled(result[f"{layer}out_proj.weight"].T, d).T
    return result


def with_mamba(tensors, config):
    """The tensors of Mamba-2 as llama.cpp has them."""
    result = {}
    for name, x in tensors.items():
        name = name.replace("dt_bias", "dt_proj.bias")
        if name.endswith("A_log"):
            x = -numpy.exp(x.astype(numpy.float64)).astype(numpy.float32).reshape(-1, 1)
        elif name.endswith(("mamba.D", "mixer.D")):
            x = x.reshape(-1, 1)
        elif name.endswith("conv1d.weight"):
            x = x.squeeze(1)
        elif name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
            x = x.reshape(config.get("n_groups") or config["mamba_n_groups"], -1)
        result[name] = x
    return result


def with_gates(tensors, config):
    """Gate and up of Granite's MLPs, which are one matrix, as two; the only MLP of a layer is not one that experts share."""
    end = "_shexp" if config["num_local_experts"] else ""
    result = {}
    for name, x in tensors.items():
        layer = name.split(".")[2] if ".layers." in name else ""
        for part, of_file in (("shared_mlp.input_linear", end), ("block_sparse_moe.input_linear", "_exps")):
            if part in name:
                gate, up = numpy.split(x, 2, axis=-2)
                result |= {f"blk.{layer}.ffn_gate{of_file}.weight": gate, f"blk.{layer}.ffn_up{of_file}.weight": up}
                break
        else:
            result[f"blk.{layer}.ffn_down.weight" if "shared_mlp.output_linear" in name and not end else name] = x
    return result


def write_granite_keys(out, config, architecture):
    """As convert_hf_to_gguf.py does, but for positions of a hybrid, which it leaves out though the format has them."""
    out.add_attention_scale(config["attention_multiplier"])
    out.add_embedding_scale(config["embedding_multiplier"])
    out.add_residual_scale(config["residual_multiplier"])
    out.add_logit_scale(config["logits_scaling"])
    if "shared_intermediate_size" in config:
        out.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    if architecture != "granitehybrid":
        return
    out.add_ssm_conv_kernel(config["mamba_d_conv"])
    out.add_ssm_state_size(config["mamba_d_state"])
    out.add_ssm_group_count(config["mamba_n_groups"])
    out.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
    out.add_ssm_time_step_rank(config["mamba_n_heads"])
    out.add_head_count_kv([0 if kind in ("mamba", "linear_attention") else config["num_key_value_heads"] for kind in config["layer_types"]])
    rotates = config["position_embedding_type"] == "rope"
    out.add_rope_scaling_finetuned(rotates)
    if rotates:
        out.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
        out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])


def write_mamba_keys(out, config):
    out.add_vocab_size(config["vocab_size"])
    out.add_context_length(2**20)
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(0)
    out.add_head_count(0)
    out.add_block_count(config["num_hidden_layers"])
    out.add_ssm_conv_kernel(config["conv_kernel"])
    out.add_ssm_inner_size(config["expand"] * config["hidden_size"])
    out.add_ssm_state_size(config["state_size"])
    out.add_ssm_time_step_rank(config["num_heads"])
    out.add_ssm_group_count(config["n_groups"])
    out.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    out.add_tokenizer_model("none")


def width_of_mlps(config):
    """Of LFM2, as its keys say it."""
    width = config["intermediate_size"]
    if not config.get("block_auto_adjust_ff_dim"):
        return width
    width = int(config["block_ffn_dim_multiplier"] * int(2 * width / 3))
    return -(-width // config["block_multiple_of"]) * config["block_multiple_of"]


def write_lfm2_keys(out, config, architecture):
    """As convert_hf_to_gguf.py does."""
    out.add_vocab_size(config["vocab_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(width_of_mlps(config))
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv([config["num_key_value_heads"] if kind == "full_attention" else 0 for kind in config["layer_types"]])
    out.add_layer_norm_rms_eps(config["norm_eps"])
    out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    out.add_shortconv_l_cache(config["conv_L_cache"])
    if architecture == "lfm2moe":
        out.add_expert_count(config["num_experts"])
        out.add_expert_used_count(config["num_experts_per_tok"])
        out.add_expert_feed_forward_length(config["moe_intermediate_size"])
        out.add_leading_dense_block_count(config["num_dense_layers"])
        out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    out.add_tokenizer_model("none")


def write_state_keys(out, config, architecture):
    d, values = config["linear_value_head_dim"], config["linear_num_value_heads"]
    out.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    out.add_ssm_state_size(config["linear_key_head_dim"])
    out.add_ssm_group_count(config["linear_num_key_heads"])
    out.add_ssm_time_step_rank(values)
    out.add_ssm_inner_size(d * values)
    if architecture == "qwen35moe":  # newer files
        out.add_array("qwen35moe.attention.recurrent_layers", [kind == "linear_attention" for kind in config["layer_types"]])
    else:
        out.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)
    out.add_rope_dimension_count(int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"]))
    if architecture != "qwen3next":
        out.add_rope_dimension_sections([11, 11, 10, 0])  # of pairs of channels as the published models have
    if "num_experts" in config:
        out.add_expert_count(config["num_experts"])
        out.add_expert_used_count(config["num_experts_per_tok"])
        out.add_expert_feed_forward_length(config["moe_intermediate_size"])
        out.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def turned(x, heads):
    """Halves of each head as neighboring rows."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def as_stored(name, stored, x, config, architecture):
    heads = config.get("num_attention_heads") or config.get("n_head")
    if architecture in PAIRS and stored.split(".")[-2] == "attn_q":
        return turned(x, heads)
    if architecture in PAIRS and stored.split(".")[-2] == "attn_k":
        return turned(x, config["num_key_value_heads"])
    if architecture == "gpt2" and ("c_attn" in name or "c_proj" in name or "c_fc" in name):
        return x.T if x.ndim == 2 else x  # Conv1D
    if architecture in ("bloom", "gptneox") and "query_key_value" in name:  # heads of q, k, v in turn
        parts = x.reshape(heads, 3, x.shape[0] // heads // 3, *x.shape[1:])
        return numpy.concatenate([parts[:, i].reshape(-1, *x.shape[1:]) for i in range(3)])
    if architecture == "falcon" and "query_key_value" in name:
        groups = config.get("num_kv_heads") if config["new_decoder_architecture"] else 1
        width = config["hidden_size"] // heads
        parts = x.reshape(groups, heads // groups + 2, width, x.shape[1])
        return numpy.concatenate([part.reshape(-1, x.shape[1]) for part in (parts[:, :-2], parts[:, -2], parts[:, -1])])
    if "e_score_correction" in name or "shared_expert_gate" in name:
        return x.reshape(-1)
    if architecture in DELTA and name.endswith("norm.weight") and "linear_attn" not in name:
        return x + numpy.float32(1)
    if (architecture.startswith("gemma") or architecture == "nemotron") and name.endswith("norm.weight"):
        return x + numpy.float32(1)
    return x


def write_latent_keys(out, config):
    """Of a model whose queries have no latent the keys are those of older files, which have attn_kv_b."""
    rope = config["rope_parameters"]
    rank, turned_channels = config["kv_lora_rank"], config["qk_rope_head_dim"]
    whole = config["qk_nope_head_dim"] + turned_channels
    out.add_kv_lora_rank(rank)
    out.add_rope_dimension_count(turned_channels)
    if config["q_lora_rank"]:
        out.add_q_lora_rank(config["q_lora_rank"])
        out.add_head_count_kv(1)
        out.add_key_length(rank + turned_channels)
        out.add_value_length(rank)
        out.add_key_length_mla(whole)
        out.add_value_length_mla(config["v_head_dim"])
    else:
        out.add_head_count_kv(config["num_attention_heads"])
        out.add_key_length(whole)
        out.add_value_length(config["v_head_dim"])
    if rope["rope_type"] == "yarn":
        out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        out.add_rope_scaling_factor(rope["factor"])
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        out.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def write_expert_keys(out, config, architecture):
    first = config.get("first_k_dense_replace", config.get("moe_layer_start_index"))
    if first is not None:
        out.add_leading_dense_block_count(first)
    if "moe_intermediate_size" in config:
        out.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if architecture in ("deepseek2", "glm4moe"):
        out.add_expert_shared_count(config["n_shared_experts"])
    if first == config["num_hidden_layers"]:
        return
    out.add_expert_count(next(config[key] for key in ("n_routed_experts", "moe_num_experts") if key in config))
    out.add_expert_used_count(config.get("num_experts_per_tok") or config["moe_k"])
    if architecture == "ernie4_5-moe":
        out.add_interleave_moe_layer_step(config["moe_layer_interval"])
        out.add_expert_shared_feed_forward_length(config["moe_num_shared_experts"] * config["moe_intermediate_size"])
    if architecture not in ("deepseek2", "glm4moe"):
        return
    out.add_expert_weights_scale(config["routed_scaling_factor"])
    sigmoid = architecture == "glm4moe" or config["model_type"] == "deepseek_v3"
    if architecture == "glm4moe" or sigmoid:
        out.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    out.add_expert_weights_norm(sigmoid and config["norm_topk_prob"])
    if config.get("n_group"):
        out.add_expert_group_count(config["n_group"])
        out.add_expert_group_used_count(config["topk_group"])


def write_nemotron_h_keys(out, config):
    """As convert_hf_to_gguf.py does: each letter is a block."""
    kinds = config["layers_block_type"]
    out.add_vocab_size(config["vocab_size"])
    out.add_block_count(len(kinds))
    out.add_context_length(2**20)
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length([config["intermediate_size"] if kind == "mlp" else 0 for kind in kinds])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv([config["num_key_value_heads"] if "attention" in kind and "linear" not in kind else 0 for kind in kinds])
    out.add_key_length(config["head_dim"])
    out.add_value_length(config["head_dim"])
    out.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    out.add_layer_norm_eps(config["layer_norm_epsilon"])
    out.add_ssm_conv_kernel(config["conv_kernel"])
    out.add_ssm_state_size(config["ssm_state_size"])
    out.add_ssm_group_count(config["n_groups"])
    out.add_ssm_inner_size(config["mamba_num_heads"] * config["mamba_head_dim"])
    out.add_ssm_time_step_rank(config["mamba_num_heads"])
    out.add_tokenizer_model("none")


def write_keys(out, config, architecture):
    if architecture == "nemotron_h":
        return write_nemotron_h_keys(out, config)
    if architecture == "mamba2":
        return write_mamba_keys(out, config)
    if architecture in LFM2:
        return write_lfm2_keys(out, config, architecture)
    out.add_vocab_size(config["vocab_size"])
    out.add_block_count(config.get("num_hidden_layers") or config["n_layer"])
    hidden = config.get("hidden_size") or config["n_embd"]
    out.add_embedding_length(hidden)
    width = "ffn_hidden_size" if architecture == "falcon" else "intermediate_size"
    if config.get("shared_intermediate_size") and not config["num_local_experts"]:
        width = "shared_intermediate_size"
    out.add_feed_forward_length(config.get(width) or config.get("n_inner") or config.get("moe_intermediate_size") or 4 * hidden)
    without_positions = architecture == "granitehybrid" and config["position_embedding_type"] != "rope"
    out.add_context_length(2**20 if without_positions else config.get("max_position_embeddings") or config.get("n_positions") or config["seq_length"])
    out.add_head_count(config.get("num_attention_heads") or config["n_head"])
    if "rms_norm_eps" in config:
        out.add_layer_norm_rms_eps(config["rms_norm_eps"])
        if architecture not in ("deepseek2", "granitehybrid"):
            out.add_head_count_kv(config["num_key_value_heads"])
        if architecture in GRANITE:
            write_granite_keys(out, config, architecture)
        rope = {"rope_type": "default"} if architecture == "granitehybrid" else config["rope_parameters"]
        local = rope.get("sliding_attention")
        rope = rope.get("full_attention", rope)
        if "rope_theta" in rope:
            out.add_rope_freq_base(rope["rope_theta"])
        if architecture == "glm4moe":
            out.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
        if local:
            out.add_float32(f"{architecture}.rope.freq_base_swa", local["rope_theta"])
        if rope["rope_type"] == "linear":
            out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            out.add_rope_scaling_factor(rope["factor"])
    else:
        out.add_layer_norm_eps(next(config[key] for key in ("layer_norm_epsilon", "layer_norm_eps", "norm_eps") if key in config))
        rope = config.get("rope_parameters")
        if rope:
            out.add_rope_freq_base(rope["rope_theta"])
            width = config.get("head_dim") or hidden // config["num_attention_heads"]
            out.add_rope_dimension_count(int(width * rope.get("partial_rotary_factor", 1.0)))
        if architecture == "falcon":
            out.add_head_count_kv(config["num_kv_heads"] if config["new_decoder_architecture"] else 1)
        elif config.get("num_key_value_heads") and architecture != "gptneox":
            out.add_head_count_kv(config["num_key_value_heads"])
        if architecture == "gptneox":
            out.add_parallel_residual(config["use_parallel_residual"])
        if "logit_scale" in config:
            out.add_logit_scale(config["logit_scale"])
    if architecture == "deepseek2":
        write_latent_keys(out, config)
    if architecture in DELTA:
        write_state_keys(out, config, architecture)
    if architecture in ("deepseek2", "glm4moe", "ernie4_5-moe"):
        write_expert_keys(out, config, architecture)
    if architecture == "olmo2":
        out.add_sliding_window(config["sliding_window"])
        out.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
        out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        out.add_rope_scaling_factor(rope["factor"])
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if "num_local_experts" in config:
        out.add_expert_count(config["num_local_experts"])
        out.add_expert_used_count(config["num_experts_per_tok"])
    if config.get("head_dim") and architecture != "deepseek2":
        out.add_key_length(config["head_dim"])
        out.add_value_length(config["head_dim"])
    if architecture in ("gemma3", "phi3"):
        out.add_sliding_window(config["sliding_window"])
    if architecture == "gemma3":
        out.add_uint32("gemma3.attention.sliding_window_pattern", config["layer_types"].index("full_attention") + 1)
    out.add_tokenizer_model("none")


# Of a LLaMA, whose other matrices stay in F32.
READ_ONLY_PARTS = {"attn_q": Type.Q4_1, "attn_k": Type.Q5_0, "attn_v": Type.MXFP4, "ffn_up": Type.Q5_1}


def read_only_model(folder, origin):
    config = json.loads((folder / "huggingface" / "llama" / "config.json").read_text())
    out = gguf.GGUFWriter(folder / "gguf" / "read_only.gguf", "llama")
    write_keys(out, config, "llama")
    values = {}
    for key, x in load_file(folder / "huggingface" / "llama" / "model.safetensors").items():
        stored = gguf_name(key, False)
        kind = READ_ONLY_PARTS.get(stored.split(".")[-2])
        if kind is None or x.shape[-1] % 32:
            out.add_tensor(stored, numpy.ascontiguousarray(as_stored(key, stored, x, config, "llama")))
            continue
        data = gguf.quants.quantize(x, kind)
        values[key] = gguf.quants.dequantize(data, kind).astype(numpy.float32)
        out.add_tensor(stored, numpy.ascontiguousarray(as_stored(key, stored, data, config, "llama")), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    assert values
    save_file(values, folder / "gguf" / "read_only.safetensors", metadata=origin)


def golden(folder, names):
    """Files of the models `names`, else of all."""
    folder = pathlib.Path(folder)
    (folder / "gguf").mkdir(exist_ok=True)
    origin = {"origin": "tools/oracle/gguf_files.py golden, gguf 0.19"}
    save_file(blocks(), folder / "gguf" / "blocks.safetensors", metadata=origin)
    save_file(read_only_blocks(), folder / "gguf" / "read_only_blocks.safetensors", metadata=origin)
    read_only_model(folder, origin)
    for name, (architecture, type) in MODELS.items():
        if names and name not in names:
            continue
        source = folder / "huggingface" / FOLDERS.get(name, name)
        config = with_equal_factors(json.loads((source / "config.json").read_text()))
        out = gguf.GGUFWriter(folder / "gguf" / f"{name}.gguf", architecture)
        write_keys(out, config, architecture)
        tensors = load_file(source / "model.safetensors")
        if architecture in DELTA:
            tensors = with_states(tensors, config, name)
        if architecture in GRANITE:
            tensors = with_gates(tensors, config)
        if architecture in ("granitehybrid", "mamba2", "nemotron_h"):
            tensors = with_mamba(tensors, config)
        if architecture in LFM2:
            tensors = {key: x.squeeze(1) if key.endswith("conv.conv.weight") else x for key, x in tensors.items()}
        if config.get("q_lora_rank"):
            tensors = with_heads_of_latents(tensors, config)
        for key, x in with_stacked_experts(tensors).items():
            layers = len(config.get("layers_block_type", ())) or config.get("num_hidden_layers")
            stored = (mapped_name(key, architecture, layers) if architecture in MAPPED else key
                      if key.startswith("blk.") else gguf_name(key, architecture.startswith("gemma")))
            x = numpy.ascontiguousarray(as_stored(key, stored, x, config, architecture))
            fits = (x.ndim > 1 and stored.endswith(".weight") and not stored.endswith("_norm.weight") and stored != "position_embd.weight"
                    and "ffn_gate_inp" not in stored and "conv1d" not in stored and "shortconv.conv" not in stored)
            kind = type if fits else Type.F32
            if kind in (Type.Q8_0, Type.Q4_0) and x.shape[-1] % 32:
                kind = Type.F16
            if kind == Type.F32:
                out.add_tensor(stored, x)
            else:
                out.add_tensor(stored, gguf.quants.quantize(x, kind), raw_dtype=kind)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()


# ------------------------------------------------------------------------------------------------------------- llama.cpp


class Raw(ctypes.Structure):
    """A struct of libllama, of which the numbers at known places are set; longer than any version of it."""
    _fields_ = [("data", ctypes.c_uint8 * 512)]

    def words(self):
        return ctypes.cast(ctypes.pointer(self), ctypes.POINTER(ctypes.c_int32))


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


class OfXLlamaCpp:
    """libllama in the package xllamacpp 2026.10, which exports its C functions; the places are those of its llama.h."""

    # In words of 4 bytes: n_ctx, n_batch, n_ubatch, n_threads, n_threads_batch, flash_attn_type, type_k, type_v; in bytes: use_extra_bufts.
    N_CTX, N_BATCH, N_UBATCH, THREADS, FLASH, TYPES, EXTRA = 0, 1, 2, (7, 8), 13, (26, 27), 74

    def __init__(self):
        import importlib.util
        folder = pathlib.Path(importlib.util.find_spec("xllamacpp").origin).parent
        self.lib = lib = ctypes.CDLL(str(next(folder.glob("*.so"))))
        for name in ("model_load_from_file", "model_get_vocab", "init_from_model"):
            getattr(lib, f"llama_{name}").restype = ctypes.c_void_p
        lib.llama_model_default_params.restype = lib.llama_context_default_params.restype = Raw
        lib.llama_batch_init.restype = Batch
        lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        self.silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        lib.llama_log_set(self.silence, None)
        lib.llama_backend_init()

    def load(self, path):
        parameters = self.lib.llama_model_default_params()
        assert parameters.words()[18] == 1 << 16 and parameters.data[self.EXTRA] == 1
        parameters.data[self.EXTRA] = 0
        return self.pointer(self.lib.llama_model_load_from_file(str(path).encode(), parameters))

    @staticmethod
    def pointer(value):
        return value and ctypes.c_void_p(value)

    def vocab(self, model):
        return self.pointer(self.lib.llama_model_get_vocab(model))

    def context(self, model, size):
        parameters = self.lib.llama_context_default_params()
        words = parameters.words()
        assert [words[i] for i in (0, 1, 2, 13, 26, 27)] == [512, 2048, 512, -1, 1, 1]
        words[self.N_CTX] = words[self.N_BATCH] = words[self.N_UBATCH] = size
        for at in self.THREADS:
            words[at] = 1
        words[self.FLASH] = 0
        for at in self.TYPES:
            words[at] = 0  # F32
        return self.pointer(self.lib.llama_init_from_model(model, parameters))


class OfLlamaCppPython:
    """libllama in the package llama-cpp-python."""

    def __init__(self):
        from llama_cpp import llama_cpp
        self.lib = llama_cpp
        self.silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.silence, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()

    def load(self, path):
        parameters = self.lib.llama_model_default_params()
        parameters.use_extra_bufts = False  # llama.cpp's AMX kernels crash on quantized matrices as small as these (0.3.36)
        return self.lib.llama_model_load_from_file(str(path).encode(), parameters)

    def vocab(self, model):
        return self.lib.llama_model_get_vocab(model)

    def context(self, model, size):
        params = self.lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = size
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0  # F32
        if hasattr(params, "flash_attn_type"):
            params.flash_attn_type = 0
        return self.lib.llama_init_from_model(model, params)


@functools.cache
def llama_library():
    import importlib.util
    return OfLlamaCppPython() if importlib.util.find_spec("llama_cpp") else OfXLlamaCpp()


class LlamaCpp:
    """A model in llama.cpp, computed in fp32 as far as its types allow."""

    def __init__(self, path, context=256):
        self.library = llama_library()
        self.lib = self.library.lib
        self.model = self.library.load(path)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocab = self.library.vocab(self.model)
        self.size = self.lib.llama_vocab_n_tokens(self.vocab)
        self.context = context

    def logits(self, tokens):
        context = self.library.context(self.model, self.context)
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, 1
            batch.seq_id[i][0] = 0
        if self.lib.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        rows = [numpy.ctypeslib.as_array(self.lib.llama_get_logits_ith(context, i), shape=(self.size,)).copy() for i in range(len(tokens))]
        self.lib.llama_batch_free(batch)
        self.lib.llama_free(context)
        return numpy.stack(rows)

    def greedy(self, prompt, count):
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids[len(prompt):]

    def tokenize(self, text, special):
        data = text.encode()
        space = (ctypes.c_int32 * (len(data) + 16))()
        n = self.lib.llama_tokenize(self.vocab, data, len(data), space, len(space), special, special)
        assert n >= 0
        return list(space[:n])

    def text(self, ids):
        space = ctypes.create_string_buffer(256)
        result = b""
        for token in ids:
            n = self.lib.llama_token_to_piece(self.vocab, token, space, len(space), 0, True)
            result += space.raw[:n]
        return result


# --------------------------------------------------------------------------------------------------------------- compare


def piton(program, *arguments):
    done = subprocess.run([program, *map(str, arguments), "--threads", "1", "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{arguments}: {done.returncode}: {done.stderr}")
    return done.stdout


def piton_logits(program, path, tokens, work):
    (work / "ids.json").write_text(json.dumps([list(map(int, tokens))]))
    piton(program, "score", "--load", path, "--ids-file", work / "ids.json", "--logits", work / "ours.safetensors")
    return load_file(work / "ours.safetensors")["logits"]


def piton_ids(program, tokenizer, texts, special, work):
    (work / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    flags = ["--add-special-tokens", "--parse-special-tokens"] if special else []
    said = piton(program, "tokenize", work / "texts.jsonl", "--json-strings", "--tokenizer-name-or-path", tokenizer, "--json", *flags)
    return [json.loads(line)["ids"] for line in said.splitlines()]


def models():
    """Models that llama.cpp has: the oracle's own, with what it takes for granted, and rows of whole blocks."""
    import huggingface as hf
    import published_models

    wide = dict(hidden_size=64, intermediate_size=96)
    experts = dict(num_experts=8, num_experts_per_tok=3, norm_topk_prob=True)
    blocks = dict(hidden_size=256, intermediate_size=512, moe_intermediate_size=256)  # whole blocks of 256 too
    yarn = {**hf.DEEPSEEK_YARN, "mscale": hf.DEEPSEEK_YARN["mscale_all_dim"]}
    plain_angles = {"rope_type": "default", "rope_theta": 150000.0}
    # Values as wide as keys, three heads of them to each of two keys.
    delta = {**hf.DELTA, "head_dim": 32, "linear_num_value_heads": 6, "linear_key_head_dim": 32, "linear_value_head_dim": 32}
    next_experts = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=18, shared_expert_intermediate_size=26)
    of_blocks = {**delta, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "head_dim": 64}
    soft = dict(head_dim=16, query_pre_attn_scalar=16, tie_word_embeddings=True)
    result = {name: hf.GOLDEN[name] for name in (
        "gpt2", "llama", "llama3", "qwen2", "qwen3", "bloom", "stablelm", "mixtral", "granite", "olmo2", "olmo3", "internlm", "internlm2",
        "internlm3", "glm4-moe", "ernie4.5-moe", "falcon", "falcon-7b", "cohere2", "hunyuan", "gpt-neox",
        "cohere", "arcee", "ernie4.5", "phi", "baichuan", "granite-moe", "granite4-mamba", "granite4-mamba-moe", "mamba2",
        "lfm2", "lfm2-moe", "nemotron-h", "ministral3", "youtu", "exaone", "minimax-m2", "jais2", "olmo", "gpt-bigcode")}
    result |= {name: hf.MORE[name] for name in ("gpt2-50257", "llama-tied", "llama-biases", "llama-wide-heads", "llama-one-group",
                                                "llama-linear", "llama-yarn", "mistral-whole", "bloom-eight-heads", "phi3-50257",
                                                "phi3-long", "phi3-partial", "mixtral-one", "mixtral-all", "qwen3-moe-normalized")}
    result |= {
        "llama-wide": lambda: hf.llama_like("Llama", **wide),
        "qwen2-wide": lambda: hf.llama_like("Qwen2", **wide),
        "qwen3-wide": lambda: hf.llama_like("Qwen3", head_dim=32, **wide),
        "mixtral-wide": lambda: hf.llama_like("Mixtral", num_local_experts=8, num_experts_per_tok=2, **wide),
        "qwen3-moe-wide": lambda: hf.llama_like("Qwen3Moe", head_dim=32, moe_intermediate_size=64, **experts, **wide),
        "qwen3-moe-tied": lambda: hf.llama_like("Qwen3Moe", head_dim=16, moe_intermediate_size=32,
                                                **{**experts, **wide, "tie_word_embeddings": True}),
        "mixtral-blocks": lambda: hf.llama_like("Mixtral", num_local_experts=4, num_experts_per_tok=2, hidden_size=256,
                                                intermediate_size=512),
        "qwen3-moe-blocks": lambda: hf.llama_like("Qwen3Moe", head_dim=64, **experts, **blocks),
        "gpt2-wide": lambda: hf.gpt2(n_embd=64, n_head=4, n_inner=128),
        "bloom-wide": lambda: hf.bloom(hidden_size=64, n_head=4),
        # llama.cpp chooses by the length of its context, which is 256 here.
        "phi3-short": lambda: hf.llama_like("Phi3", max_position_embeddings=1024, original_max_position_embeddings=512, pad_token_id=0,
                                                rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 512,
            "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 2.0, 3.0, 4.5]}),
        "stablelm-tied": lambda: hf.llama_like("StableLm", tie_word_embeddings=True, **wide),
        # Without yarn: of gpt-oss it does not round the ends of the blend, which llama.cpp does.
        "gpt-oss": lambda: hf.gpt_oss(attention_bias=True, swiglu_limit=7.0, num_hidden_layers=4, rope_parameters=plain_angles),
        "gpt-oss-wide": lambda: hf.gpt_oss(attention_bias=True, swiglu_limit=7.0, hidden_size=64, intermediate_size=64, head_dim=16,
                                           rope_parameters=plain_angles),
        "minicpm": hf.GOLDEN["minicpm"],
        "minicpm4": hf.GOLDEN["minicpm4"],
        "minicpm4-long": lambda: published_models.minicpm4(127, num_hidden_layers=3, intermediate_size=54),
        # Its turns, and a magnitude that is not that of the formula.
        "llama-yarn-turns": lambda: hf.llama_like("Llama", rope_parameters={**hf.YARN, "beta_fast": 8.0, "beta_slow": 2.0,
                                                                             "attention_factor": 1.3}),
        "deepseek-v2": lambda: hf.deepseek_v2(rope_parameters=yarn),
        "deepseek-v2-plain": lambda: hf.deepseek_v2(q_lora_rank=14, rope_parameters=plain_angles, routed_scaling_factor=3.0),
        "deepseek-v2-dense": hf.GOLDEN["deepseek-v2-ranks"],
        "deepseek-v2-lite": lambda: hf.deepseek_v2(rope_parameters=yarn, num_hidden_layers=27),  # which llama.cpp knows by their number
        "deepseek-v3": lambda: hf.deepseek_v3(rope_parameters={**yarn, "mscale": 1.0, "mscale_all_dim": 1.0}),
        "deepseek-v3-one-group": lambda: hf.deepseek_v3(rope_parameters=yarn, n_group=1, topk_group=1, norm_topk_prob=False,
                                                        tie_word_embeddings=True),
        "deepseek-v3-wide": lambda: hf.deepseek_v3(rope_parameters=yarn, hidden_size=64, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=32,
                                                   qk_rope_head_dim=16, v_head_dim=32, moe_intermediate_size=64, intermediate_size=96),
        "olmoe": lambda: hf.llama_like("Olmoe", num_experts=6, num_experts_per_tok=3, intermediate_size=18, num_key_value_heads=4),
        "qwen2-moe": lambda: hf.llama_like("Qwen2Moe", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=18,
                                           shared_expert_intermediate_size=26),
        "glm4-moe-norms": lambda: hf.llama_like("Glm4Moe", n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=14,
                                                use_qk_norm=True, n_shared_experts=2, norm_topk_prob=False, first_k_dense_replace=0,
                                                num_mtp_layers=0),
        "glm4-moe-lite": lambda: hf.llama_like("Glm4MoeLite", num_hidden_layers=3, **hf.LATENTS, **hf.ROUTED, **hf.ENDLESS),
        "dots1": lambda: hf.llama_like("Dots1", num_hidden_layers=3, head_dim=12, num_key_value_heads=4, n_shared_experts=2,
                                       first_k_dense_replace=1, norm_topk_prob=True, **hf.ROUTED),
        "hunyuan-moe": lambda: hf.llama_like("HunYuanMoEV1", head_dim=12, num_experts=6, moe_topk=3, intermediate_size=22, **hf.ENDLESS),
        "falcon-one-norm": lambda: hf.llama_like("Falcon", new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1),
        "olmo3-usual": lambda: hf.llama_like("Olmo3", num_hidden_layers=5, sliding_window=16, pad_token_id=None, eos_token_id=None),
        "baichuan-7b": lambda: published_models.published("baichuan", "BaiChuanForCausalLM", num_hidden_layers=32),
        "nemotron": lambda: hf.llama_like("Nemotron"),
        "starcoder2": lambda: hf.llama_like("Starcoder2", sliding_window=None, intermediate_size=54),
        "seed-oss": lambda: hf.llama_like("SeedOss", head_dim=12),
        "cohere2-usual": lambda: hf.llama_like("Cohere2", num_hidden_layers=5, sliding_window=16, tie_word_embeddings=True,
                                               pad_token_id=None),
        "exaone4": lambda: hf.llama_like("Exaone4", sliding_window=None, layer_types=["full_attention"] * 2),
        "exaone4-window": lambda: hf.llama_like("Exaone4", num_hidden_layers=64, sliding_window=9, sliding_window_pattern=4,
                                                layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 16),
        "qwen3.5": lambda: hf.llama_like("Qwen3_5Text", "Qwen3_5", **delta),
        "qwen3.5-tied": lambda: hf.llama_like("Qwen3_5Text", "Qwen3_5", tie_word_embeddings=True, **wide, **delta),
        "qwen3.5-one-to-one": lambda: hf.llama_like("Qwen3_5Text", "Qwen3_5", **{**delta, "linear_num_value_heads": 2}),
        "qwen3.5-one-key": lambda: hf.llama_like("Qwen3_5Text", "Qwen3_5", **{**delta, "linear_num_key_heads": 1,
                                                                               "num_hidden_layers": 6}),
        "qwen3.5-often": lambda: hf.llama_like("Qwen3_5Text", "Qwen3_5", linear_conv_kernel_dim=3,
                                               layer_types=["linear_attention", "full_attention"] * 2, **delta),
        "qwen3.5-yarn": lambda: hf.llama_like("Qwen3_5Text", "Qwen3_5", rope_parameters={**hf.YARN, "partial_rotary_factor": 0.25}, **delta),
        "qwen3.5-blocks": lambda: hf.llama_like("Qwen3_5Text", "Qwen3_5", hidden_size=256, intermediate_size=512, **of_blocks),
        "qwen3.5-moe": lambda: hf.llama_like("Qwen3_5MoeText", "Qwen3_5Moe", **next_experts, **delta),
        "qwen3.5-moe-tied": lambda: hf.llama_like("Qwen3_5MoeText", "Qwen3_5Moe", tie_word_embeddings=True, **{
            **next_experts, "moe_intermediate_size": 32}, **delta),
        "qwen3-next": lambda: hf.llama_like("Qwen3Next", **next_experts, **delta),
        "qwen3-next-tied": lambda: hf.llama_like("Qwen3Next", tie_word_embeddings=True, **{**next_experts, "moe_intermediate_size": 32},
                                                 **{**delta, "linear_num_value_heads": 2}),
        "qwen3-next-blocks": lambda: hf.llama_like("Qwen3Next", hidden_size=256, **{**next_experts, "moe_intermediate_size": 256},
                                                   **of_blocks),
        # Granite 4 with experts in all layers with attention; with an MLP next to them.
        "granite4-moe-attention": lambda: hf.llama_like("GraniteMoeHybrid", **{**hf.MAMBA_EXPERTS, "layer_types": ["attention"] * 4}),
        "granite4-mamba-turned": lambda: hf.llama_like("GraniteMoeHybrid", **{
            **hf.MAMBA, "position_embedding_type": "rope", "attention_bias": True, "mamba_n_groups": 4, "mamba_d_conv": 2,
            "rope_parameters": hf.LLAMA3}),
        "granite4-mamba-moe-plain": lambda: hf.llama_like("GraniteMoeHybrid", **{
            **hf.MAMBA_EXPERTS, "position_embedding_type": "nope", "layer_types": ["attention", "mamba", "mamba", "attention"]}),
        "granite4-mamba-blocks": lambda: hf.llama_like("GraniteMoeHybrid", hidden_size=256, **{
            **hf.MAMBA, "shared_intermediate_size": 512, "mamba_n_heads": 8, "mamba_d_head": 64}),
        "granite4-mamba-moe-blocks": lambda: hf.llama_like("GraniteMoeHybrid", hidden_size=256, **{
            **hf.MAMBA_EXPERTS, "intermediate_size": 256, "shared_intermediate_size": 256, "mamba_n_heads": 8, "mamba_d_head": 64}),
        "nemotron-h-experts": lambda: hf.nemotron_h("MEM*EME", n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16, n_group=4,
                                                    topk_group=2, moe_shared_expert_intermediate_size=26, routed_scaling_factor=2.5),
        "nemotron-h-blocks": lambda: hf.nemotron_h("M-*-M-", hidden_size=256, intermediate_size=512, mamba_num_heads=8, mamba_head_dim=64,
                                                   ssm_state_size=64),
        "lfm2-wide": lambda: hf.llama_like("Lfm2", **hf.LFM2, block_auto_adjust_ff_dim=False, conv_L_cache=4, **wide),
        "lfm2-attention": lambda: hf.llama_like("Lfm2", num_key_value_heads=1, block_multiple_of=16),
        "lfm2-often": lambda: hf.llama_like("Lfm2", num_hidden_layers=5, layer_types=["full_attention", "conv"] * 2 + ["full_attention"],
                                            num_key_value_heads=1, conv_L_cache=2, tie_word_embeddings=True),
        "lfm2-blocks": lambda: hf.llama_like("Lfm2", hidden_size=256, intermediate_size=512, block_auto_adjust_ff_dim=False, **hf.LFM2),
        "lfm2-moe-dense": lambda: hf.llama_like("Lfm2Moe", **hf.LFM2, num_dense_layers=2, num_experts=8, num_experts_per_tok=2,
                                                moe_intermediate_size=32, conv_L_cache=5, **wide),
        "mamba2-untied": lambda: hf.mamba2(num_heads=6, n_groups=3, expand=3, conv_kernel=3, tie_word_embeddings=False),
        "mamba2-eight-groups": lambda: hf.mamba2(num_heads=16, head_dim=4, n_groups=8, conv_kernel=2),
        "mamba2-blocks": lambda: hf.mamba2(hidden_size=256, num_heads=8, head_dim=64, state_size=64),
        "gemma": lambda: hf.llama_like("Gemma", head_dim=16, tie_word_embeddings=True, **wide),
        "gemma2": lambda: hf.llama_like("Gemma2", num_hidden_layers=3, sliding_window=9, attn_logit_softcapping=3.0,
                                        final_logit_softcapping=5.0, **soft, **wide),
        "gemma3": lambda: hf.llama_like("Gemma3Text", "Gemma3", num_hidden_layers=7, sliding_window=9, **soft, **wide),
        "gemma3-linear": lambda: hf.llama_like(
            "Gemma3Text", "Gemma3", num_hidden_layers=7, sliding_window=9, rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}, **soft, **wide),
    }
    return result


def with_values(path, out):
    """The file `out`: that of `path` with the values of its tensors in F32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name != "general.architecture" and not field.name.startswith("GGUF."):
            kind = field.types[0]
            writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for one in reader.tensors:
        writer.add_tensor(one.name, gguf.quants.dequantize(one.data, one.tensor_type).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def compare(program, work, names):
    import torch
    import transformers
    import huggingface as hf

    transformers.logging.set_verbosity_error()
    bad = 0
    for name, make in models().items():
        if names and name not in names:
            continue
        model = hf.build(make)
        if name.endswith("-blocks"):  # wider than the others: sums as large as theirs
            with torch.no_grad():
                for parameter in (one for one in model.parameters() if one.ndim > 1):
                    parameter.mul_(0.4)
        folder = work / name
        model.save_pretrained(folder)
        tokens = torch.randint(0, model.config.vocab_size, (LENGTH,))
        wanted, greedy = hf.expected(model, tokens)
        ids = tokens.tolist()
        types = ("f32", "f16", "bf16", "q8_0", "q4_0") + (("q4_k", "q5_k", "q6_k") if name.endswith("-blocks") else ())
        for type in types:
            path = work / f"{name}-{type}.gguf"
            said = json.loads(piton(program, "convert", "--load", folder, "--save", path, "--outtype", type, "--json"))
            theirs = LlamaCpp(path)
            ours = piton_logits(program, path, ids, work)
            logits = theirs.logits(ids)
            size = float(numpy.abs(ours).max())
            # Between experts that are nearly equal, another rounding chooses another one; and what the gated delta rule
            # gives is divided by its size, which is small where query and key are nearly at right angles. So half of the
            # tokens count. Of models with that rule, Mamba-2 or products of three (LFM2), the same values in F32 are compared too,
            # which nothing rounds.
            of_tokens = numpy.abs(logits - ours).max(1)
            flips = type != "f32" and any(word in name for word in ("moe", "next", "qwen3.5", "mixtral", "gpt-oss", "deepseek", "dots1", "minimax"))
            between = float(numpy.median(of_tokens) if flips else of_tokens.max()) / size
            exact = float(numpy.abs(ours - wanted.numpy()).max()) / size
            # llama.cpp quantizes activations to 8 bits before products with quantized weights, has GELU in a table of
            # fp16, and converts activations to the weights' type where that is 16-bit.
            states = any(word in name for word in ("next", "qwen3.5", "mamba", "nemotron-h", "lfm2"))
            limit = {"f32": 2e-3, "f16": 1e-2}.get(type, 2e-1 if states else 5e-2)
            text = ""
            if type == "f32":
                same = theirs.greedy(ids[:PROMPT], NEW) == greedy[:NEW].tolist()
                text = f", greedy {'equal' if same else 'differs'}"
            good = between < limit and (type != "f32" or (exact < 1e-4 and same))
            if states and type not in ("f32", "bf16"):  # of bf16 Piton computes in bf16
                values = float(numpy.abs(LlamaCpp(with_values(path, work / "values.gguf")).logits(ids) - ours).max()) / size
                good = good and values < 1e-3
                text = f", {values:.1e} of its values in F32"
            bad += not good
            kl = said.get("quantization", {}).get("kl", 0)
            print(f"{'ok  ' if good else 'BAD '} {name:20} {type:5} llama.cpp {between:.1e} from Piton, Piton {exact:.1e} from "
                  f"Transformers{text}, KL {kl:.2g}", flush=True)
    return bad


# convert_hf_to_gguf.py knows tokenizers by a hash of ids, and Qwen 3.5's is not at hand: these files have none.
WITHOUT_TOKENIZER = """import runpy, sys
sys.path.insert(0, sys.argv[1])
from conversion import base
base.TextModel._set_vocab_gpt2 = lambda self: self.gguf_writer.add_tokenizer_model("none")
sys.argv = [sys.argv[1] + "/convert_hf_to_gguf.py", *sys.argv[2:]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def converted(program, llama, tokenizers, work, names):
    """Models that llama.cpp's convert_hf_to_gguf.py wrote hold what Piton writes, and have the logits of the folder."""
    import shutil
    import huggingface as hf

    bad = 0
    wide = dict(hidden_size=64, intermediate_size=96)
    states = {**hf.DELTA, "head_dim": 64, "linear_num_value_heads": 6, "linear_key_head_dim": 32, "linear_value_head_dim": 32}
    experts = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32, shared_expert_intermediate_size=64)
    for name, tokenizer, make in (
            ("qwen3.5", None, lambda: hf.llama_like("Qwen3_5Text", "Qwen3_5", tie_word_embeddings=True, **wide, **states)),
            ("qwen3.5-moe", None, lambda: hf.llama_like("Qwen3_5MoeText", "Qwen3_5Moe", hidden_size=64, **experts, **states)),
            ("qwen3-next", None, lambda: hf.llama_like("Qwen3Next", **experts, **wide, **states)),
            ("mixtral", "llama2", lambda: hf.llama_like("Mixtral", vocabulary=32000, num_local_experts=8, num_experts_per_tok=2, **wide)),
            ("qwen3moe", "qwen2.5", lambda: hf.llama_like("Qwen3Moe", vocabulary=151936, head_dim=32, moe_intermediate_size=64, num_experts=8,
                                                          num_experts_per_tok=3, norm_topk_prob=True, **wide))):
        if names and name not in names:
            continue
        folder = work / name
        model = hf.build(make)
        model.save_pretrained(folder)
        for file in (tokenizers / tokenizer).iterdir() if tokenizer else ():
            shutil.copy(file, folder / file.name)
        tokens = numpy.random.default_rng(3).integers(0, model.config.vocab_size, LENGTH)
        wanted = piton_logits(program, folder, tokens, work)
        for type in ("f32", "q8_0"):
            theirs, ours = work / f"{name}-{type}-theirs.gguf", work / f"{name}-{type}-ours.gguf"
            program_of_llama, more = [llama / "convert_hf_to_gguf.py"], []
            if not tokenizer:
                program_of_llama, more = ["-c", WITHOUT_TOKENIZER, llama], ["--no-mtp"]  # without layers that predict later tokens
            done = subprocess.run([sys.executable, *program_of_llama, folder, "--outfile", theirs, "--outtype", type, *more],
                                  capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            piton(program, "convert", "--load", folder, "--save", ours, "--outtype", type, "--no-verify")
            stored = [{one.name: one for one in gguf.GGUFReader(path).tensors} for path in (ours, theirs)]
            differ = [key for key in stored[0].keys() | stored[1].keys()
                      if not all(key in one for one in stored) or stored[0][key].tensor_type != stored[1][key].tensor_type
                      or stored[0][key].data.tobytes() != stored[1][key].data.tobytes()]
            apart = float(numpy.abs(piton_logits(program, theirs, tokens, work) - (wanted if type == "f32" else
                                                                                   piton_logits(program, ours, tokens, work))).max())
            good = not differ and apart < 1e-4 * float(numpy.abs(wanted).max())
            bad += not good
            print(f"{'ok  ' if good else 'BAD '} {name} {type}: {len(stored[1])} tensors of llama.cpp's converter, other in Piton's file: "
                  f"{differ[:4]}, logits {apart:.1e} apart", flush=True)
    return bad


def stories_tokenizer(weights, folder):
    """llama2.c's tok512.bin as tokenizer.model: a score, a length and the bytes of each piece."""
    import struct
    from transformers.utils import sentencepiece_model_pb2_new as pb

    raw = (weights / "tok512.bin").read_bytes()
    at, model = 4, pb.ModelProto()
    while at < len(raw):
        score, size = struct.unpack_from("<fi", raw, at)
        text = raw[at + 8:at + 8 + size].decode()
        at += 8 + size
        number = len(model.pieces)
        kind = {0: 2, 1: 3, 2: 3}.get(number, 6 if number < 259 else 1)
        name = {0: "<unk>", 1: "<s>", 2: "</s>"}.get(number, text.replace(" ", "\u2581"))
        model.pieces.append(pb.ModelProto.SentencePiece(piece=name, score=score, type=kind))
    model.trainer_spec.model_type, model.trainer_spec.byte_fallback = 2, True
    model.normalizer_spec.name, model.normalizer_spec.remove_extra_whitespaces = "identity", False
    (folder / "tokenizer.model").write_bytes(model.SerializeToString())
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True,
                                                              "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>"}))


def stories(program, weights, work):
    """The trained model of llama2.c: the same greedy text in llama.cpp, on every file."""
    import huggingface as hf

    folder = work / "stories"
    hf.stories_folder(weights, folder)
    stories_tokenizer(weights, folder)
    bad = 0
    for type in ("f32", "f16", "q8_0", "q4_0"):
        path = work / f"stories-{type}.gguf"
        piton(program, "convert", "--load", folder, "--save", path, "--outtype", type)
        theirs = LlamaCpp(path, 512)
        prompt = theirs.tokenize("Once upon a time", True)
        bad += prompt != piton_ids(program, folder, ["Once upon a time"], True, work)[0]
        answer = json.loads(piton(program, "generate", "--load", path, "--prompt-ids", ",".join(map(str, prompt)), "--greedy", "--json",
                                  "--max-new-tokens", 100))
        ours, got = answer["ids"], theirs.greedy(prompt, 100)
        got = got[:len(ours)]
        same = sum(a == b for a, b in zip(ours, got))
        good = same == len(ours) or type != "f32"
        bad += not good
        print(f"{'ok  ' if good else 'BAD '} stories260K {type}: {same} of {len(ours)} greedy tokens equal: "
              f"{theirs.text(got[:40]).decode(errors='replace')!r}", flush=True)
    return bad


TEXTS = ["Hello world! It's 2024, isn't it?", "  two spaces,\n\nlines\tand tabs", "naïve café — 北京 123456 🙂", "a\u0301 I'LL we've",
         "x = [i**2 for i in range(10)]  # comment\n    return x", "<|endoftext|> <s>", "Привет, мир! こんにちは",
         "हिन्दी में 12 शब्द, ไทย ภาษา"]

# As Qwen 3.5 cuts words: marks count as letters.
MARKS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|"
         r"\s+")


def tokenizers(program, folder, work):
    """The ids of llama.cpp, of files whose model is a small random one and whose tokenizer is a published one."""
    import huggingface as hf
    import shutil

    bad = 0
    for name, vocabulary in (("gpt2", 50257), ("llama2", 32000), ("qwen2.5", 151936), ("qwen2.5 with marks", 151936)):
        source = work / name
        hf.build(lambda: hf.llama_like("Llama", vocabulary=vocabulary)).save_pretrained(source)
        if "marks" in name:  # the same but for the cut of words
            piton(program, "convert", "--load", work / "qwen2.5.gguf", "--save", work / "json", "--to", "hf", "--no-verify")
            words = json.loads((work / "json" / "tokenizer.json").read_text())
            words["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = MARKS
            (source / "tokenizer.json").write_text(json.dumps(words))
        else:
            for file in (folder / name).iterdir():
                shutil.copy(file, source / file.name)
        path = work / f"{name}.gguf"
        piton(program, "convert", "--load", source, "--save", path, "--no-verify")
        theirs = LlamaCpp(path)
        for special in (False, True):
            for text, ids in zip(TEXTS, piton_ids(program, source, TEXTS, special, work)):
                got = theirs.tokenize(text, special)
                if not special and name == "llama2" and got[:1] == [1]:
                    got = got[1:]
                # llama.cpp normalizes nothing, and puts a space before the text behind a control token.
                known = (name.startswith("qwen2.5") and "\u0301" in text) or (special and name == "llama2" and "<s>" in text)
                good = got == ids or known
                bad += not good
                print(f"{'ok  ' if good else 'BAD '} {name} {text!r}{'' if good else f': {got}, Piton {ids}'}", flush=True)
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("golden", "compare", "converted", "stories", "tokenizers"))
    parser.add_argument("where")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if options.what == "golden":
            sys.exit(golden(options.where, options.names))
        if options.what == "converted":
            llama, tokenizers_at, *names = options.names
            sys.exit(converted(options.where, pathlib.Path(llama), pathlib.Path(tokenizers_at), pathlib.Path(scratch), names) > 0)
        if options.what == "stories":
            sys.exit(stories(options.where, options.work, pathlib.Path(scratch)))
        if options.what == "tokenizers":
            sys.exit(tokenizers(options.where, pathlib.Path(options.names[0]), pathlib.Path(scratch)))
        sys.exit(compare(options.where, options.work or pathlib.Path(scratch), options.names) > 0)
