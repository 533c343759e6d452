"""Golden losses, logits and gradients of small models, computed by Transformers on PyTorch in float64.

  python tools/oracle/models.py tests/golden [NAME ...]       (torch 2.15, transformers 5.23, safetensors)

Writes NAME.safetensors, for gpt2, llama, mistral (llama with a window of 6 keys), bloom (ALiBi, and a norm behind
the embedding), qwen2 (llama with biases of query, key and value), qwen3 (with norms of each
head of query and key; heads wider than their share) and mixtral (llama with experts): `weight.NAME` and `gradient.NAME` (fp32, Piton's canonical
names), tokens, labels, mask, `loss` (mean over unmasked tokens), `logits`, and `losses`: five steps of
torch.optim.AdamW on the same batch (matrices decay, the rest does not), gradients clipped to norm 1.
"""
import importlib.metadata as metadata
import datetime
import sys

import torch
from safetensors.torch import save_file
from transformers import (BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

LAYERS, HIDDEN, HEADS, GROUPS, FFN, VOCABULARY, POSITIONS = 2, 48, 6, 2, 80, 97, 32
BATCH, SEQUENCE = 3, 20
WINDOW = 6  # keys, its own among them
WIDE_HEAD = 12
EXPERTS, EXPERT_FFN = 5, 24


def gpt2():
    config = GPT2Config(n_layer=LAYERS, n_embd=HIDDEN, n_head=HEADS, n_inner=4 * HIDDEN, vocab_size=VOCABULARY,
                        n_positions=POSITIONS, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                        activation_function="gelu_new", attn_implementation="eager")
    model = GPT2LMHeadModel(config).double()
    names = {"embedding.token.weight": (model.transformer.wte.weight, None),
             "embedding.position.weight": (model.transformer.wpe.weight, None)}

    def conv(name, module, part=slice(None)):
        # Conv1D keeps [in, out].
        names[name + ".weight"] = (module.weight, lambda w: w[:, part].T)
        names[name + ".bias"] = (module.bias, lambda w: w[part])

    def norm(name, module):
        names[name + ".weight"] = (module.weight, None)
        names[name + ".bias"] = (module.bias, None)

    for i, block in enumerate(model.transformer.h):
        at = f"layers.{i}."
        norm(at + "attention_norm", block.ln_1)
        for k, part in enumerate(("query", "key", "value")):
            conv(at + "attention." + part, block.attn.c_attn, slice(k * HIDDEN, (k + 1) * HIDDEN))
        conv(at + "attention.output", block.attn.c_proj)
        norm(at + "mlp_norm", block.ln_2)
        conv(at + "mlp.up", block.mlp.c_fc)
        conv(at + "mlp.down", block.mlp.c_proj)
    norm("final_norm", model.transformer.ln_f)
    return model, names


def bloom():
    config = BloomConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS, hidden_dropout=0,
                         attention_dropout=0, attn_implementation="eager")
    model = BloomForCausalLM(config).double()
    names = {"embedding.token.weight": (model.transformer.word_embeddings.weight, None)}

    def linear(name, module, view=None):
        names[name + ".weight"] = (module.weight, view)
        names[name + ".bias"] = (module.bias, view)

    linear("embedding.norm", model.transformer.word_embeddings_layernorm)
    for i, block in enumerate(model.transformer.h):
        at = f"layers.{i}."
        linear(at + "attention_norm", block.input_layernorm)
        for k, part in enumerate(("query", "key", "value")):
            # Rows are [head, (query, key, value), channel].
            linear(at + "attention." + part, block.self_attention.query_key_value,
                   lambda w, k=k: w.unflatten(0, (HEADS, 3, -1))[:, k].flatten(0, 1))
        linear(at + "attention.output", block.self_attention.dense)
        linear(at + "mlp_norm", block.post_attention_layernorm)
        linear(at + "mlp.up", block.mlp.dense_h_to_4h)
        linear(at + "mlp.down", block.mlp.dense_4h_to_h)
    linear("final_norm", model.transformer.ln_f)
    return model, names


def mistral():
    return llama(MistralConfig, MistralForCausalLM, sliding_window=WINDOW)


def qwen2():
    return llama(Qwen2Config, Qwen2ForCausalLM)


def qwen3():
    return llama(Qwen3Config, Qwen3ForCausalLM, head_dim=WIDE_HEAD)


def mixtral():
    return llama(MixtralConfig, MixtralForCausalLM, num_local_experts=EXPERTS, num_experts_per_tok=2,
                 intermediate_size=EXPERT_FFN, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})


