"""Mixtures of experts in the files of Megatron's expert ranks, read and written by `piton convert`.

  python tools/oracle/megatron_experts.py build/piton [--work DIR]                    (torch 2.15, megatron-core 0.16.1)
  python tools/oracle/megatron_experts.py --golden tests/golden/megatron/experts

A GPTModel of megatron-core with experts in its last layer and random weights is saved by one process. Processes of other layouts
load that folder, and dist_checkpointing alone divides the weights among them. What their modules have is saved under the names of
Megatron-LM's get_checkpoint_name, by the processes that it lets write: those of expert-data-parallel rank 0.

Read: all of them become the same tensors. Written: files of ranks have the names and bytes of Megatron-core's modules, and
dist_checkpointing.load gives every rank the same bytes from a folder of torch_dist as from its own.
"""
import argparse
import math
import pathlib
import shutil
import sys
import tempfile

import torch

from megatron_torch_dist import folder_of, join, randomize, spawned

EXPERTS = 4
SHAPE = dict(num_layers=2, hidden_size=16, num_attention_heads=4, ffn_hidden_size=24)
MOE = dict(num_moe_experts=EXPERTS, moe_router_topk=2, moe_ffn_hidden_size=8, moe_shared_expert_intermediate_size=12)


class Layout:
    def __init__(self, tensor=1, pipeline=1, expert=1, expert_tensor=None):
        self.tensor, self.pipeline, self.expert, self.expert_tensor = tensor, pipeline, expert, expert_tensor or tensor

    def world(self):
        return self.pipeline * math.lcm(self.tensor, self.expert * self.expert_tensor)


def begin(rank, world, port, layout):
    from megatron.core import parallel_state
    from megatron.core.transformer.moe import experts

    join(rank, world, port)
    experts.gg = argparse.Namespace(assert_grouped_gemm_is_available=lambda: None)  # nothing is computed
    parallel_state.initialize_model_parallel(layout.tensor, layout.pipeline, expert_model_parallel_size=layout.expert,
                                             expert_tensor_parallel_size=layout.expert_tensor)


