"""Decoders that Transformers does not have, by the rules of the files that their authors publish with the weights.

InternLM (modeling_internlm.py), InternLM2 (modeling_internlm2.py), Baichuan 7B and 13B, Baichuan-2 (modeling_baichuan.py),
Aquila (modeling_aquila.py) and MiniCPM (modeling_minicpm.py). Modules have the published names, so that a state dictionary has those of a checkpoint.
Everything runs in the dtype of the weights; nothing is fused, cached or made fast. huggingface.py makes folders of them.
"""
import json
import math
import pathlib
import types

import torch
from safetensors.torch import load_file, save_file
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotated(x, base, divisors=1.0, magnitude=1.0):
    """x [heads, s, d]: halves, as rotate_half() of LLaMA has them."""
    s, d = x.shape[-2:]
    # The frequencies are rounded to fp32, as in the published files.
    frequencies = (1.0 / base ** (torch.arange(0, d, 2).float() / d)).to(x.dtype) / divisors
    angles = torch.outer(torch.arange(s, dtype=x.dtype), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    half = torch.cat((-x[..., d // 2:], x[..., :d // 2]), dim=-1)
    return magnitude * (x * angles.cos() + half * angles.sin())


def slopes(heads):
    """_get_interleave() of modeling_baichuan.py."""
    def of_power_of_2(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start ** i for i in range(n)]

    if math.log2(heads).is_integer():
        return of_power_of_2(heads)
    lower = 2 ** math.floor(math.log2(heads))
    return of_power_of_2(lower) + slopes(2 * lower)[0::2][:heads - lower]


def attend(q, k, v, bias=0.0):
    """q [a, s, d], k and v [g, s, d]; `bias` is added to the scaled scores before the causal mask."""
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], dim=0) for x in (k, v))
    s = q.shape[1]
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + bias
    scores = scores + torch.full((s, s), -torch.inf, dtype=q.dtype).triu(1)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


class Attention(nn.Module):
    """q_proj, k_proj, v_proj, o_proj: Aquila, and with biases InternLM."""

    def __init__(self, c):
        super().__init__()
        h, self.d, self.base = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"], c.get("rope_theta", 1e4)
        bias = c.get("bias", False)
        self.q_proj, self.k_proj = nn.Linear(h, h, bias=bias), nn.Linear(h, h, bias=bias)
        self.v_proj, self.o_proj = nn.Linear(h, h, bias=bias), nn.Linear(h, h, bias=bias)

    def forward(self, x):
        q, k, v = (part(x).unflatten(1, (-1, self.d)).transpose(0, 1) for part in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(attend(rotated(q, self.base), rotated(k, self.base), v))


class BaichuanAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.heads = c["hidden_size"], c["num_attention_heads"]
        self.rotary = "max_position_embeddings" in c
        self.W_pack, self.o_proj = nn.Linear(h, 3 * h, bias=False), nn.Linear(h, h, bias=False)

    def forward(self, x):
        s = x.shape[0]
        q, k, v = self.W_pack(x).unflatten(1, (3, self.heads, -1)).permute(1, 2, 0, 3)
        if self.rotary:
            return self.o_proj(attend(rotated(q, 1e4), rotated(k, 1e4), v))
        # The slope times the key's place, whatever the query's: softmax takes away what a row has in common.
        alibi = torch.tensor(slopes(self.heads), dtype=x.dtype)[:, None, None] * torch.arange(s, dtype=x.dtype)
        return self.o_proj(attend(q, k, v, alibi))


class InternLM2Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, a, self.g = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.d, self.base = h // a, c["rope_theta"]
        self.wqkv = nn.Linear(h, (a + 2 * self.g) * self.d, bias=c["bias"])
        self.wo = nn.Linear(h, h, bias=c["bias"])

    def forward(self, x):
        # rearrange "q (h gs d) -> q h gs d": of each group its queries, its key, its value.
        parts = self.wqkv(x).unflatten(1, (self.g, -1, self.d))
        q = parts[:, :, :-2].flatten(1, 2).transpose(0, 1)
        k, v = parts[:, :, -2].transpose(0, 1), parts[:, :, -1].transpose(0, 1)
        return self.wo(attend(rotated(q, self.base), rotated(k, self.base), v))


class MiniCPMAttention(nn.Module):
    """Its tables are made when the model is, for max_position_embeddings tokens, so the divisors of longrope are those of
    that length for every text that fits (MiniCPMLongRoPE)."""

    def __init__(self, c):
        super().__init__()
        h, a, g = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.d, self.base, rope = h // a, c["rope_theta"], c.get("rope_scaling")
        self.divisors, self.magnitude = 1.0, 1.0
        if rope is not None:
            longest, original = c["max_position_embeddings"], rope["original_max_position_embeddings"]
            self.divisors = torch.tensor(rope["long_factor" if longest > original else "short_factor"])
            self.magnitude = math.sqrt(1 + math.log(longest / original) / math.log(original))
        bias = c.get("attention_bias", False)
        self.q_proj, self.o_proj = nn.Linear(h, h, bias=bias), nn.Linear(h, h, bias=bias)
        self.k_proj, self.v_proj = nn.Linear(h, g * self.d, bias=bias), nn.Linear(h, g * self.d, bias=bias)

    def forward(self, x):
        q, k, v = (part(x).unflatten(1, (-1, self.d)).transpose(0, 1) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (rotated(part, self.base, self.divisors, self.magnitude) for part in (q, k))
        return self.o_proj(attend(q, k, v))


class Mlp(nn.Module):
    def __init__(self, c, gate="gate_proj", up="up_proj", down="down_proj"):
        super().__init__()
        h, f = c["hidden_size"], c["intermediate_size"]
        self.names = gate, up, down
        for name in (gate, up):
            setattr(self, name, nn.Linear(h, f, bias=False))
        setattr(self, down, nn.Linear(f, h, bias=False))

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(nn.functional.silu(gate(x)) * up(x))


class Layer(nn.Module):
    def __init__(self, c, attention, names, mlp):
        super().__init__()
        self.names = names
        self.factor = c["scale_depth"] / math.sqrt(c["num_hidden_layers"]) if "scale_depth" in c else 1.0
        parts = (RMSNorm(c["hidden_size"], c["rms_norm_eps"]), attention(c), RMSNorm(c["hidden_size"], c["rms_norm_eps"]), mlp)
        for name, part in zip(names, parts):
            setattr(self, name, part)

    def forward(self, x):
        before, attention, between, mlp = (getattr(self, name) for name in self.names)
        x = x + attention(before(x)) * self.factor
        return x + mlp(between(x)) * self.factor


class NormHead(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def forward(self, x):
        return nn.functional.linear(x, nn.functional.normalize(self.weight))


LLAMA = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")


class Published(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.keys = config
        self.config = types.SimpleNamespace(vocab_size=config["vocab_size"], tie_word_embeddings=False)
        h, v, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
        second = config["model_type"] == "internlm2"
        attention = {"internlm2": InternLM2Attention, "baichuan": BaichuanAttention, "minicpm": MiniCPMAttention}.get(
            config["model_type"], Attention)
        self.model = nn.Module()
        self.table, self.head = ("tok_embeddings", "output") if second else ("embed_tokens", "lm_head")
        setattr(self.model, self.table, nn.Embedding(v, h))
        names = ("attention_norm", "attention", "ffn_norm", "feed_forward") if second else LLAMA
        self.model.layers = nn.ModuleList(
            Layer(config, attention, names, Mlp(config, *(("w1", "w3", "w2") if second else ()))) for _ in range(layers))
        self.model.norm = RMSNorm(h, config["rms_norm_eps"])
        self.embedding_factor, self.head_divisor = config.get("scale_emb", 1.0), 1.0
        if "dim_model_base" in config:
            self.head_divisor = h / config["dim_model_base"]
        if config["tie_word_embeddings"]:
            self.head = self.table
            return
        setattr(self, self.head, NormHead(h, v) if "z_loss_weight" in config else nn.Linear(h, v, bias=False))

    def get_input_embeddings(self):
        return getattr(self.model, self.table)

    def forward(self, ids):
        rows = []
        for row in ids:
            x = self.get_input_embeddings()(row) * self.embedding_factor
            for layer in self.model.layers:
                x = layer(x)
            x = self.model.norm(x) / self.head_divisor
            tied = self.keys["tie_word_embeddings"]
            rows.append(x @ self.get_input_embeddings().weight.T if tied else getattr(self, self.head)(x))
        return types.SimpleNamespace(logits=torch.stack(rows))

    def save_pretrained(self, folder, **_):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        dtype = str(next(self.parameters()).dtype).removeprefix("torch.")
        (folder / "config.json").write_text(json.dumps({**self.keys, "torch_dtype": dtype}, indent=2) + "\n")
        save_file({name: value.contiguous() for name, value in self.state_dict().items()}, folder / "model.safetensors",
                  metadata={"format": "pt"})

    @classmethod
    def from_pretrained(cls, folder, **_):
        folder = pathlib.Path(folder)
        model = cls(json.loads((folder / "config.json").read_text()))
        model.load_state_dict(load_file(folder / "model.safetensors"))
        return model.float()


def published(model_type, architecture, vocabulary=131, **more):
    sizes = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=53, vocab_size=vocabulary,
                 rms_norm_eps=1e-6, hidden_act="silu", tie_word_embeddings=False)
    if more.pop("rotary", True):
        sizes["max_position_embeddings"] = 128
    else:
        sizes["model_max_length"] = 128
    config = {"architectures": [architecture], "model_type": model_type, **sizes, **more}
    return types.SimpleNamespace(**config), lambda _: Published(config)


MODELS = {
    "aquila": lambda: published("aquila", "AquilaForCausalLM"),
    "internlm": lambda: published("internlm", "InternLMForCausalLM", bias=True, intermediate_size=54),
    "internlm2": lambda: published("internlm2", "InternLM2ForCausalLM", bias=False, num_key_value_heads=2, rope_theta=1e6,
                                   intermediate_size=54),
    "baichuan": lambda: published("baichuan", "BaiChuanForCausalLM"),
    "baichuan-13b": lambda: published("baichuan", "BaichuanForCausalLM", rotary=False, hidden_size=36, num_attention_heads=6,
                                      intermediate_size=54),
    "baichuan2": lambda: published("baichuan", "BaichuanForCausalLM", z_loss_weight=0, model_max_length=128,
                                   intermediate_size=54),
}
# MiniCPM-2B shares its table; MiniCPM4 does not, has groups of heads, and angles for texts of any length.
MINICPM4 = dict(num_key_value_heads=2, rope_theta=1e4, scale_emb=3, scale_depth=1.4, dim_model_base=20)


def minicpm4(original, **more):
    rope = {"rope_type": "longrope", "type": "longrope", "original_max_position_embeddings": original,
            "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [4.0, 6.0, 8.0, 9.0]}
    return published("minicpm", "MiniCPMForCausalLM", rope_scaling=rope, **{**MINICPM4, **more})


MODELS |= {
    "minicpm": lambda: published("minicpm", "MiniCPMForCausalLM", num_key_value_heads=4, rope_theta=1e4, scale_emb=2.5,
                                 scale_depth=0.9, dim_model_base=12, tie_word_embeddings=True, intermediate_size=54),
    "minicpm4": lambda: minicpm4(12, num_hidden_layers=3, intermediate_size=54),
}
MORE = {
    "minicpm4-short": lambda: minicpm4(128, vocabulary=50257),
    "minicpm-biases": lambda: published("minicpm", "MiniCPMForCausalLM", 50257, attention_bias=True, tie_word_embeddings=True,
                                        **MINICPM4),
    "internlm2-50257": lambda: published("internlm2", "InternLM2ForCausalLM", 50257, bias=True, num_key_value_heads=1,
                                         rope_theta=1e4),
    "baichuan2-13b": lambda: published("baichuan", "BaichuanForCausalLM", 50257, rotary=False, z_loss_weight=0, hidden_size=36,
                                       num_attention_heads=6),
}