def llama(config_class=LlamaConfig, model_class=LlamaForCausalLM, **more):
    more = {"intermediate_size": FFN, **more}
    config = config_class(num_hidden_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS,
                          num_key_value_heads=GROUPS, vocab_size=VOCABULARY,
                          max_position_embeddings=POSITIONS, rms_norm_eps=1e-5, tie_word_embeddings=False,
                          attn_implementation="eager", **more)
    config._experts_implementation = "eager"
    model = model_class(config).double()
    # Transformers computes the inverse frequencies in fp32; in double they are exact to the formula.
    width = more.get("head_dim", HIDDEN // HEADS)
    half = torch.arange(0, width, 2, dtype=torch.float64) / width
    model.model.rotary_emb.inv_freq = 10000.0 ** -half

    def exact_rotary(x, position_ids):
        angles = position_ids[..., None].double() * model.model.rotary_emb.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    model.model.rotary_emb.forward = exact_rotary
    names = {"embedding.token.weight": (model.model.embed_tokens.weight, None),
             "head.weight": (model.lm_head.weight, None),
             "final_norm.weight": (model.model.norm.weight, None)}
    for i, block in enumerate(model.model.layers):
        at = f"layers.{i}."
        names[at + "attention_norm.weight"] = (block.input_layernorm.weight, None)
        names[at + "mlp_norm.weight"] = (block.post_attention_layernorm.weight, None)
        for ours, theirs in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj")):
            linear = getattr(block.self_attn, theirs)
            names[at + f"attention.{ours}.weight"] = (linear.weight, None)
            if linear.bias is not None:
                names[at + f"attention.{ours}.bias"] = (linear.bias, None)
        for ours in ("query", "key"):
            norm = getattr(block.self_attn, ours[0] + "_norm", None)
            if norm is not None:
                names[at + f"attention.{ours}_norm.weight"] = (norm.weight, None)
        experts = getattr(block.mlp, "experts", None)
        if experts is not None:
            names[at + "mlp.router.weight"] = (block.mlp.gate.weight, None)
            for expert in range(EXPERTS):
                here = f"{at}mlp.experts.{expert}."
                names[here + "gate.weight"] = (experts.gate_up_proj, lambda w, e=expert: w[e, :EXPERT_FFN])
                names[here + "up.weight"] = (experts.gate_up_proj, lambda w, e=expert: w[e, EXPERT_FFN:])
                names[here + "down.weight"] = (experts.down_proj, lambda w, e=expert: w[e])
            continue
        for ours, theirs in (("gate", "gate_proj"), ("up", "up_proj"), ("down", "down_proj")):
            names[at + f"mlp.{ours}.weight"] = (getattr(block.mlp, theirs).weight, None)
    return model, names


def masked_loss(model, tokens, labels, mask):
    """The mean over unmasked tokens, and the logits."""
    logits = model(tokens).logits
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (each * mask.flatten()).sum() / mask.sum(), logits


def trained(build, golden, steps, make_update, clip=1.0):
    """Trains the weights of `golden` on its batch, in float64: the losses before each of the steps and after the last,
    and the norms of the gradients before they are clipped to `clip` (0: they are not).

    make_update({canonical name: parameter}) returns a function that updates the parameters by their gradients.
    """
    model, names = build()

    def canonical(name, tensor):
        view = names[name][1]
        return tensor if view is None else view(tensor)

    ours = {name: torch.nn.Parameter(golden[f"weight.{name}"].double()) for name in names}
    update = make_update(ours)
    batch = golden["tokens"].long(), golden["labels"].long(), golden["mask"].double()
    losses, norms = [], []
    for step in range(steps + 1):
        with torch.no_grad():
            for name, (parameter, _) in names.items():
                canonical(name, parameter).copy_(ours[name])
        model.zero_grad()
        loss, _ = masked_loss(model, *batch)
        losses.append(loss.item())
        if step == steps:
            return losses, norms
        loss.backward()
        for name, (parameter, _) in names.items():
            ours[name].grad = canonical(name, parameter.grad).clone()
        norms.append(torch.nn.utils.clip_grad_norm_(list(ours.values()), clip or float("inf")).item())
        update()


def main(folder, families):
    builds = {"gpt2": gpt2, "llama": llama, "mistral": mistral, "bloom": bloom, "qwen2": qwen2, "qwen3": qwen3,
              "mixtral": mixtral}
    for family in families or builds:
        build = builds[family]
        torch.manual_seed(7)
        model, names = build()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, dtype=torch.float64)
                gain = parameter.ndim == 1 and "bias" not in name
                # Values that fp32 holds exactly, so that both sides start from the same numbers.
                parameter.copy_((1 + 0.1 * noise if gain else 0.1 * noise).float().double())
        tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE + 1))
        inputs, labels = tokens[:, :-1], tokens[:, 1:].clone()
        mask = (torch.rand(BATCH, SEQUENCE) > 0.2).double()
        out = {}
        for name, (parameter, view) in names.items():
            value = parameter.detach()
            out["weight." + name] = (view(value) if view else value).float().contiguous().clone()

        decay = [p for p in model.parameters() if p.ndim > 1]
        plain = [p for p in model.parameters() if p.ndim == 1]
        optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                      lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
        losses, norms = [], []
        for step in range(5):
            optimizer.zero_grad()
            loss, logits = masked_loss(model, inputs, labels, mask)
            loss.backward()
            if step == 0:
                out["loss"] = loss.detach().double().reshape(1)
                out["logits"] = logits.detach().float().reshape(-1, VOCABULARY).clone()
                for name, (parameter, view) in names.items():
                    gradient = parameter.grad
                    out["gradient." + name] = (view(gradient) if view else gradient).float().contiguous().clone()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
            losses.append(loss.item())
            optimizer.step()
        out["losses"] = torch.tensor(losses, dtype=torch.float64)
        out["norms"] = torch.tensor(norms, dtype=torch.float64)
        out["tokens"] = inputs.int().contiguous()
        out["labels"] = labels.int().contiguous()
        out["mask"] = mask.float()
        origin = {"origin": "tools/oracle/models.py", "torch": torch.__version__,
                  "transformers": metadata.version("transformers"), "date": datetime.date.today().isoformat()}
        save_file(out, f"{folder}/{family}.safetensors", metadata=origin)
        print(family, losses, norms)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