def core_model(layout, grouped=False, layers_with_experts=(0, 1), dtype=torch.bfloat16, vocabulary=64, **more):
    """`more`: of the configuration and of the arguments."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    frequency = 1 if all(layers_with_experts) else list(layers_with_experts)
    config = TransformerConfig(
        **SHAPE, **MOE, moe_layer_freq=frequency, num_query_groups=2, use_cpu_initialization=True, hidden_dropout=0.0, attention_dropout=0.0,
        bias_activation_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, normalization="RMSNorm", add_bias_linear=False, layernorm_epsilon=1e-6,
        tensor_model_parallel_size=layout.tensor, pipeline_model_parallel_size=layout.pipeline,
        expert_model_parallel_size=layout.expert, expert_tensor_parallel_size=layout.expert_tensor,
        moe_grouped_gemm=grouped, moe_use_legacy_grouped_gemm=grouped, moe_token_dispatcher_type="allgather",
        params_dtype=dtype, pipeline_dtype=dtype, **more)
    model = GPTModel(config, get_gpt_decoder_block_spec(config, use_transformer_engine=False), vocab_size=vocabulary, max_sequence_length=64,
                     position_embedding_type="rope", share_embeddings_and_output_weights=False,
                     pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage()).to(dtype).eval()
    arguments = argparse.Namespace(
        **SHAPE, num_experts=EXPERTS, moe_router_topk=2, moe_ffn_hidden_size=8, moe_layer_freq=frequency, moe_grouped_gemm=grouped,
        moe_shared_expert_intermediate_size=12, kv_channels=None, group_query_attention=True, num_query_groups=2,
        max_position_embeddings=64, padded_vocab_size=vocabulary, vocab_size=None, tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline, expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor, swiglu=True, bias_gelu_fusion=False, normalization="RMSNorm",
        norm_epsilon=1e-6, add_bias_linear=False, position_embedding_type="rope", rotary_base=10000,
        untie_embeddings_and_output_weights=True, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=dtype, **more)
    return model, arguments


def rank_folder(layout):
    from megatron.core import parallel_state as mpu

    name = f"mp_rank_{mpu.get_tensor_model_parallel_rank():02}"
    if layout.pipeline > 1:
        name += f"_{mpu.get_pipeline_model_parallel_rank():03}"
    if layout.expert > 1:
        name += f"_{mpu.get_expert_model_parallel_rank():03}"
    return name


def worker(rank, world, port, job):
    from megatron.core import dist_checkpointing
    from megatron.core import parallel_state as mpu

    layout = job["layout"]
    begin(rank, world, port, layout)
    torch.manual_seed(21)
    model, arguments = core_model(layout, layers_with_experts=job.get("layers_with_experts", (0, 1)))
    if "source" in job:
        state = {"model": model.sharded_state_dict()}
        model.load_state_dict(dist_checkpointing.load(state, str(job["source"]))["model"], strict=False)
    else:
        randomize(model)
    facts = {"args": arguments, "checkpoint_version": 3.0, "iteration": 5}
    if "files" in job and mpu.get_expert_data_parallel_rank() == 0:
        state = model.state_dict()
        if job.get("transformer"):  # as TEGroupedMLP and TELayerNormColumnParallelLinear name them
            state = {transformer_name(name): tensor for name, tensor in state.items()}
        path = job["files"] / rank_folder(layout) / "model_optim_rng.pt"
        path.parent.mkdir(parents=True)
        torch.save({**facts, "model": {name: None if tensor is None else tensor.clone() for name, tensor in state.items()}}, path)
    if "target" in job:
        if rank == 0:
            job["target"].mkdir(parents=True)
        torch.distributed.barrier()
        dist_checkpointing.save({**facts, "model": model.sharded_state_dict()}, str(job["target"]))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def reader(rank, world, port, job):
    """A folder gives every rank the bytes that another one gives it."""
    from megatron.core import dist_checkpointing
    from megatron.core.safe_globals import register_safe_globals

    begin(rank, world, port, job["layout"])
    register_safe_globals()
    torch.manual_seed(22 + rank)
    model, _ = core_model(job["layout"], job["grouped"], job["layers_with_experts"])

    def read(folder):
        randomize(model)
        state = dist_checkpointing.load({"model": model.sharded_state_dict()}, str(folder))
        assert state["args"].num_experts == EXPERTS
        return {name: one.detach().clone() for name, one in state["model"].items() if torch.is_tensor(one)}

    wanted, got = read(job["wanted"]), read(job["source"])
    fault = different(wanted, got)
    assert not fault, fault
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def different(wanted, got):
    """The first name whose bytes differ; "" if there is none."""
    for name in sorted(wanted.keys() | got.keys()):
        one, other = wanted.get(name), got.get(name)
        if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
            return name
        if not torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)):
            return name
    return ""


def transformer_name(name):
    before, found, own = name.partition("mlp.experts.local_experts.")
    if found:
        number, _, rest = own.partition(".")
        return f"{before}mlp.experts.{rest}{number}"
    if "input_layernorm." in name:
        return name.replace("input_layernorm.", "self_attention.linear_qkv.layer_norm_")
    dense = ".layers.0." in name  # the only one here whose linear holds the norm
    return name.replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_") if dense else name


def save(layout, work=worker, **job):
    spawned(work, layout.world(), {"layout": layout, **job})


def weights_in(folder):
    """By file and name, of all ranks."""
    weights = {}
    for path in sorted(folder.rglob("model_optim_rng.pt")):
        model = torch.load(path, weights_only=False)["model"]
        for name, tensor in model.items():
            if torch.is_tensor(tensor):
                weights[f"{path.parent.name} {name}"] = tensor
    return weights


def check(program, work):
    import convert as oracle

    bad = 0

    def report(fault, *words):
        nonlocal bad
        bad += bool(fault)
        print("BAD " if fault else "ok  ", *words, fault, flush=True)

    layouts = {"2 experts": Layout(expert=2), "4 experts": Layout(expert=4), "2 x 1 x 2": Layout(tensor=2, expert=2),
               "2 x 2 x 2": Layout(2, 2, 2)}
    for which in ((0, 1), (1, 1)):
        at = work / "".join(map(str, which))
        common = dict(layers_with_experts=which)
        save(Layout(), target=folder_of(at / "first"), files=at / "plain", **common)
        first = at / "first" / "iter_0000005"
        oracle.convert(program, at / "plain", at / "made", "--ckpt-format", "torch_dist", "--transformer-impl", "local",
                       "--make-vocab-size-divisible-by", "64", "--max-shard-size", "20k")
        oracle.convert(program, at / "first", at / "back", "--to", "mg", "--use-mcore-models", "--make-vocab-size-divisible-by", "32")
        report(different(weights_in(at / "plain"), weights_in(at / "back")), which, "torch_dist to one rank")
        for name, layout in layouts.items():
            ranks = at / name.replace(" ", "")
            save(layout, source=first, files=ranks, **common)
            given = ["--target-tensor-parallel-size", str(layout.tensor), "--target-pipeline-parallel-size", str(layout.pipeline),
                     "--target-expert-parallel-size", str(layout.expert)]
            made = work / "made" / ranks.relative_to(work)
            oracle.convert(program, at / "plain", made, "--to", "mg", "--use-mcore-models", "--make-vocab-size-divisible-by", "32", *given)
            report(different(weights_in(ranks), weights_in(made)), which, "ranks written", name)
            back = work / "back" / ranks.relative_to(work)
            oracle.convert(program, ranks, back, "--to", "mg", "--use-mcore-models", "--make-vocab-size-divisible-by", "64")
            report(different(weights_in(at / "plain"), weights_in(back)), which, "ranks read", name)
            for grouped in (False, True):
                fault = ""
                try:
                    save(layout, reader, wanted=first, source=at / "made" / "release", grouped=grouped, **common)
                except torch.multiprocessing.ProcessRaisedException as error:
                    fault = str(error)
                report(fault, which, "torch_dist written", name, "grouped" if grouped else "sequential")
    return bad


def golden(folder):
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        first = pathlib.Path(work) / "first"
        save(Layout(), target=first, files=folder / "plain")
        save(Layout(expert=2), source=first, files=folder / "experts")
        save(Layout(tensor=2, pipeline=2, expert=2), source=first, files=folder / "divided")
        save(Layout(tensor=2, expert=2, expert_tensor=1), source=first, files=folder / "whole-experts")
        save(Layout(expert=2), source=first, files=folder / "transformer", transformer=True)
        save(Layout(expert=2), source=first, target=folder_of(folder / "dist"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--work")
    parser.add_argument("--golden", type=pathlib.Path)
    options = parser.parse_args()
    if options.golden:
        golden(options.golden)
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(1 if check(options.program, pathlib.Path(options.work or folder)) else 0)


if __name__ == "__main__":
    main()
