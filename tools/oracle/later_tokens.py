"""Golden losses and gradients of small models with layers that predict later tokens, by Megatron-core's GPTModel on the CPU.

  python tools/oracle/later_tokens.py tests/golden [gpt llama qwen]  (torch 2.15, megatron-core 0.16.1, transformers 5.24, safetensors)

Writes later_tokens/gpt.safetensors (learned positions, layer norms, a shared table; --mtp-num-layers 2),
later_tokens/llama.safetensors (rotary positions, RMS norms, a head of its own, --mtp-num-layers 1), and
later_tokens/qwen.safetensors (Qwen 3.5, whose other layers have the gated delta rule, of Transformers' modules: its `mtp`
is a layer of attention behind `fc`, as vLLM reads it from the files; Transformers leaves it out): `weight.NAME` and
`gradient.NAME` (fp32, Piton's canonical names), tokens, labels, mask, and of ten steps of torch.optim.AdamW on the same
batch (matrices decay, the rest does not; gradients clipped to norm 1): `losses`, `norms`, and `mtp_losses` [10, layers],
what Megatron logs as "mtp_N loss". The model is in float64; core takes its cross entropy and softmax in fp32.
"""
import contextlib
import datetime
import importlib.metadata as metadata
import os
import sys

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, GROUPS, FFN, VOCABULARY, POSITIONS, LAYERS = 24, 4, 2, 40, 61, 32, 2
BATCH, SEQUENCE, STEPS = 3, 14, 10


def core_model(llama, later):
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.cuda.current_device = lambda: "cpu"  # where its buffers are made
    CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()  # of dropout, which is 0
    if not torch.distributed.is_initialized():
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29519")
        torch.distributed.init_process_group("gloo", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
    more = dict(gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm",
                add_bias_linear=False, num_query_groups=GROUPS) if llama else {}
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, ffn_hidden_size=FFN, use_cpu_initialization=True,
        hidden_dropout=0.0, attention_dropout=0.0, bias_activation_fusion=False, masked_softmax_fusion=False,
        persist_layer_norm=False, layernorm_epsilon=1e-5, mtp_num_layers=later, mtp_loss_scaling_factor=0.3, **more)
    if not llama:  # the GELU of GPT-2
        config.activation_func = lambda x: torch.nn.functional.gelu(x, approximate="tanh")
    spec = get_gpt_layer_local_spec(normalization=config.normalization)
    return GPTModel(config, spec, vocab_size=VOCABULARY, max_sequence_length=POSITIONS,
                    position_embedding_type="rope" if llama else "learned_absolute", rotary_base=10000,
                    share_embeddings_and_output_weights=not llama,
                    mtp_block_spec=get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False)).double()


def names_of(model, llama):
    """Piton's names: for each the parameter, and the view of it."""
    names = {"embedding.token.weight": (model.embedding.word_embeddings.weight, None)}
    groups, width = (GROUPS if llama else HEADS), HIDDEN // HEADS
    share = HEADS // groups

    def both(name, module, view=None):
        names[name + ".weight"] = (module.weight, view)
        if getattr(module, "bias", None) is not None:
            names[name + ".bias"] = (module.bias, view)

    def part(first, count):
        return lambda w: w.unflatten(0, (groups, share + 2, width))[:, first:first + count].flatten(0, 2)

    def block(at, layer):
        both(at + "attention_norm", layer.input_layernorm)
        for name, first, count in (("query", 0, share), ("key", share, 1), ("value", share + 1, 1)):
            both(at + "attention." + name, layer.self_attention.linear_qkv, part(first, count))
        both(at + "attention.output", layer.self_attention.linear_proj)
        both(at + "mlp_norm", layer.pre_mlp_layernorm)
        if llama:
            both(at + "mlp.gate", layer.mlp.linear_fc1, lambda w: w[:FFN])
            both(at + "mlp.up", layer.mlp.linear_fc1, lambda w: w[FFN:])
        else:
            both(at + "mlp.up", layer.mlp.linear_fc1)
        both(at + "mlp.down", layer.mlp.linear_fc2)

    for i, layer in enumerate(model.decoder.layers):
        block(f"layers.{i}.", layer)
    both("final_norm", model.decoder.final_layernorm)
    for i, layer in enumerate(model.mtp.layers):
        at = f"mtp.layers.{i}."
        both(at + "token_norm", layer.enorm)
        both(at + "hidden_norm", layer.hnorm)
        both(at + "projection", layer.eh_proj)
        block(at, layer.transformer_layer)
        both(at + "final_norm", layer.final_layernorm)
    if llama:
        names["head.weight"] = (model.output_layer.weight, None)
    else:
        names["embedding.position.weight"] = (model.embedding.position_embeddings.weight, None)
    return names


