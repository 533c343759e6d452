"""Checkpoints of Megatron, read and written by `piton convert`, held against Megatron-core and against the layouts written
out in PyTorch.

  python tools/oracle/megatron_checkpoints.py build/piton [--work DIR]     (torch 2.15, transformers 5.23, megatron-core 0.16.1)

core     a GPTModel of megatron-core, on the CPU: its checkpoint becomes a Hugging Face folder with the same logits; what
         Piton writes of that folder loads into a new GPTModel with torch.load(weights_only=True) and load_state_dict(strict)
legacy   Hugging Face weights divided by hand, as Megatron-LM's and AscendSpeed's converters do it (versions 0, 1 and 3 of
         the order of qkv; merged and separate gate and up; views of torch.chunk): Piton gives the same tensors back
reshard  hf -> (2,2) -> (4,1) -> (1,1) -> hf, both trees: every tensor byte-identical
"""
import argparse
import contextlib
import os
import pathlib
import sys
import tempfile

import torch
import transformers

import convert as oracle
import huggingface

TOKENS = 24


def core_model(kind, **sizes):
    """A GPTModel of random weights, and the arguments that Megatron-LM saves with it."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.cuda.current_device = lambda: "cpu"  # where its buffers are made
    CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()  # of dropout, which is 0
    if not torch.distributed.is_initialized():
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
        torch.distributed.init_process_group("gloo", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
    s = argparse.Namespace(**{**dict(layers=2, hidden=32, heads=4, groups=2, ffn=56, channels=None, vocabulary=128, positions=64, base=10000,
                                     eps=1e-5 if kind == "gpt" else 1e-6, tied=kind == "gpt"), **sizes})
    common = dict(num_layers=s.layers, hidden_size=s.hidden, num_attention_heads=s.heads, ffn_hidden_size=s.ffn, use_cpu_initialization=True,
                  hidden_dropout=0.0, attention_dropout=0.0, bias_activation_fusion=False, perform_initialization=True,
                  masked_softmax_fusion=False, persist_layer_norm=False, kv_channels=s.channels, layernorm_epsilon=s.eps)
    llama = dict(gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm",
                 add_bias_linear=False, num_query_groups=s.groups)
    moe = dict(num_moe_experts=6, moe_router_topk=2, moe_ffn_hidden_size=24, moe_grouped_gemm=False, moe_token_dispatcher_type="allgather",
               moe_router_pre_softmax=False, moe_aux_loss_coeff=0.0, moe_router_load_balancing_type="none")
    shared = dict(moe, moe_router_pre_softmax=True, moe_shared_expert_intermediate_size=40, moe_shared_expert_gate=True, moe_layer_freq=[0, 1],
                  add_qkv_bias=True)
    nemotron = dict(activation_func=lambda x: torch.relu(x).square(), add_bias_linear=False, num_query_groups=s.groups)
    more = {"gpt": {}, "mixtral": {**llama, **moe}, "qwen2-moe": {**llama, **shared}, "llama": llama, "nemotron": nemotron, "qwen2": {**llama, "add_qkv_bias": True}, "qwen3": {**llama, "qk_layernorm": True}}[kind]
    config = TransformerConfig(**common, **more)
    rope = kind != "gpt"
    model = GPTModel(config, layer_spec(config, kind == "qwen3"),
                     vocab_size=s.vocabulary, max_sequence_length=s.positions,
                     position_embedding_type="rope" if rope else "learned_absolute", rotary_base=s.base,
                     share_embeddings_and_output_weights=s.tied).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            gain = parameter.ndim == 1 and "bias" not in name
            parameter.copy_(1 + 0.1 * noise if gain and kind != "nemotron" else 0.15 * noise)
    if kind == "nemotron":
        centre_gains(model)
    arguments = argparse.Namespace(
        num_layers=s.layers, hidden_size=s.hidden, num_attention_heads=s.heads, ffn_hidden_size=s.ffn, kv_channels=s.channels,
        group_query_attention=rope, num_query_groups=s.groups if rope else 1, max_position_embeddings=s.positions,
        padded_vocab_size=s.vocabulary, vocab_size=None, tensor_model_parallel_size=1, pipeline_model_parallel_size=1,
        swiglu=rope and kind != "nemotron", squared_relu=kind == "nemotron", apply_layernorm_1p=kind == "nemotron", bias_gelu_fusion=False,
        normalization=config.normalization, norm_epsilon=config.layernorm_epsilon, add_bias_linear=not rope,
        position_embedding_type="rope" if rope else "learned_absolute", rotary_base=s.base, add_qkv_bias=kind.startswith("qwen2"),
        qk_layernorm=kind == "qwen3", untie_embeddings_and_output_weights=not s.tied, params_dtype=torch.float32, num_experts=None,
        hidden_dropout=0.0, attention_dropout=0.0)
    if config.num_moe_experts:
        arguments.num_experts = config.num_moe_experts
        for name in ("moe_router_topk", "moe_ffn_hidden_size", "moe_router_pre_softmax", "moe_layer_freq", "moe_aux_loss_coeff",
                     "moe_shared_expert_intermediate_size", "moe_shared_expert_gate", "moe_router_score_function"):
            setattr(arguments, name, getattr(config, name))
    return model, arguments


def centre_gains(model):
    """What layernorm_zero_centered_gamma means (Apex and Transformer Engine have it, PyTorch's norms do not)."""
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.forward = lambda x, norm=module: torch.nn.functional.layer_norm(
                x, norm.normalized_shape, norm.weight + 1, norm.bias, norm.eps)


def layer_spec(config, head_norms):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
    if config.num_moe_experts:
        from megatron.core.transformer.moe import moe_utils
        moe_utils.te_general_gemm = None  # which it leaves undefined without Transformer Engine
        return get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=config.normalization)
    return get_gpt_layer_local_spec(qk_layernorm=head_norms, normalization=config.normalization)


