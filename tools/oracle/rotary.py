"""Frequencies of scaled rotary positions, and losses of a model that turns by them, by Transformers in float64.

    python tools/oracle/rotary.py tests/golden        (torch 2.15, transformers 5.23, safetensors)

Writes rotary.jsonl from ROPE_INIT_FUNCTIONS: a head, then one case a line. `frequencies` and `magnitude` are
those of `channels` rotated channels for sequences of `sequence` tokens. Where there is a `loss`, it and the norm of its gradient
are those of llama.safetensors (models.py) on its batch; `share` below 1 turns the first channels of each head alone, and
`pairs` turns neighbors (modeling_cohere) in place of halves.
"""
import datetime
import json
import sys

import torch
from safetensors.torch import load_file

golden = load_file(f"{sys.argv[1]}/llama.safetensors")
torch.float = torch.float32 = torch.float64  # the functions ask for fp32 by name
torch.Tensor.float = torch.Tensor.double

import transformers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402
from transformers.models.cohere import modeling_cohere  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

HEADS, GROUPS, LENGTH = 6, 2, 20


def frequencies(channels, positions, length, rope):
    if rope["rope_type"] == "default":
        return rope["rope_theta"] ** (-torch.arange(0, channels, 2, dtype=torch.float64) / channels), 1.0
    config = LlamaConfig(hidden_size=4 * channels, num_attention_heads=4, head_dim=channels,
                         max_position_embeddings=positions, rope_parameters=dict(rope))
    found, magnitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"), seq_len=length)
    return found.double(), magnitude


def loss_of(values, magnitude, channels, pairs):
    config = LlamaConfig(num_hidden_layers=2, hidden_size=48, num_attention_heads=HEADS, num_key_value_heads=GROUPS,
                         intermediate_size=80, vocab_size=97, max_position_embeddings=32, rms_norm_eps=1e-5,
                         tie_word_embeddings=False, attn_implementation="eager")
    model = LlamaForCausalLM(config).double()
    state = {"model.embed_tokens.weight": "embedding.token.weight", "lm_head.weight": "head.weight",
             "model.norm.weight": "final_norm.weight"}
    for i in range(2):
        for theirs, ours in (("input_layernorm", "attention_norm"), ("post_attention_layernorm", "mlp_norm"),
                             ("self_attn.q_proj", "attention.query"), ("self_attn.k_proj", "attention.key"),
                             ("self_attn.v_proj", "attention.value"), ("self_attn.o_proj", "attention.output"),
                             ("mlp.gate_proj", "mlp.gate"), ("mlp.up_proj", "mlp.up"), ("mlp.down_proj", "mlp.down")):
            state[f"model.layers.{i}.{theirs}.weight"] = f"layers.{i}.{ours}.weight"
    model.load_state_dict({theirs: golden["weight." + ours].double() for theirs, ours in state.items()})

    def tables(x, position_ids):
        angles = position_ids[..., None].double() * values
        angles = angles.repeat_interleave(2, -1) if pairs else torch.cat((angles, angles), -1)
        return angles.cos() * magnitude, angles.sin() * magnitude

    def turn(q, k, cos, sin, *unused, **also_unused):
        apply = (modeling_cohere if pairs else plain).apply_rotary_pos_emb
        turned = apply(q[..., :channels], k[..., :channels], cos, sin)
        return [torch.cat((one, rest[..., channels:]), -1) for one, rest in zip(turned, (q, k))]

    class plain:
        apply_rotary_pos_emb = staticmethod(halves)

    model.model.rotary_emb.forward = tables
    modeling_llama.apply_rotary_pos_emb = turn
    logits = model(golden["tokens"].long()).logits
    each = torch.nn.functional.cross_entropy(logits.reshape(-1, 97), golden["labels"].long().reshape(-1), reduction="none")
    mask = golden["mask"].double().reshape(-1)
    loss = (each * mask).sum() / mask.sum()
    loss.backward()
    return loss.item(), sum(p.grad.square().sum() for p in model.parameters()).sqrt().item()


halves = modeling_llama.apply_rotary_pos_emb


def main(folder):
    long = {4: [1.5, 2.0, 4.0, 8.0], 48: [1.0 + i / 8 for i in range(48)]}
    short = {4: [1.0, 1.0, 1.25, 2.0], 48: [1.0 + i / 100 for i in range(48)]}
    cases = []

    def case(kind, channels, positions, length, base=10000.0, share=1.0, pairs=False, **rope):
        cases.append((kind, channels, positions, length, share, pairs, dict(rope, rope_type=kind, rope_theta=base)))

    small = dict(channels=8, positions=32, length=LENGTH)
    case("default", **small)
    case("default", **small, pairs=True)
    case("default", **dict(small, channels=4), share=0.5)
    case("default", **dict(small, channels=6), share=0.75, pairs=True)
    case("linear", **small, factor=4.0)
    case("dynamic", **dict(small, positions=10), factor=2.0)
    case("dynamic", **small, factor=2.0)  # shorter than the original: as it was
    case("llama3", **small, base=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=40)
    case("yarn", **small, base=50.0, factor=4.0, original_max_position_embeddings=300)
    case("yarn", **small, base=50.0, factor=4.0, original_max_position_embeddings=300, beta_fast=8.0, beta_slow=2.0,
         truncate=False, attention_factor=1.5)
    case("longrope", **small, factor=3.2, short_factor=short[4], long_factor=long[4], original_max_position_embeddings=10)
    case("longrope", **small, factor=1.6, short_factor=short[4], long_factor=long[4], original_max_position_embeddings=20)
    case("longrope", **small, factor=1.6, short_factor=short[4], long_factor=long[4], original_max_position_embeddings=20,
         attention_factor=1.25)
    wide = dict(channels=128, positions=131072, length=100000)
    case("linear", **wide, factor=2.5)
    case("dynamic", **dict(wide, positions=4096), factor=4.0)
    case("llama3", **wide, base=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
         original_max_position_embeddings=8192)
    case("yarn", **wide, base=1000000.0, factor=4.0, original_max_position_embeddings=32768)
    case("yarn", **dict(wide, channels=64), factor=40.0, original_max_position_embeddings=4096, mscale=0.707, mscale_all_dim=1.0)
    case("longrope", **dict(wide, channels=96), factor=32.0, short_factor=short[48], long_factor=long[48],
         original_max_position_embeddings=4096)

    head = {"tool": "tools/oracle/rotary.py", "torch": torch.__version__, "transformers": transformers.__version__,
            "date": datetime.date.today().isoformat()}
    with open(f"{folder}/rotary.jsonl", "w") as out:
        print(json.dumps(head), file=out)
        for kind, channels, positions, length, share, pairs, rope in cases:
            values, magnitude = frequencies(channels, positions, length, rope)
            row = {"type": kind, "channels": channels, "positions": positions, "sequence": length, "share": share,
                   "pairs": pairs, "rope": rope, "magnitude": magnitude, "frequencies": values.tolist()}
            if channels <= 8:
                row["loss"], row["gradient_norm"] = loss_of(values, magnitude, channels, pairs)
            print(json.dumps(row), file=out)


main(sys.argv[1])