class QwenWithLater(torch.nn.Module):
    """Qwen 3.5 of four layers with its `mtp`, which reads the output of the final norm and the next token."""

    def __init__(self):
        super().__init__()
        from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
        from transformers.models.qwen3_5 import modeling_qwen3_5 as parts

        config = Qwen3_5TextConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=4, num_attention_heads=HEADS,
            num_key_value_heads=GROUPS, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
            linear_value_head_dim=5, linear_conv_kernel_dim=3, max_position_embeddings=POSITIONS, tie_word_embeddings=True,
            rms_norm_eps=1e-6, attn_implementation="eager")
        self.base = Qwen3_5ForCausalLM(config)
        self.token_norm, self.hidden_norm, self.final_norm = (parts.Qwen3_5RMSNorm(HIDDEN, eps=1e-6) for _ in range(3))
        self.fc = torch.nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.block = parts.Qwen3_5DecoderLayer(config, 3)
        self.later_losses = None

    def forward(self, tokens, positions, causal, labels, loss_mask):
        model = self.base.model
        hidden = model(input_ids=tokens, position_ids=positions).last_hidden_state

        def loss(x, labels):
            return torch.nn.functional.cross_entropy(self.base.lm_head(x).flatten(0, 1), labels.flatten(), reduction="none")

        def moved(x):  # as Megatron-core: the last one is none
            return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)

        x = self.fc(torch.cat([self.token_norm(model.embed_tokens(moved(tokens))), self.hidden_norm(hidden)], -1))
        mask = torch.zeros(1, 1, SEQUENCE, SEQUENCE, dtype=x.dtype).masked_fill(causal, torch.finfo(x.dtype).min)
        x = self.block(x, position_embeddings=model.rotary_emb(x, positions), attention_mask=mask, position_ids=positions)
        x = x[0] if isinstance(x, tuple) else x
        later = moved(loss_mask).flatten()
        self.later = (loss(self.final_norm(x), moved(labels)) * later).sum() / later.sum()
        return loss(hidden, labels).view(labels.shape)


