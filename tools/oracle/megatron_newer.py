"""Newer models in Megatron's files, read and written by `piton convert`.

  python tools/oracle/megatron_newer.py build/piton [--kind KIND] [--work DIR]  (torch 2.15, transformers 5.23, megatron-core 0.16.1)
  python tools/oracle/megatron_newer.py --golden tests/golden/megatron/newer

GPTModels of megatron-core with random weights. `next`, as Qwen3-Next: its GatedDeltaNet in three of four layers, gates of attention in
the fourth, gains around 1, experts, an MLP next to them with a gate, a layer that predicts later tokens. `dense`, as Qwen 3.5: the same without
experts. `oss`, as gpt-oss: learned sinks, a window in every other layer, yarn, experts with biases and bounded gates. `hybrid`, as Nemotron-H (megatron_hybrid.py). One process saves each;
processes of other layouts load that folder by dist_checkpointing and save what their modules have (megatron_experts.py).

Read: all become the same tensors, and a Hugging Face folder with the logits of the first model. Written: files of ranks have
the names and bytes of Megatron-core's modules, and dist_checkpointing.load gives every rank the same bytes from a folder of
torch_dist as from its own. Transformer Engine and FLA are not here: files are those of core's layers with the names of Transformer
Engine's, norms around 1 are computed here, and the rule is core's own for its deterministic mode.
"""
import argparse
import pathlib
import shutil
import sys
import tempfile

import torch

from megatron_experts import Layout, begin, different, rank_folder, save, weights_in
from megatron_hybrid import HEAD, engine_name, hybrid_model
from megatron_torch_dist import folder_of

LAYERS = 4
SHAPE = dict(num_layers=LAYERS, hidden_size=32, num_attention_heads=4, ffn_hidden_size=24)
MOE = dict(num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=8, moe_shared_expert_intermediate_size=12)
DELTA = dict(experimental_attention_variant="gated_delta_net", linear_attention_freq=4, linear_conv_kernel_dim=4, linear_key_head_dim=6,
             linear_value_head_dim=5, linear_num_key_heads=2, linear_num_value_heads=4, attention_output_gate=True)
# As TransformerConfig, and as Megatron-LM's arguments.
QWEN = dict(DELTA, qk_layernorm=True, kv_channels=16)
OSS = dict(kv_channels=12, softmax_type="learnable", window_size=(8, 0), window_attn_skip_freq=2, activation_func_clamp_value=0.4,
           glu_linear_offset=1.0)
YARN = dict(yarn_rotary_scaling_factor=4.0, yarn_original_max_position_embeddings=16, yarn_beta_fast=32.0, yarn_beta_slow=1.0,
            yarn_mscale=None, yarn_mscale_all_dim=None, yarn_correction_range_round_to_int=False)
KINDS = {"next": dict(QWEN, mtp_num_layers=1, mtp_loss_scaling_factor=0.3), "dense": QWEN, "oss": OSS, "hybrid": dict(kv_channels=HEAD)}
VOCABULARY, TOKENS = 64, 24


def randomize(model):
    """Gains as gain - 1."""
    wide = ("norm.weight", "conv1d.weight", "softmax_offset")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            parameter.copy_(noise * (0.5 if name.endswith(wide) else 0.15))
            if name.endswith("A_log"):
                parameter.copy_(noise.abs())
        for name, buffer in model.named_buffers():
            if name.endswith("expert_bias"):
                buffer.copy_(torch.randn(buffer.shape) * 0.2)


def layout_of(kind, *sizes):
    """Core has biases of experts only where these are whole."""
    return Layout(*sizes, expert_tensor=1 if kind == "oss" else None)


class GainAroundOne(torch.nn.Module):
    """As Transformer Engine's RMSNorm with zero_centered_gamma."""

    def __init__(self, config, hidden_size, eps=1e-6, **_):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(hidden_size, dtype=config.params_dtype))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * (1 + self.weight.float())).to(x.dtype)


def prepare():
    """Core's modules believe that they have a GPU, and FLA."""
    from megatron.core.fusions import fused_softmax
    from megatron.core.ssm import gated_delta_net
    from megatron.core.transformer.moe import moe_utils

    def window_mask(rows, keys, window):
        seen = torch.ones(rows, keys, dtype=torch.bool)
        return ~seen.triu(keys - rows - window[0]).tril(keys - rows + window[1])

    fused_softmax.get_sliding_window_causal_mask = window_mask
    moe_utils.te_general_gemm = None
    torch.cuda.current_device = lambda: "cpu"
    gated_delta_net.HAVE_FLA = True
    gated_delta_net.l2norm = lambda x, dim=-1, eps=1e-6: x * torch.rsqrt((x * x).sum(dim, keepdim=True) + eps)
    gated_delta_net.chunk_gated_delta_rule = None