def core_logits(model, tokens):
    length = tokens.shape[1]
    mask = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)
    with torch.no_grad():
        return model(tokens, torch.arange(length)[None], mask)


def save_rank(folder, value, name="mp_rank_00"):
    path = pathlib.Path(folder) / "iter_0000005" / name
    path.mkdir(parents=True, exist_ok=True)
    torch.save(value, path / "model_optim_rng.pt")
    (pathlib.Path(folder) / "latest_checkpointed_iteration.txt").write_text("5")


def core(program, work):
    bad = 0
    for kind in ("gpt", "llama", "nemotron", "qwen2", "qwen3", "mixtral", "qwen2-moe"):
        torch.manual_seed(11)
        model, arguments = core_model(kind)
        tokens = torch.randint(0, 128, (1, TOKENS))
        wanted = core_logits(model, tokens)
        state = {key: value for key, value in model.state_dict().items()}
        save_rank(work / kind, {"args": arguments, "checkpoint_version": 3.0, "iteration": 5, "model": state})
        oracle.convert(program, work / kind, work / (kind + "-hf"), "--to", "hf")
        theirs, complaints = oracle.loaded(work / (kind + "-hf"))
        with torch.no_grad():
            there = float((theirs(tokens).logits - wanted).abs().max())
        oracle.convert(program, work / (kind + "-hf"), work / (kind + "-mg"), "--to", "mg", "--use-mcore-models",
                       "--make-vocab-size-divisible-by", "64")
        read = torch.load(work / (kind + "-mg") / "release/mp_rank_00/model_optim_rng.pt", weights_only=True)
        fresh, _ = core_model(kind)
        keys = fresh.load_state_dict(read["model"], strict=False)
        lost = [key for key in keys.missing_keys if "_extra_state" not in key] + keys.unexpected_keys
        back = float((core_logits(fresh, tokens) - wanted).abs().max())
        good = there < 1e-4 and back == 0 and not complaints and not lost
        bad += not good
        print(f"{'ok  ' if good else 'BAD '} core {kind:8} to hf: logits {there:.1e}; back: {back:.1e}", complaints, lost,
              flush=True)
    return bad


def packed(q, k, v, version, heads, groups, d):
    """The rows of one rank's query, key and value in the order of a checkpoint_version."""
    tail = q.shape[1:]
    if version >= 2:
        share = heads // groups
        parts = [q.view(groups, share * d, *tail), k.view(groups, d, *tail), v.view(groups, d, *tail)]
        return torch.cat(parts, 1).reshape(-1, *tail)
    three = torch.stack([x.view(heads, d, *tail) for x in (q, k, v)])  # [3, heads, d]
    if version == 1:
        three = three.permute(1, 2, 0, *range(3, three.ndim))
    return three.reshape(-1, *tail)


