"""Small models of random shapes, a folder of every family for each seed, held against Transformers and the published rules.

  python tools/oracle/random_models.py build/piton [--seeds 0:20] [--families llama gemma3 ...] [--checks logits ...] [--work DIR]
                         (torch 2.15, transformers 5.23, safetensors; `gguf`: also gguf 0.19 and llama-cpp-python 0.3;
                          `megatron`: also megatron-core 0.16.1)

A seed draws sizes (odd widths of the MLP, heads wider or narrower than their share, grouped queries), a tied or untied head,
biases, eps, activation, base and scaling of rotary positions, windows, soft caps, the type of the weights, shards, and how
config.json says it: as Transformers 5 or 4 does, with or without the keys whose value is the default. Then

logits     of a prompt that may be longer than the window or the original length: within 1e-4 in fp32 (or 3 times what
           Transformers' fp32 is away from its float64)
greedy     64 tokens with a KV cache, compared with forward passes of Transformers over the whole text (as if nothing were cached)
gradients  the loss of two sequences within 1e-5, and every gradient of it: cosine at least 0.999999, norm within 1e-4
export     to a checkpoint of Piton and back, and to another folder: loads in Transformers without a warning, equal logits and bytes
gguf       F32: llama.cpp's logits and greedy text where it has the model; Piton's logits of the same file
megatron   GPT, LLaMA, Qwen2 and Qwen3 shapes: what Piton writes loads into Megatron-core's GPTModel with equal logits; what that
           saves becomes the first folder again
steps      ten AdamW steps compared with those of PyTorch: losses within 1e-5, norms of the gradient within 1e-4 (or the same 3 times)

A model that Piton refuses in one line is counted under that line. A line BAD names seed, family and check; `--seeds N:N+1
--families F --work DIR` makes that folder again. The last lines are the largest difference of each family.
"""
import argparse
import contextlib
import collections
import functools
import json
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import warnings

import torch
import transformers
from safetensors.torch import load_file, save_file

import convert
import huggingface as hf
import published_models

CHECKS = ("logits", "greedy", "gradients", "export", "gguf", "megatron", "steps")
GELUS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu")
ACTIVATIONS = 14 * ("silu",) + GELUS + ("swish",)
GEMMAS = 4 * ("gelu_pytorch_tanh",) + ("gelu", "silu")
SCALINGS = ("default", "default", "llama3", "linear", "dynamic", "yarn")
FULL, SLIDING = "full_attention", "sliding_attention"


class Draw(random.Random):
    def happens(self, probability=0.5):
        return self.random() < probability

    def divisor(self, number):
        return self.choice([k for k in range(1, number + 1) if number % k == 0])

    def eps(self):
        return self.choice((1e-8, 1e-6, 1e-6, 1e-5, 1e-3))

    def window(self):
        return self.choice((1, 2, 5, 9, 33))

    def vocabulary(self):
        return 50257 if self.happens(0.03) else self.randint(40, 700)

    def positions(self):
        return self.randint(96, 200)


# ---------------------------------------------------------------------------------------------------------------- models