def layer_spec(config, kind, states):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.spec_utils import ModuleSpec

    qwen = kind != "oss"
    spec = get_gpt_layer_local_spec(config.num_moe_experts, False, qwen, normalization="RMSNorm")
    parts = spec.submodules
    names = {"input_layernorm.": "self_attention.linear_qkv.layer_norm_"}
    if kind == "dense":
        names["pre_mlp_layernorm."] = "mlp.linear_fc1.layer_norm_"
    if qwen:
        parts.input_layernorm = parts.pre_mlp_layernorm = GainAroundOne
    if states:
        names["input_layernorm."] = "self_attention.in_proj.layer_norm_"
        parts.self_attention = ModuleSpec(module=GatedDeltaNet, submodules=GatedDeltaNetSubmodules(
            in_proj=ColumnParallelLinear, out_norm=GainAroundOne, out_proj=RowParallelLinear))
    elif qwen:
        parts.self_attention.submodules.q_layernorm = parts.self_attention.submodules.k_layernorm = GainAroundOne
    parts.sharded_state_dict_keys_map = names
    return spec


def core_model(layout, kind, dtype=torch.bfloat16, later=True):
    if kind == "hybrid":
        return hybrid_model(layout, dtype)
    from megatron.core import parallel_state
    from megatron.core.activations import quick_gelu
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
    from megatron.core.transformer.transformer_config import TransformerConfig
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    prepare()
    more, qwen = {**KINDS[kind]}, kind != "oss"
    if not later:
        more.pop("mtp_num_layers", None)
    moe = {} if kind == "dense" else dict(MOE, moe_shared_expert_gate=True) if qwen else {**MOE, "moe_shared_expert_intermediate_size": None}
    config = TransformerConfig(
        **SHAPE, **moe, **more, num_query_groups=2, layernorm_zero_centered_gamma=qwen, use_cpu_initialization=True, hidden_dropout=0.0,
        attention_dropout=0.0, bias_activation_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu if qwen else quick_gelu, normalization="RMSNorm", add_bias_linear=not qwen,
        layernorm_epsilon=1e-6, tensor_model_parallel_size=layout.tensor, pipeline_model_parallel_size=layout.pipeline,
        expert_model_parallel_size=layout.expert, expert_tensor_parallel_size=layout.expert_tensor,
        moe_token_dispatcher_type="allgather", params_dtype=dtype, pipeline_dtype=dtype, perform_initialization=False,
        deterministic_mode=qwen)
    for name, value in ({} if qwen else YARN).items():
        setattr(config, name, value)
    norm = GainAroundOne if qwen else WrappedTorchNorm
    specs = [layer_spec(config, kind, qwen and (i + 1) % 4 != 0) for i in range(LAYERS)]
    offset = get_transformer_layer_offset(config)
    block = TransformerBlockSubmodules(layer_specs=specs[offset:offset + get_num_layers_to_build(config)], layer_norm=norm)
    later_block = None
    if config.mtp_num_layers:
        whole = TransformerBlockSubmodules(layer_specs=specs, layer_norm=norm)
        later_block = get_gpt_mtp_block_spec(config, whole, use_transformer_engine=False)
        for one in later_block.layer_specs if later_block else []:
            one.submodules.enorm = one.submodules.hnorm = one.submodules.layer_norm = norm
    positions, percent = ("rope", 0.25) if qwen else ("yarn", 1.0)
    model = GPTModel(config, block, vocab_size=VOCABULARY, max_sequence_length=64, position_embedding_type=positions, rotary_percent=percent,
                     share_embeddings_and_output_weights=False, mtp_block_spec=later_block,
                     pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage()).to(dtype).eval()
    moe["num_experts"] = moe.pop("num_moe_experts", None)
    arguments = argparse.Namespace(
        **SHAPE, **moe, **more, **({} if qwen else YARN), moe_layer_freq=1, apply_layernorm_1p=qwen, group_query_attention=True,
        num_query_groups=2, max_position_embeddings=64, padded_vocab_size=VOCABULARY, vocab_size=None,
        tensor_model_parallel_size=layout.tensor, pipeline_model_parallel_size=layout.pipeline, expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor, swiglu=qwen, quick_geglu=not qwen, bias_gelu_fusion=False, normalization="RMSNorm",
        norm_epsilon=1e-6, add_bias_linear=not qwen, position_embedding_type=positions, rotary_base=10000, rotary_percent=percent,
        untie_embeddings_and_output_weights=True, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=dtype)
    return model, arguments