def divide(tensors, config, t, p, tensor, pipeline, version, style):
    """The module tree of rank (t, p), by the rules of the converters."""
    llama = config.model_type != "gpt2"
    layers = (config.num_hidden_layers if llama else config.n_layer) // pipeline
    heads = config.num_attention_heads
    groups = config.num_key_value_heads if llama else heads
    hidden = config.hidden_size
    d = getattr(config, "head_dim", None) or hidden // heads
    rows = lambda x: x.chunk(tensor, 0)[t]
    columns = lambda x: x.chunk(tensor, 1)[t]  # a view: torch.save keeps its strides

    def padded(x):
        multiple = 16 * tensor
        more = -len(x) % multiple
        return torch.cat([x, x[-1:].expand(more, -1)]) if more else x

    encoder = {}
    for i in range(layers):
        layer, at = p * layers + i, f"layers.{i}."
        attention = "attention." if style == "ascend" else "self_attention."
        if llama:
            of = lambda name: tensors[f"model.layers.{layer}.{name}"]
            parts = [of(f"self_attn.{x}_proj.weight") for x in "qkv"]
            biases = [of(f"self_attn.{x}_proj.bias") for x in "qkv"] if config.model_type == "qwen2" else None
            encoder[at + "input_layernorm.weight"] = of("input_layernorm.weight")
            encoder[at + "post_attention_layernorm.weight"] = of("post_attention_layernorm.weight")
            encoder[at + attention + "dense.weight"] = columns(of("self_attn.o_proj.weight"))
            gate, up = rows(of("mlp.gate_proj.weight")), rows(of("mlp.up_proj.weight"))
            if style == "ascend":
                encoder[at + "mlp.gate_proj.weight"], encoder[at + "mlp.up_proj.weight"] = gate, up
                encoder[at + "mlp.down_proj.weight"] = columns(of("mlp.down_proj.weight"))
                encoder[at + "attention.rotary_emb.inv_freq"] = torch.ones(d // 2)
            else:
                encoder[at + "mlp.dense_h_to_4h.weight"] = torch.cat([gate, up])
                encoder[at + "mlp.dense_4h_to_h.weight"] = columns(of("mlp.down_proj.weight"))
        else:
            of = lambda name: tensors[f"transformer.h.{layer}.{name}"]
            parts = of("attn.c_attn.weight").t().chunk(3)
            biases = of("attn.c_attn.bias").chunk(3)
            for ours, theirs in (("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2")):
                encoder[at + ours + ".weight"], encoder[at + ours + ".bias"] = of(theirs + ".weight"), of(theirs + ".bias")
            encoder[at + attention + "dense.weight"] = columns(of("attn.c_proj.weight").t().contiguous())
            encoder[at + attention + "dense.bias"] = of("attn.c_proj.bias")
            encoder[at + "mlp.dense_h_to_4h.weight"] = rows(of("mlp.c_fc.weight").t().contiguous())
            encoder[at + "mlp.dense_h_to_4h.bias"] = rows(of("mlp.c_fc.bias"))
            encoder[at + "mlp.dense_4h_to_h.weight"] = columns(of("mlp.c_proj.weight").t().contiguous())
            encoder[at + "mlp.dense_4h_to_h.bias"] = of("mlp.c_proj.bias")
        key = at + attention + "query_key_value."
        encoder[key + "weight"] = packed(*[rows(x.contiguous()) for x in parts], version, heads // tensor, groups // tensor, d)
        if biases:
            encoder[key + "bias"] = packed(*[rows(x.contiguous()) for x in biases], version, heads // tensor,
                                           groups // tensor, d)
    language = {"encoder": encoder}
    table = padded(tensors["model.embed_tokens.weight" if llama else "transformer.wte.weight"])
    tree = {"language_model": language}
    if p == 0:
        language["embedding"] = {"word_embeddings": {"weight": rows(table)}}
        if not llama:
            language["embedding"]["position_embeddings"] = {"weight": tensors["transformer.wpe.weight"]}
    if p == pipeline - 1:
        end = "model.norm." if llama else "transformer.ln_f."
        encoder["final_layernorm.weight"] = tensors[end + "weight"]
        if not llama:
            encoder["final_layernorm.bias"] = tensors[end + "bias"]
        if "lm_head.weight" in tensors:
            language["output_layer"] = {"weight": rows(padded(tensors["lm_head.weight"]))}
        elif pipeline > 1:
            tree["word_embeddings_for_head"] = {"weight": rows(table)}
    return tree, padded(table).shape[0]


def legacy(program, work):
    bad = 0
    many = dict(num_attention_heads=8, num_key_value_heads=4, hidden_size=64, intermediate_size=88, num_hidden_layers=4)
    models = {"gpt2": huggingface.gpt2(n_head=4, n_layer=4, n_inner=56),
              "llama": huggingface.llama_like("Llama", **many),
              "qwen2": huggingface.llama_like("Qwen2", tie_word_embeddings=True, **many)}
    cases = [("gpt2", 0, 1, 1, "plain"), ("gpt2", 1, 2, 1, "plain"), ("gpt2", 0, 2, 2, "plain"), ("gpt2", 3, 4, 2, "plain"),
             ("llama", 3, 2, 2, "plain"), ("llama", 3, 4, 1, "ascend"), ("llama", 3, 1, 4, "ascend"),
             ("qwen2", 3, 2, 2, "plain"), ("qwen2", 3, 4, 4, "plain")]
    for name, version, tensor, pipeline, style in cases:
        model = huggingface.build(lambda: models[name])
        config = model.config
        source = work / f"{name}-{version}-{tensor}-{pipeline}-{style}"
        hf = pathlib.Path(str(source) + "-hf")
        model.save_pretrained(hf)
        tensors = oracle.tensors_of(hf)
        llama = name != "gpt2"
        for t in range(tensor):
            for p in range(pipeline):
                tree, rows = divide(tensors, config, t, p, tensor, pipeline, version, style)
                arguments = argparse.Namespace(
                    num_layers=config.num_hidden_layers, hidden_size=config.hidden_size,
                    num_attention_heads=config.num_attention_heads, ffn_hidden_size=88 if llama else 56,
                    group_query_attention=llama, num_query_groups=config.num_key_value_heads if llama else 1,
                    max_position_embeddings=128, padded_vocab_size=rows, vocab_size=131,
                    tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline, swiglu=llama,
                    normalization="RMSNorm" if llama else "LayerNorm", norm_epsilon=1e-6 if llama else 1e-5,
                    add_bias_linear=not llama, add_qkv_bias=name == "qwen2", rotary_base=10000.0,
                    position_embedding_type="rope" if llama else "learned_absolute",
                    untie_embeddings_and_output_weights="lm_head.weight" in tensors)
                value = {"args": arguments, "iteration": 5, "model": tree, "rng_state": [{"np": None}]}
                if version:
                    value["checkpoint_version"] = float(version)
                save_rank(source, value, f"mp_rank_{t:02}_{p:03}" if pipeline > 1 else f"mp_rank_{t:02}")
        oracle.convert(program, source, pathlib.Path(str(source) + "-back"), "--to", "hf")
        fault = oracle.same_tensors(tensors, oracle.tensors_of(str(source) + "-back"))
        bad += bool(fault)
        print(f"{'BAD ' if fault else 'ok  '} legacy {source.name:24} {fault}", flush=True)
    return bad


def reshard(program, work):
    bad = 0
    many = dict(num_attention_heads=8, num_key_value_heads=4, hidden_size=64, intermediate_size=88, num_hidden_layers=4)
    models = {"gpt2": huggingface.gpt2(n_head=4, n_layer=4, n_inner=56),
              "llama": huggingface.llama_like("Llama", **many),
              "qwen2": huggingface.llama_like("Qwen2", tie_word_embeddings=True, **many),
              "qwen3": huggingface.llama_like("Qwen3", head_dim=12, **many)}
    trees = {"legacy": [], "core": ["--use-mcore-models"],
             "transformer": ["--use-mcore-models", "--transformer-impl", "transformer_engine"]}
    for name, pair in models.items():
        for dtype in (torch.float32, torch.bfloat16):
            for tree, flags in trees.items():
                model = huggingface.build(lambda: pair).to(dtype)
                at = work / f"{name}-{tree}-{str(dtype)[6:]}"
                model.save_pretrained(at / "hf")
                steps = [("22", ["--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2"]),
                         ("41", ["--target-tensor-parallel-size", "4"]), ("11", [])]
                if tree == "core":
                    steps.insert(0, ("virtual", ["--target-pipeline-parallel-size", "2",
                                                 "--num-layers-per-virtual-pipeline-stage", "1"]))
                source = at / "hf"
                for step, sizes in steps:
                    oracle.convert(program, source, at / step, "--to", "mg", *sizes, *flags)
                    source = at / step
                for path in sorted(at.glob("*/release/*/model_optim_rng.pt")):
                    torch.load(path, weights_only=True)
                oracle.convert(program, source, at / "back", "--to", "hf")
                fault = oracle.same_tensors(oracle.tensors_of(at / "hf"), oracle.tensors_of(at / "back"))
                bad += bool(fault)
                print(f"{'BAD ' if fault else 'ok  '} reshard {at.name:28} {fault}", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--work")
    parser.add_argument("parts", nargs="*", default=["core", "legacy", "reshard"])
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(options.work or folder)
        for part in options.parts:
            (work / part).mkdir(parents=True, exist_ok=True)
            bad += {"core": core, "legacy": legacy, "reshard": reshard}[part](options.program, work / part)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