def names_of_qwen(model):
    names = {}

    def add(name, parameter, view=None):
        names[name] = (parameter, view)

    def block(at, layer):
        add(at + "attention_norm.weight", layer.input_layernorm.weight)
        add(at + "mlp_norm.weight", layer.post_attention_layernorm.weight)
        for part in ("gate", "up", "down"):
            add(f"{at}mlp.{part}.weight", getattr(layer.mlp, part + "_proj").weight)
        if hasattr(layer, "linear_attn"):
            delta = layer.linear_attn
            for name, first, count in (("query", 0, 12), ("key", 12, 12), ("value", 24, 20)):
                part = lambda w, first=first, count=count: w[first:first + count]
                add(f"{at}delta.{name}.weight", delta.in_proj_qkv.weight, part)
                add(f"{at}delta.{name}_filter", delta.conv1d.weight, lambda w, part=part: part(w).squeeze(1))
            for name, module in (("gate", delta.in_proj_z), ("strength", delta.in_proj_b), ("decay", delta.in_proj_a),
                                 ("output", delta.out_proj), ("norm", delta.norm)):
                add(f"{at}delta.{name}.weight", module.weight)
            add(at + "delta.rate", delta.A_log)
            add(at + "delta.decay_bias", delta.dt_bias)
            return
        own = layer.self_attn
        for i, name in enumerate(("query", "gate")):
            add(f"{at}attention.{name}.weight", own.q_proj.weight,
                lambda w, i=i: w.unflatten(0, (HEADS, 2, 8))[:, i].flatten(0, 1))
        for name, module in (("key", own.k_proj), ("value", own.v_proj), ("output", own.o_proj), ("query_norm", own.q_norm),
                             ("key_norm", own.k_norm)):
            add(f"{at}attention.{name}.weight", module.weight)

    add("embedding.token.weight", model.base.model.embed_tokens.weight)
    for i, layer in enumerate(model.base.model.layers):
        block(f"layers.{i}.", layer)
    add("final_norm.weight", model.base.model.norm.weight)
    block("mtp.layers.0.", model.block)
    for name, module in (("token_norm", model.token_norm), ("hidden_norm", model.hidden_norm), ("projection", model.fc),
                         ("final_norm", model.final_norm)):
        add(f"mtp.layers.0.{name}.weight", module.weight)
    return names


def write(folder, kind, later):
    qwen, llama = kind == "qwen", kind == "llama"
    if not qwen:
        from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
        MTPLossLoggingHelper.tracker.clear()
    torch.manual_seed(7)
    model = QwenWithLater().double() if qwen else core_model(llama, later)
    names = names_of_qwen(model) if qwen else names_of(model, llama)
    covered = {id(parameter) for parameter, _ in names.values()}
    assert all(id(parameter) in covered for parameter in model.parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64)
            gain = parameter.ndim == 1 and "bias" not in name and not qwen
            # Values that fp32 holds exactly, so that both sides start from the same numbers.
            parameter.copy_((1 + 0.1 * noise if gain else 0.2 * noise).float().double())
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE + 1))
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    mask = (torch.rand(BATCH, SEQUENCE) > 0.2).double()
    positions = torch.arange(SEQUENCE)[None].expand(BATCH, -1).contiguous()
    causal = torch.triu(torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool), 1)

    def viewed(name, tensor):
        view = names[name][1]
        return (view(tensor) if view else tensor).float().contiguous().clone()

    out = {"weight." + name: viewed(name, parameter.detach()) for name, (parameter, _) in names.items()}
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    model.train()
    losses, later_losses, norms = [], [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        each = model(inputs, positions, causal, labels=labels, loss_mask=mask)
        loss = (each * mask).sum() / mask.sum()
        if qwen:
            (loss + 0.3 * model.later).backward()
            later_losses.append(model.later.detach()[None])
        else:
            loss.backward()
            later_losses.append(MTPLossLoggingHelper.tracker["values"].clone())
            MTPLossLoggingHelper.clean_loss_in_tracker()
        if step == 0:
            for name, (parameter, _) in names.items():
                out["gradient." + name] = viewed(name, parameter.grad)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    out["norms"] = torch.tensor(norms, dtype=torch.float64)
    out["mtp_losses"] = torch.stack(later_losses).double()
    out["tokens"], out["labels"], out["mask"] = inputs.int(), labels.int(), mask.float()
    origin = {"origin": "tools/oracle/later_tokens.py", "torch": torch.__version__,
              **({"transformers": metadata.version("transformers")} if qwen else {"megatron-core": metadata.version("megatron-core")}),
              "date": datetime.date.today().isoformat()}
    save_file(out, f"{folder}/later_tokens/{kind}.safetensors", metadata=origin)
    print(kind, losses, out["mtp_losses"].tolist(), norms)


if __name__ == "__main__":
    for kind in sys.argv[2:] or ("gpt", "llama", "qwen"):
        write(sys.argv[1], kind, 2 if kind == "gpt" else 1)