def sharded(model):
    from megatron.core import parallel_state

    return model.sharded_state_dict(metadata={"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)})


def engine_state(state):
    """As layers of Transformer Engine name it."""
    made = {}
    for name, tensor in state.items():
        name = engine_name(name)
        at = name.partition("input_layernorm.")[0]
        if ".layers." in name and "input_layernorm." in name:
            inner = "in_proj" if f"{at}self_attention.in_proj.weight" in state else "linear_qkv"
            name = name.replace("input_layernorm.", f"self_attention.{inner}.layer_norm_")
        if name.replace("pre_mlp_layernorm", "mlp.router") not in state:
            name = name.replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
        made[name] = tensor
    return made


def worker(rank, world, port, job):
    from megatron.core import dist_checkpointing
    from megatron.core import parallel_state as mpu

    layout = job["layout"]
    begin(rank, world, port, layout)
    torch.manual_seed(29)
    wide = "logits" in job
    model, arguments = core_model(layout, job["kind"], torch.float32 if wide else torch.bfloat16, later=not wide)
    if "source" in job:
        state = {"model": sharded(model)}
        model.load_state_dict(dist_checkpointing.load(state, str(job["source"]))["model"], strict=False)
    else:
        randomize(model)
    facts = {"args": arguments, "checkpoint_version": 3.0, "iteration": 5}
    # Megatron-LM's test leaves out tensor ranks whose experts are whole.
    writes = mpu.get_expert_data_parallel_rank() == 0 or (job["kind"] == "oss" and mpu.get_data_parallel_rank() == 0)
    if "files" in job and writes:
        state = {name: one.clone() for name, one in model.state_dict().items() if torch.is_tensor(one)}
        if not job.get("own"):
            state = engine_state(state)
        path = job["files"] / rank_folder(layout) / "model_optim_rng.pt"
        path.parent.mkdir(parents=True)
        torch.save({**facts, "model": state}, path)
    if "target" in job:
        if rank == 0:
            job["target"].mkdir(parents=True)
        torch.distributed.barrier()
        dist_checkpointing.save({**facts, "model": sharded(model)}, str(job["target"]))
    if wide:
        tokens = torch.arange(2 * TOKENS).reshape(2, TOKENS) * 7 % VOCABULARY
        positions = torch.arange(TOKENS).expand(2, TOKENS)
        mask = torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool).triu(1)
        with torch.no_grad():
            torch.save((tokens, model(tokens, positions, mask)), job["logits"])
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def reader(rank, world, port, job):
    """A folder gives every rank the bytes that another one gives it."""
    from megatron.core import dist_checkpointing
    from megatron.core.safe_globals import register_safe_globals

    begin(rank, world, port, job["layout"])
    register_safe_globals()
    torch.manual_seed(24 + rank)
    model, _ = core_model(job["layout"], job["kind"])

    def read(folder):
        randomize(model)
        state = dist_checkpointing.load({"model": sharded(model)}, str(folder))
        assert state["args"].kv_channels == KINDS[job["kind"]]["kv_channels"]
        return {name: one.detach().clone() for name, one in state["model"].items() if torch.is_tensor(one)}

    fault = different(read(job["wanted"]), read(job["source"]))
    assert not fault, fault
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def compare_logits(folder, wanted):
    from transformers import AutoModelForCausalLM

    tokens, logits = torch.load(wanted)
    with torch.no_grad():
        got = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(tokens).logits
    error = (got - logits).abs().max() / logits.abs().max()
    return "" if error < 5e-5 else f"{error:.2g}"  # other orders of sums in four layers, of weights far from initial ones


def close(wanted, got):
    """As different(), but for the last digits of fp32 gains inside the rule, which are the gains less 1."""
    for name, tensor in wanted.items():
        if name.endswith("out_norm.weight") and tensor.dtype == torch.float32 and torch.allclose(tensor, got[name], rtol=0, atol=2**-22):
            got[name] = tensor
    return different(wanted, got)


def check(program, work, kinds):
    import convert as oracle

    bad = 0

    def report(fault, *words):
        nonlocal bad
        bad += bool(fault)
        print("BAD " if fault else "ok  ", *words, fault, flush=True)

    layouts = {"tensor": (2, 1), "pipeline": (1, 2), "2 x 2 x 2": (2, 2, 2)}
    core = ["--use-mcore-models", "--make-vocab-size-divisible-by", "32", "--transformer-impl", "transformer_engine"]
    for kind in kinds:
        at = work / kind
        save(Layout(), worker, kind=kind, files=at / "wide", logits=at / "logits.pt")
        oracle.convert(program, at / "wide", at / "hf", "--to", "hf")
        report(compare_logits(at / "hf", at / "logits.pt"), kind, "logits")
        save(Layout(), worker, kind=kind, target=folder_of(at / "first"), files=at / "plain")
        save(Layout(), worker, kind=kind, source=at / "first" / "iter_0000005", files=at / "own", own=True)
        first = at / "first" / "iter_0000005"
        oracle.convert(program, at / "plain", at / "made", "--ckpt-format", "torch_dist", "--make-vocab-size-divisible-by", "64",
                       "--max-shard-size", "20k")
        for source in ("first", "own", "hf"):
            oracle.convert(program, at / source, at / f"back-{source}", "--to", "mg", *core)
            wanted = weights_in(at / ("wide" if source == "hf" else "plain"))
            report(close(wanted, weights_in(at / f"back-{source}")), kind, source, "to one rank")
        for name, sizes in layouts.items():
            layout = layout_of(kind, *sizes)
            if kind == "dense" and layout.expert > 1:
                continue
            ranks = at / name.replace(" ", "")
            save(layout, worker, kind=kind, source=first, files=ranks / "files")
            given = ["--target-tensor-parallel-size", str(layout.tensor), "--target-pipeline-parallel-size",
                     str(layout.pipeline), "--target-expert-parallel-size", str(layout.expert)]
            oracle.convert(program, at / "plain", ranks / "made", "--to", "mg", *core, *given)
            report(close(named_alike(weights_in(ranks / "files")), named_alike(weights_in(ranks / "made"))), kind, "ranks written", name)
            oracle.convert(program, ranks / "files", ranks / "back", "--to", "mg", *core)
            report(close(weights_in(at / "plain"), weights_in(ranks / "back")), kind, "ranks read", name)
            fault = ""
            try:
                save(layout, reader, kind=kind, wanted=first, source=at / "made" / "release")
            except torch.multiprocessing.ProcessRaisedException as error:
                fault = str(error)
            report(fault, kind, "torch_dist written", name)
    return bad


def named_alike(weights):
    """Experts of Transformer Engine may be one module or a module each."""
    return {name.replace("experts.local_experts.", "experts."): tensor for name, tensor in weights.items()}


def save_moments(plain, target):
    """The weights as fp32, and Megatron's FP32Optimizer: its groups, of matrices and of vectors, each in the order of the modules;
    moments are twice the weight, and its square."""
    saved = torch.load(plain / "mp_rank_00" / "model_optim_rng.pt", weights_only=False)
    weights = {name: tensor.float() for name, tensor in saved["model"].items() if not name.endswith("expert_bias")}
    saved["args"].moe_router_enable_expert_bias = False
    numbered, groups = {}, []
    for vectors in (False, True):
        own = [tensor for tensor in weights.values() if (tensor.ndim == 1) == vectors]
        first = len(numbered)
        for i, tensor in enumerate(own):
            numbered[first + i] = {"step": 5, "exp_avg": 2 * tensor, "exp_avg_sq": tensor * tensor}
        groups.append({"params": list(range(first, len(numbered))), "step": 5})
    optimizer = {"optimizer": {"state": numbered, "param_groups": groups}}
    target.joinpath("mp_rank_00").mkdir(parents=True)
    torch.save({**saved, "model": weights, "optimizer": optimizer}, target / "mp_rank_00" / "model_optim_rng.pt")


def golden(folder, kinds):
    with tempfile.TemporaryDirectory() as work:
        for kind in kinds:
            shutil.rmtree(folder / kind, ignore_errors=True)
            first = pathlib.Path(work) / kind
            save(Layout(), worker, kind=kind, target=first, files=folder / kind / "plain")
            save(layout_of(kind, 2, 2), worker, kind=kind, source=first, files=folder / kind / "divided")
            save(layout_of(kind, 2), worker, kind=kind, source=first, target=folder_of(folder / kind / "dist"))
            if kind in ("dense", "hybrid"):
                save_moments(folder / kind / "plain", folder / kind / "optimizer")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args()
    kinds = options.kind or list(KINDS)
    if options.golden:
        golden(options.golden, kinds)
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(1 if check(options.program, options.work or pathlib.Path(folder), kinds) else 0)


if __name__ == "__main__":
    main()