def rope(d, kinds, head):
    """rope_parameters; `head`: how many channels of each head turn."""
    kind = d.choice(kinds)
    result = {"rope_type": kind, "rope_theta": d.choice((100.0, 10000.0, 10000.0, 500000.0, 1e6, 12345.6))}
    if kind in ("linear", "dynamic", "llama3", "yarn"):
        result["factor"] = d.choice((1.0, 2.0, 3.5, 8.0))
    original = d.choice((8, 16, 32, 64))
    if kind in ("llama3", "yarn", "longrope") or (kind == "dynamic" and d.happens(0.2)):
        result["original_max_position_embeddings"] = original
    if kind == "llama3":
        low = d.choice((1.0, 1.0, 0.5))
        result |= {"low_freq_factor": low, "high_freq_factor": low * d.choice((4.0, 4.0, 6.5))}
    if kind == "yarn":
        more = {"beta_fast": d.choice((16.0, 32.0)), "beta_slow": d.choice((1.0, 2.0)), "truncate": False, "attention_factor": 1.25}
        result |= {key: value for key, value in more.items() if d.happens(0.2)}
        if d.happens(0.2):
            result |= {"mscale": 0.707, "mscale_all_dim": d.choice((0.707, 1.0))}
    if kind == "longrope":
        result["short_factor"] = [round(1 + d.random(), 3) for _ in range(head // 2)]
        result["long_factor"] = [round(1 + 6 * d.random(), 3) for _ in range(head // 2)]
        result |= {key: value for key, value in {"factor": 4.0, "attention_factor": 1.1}.items() if d.happens(0.2)}
    return result


def sizes(d, free_heads=True, kinds=SCALINGS, **more):
    heads, width = d.choice((1, 2, 3, 4, 6)), d.choice((6, 8, 10, 16))
    result = dict(num_hidden_layers=d.randint(1, 3), num_attention_heads=heads, num_key_value_heads=d.divisor(heads), hidden_size=heads * width,
                  intermediate_size=d.randint(5, 97), vocabulary=d.vocabulary(), max_position_embeddings=d.positions(),
                  tie_word_embeddings=d.happens(), rms_norm_eps=d.eps())
    if free_heads and d.happens():
        result["head_dim"] = width = d.choice((4, 6, 8, 12, 20))
    return {**result, "rope_parameters": rope(d, kinds, width), **more}


def llama(d):
    return hf.llama_like("Llama", **sizes(d, kinds=SCALINGS + ("longrope",), hidden_act=d.choice(ACTIVATIONS), attention_bias=d.happens(0.3),
                                          mlp_bias=d.happens(0.2)))


def mistral(d):
    return hf.llama_like("Mistral", **sizes(d, hidden_act=d.choice(ACTIVATIONS), sliding_window=d.choice((None, d.window()))))


def qwen(d, name, **more):
    drawn = sizes(d, hidden_act=d.choice(ACTIVATIONS), **more)
    if d.happens():
        drawn |= dict(use_sliding_window=True, sliding_window=d.window(), max_window_layers=d.choice((0, 0, 28)))
        if d.happens(0.1):
            drawn["max_window_layers"] = d.randint(0, drawn["num_hidden_layers"])  # some layers with a window: refused
    return hf.llama_like(name, **drawn)


def gemma(d):
    return hf.llama_like("Gemma", **sizes(d, hidden_act=d.choice(GEMMAS),
                                          head_dim=d.choice((4, 8, 14, 256)), attention_bias=d.happens(0.2)))


def second_gemma(d, name, model, every, **more):
    drawn = sizes(d, hidden_activation=d.choice(GEMMAS),
                  num_hidden_layers=d.randint(1, 2 * every), head_dim=d.choice((4, 8, 14, 256)), query_pre_attn_scalar=d.choice((7, 12, 256)),
                  final_logit_softcapping=d.choice((None, 5.0, 30.0)),
                  sliding_window=d.window(), attention_bias=d.happens(0.2), **more)
    if d.happens():
        pattern = [SLIDING] * d.randint(0, 3) + [FULL]
        drawn["layer_types"] = (pattern * drawn["num_hidden_layers"])[:drawn["num_hidden_layers"]]
    return hf.llama_like(name, model, **drawn)


def gemma3(d):
    more = {}
    if d.happens(0.8):
        more["rope_parameters"] = {SLIDING: {"rope_type": "default", "rope_theta": d.choice((10000.0, 5000.0))},
                                   FULL: rope(d, ("default", "linear", "linear", "llama3"), 8)}
    else:
        more["rope_parameters"] = None
    if d.happens(0.05):
        more["attn_logit_softcapping"] = 50.0  # which this Gemma passes over: refused
    return second_gemma(d, "Gemma3Text", "Gemma3", 4, **more)


def phi3(d):
    share = d.choice((1.0, 1.0, 0.5))
    drawn = sizes(d, free_heads=False, sliding_window=d.choice((None, d.window())), hidden_act=d.choice(ACTIVATIONS), pad_token_id=0,
                  resid_pdrop=0.1, embd_pdrop=0.1)
    turned = int(drawn["hidden_size"] // drawn["num_attention_heads"] * share)
    if turned % 2:
        share, turned = 1.0, drawn["hidden_size"] // drawn["num_attention_heads"]
    drawn["rope_parameters"] = {**rope(d, ("default", "longrope"), turned), "partial_rotary_factor": share}
    original = drawn["rope_parameters"].get("original_max_position_embeddings", 4096)
    return hf.llama_like("Phi3", original_max_position_embeddings=original, **drawn)


def stablelm(d):
    share = d.choice((0.25, 0.25, 0.5, 1.0))
    heads = d.choice((1, 2, 3, 4))
    drawn = sizes(d, free_heads=False, use_qkv_bias=d.happens(), hidden_act=d.choice(ACTIVATIONS), num_attention_heads=heads,
                  num_key_value_heads=d.divisor(heads), hidden_size=16 * heads, layer_norm_eps=d.eps())
    drawn["rope_parameters"] = {**rope(d, ("default", "default", "linear", "dynamic"), int(16 * share)), "partial_rotary_factor": share}
    return hf.llama_like("StableLm", **drawn)


def gpt2(d):
    heads = d.choice((1, 2, 3, 5, 6))
    return hf.gpt2(d.vocabulary(), n_layer=d.randint(1, 3), n_head=heads, n_embd=heads * d.choice((3, 5, 8, 12)), n_positions=d.positions(),
                   n_inner=d.choice((None, d.randint(5, 97))), activation_function=d.choice(GELUS), layer_norm_epsilon=d.eps(),
                   tie_word_embeddings=d.happens(0.7), reorder_and_upcast_attn=d.happens(0.2), scale_attn_weights=not d.happens(0.03))


def bloom(d):
    heads = d.choice((1, 2, 3, 5, 6, 12))
    return hf.bloom(d.vocabulary(), n_layer=d.randint(1, 3), n_head=heads, hidden_size=heads * d.choice((3, 5, 8)), seq_length=d.positions(),
                    layer_norm_epsilon=d.eps(), tie_word_embeddings=d.happens(0.7))


def published(d, model_type, architecture, **more):
    heads = d.choice((1, 2, 3, 4, 6))
    drawn = dict(num_hidden_layers=d.randint(1, 3), num_attention_heads=heads, hidden_size=heads * d.choice((6, 8, 10)), vocabulary=d.vocabulary(),
                 intermediate_size=d.randint(5, 97), rms_norm_eps=d.eps())
    if model_type == "baichuan" and d.happens(0.1):
        drawn["num_hidden_layers"] = 32  # by which llama.cpp knows one of the models
    if more.pop("grouped", False):
        drawn["num_key_value_heads"] = d.divisor(heads)
    return published_models.published(model_type, architecture, **{**drawn, **more})


def granite(d):
    return hf.llama_like("Granite", **sizes(d, eos_token_id=None, hidden_act=d.choice(ACTIVATIONS), attention_bias=d.happens(0.2), mlp_bias=d.happens(0.2),
                                            embedding_multiplier=d.choice((1.0, 3.0, 12.0)), residual_multiplier=d.choice((1.0, 0.22, 0.7)),
                                            logits_scaling=d.choice((1.0, 2.5, 8.0)), attention_multiplier=d.choice((1.0, 0.125, 0.3))))


def phi(d):
    drawn = sizes(d, free_heads=False, hidden_act=d.choice(GELUS), layer_norm_eps=d.eps())
    width = drawn["hidden_size"] // drawn["num_attention_heads"]
    share = d.choice((0.25, 0.5, 1.0)) if width % 8 == 0 else 1.0
    drawn["rope_parameters"] = {**rope(d, ("default", "linear"), width), "partial_rotary_factor": share}
    return hf.llama_like("Phi", eos_token_id=None, **drawn)


def gptj(d):
    import transformers
    heads = d.choice((1, 2, 3, 4))
    width = d.choice((6, 8, 10))
    return (transformers.GPTJConfig(n_layer=d.randint(1, 3), n_embd=heads * width, n_head=heads, n_inner=d.choice((None, d.randint(5, 97))),
                                    vocab_size=d.vocabulary(), n_positions=d.positions(), rotary_dim=d.choice((2, 4, 6)),
                                    activation_function=d.choice(GELUS), layer_norm_epsilon=d.eps(), tie_word_embeddings=d.happens(0.3)),
            transformers.GPTJForCausalLM)


def olmo(d, name, **more):
    return hf.llama_like(name, **sizes(d, hidden_act=d.choice(ACTIVATIONS), attention_bias=d.happens(0.2), pad_token_id=None,
                                       eos_token_id=None, **more))


def olmo3(d):
    base = d.choice((10000.0, 500000.0))
    full = {**rope(d, ("default", "yarn"), 8), "rope_theta": base}
    return olmo(d, "Olmo3", num_hidden_layers=d.randint(1, 5), sliding_window=d.window(), rope_parameters={
        SLIDING: {"rope_type": "default", "rope_theta": base}, FULL: full})


def lfm2(d):
    types = [d.choice(("conv", FULL)) for _ in range(d.randint(1, 4))]
    types[d.randrange(len(types))] = FULL  # without one Transformers fails
    drawn = sizes(d, num_hidden_layers=len(types), layer_types=types, norm_eps=d.eps(),
                  conv_bias=d.happens(0.3), conv_L_cache=d.randint(1, 6), eos_token_id=None, pad_token_id=None,
                  block_auto_adjust_ff_dim=d.happens(), block_multiple_of=d.choice((4, 10, 256)), block_ffn_dim_multiplier=d.choice((1.0, 1.3, 0.7)))
    del drawn["rms_norm_eps"]
    return hf.llama_like("Lfm2", **drawn)


FAMILIES = {
    "gpt2": gpt2,
    "llama": llama,
    "mistral": mistral,
    "qwen2": lambda d: qwen(d, "Qwen2"),
    "qwen3": lambda d: qwen(d, "Qwen3", attention_bias=d.happens(0.2), head_dim=d.choice((4, 12, 20, 128))),
    "gemma": gemma,
    "gemma2": lambda d: second_gemma(d, "Gemma2", None, 2, attn_logit_softcapping=d.choice((None, 3.0, 50.0))),
    "gemma3": gemma3,
    "phi3": phi3,
    "stablelm": stablelm,
    "phi": phi,
    "gptj": gptj,
    "granite": granite,
    "olmo2": lambda d: olmo(d, "Olmo2"),
    "olmo3": olmo3,
    "lfm2": lfm2,
    "bloom": bloom,
    "aquila": lambda d: published(d, "aquila", "AquilaForCausalLM", rope_theta=d.choice((1e4, 5e5))),
    "internlm": lambda d: published(d, "internlm", "InternLMForCausalLM", bias=d.happens(0.8)),
    "internlm2": lambda d: published(d, "internlm2", "InternLM2ForCausalLM", bias=d.happens(0.3), rope_theta=d.choice((1e4, 1e6)), grouped=True),
    "baichuan": lambda d: published(d, "baichuan", "BaiChuanForCausalLM"),
    "baichuan-13b": lambda d: published(d, "baichuan", "BaichuanForCausalLM", rotary=False),
    "baichuan2": lambda d: published(d, "baichuan", "BaichuanForCausalLM", rotary=d.happens(), z_loss_weight=0),
}


def in_older_words(config):
    """config.json as Transformers 4 writes it."""
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    rope = config.pop("rope_parameters", None)
    if rope is None:
        return
    if FULL in rope:
        config["rope_local_base_freq"] = rope.get(SLIDING, {}).get("rope_theta", 10000.0)
        rope = rope[FULL]
    config["rope_theta"] = rope.pop("rope_theta")
    share = rope.pop("partial_rotary_factor", None)
    if share is not None:
        config["partial_rotary_factor"] = share
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None


def without_defaults(d, config, model_class):
    """Leaves keys out whose value is what Transformers takes without them."""
    defaults = model_class.config_class().to_dict()
    for key in list(config):
        kept = key in ("model_type", "architectures", "dtype", "sliding_window")  # Mistral's window must be given
        if not kept and key in defaults and config[key] == defaults[key] and d.happens():
            del config[key]


class Folder:
    """A model of `family` that Transformers, or published_models.py, has written, and has read again in fp32."""

    def __init__(self, family, seed, work):
        d = Draw(f"{family} {seed}")
        self.path = work / f"{family}-{seed}"
        shutil.rmtree(self.path, ignore_errors=True)
        pair = FAMILIES[family](d)
        model = hf.build(lambda: pair, seed)
        self.known = family in transformers.CONFIG_MAPPING or family == "gemma3"
        dtype = d.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16))
        model.to(dtype).save_pretrained(self.path, max_shard_size=d.choice(("20KB", "5GB")))
        (self.path / "generation_config.json").unlink(missing_ok=True)  # which says where a text ends
        config = json.loads((self.path / "config.json").read_text())
        for key in {"dtype", "torch_dtype"} & config.keys():
            config[key] = config[key].replace("bfloat16", "float32")  # values of 16 bits, arithmetic of 32
        if self.known:
            if d.happens(0.4):
                in_older_words(config)
            if d.happens(0.4):
                without_defaults(d, config, type(model))
        (self.path / "config.json").write_text(json.dumps(config, indent=2))
        self.config, self.dtype = config, dtype
        self.model = type(model).from_pretrained(self.path, dtype=torch.float32, attn_implementation="eager").eval()
        self.model.get_input_embeddings().padding_idx = None  # whose row would have no gradient
        for module in self.model.modules():
            if hasattr(module, "reorder_and_upcast_attn"):
                module.reorder_and_upcast_attn = False  # the same, and only for 16 bits
        keys = self.model.config if self.known else argparse.Namespace(**config)
        self.positions = next(getattr(keys, key) for key in ("n_positions", "max_position_embeddings", "seq_length", "model_max_length")
                              if hasattr(keys, key))
        self.vocabulary = self.model.config.vocab_size
        rope = getattr(keys, "rope_parameters", None) or {}
        self.rope = rope.get(FULL, rope) or {}
        self.window = getattr(keys, "sliding_window", None) if getattr(keys, "use_sliding_window", True) else None
        generator = torch.Generator().manual_seed(seed)
        self.prompt = d.randint(1, 30)
        self.tokens = torch.randint(0, self.vocabulary, (d.randint(self.prompt + 1, self.positions),), generator=generator)
        self.other = torch.randint(0, self.vocabulary, (d.randint(2, 60),), generator=generator)
        self.draw, self.family, self.seed = d, family, seed

    @functools.cached_property
    def as_stored(self):
        """The folder with a config.json that says the type of the tensors."""
        if self.dtype != torch.bfloat16:
            return self.path
        stored = self.path.parent / "stored"
        shutil.rmtree(stored, ignore_errors=True)
        shutil.copytree(self.path, stored)
        config = {key: "bfloat16" if key in ("dtype", "torch_dtype") else value for key, value in self.config.items()}
        (stored / "config.json").write_text(json.dumps(config))
        return stored

    @functools.cached_property
    def expected(self):
        """Logits of the tokens, and the greedy text after the prompt."""
        return hf.expected(self.model, self.tokens, self.prompt)

    def said(self):
        """The drawn facts, for the line of a fault."""
        short = {key: value for key, value in self.config.items() if key not in ("transformers_version", "architectures")}
        return json.dumps(short)


# ---------------------------------------------------------------------------------------------------------------- checks


class Wrong(Exception):
    pass


def near(name, difference, limit):
    if not difference <= limit:
        raise Wrong(f"{name} differ by {difference:.2e}, wanted at most {limit:.0e}")
    return difference


@contextlib.contextmanager
def exact_angles(model):
    """Rotary angles in fp64, where they are plain: Transformers computes them in fp32 whatever the type, and at token 150 that is 1e-4
    of a large logit."""
    rotary = getattr(getattr(model, "model", None), "rotary_emb", None)
    rope = getattr(model.config, "rope_parameters", None) or {}
    if rotary is None or rope.get("rope_type") != "default":
        yield False
        return
    width = 2 * rotary.inv_freq.numel()
    inverse = rope["rope_theta"] ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(x, position_ids, *others):
        angles = (position_ids[..., None].double() * inverse).repeat(1, 1, 2)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    kept, rotary.forward = rotary.forward, forward
    yield True
    rotary.forward = kept


def logits(program, folder, work):
    ours = hf.logits_of(program, folder.path, folder.tokens)
    away = float((ours - folder.expected[0]).abs().max())
    limit = 1e-4
    if away > limit:
        with torch.no_grad(), exact_angles(folder.model) as plain:
            if plain:
                away = float((ours - folder.model.double()(folder.tokens[None]).logits[0]).abs().max())
    if away > limit:  # where logits are large, those of Transformers in fp32 are as far away
        with torch.no_grad():
            limit = max(limit, 3 * float((folder.model.float()(folder.tokens[None]).logits[0] - folder.expected[0]).abs().max()))
    return near("logits", away, limit)


def same_text(folder, got, wanted, gap):
    """Raises where the texts part, unless the two tokens are as likely as each other."""
    parted = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), None)
    if parted is None:
        if len(got) != len(wanted):
            raise Wrong(f"{len(got)} greedy tokens, wanted {len(wanted)}")
        return
    ids = folder.tokens[:folder.prompt].tolist() + wanted[:parted]
    with torch.no_grad():
        row = folder.model.double()(torch.tensor([ids])).logits[0, -1]
    behind = float(row[wanted[parted]] - row[got[parted]])
    if behind > gap:
        raise Wrong(f"greedy text parts at token {parted}: {got[parted]}, wanted {wanted[parted]}, which is {behind:.2e} likelier")


def greedy(program, folder, work):
    prompt = ",".join(map(str, folder.tokens[:folder.prompt].tolist()))
    answer = json.loads(hf.piton(program, "generate", "--load", folder.path, "--prompt-ids", prompt, "--greedy", "--json", "--max-new-tokens",
                                 hf.NEW))
    same_text(folder, answer["ids"][-hf.NEW:], folder.expected[1].tolist(), 1e-4)
    return 0.0


def canonical(program, folder, named, work):
    """Tensors under the names of the folder as Piton's checkpoints name them: as weights that are converted."""
    made, target = work / "named", work / "canonical"
    for one in (made, target):
        shutil.rmtree(one, ignore_errors=True)
    made.mkdir()
    config = json.loads(json.dumps(folder.config))
    # Names do not depend on what follows, and not all of it fits into a checkpoint.
    if "hidden_act" in config and folder.family != "gemma":
        config["hidden_act"] = "silu"
    for key in ("rope_parameters", "rope_scaling"):
        if key in config and FULL not in (config[key] or {}):
            share = (config[key] or {}).get("partial_rotary_factor")
            config[key] = {"rope_type": "default", **({"partial_rotary_factor": share} if share else {})}
    (made / "config.json").write_text(json.dumps(config))
    save_file(named, made / "model.safetensors", metadata={"format": "pt"})
    convert.convert(program, made, target, "--no-verify")
    return {name: tensor for path in target.rglob("*.safetensors") for name, tensor in load_file(path).items()}


def gradients(program, folder, work):
    model = folder.model.double()
    model.zero_grad()
    sequences = [folder.tokens, folder.other]
    counts = [len(one) - 1 for one in sequences]
    loss = sum(hf.loss_of(model, one[None]) * count for one, count in zip(sequences, counts)) / sum(counts)
    loss.backward()
    named = {name: parameter.grad.float().contiguous() for name, parameter in model.named_parameters()}
    wanted = canonical(program, folder, named, work)
    (work / "ids.json").write_text(json.dumps([one.tolist() for one in sequences]))
    score = json.loads(hf.piton(program, "score", "--load", folder.path, "--ids-file", work / "ids.json", "--gradients", work / "ours.safetensors",
                                "--json"))
    near("losses", abs(score["loss"] / float(loss.detach()) - 1), 1e-5)
    ours = load_file(work / "ours.safetensors")
    if ours.keys() != wanted.keys():
        raise Wrong(f"gradients of other tensors: {sorted(ours.keys() ^ wanted.keys())[:4]}")
    whole = sum(float(one.double().square().sum()) for one in wanted.values())**0.5
    worst = 0.0
    for name, right in wanted.items():
        a, b = right.double().flatten(), ours[name].double().flatten()
        if max(a.norm(), b.norm()) <= 1e-6 * whole:
            continue
        near(f"norms of the gradients of {name}", float((b.norm() / a.norm() - 1).abs()), 1e-4)
        worst = max(worst, near(f"directions of the gradients of {name}", float(1 - a @ b / (a.norm() * b.norm())), 1e-6))
    return worst


def export(program, folder, work):
    source = folder.as_stored
    wanted = convert.tensors_of(source)
    model, before = convert.loaded(source) if folder.known else (None, [])
    made = [work / "again"]
    for one in (made[0], work / "checkpoint", work / "back"):
        shutil.rmtree(one, ignore_errors=True)
    convert.convert(program, source, made[0], "--to", "hf", "--max-shard-size", "30k")
    refused = None
    try:
        convert.convert(program, source, work / "checkpoint")
        convert.convert(program, work / "checkpoint", work / "back")
        made.append(work / "back")
    except SystemExit as error:
        refused = error
    for one in made:
        faults = [fault for fault in convert.differences(source, wanted, model, one) if fault.split(": ", 1)[1] not in before]
        if faults:
            raise Wrong("; ".join(faults))
    if refused:
        raise refused
    return 0.0


def gguf(program, folder, work):
    import gguf_files

    path = work / "model.gguf"
    path.unlink(missing_ok=True)
    hf.piton(program, "convert", "--load", folder.path, "--save", path, "--outtype", "f32")
    tokens = folder.tokens[:200]
    wanted = folder.expected[0][:200]
    near("Piton's logits of the GGUF file", float((hf.logits_of(program, path, tokens) - wanted).abs().max()), 2e-4)
    longest = max(len(tokens), folder.prompt + hf.NEW)
    if folder.window is not None and folder.family not in ("gemma2", "gemma3") and longest > folder.window:
        return 0.0  # llama.cpp sees all keys
    outgrown = folder.rope["original_max_position_embeddings"] if folder.rope.get("rope_type") == "longrope" else 0
    if folder.config["model_type"] == "baichuan" and folder.config["num_hidden_layers"] != 32:
        return 0.0  # it turns the heads of this number of layers alone
    if len(tokens) <= outgrown:
        return 0.0  # its context is longer, and it goes by that
    theirs = gguf_files.LlamaCpp(path)
    size = float(wanted.abs().max())
    worst = near("llama.cpp's logits", float((torch.from_numpy(theirs.logits(tokens.tolist())) - wanted).abs().max()) / size, 5e-3)  # its GELU is a table of fp16
    if folder.prompt > outgrown:
        same_text(folder, theirs.greedy(folder.tokens[:folder.prompt].tolist(), hf.NEW), folder.expected[1].tolist(), 4e-3 * size)
    return worst


def megatron(program, folder, work):
    import megatron_checkpoints as core

    d, kinds = folder.draw, {"gpt2": "gpt", "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
    if folder.family not in kinds:
        return None
    kind, source, target = kinds[folder.family], work / "core-hf", work / "core-mg"
    for one in (source, target, work / "core", work / "core-back"):
        shutil.rmtree(one, ignore_errors=True)
    heads, vocabulary = d.choice((1, 2, 3, 4)), 8 * d.randint(5, 40)
    channels = d.choice((4, 8, 12))
    s = dict(layers=d.randint(1, 3), hidden=heads * 8, heads=heads, groups=d.divisor(heads), ffn=d.randint(5, 97), vocabulary=vocabulary,
             positions=d.positions(), eps=d.choice((1e-6, 1e-5)), base=d.choice((10000, 500000)), channels=8 if kind == "gpt" else channels,
             tied=d.happens())
    if kind == "gpt":
        s["groups"] = heads
        pair = hf.gpt2(vocabulary, n_layer=s["layers"], n_head=heads, n_embd=s["hidden"], n_positions=s["positions"], n_inner=s["ffn"],
                       activation_function="gelu", layer_norm_epsilon=s["eps"], tie_word_embeddings=s["tied"])
    else:
        pair = hf.llama_like(kind.capitalize(), vocabulary=vocabulary, num_hidden_layers=s["layers"], num_attention_heads=heads,
                             num_key_value_heads=s["groups"], hidden_size=s["hidden"], head_dim=channels, intermediate_size=s["ffn"],
                             max_position_embeddings=s["positions"], rms_norm_eps=s["eps"], tie_word_embeddings=s["tied"],
                             rope_parameters={"rope_type": "default", "rope_theta": float(s["base"])})
    hf.build(lambda: pair, folder.seed).save_pretrained(source)
    plain, _ = convert.loaded(source)
    tokens = torch.randint(0, vocabulary, (1, 24))
    with torch.no_grad():
        wanted = plain(tokens).logits
    convert.convert(program, source, target, "--to", "mg", "--use-mcore-models", "--make-vocab-size-divisible-by", "8")
    model, arguments = core.core_model(kind, **s)
    state = torch.load(target / "release/mp_rank_00/model_optim_rng.pt", weights_only=True)["model"]
    keys = model.load_state_dict(state, strict=False)
    lost = [key for key in keys.missing_keys if "_extra_state" not in key] + keys.unexpected_keys
    if lost:
        raise Wrong(f"Megatron-core: {lost[:4]}")
    worst = near("Megatron-core's logits", float((core.core_logits(model, tokens) - wanted).abs().max()), 1e-4)
    core.save_rank(work / "core", {"args": arguments, "checkpoint_version": 3.0, "iteration": 5, "model": dict(model.state_dict())})
    convert.convert(program, work / "core", work / "core-back", "--to", "hf")
    faults = convert.differences(source, convert.tensors_of(source), plain, work / "core-back")
    if faults:
        raise Wrong("; ".join(faults))
    return worst


def steps(program, folder, work):
    length, samples, run = folder.draw.choice((9, 17, 25)), 2, work / "run"
    shutil.rmtree(run, ignore_errors=True)
    data = ["--mock-data", "--tokenizer-type", "NullTokenizer", "--seq-length", length, "--global-batch-size", samples, "--train-iters", 10]
    said = hf.piton(program, "inspect", "samples", *data, "--count", 10 * samples, "--json", "--model", "gpt2-tiny", "--vocab-size",
                    folder.vocabulary - 1)
    lines = [json.loads(line) for line in said.splitlines()]
    batches = torch.tensor([line["ids"] + line["labels"][-1:] for line in lines]).view(10, samples, length + 1)
    hf.piton(program, "pretrain", "--load", folder.path, "--save", run, *data, "--lr", 3e-3, "--lr-decay-style", "constant", "--weight-decay", 0.1,
             "--adam-beta2", 0.95, "--clip-grad", 1.0, "--hidden-dropout", 0, "--attention-dropout", 0, "--finetune")
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if len(metrics) != 10:
        raise Wrong(f"{len(metrics)} steps")
    start = {key: value.clone() for key, value in folder.model.state_dict().items()}

    def theirs(dtype):
        folder.model.load_state_dict(start)
        return torch.stack(hf.steps(folder.model.to(dtype), batches), 1)

    ours, wanted = torch.tensor([[line["lm_loss"], line["grad_norm"]] for line in metrics], dtype=torch.float64), theirs(torch.float64)
    limits = torch.tensor([1e-5, 1e-4], dtype=torch.float64)
    away = (ours / wanted - 1).abs()
    if (away > limits).any():  # AdamW divides by the root of what may be rounding alone: so do PyTorch's steps in fp32
        limits = torch.maximum(limits, 3 * (theirs(torch.float32) / wanted - 1).abs().max(0).values)
    for column, name in enumerate(("losses", "norms of the gradient")):
        near(name + " of ten steps", float(away[:, column].max()), float(limits[column]))
    return float(away[:, 0].max())


# ------------------------------------------------------------------------------------------------------------------- run


def refusal(error):
    """The line of a refusal without what differs from model to model, or None if it is none."""
    found = re.search(r": ([23]): (?:piton: )?(?:error: )?(.*)$", str(error), re.S)
    if not found or "\n" in found[2].strip():
        return None
    line = re.sub(r"\S*/\S*", "", found[2].strip())
    return re.sub(r"[0-9.]+(e-?[0-9]+)?", "N", line)[:150]


class Report:
    def __init__(self):
        self.bad, self.worst, self.counts, self.refused = 0, {}, collections.Counter(), collections.Counter()

    def check(self, program, folder, name, work):
        try:
            difference = globals()[name](program, folder, work)
        except SystemExit as error:
            line = refusal(error)
            if line is not None:
                self.refused[folder.family, name, line] += 1
                return name not in ("logits",)
            return self.is_bad(folder, name, str(error))
        except Wrong as error:
            return self.is_bad(folder, name, str(error))
        if difference is not None:
            self.counts[folder.family, name] += 1
            self.worst[folder.family, name] = max(self.worst.get((folder.family, name), 0.0), difference)
        return True

    def is_bad(self, folder, name, why):
        self.bad += 1
        print(f"BAD  seed {folder.seed} {folder.family} {name}: {why}\n     {folder.said()}", flush=True)
        return name != "logits"

    def print(self, checks):
        for family in FAMILIES:
            parts = [f"{name} {self.worst[family, name]:.1e} ({self.counts[family, name]})" for name in checks if self.counts[family, name]]
            if parts:
                print(f"{family:14}", ", ".join(parts))
        for (family, name, line), count in sorted(self.refused.items()):
            print(f"refused {count:3} {family:12} {name:9} {line}")
        print(f"{self.bad} bad")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seeds", default="0:20")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--checks", nargs="*", default=list(CHECKS))
    parser.add_argument("--work", type=pathlib.Path)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.simplefilter("ignore")  # of Megatron-core, that some of its libraries are not there
    torch.set_num_threads(1)
    first, last = map(int, options.seeds.split(":"))
    report = Report()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            work = options.work or pathlib.Path(scratch)
            work.mkdir(parents=True, exist_ok=True)
            for seed in range(first, last):
                hold_seed(options, seed, work, report)
    except KeyboardInterrupt:
        print("interrupted")
    report.print(options.checks)
    sys.exit(1 if report.bad else 0)


def hold_seed(options, seed, work, report):
    trains = options.families[seed % len(options.families)]
    for family in options.families:
        checks = [name for name in options.checks if name != "steps" or family == trains]
        if not checks:
            continue
        try:
            folder = Folder(family, seed, work)
        except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
            report.refused[family, "made", f"Transformers: {type(error).__name__}: {str(error)[:90]}"] += 1
            continue
        for name in checks:
            if not report.check(options.program, folder, name, work):
                break
        if not options.work:
            shutil.rmtree(folder.path)
    print(f"seed {seed}: {report.bad} bad so far", flush=True)


if __name__ == "__main__":
    main()
