"""Folders of Megatron-core's dist_checkpointing (torch_dist), read and written by `piton convert`.

  python tools/oracle/megatron_torch_dist.py build/piton [--work DIR]      (torch 2.15, transformers 5.23, megatron-core 0.16.1)
  python tools/oracle/megatron_torch_dist.py --golden tests/golden/megatron/torch_dist

A GPTModel of megatron-core with random weights is saved by one process. Processes of other layouts load that folder and save it
again: dist_checkpointing alone divides the weights. Each folder becomes a Hugging Face folder with the logits of the first model,
and all of them are equal to the byte. Layers are one tensor with a dim more, or have their numbers in the names (non_homogeneous),
with gate and up apart (singleton_local_shards). Optimizer states are saved next to the weights, by Megatron-core's own
make_sharded_optimizer_tensor; and in the forms of older files, in the order of its groups and buffers.

Written: the folder of the first model goes through Hugging Face's form and back to torch_dist, by Piton. Megatron-core's
dist_checkpointing.load, in 1 to 4 processes, gives the same bytes from it as from its own folder, and in one process the same logits.
"""
import argparse
import contextlib
import multiprocessing.dummy
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
import types

import torch

TOKENS = 24
KINDS = ("gpt", "llama", "qwen2", "qwen3")
METADATA = {"stacked": {}, "numbered": {"non_homogeneous_layers": True}, "apart": {"singleton_local_shards": True}}


def without_a_gpu():
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker

    torch.cuda.current_device = lambda: "cpu"  # where its buffers are made
    torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = lambda self, *_, **__: self
    # Files are written by threads: forks of a process with threads may hang.
    filesystem_async.mp = types.SimpleNamespace(get_context=lambda _: multiprocessing.dummy, Queue=multiprocessing.Queue)
    filesystem_async._process_memory = lambda: 0  # for its log; it would want psutil
    CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()  # of dropout, which is 0


def join(rank, world, port):
    """Makes this process one of the ranks that spawned() has started."""
    without_a_gpu()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)


def spawned(worker, world, *arguments):
    """worker(rank, world, port, *arguments) of every rank, to its end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, (world, port, *arguments), world)


def core_model(kind, tensor, pipeline, dtype, hidden=32, ffn=56):
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.enums import AttnBackend
    from megatron.core.transformer.transformer_config import TransformerConfig

    common = dict(num_layers=2, hidden_size=hidden, num_attention_heads=4, ffn_hidden_size=ffn, use_cpu_initialization=True,
                  hidden_dropout=0.0, attention_dropout=0.0, bias_activation_fusion=False, perform_initialization=True,
                  masked_softmax_fusion=False, persist_layer_norm=False, tensor_model_parallel_size=tensor,
                  pipeline_model_parallel_size=pipeline, params_dtype=dtype, pipeline_dtype=dtype)
    llama = dict(gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm",
                 add_bias_linear=False, num_query_groups=2, layernorm_epsilon=1e-6)
    more = {"gpt": {}, "llama": llama, "qwen2": {**llama, "add_qkv_bias": True}, "qwen3": {**llama, "qk_layernorm": True}}[kind]
    config = TransformerConfig(**common, **more)
    rope = kind != "gpt"
    model = GPTModel(config, get_gpt_layer_local_spec(qk_layernorm=kind == "qwen3", normalization=config.normalization),
                     vocab_size=128, max_sequence_length=64,
                     position_embedding_type="rope" if rope else "learned_absolute",
                     share_embeddings_and_output_weights=not rope,
                     pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage()).to(dtype).eval()
    arguments = argparse.Namespace(
        num_layers=2, hidden_size=hidden, num_attention_heads=4, ffn_hidden_size=ffn, kv_channels=None,
        group_query_attention=rope, num_query_groups=2 if rope else 1, max_position_embeddings=64, padded_vocab_size=128,
        vocab_size=None, tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline, swiglu=rope,
        bias_gelu_fusion=False, normalization=config.normalization, norm_epsilon=config.layernorm_epsilon,
        add_bias_linear=not rope, position_embedding_type="rope" if rope else "learned_absolute", rotary_base=10000,
        add_qkv_bias=kind == "qwen2", qk_layernorm=kind == "qwen3", untie_embeddings_and_output_weights=rope,
        params_dtype=dtype, num_experts=None, exit_signal=signal.SIGTERM, attention_backend=AttnBackend.auto, hidden_dropout=0.0, attention_dropout=0.0, ckpt_format="torch_dist")
    return model, arguments


def randomize(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            gain = parameter.ndim == 1 and "bias" not in name
            parameter.copy_(1 + 0.1 * noise if gain else 0.15 * noise)


def with_optimizer(model, state, masters):
    """What Float16Optimizer.sharded_state_dict adds, for the same parameters. `masters`: fp32 weights that round to the model's."""
    from megatron.core.dist_checkpointing.optimizer import make_sharded_optimizer_tensor

    named = dict(model.named_parameters())
    states = {}
    for name, sharded in state["model"].items():
        if name not in named:
            continue
        weight = named[name].detach().float()
        values = {"fp32_param": master(named[name]) if masters else weight, "exp_avg": weight * 0.5, "exp_avg_sq": weight**2}
        states[name] = {key: make_sharded_optimizer_tensor(sharded, value, f"optimizer.state.{key}")
                        for key, value in values.items()}
    state["optimizer"] = {"state": states, "param_groups": [{"lr": 0.1, "step": 5}]}


def master(parameter):
    # A bf16 number is in the middle of those that round to it, so a little more is the same in bf16.
    return parameter.detach().float() * (1 + 2.0**-11)


def save_optimizers(model, state, folder):
    """What Megatron's optimizers save with a model that one process has: fp32 weights in the order of Megatron-core's own
    parameter groups and buffers. Its optimizers themselves want a GPU."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBuffer
    from megatron.core.optimizer import OptimizerConfig, _get_param_groups

    def put(name, value, file):
        path = folder / name / "mp_rank_00" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(value, path)

    groups = _get_param_groups([model], OptimizerConfig(optimizer="adam", lr=0.1, bf16=True), None)
    lists = [[master(parameter) for parameter in group["params"]] for group in groups]
    moments = {i: {"exp_avg": value, "exp_avg_sq": value} for i, value in enumerate(lists[0])}
    put("groups", {**state, "optimizer": {"optimizer": {"state": moments, "param_groups": [{"lr": 0.1}]},
                                          "fp32_from_fp16_params": lists}}, "model_optim_rng.pt")
    parameters = list(model.parameters())
    ranks = types.SimpleNamespace(tp=parallel_state.get_tensor_model_parallel_group(),
                                  dp_cp=parallel_state.get_data_parallel_group())
    for name, aligned in (("buffer", True), ("buffer-odd", False)):  # older versions do not align
        buffer = _ParamAndGradBuffer(
            DistributedDataParallelConfig(use_distributed_optimizer=aligned), torch.bfloat16, torch.float32, parameters,
            parallel_state.get_data_parallel_group(), None, {p: "" for p in parameters}, 1.0, list(range(len(parameters))), False, ranks)
        vector = torch.zeros(buffer.numel_unpadded)
        for parameter, (begin, end, _) in buffer.param_index_map.items():
            vector[begin:end] = master(parameter).flatten()
        kinds = (torch.bfloat16, torch.float32)
        put(name, {**state, "model": {key: value for key, value in state["model"].items()}}, "model_optim_rng.pt")
        put(name, {"buckets_coalesced": True, 0: {kinds: {"param": vector, "numel_unpadded": buffer.numel_unpadded}}},
            "distrib_optim.pt")
        if aligned:
            put("buffer-other", {"buckets_coalesced": True, 0: {kinds: {"param": vector.flip(0)}}}, "distrib_optim.pt")


def begin(rank, world, port, job):
    from megatron.core import parallel_state

    join(rank, world, port)
    parallel_state.initialize_model_parallel(job["tensor"], job["pipeline"])


def logits_of(model, tokens):
    length = tokens.shape[1]
    mask = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)
    with torch.no_grad():
        return model(tokens, torch.arange(length)[None], mask)


def reader(rank, world, port, job):
    """Both folders give every rank the same bytes, with nothing missing; and the logits, where one process has the model."""
    from megatron.core import dist_checkpointing
    from megatron.core.safe_globals import register_safe_globals

    begin(rank, world, port, job)
    register_safe_globals()  # as Megatron-LM does: common.pt holds a Namespace
    torch.manual_seed(12 + rank)
    model, _ = core_model(job["kind"], job["tensor"], job["pipeline"], job["dtype"])

    def read(folder):
        randomize(model)
        state = dist_checkpointing.load({"model": model.sharded_state_dict()}, str(folder))
        return state, {name: one.detach().clone() for name, one in state["model"].items() if torch.is_tensor(one)}

    _, wanted = read(job["wanted"])
    state, got = read(job["source"])
    assert len(wanted) > 4 and wanted.keys() == got.keys(), sorted(wanted.keys() ^ got.keys())
    for name, one in wanted.items():
        assert one.dtype == got[name].dtype and one.shape == got[name].shape, name
        assert torch.equal(one.contiguous().view(torch.uint8), got[name].contiguous().view(torch.uint8)), name
    assert state["args"].num_layers == 2 and state["checkpoint_version"] == 3.0, state
    if world == 1 and job["logits"]:
        missing, unexpected = model.load_state_dict(state["model"], strict=False)
        assert not unexpected and all("_extra_state" in name for name in missing), (missing, unexpected)
        tokens, logits = torch.load(job["logits"])
        difference = float((logits_of(model, tokens) - logits).abs().max())
        assert difference <= 1e-4, f"logits differ by {difference}"
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def worker(rank, world, port, job):
    from megatron.core import dist_checkpointing

    begin(rank, world, port, job)
    torch.manual_seed(11)
    model, arguments = core_model(job["kind"], job["tensor"], job["pipeline"], job["dtype"], *job.get("sizes", ()))
    metadata = METADATA[job["form"]]
    if job["source"]:
        state = {"model": model.sharded_state_dict(metadata=metadata)}
        model.load_state_dict(dist_checkpointing.load(state, str(job["source"]))["model"], strict=False)
    else:
        randomize(model)
        if job["logits"]:
            tokens = torch.randint(0, 128, (1, TOKENS))
            torch.save((tokens, logits_of(model, tokens)), job["logits"])
    if job.get("plain"):
        job["plain"].parent.mkdir(parents=True)
        state = {"args": arguments, "checkpoint_version": 3.0, "iteration": 5, "model": model.state_dict()}
        torch.save(state, job["plain"])
        save_optimizers(model, state, job["plain"].parents[2])
    state = {"args": arguments, "checkpoint_version": 3.0, "iteration": 5, "model": model.sharded_state_dict(metadata=metadata)}
    if job.get("optimizer"):
        with_optimizer(model, state, job["optimizer"] == "masters")
    if rank == 0:
        job["target"].mkdir(parents=True)
    torch.distributed.barrier()
    dist_checkpointing.save(state, str(job["target"]))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def save(work=worker, **job):
    job = {"source": None, "logits": None, "form": "stacked", "dtype": torch.float32, "tensor": 1, "pipeline": 1, **job}
    spawned(work, job["tensor"] * job["pipeline"], job)


def folder_of(run):
    (run / "latest_checkpointed_iteration.txt").parent.mkdir(parents=True, exist_ok=True)
    (run / "latest_checkpointed_iteration.txt").write_text("5")
    return run / "iter_0000005"


def check(program, work, kinds):
    import transformers

    import convert as oracle

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    bad = 0
    for kind in kinds:
        first = folder_of(work / f"{kind}-first")
        save(kind=kind, target=first, logits=work / f"{kind}.logits", optimizer="same")
        tokens, wanted = torch.load(work / f"{kind}.logits")
        tensors = None
        cases = [(1, 1, "stacked", first)]
        for tensor, pipeline, form in ((1, 1, "numbered"), (2, 1, "stacked"), (1, 2, "stacked"), (2, 2, "numbered"), (2, 1, "apart")):
            # dist_checkpointing reads a form into itself alone, so the source is of the same one.
            source = first
            if form != "stacked":
                source = folder_of(work / f"{kind}-{form}-first")
                if not source.exists():
                    save(kind=kind, target=source, form=form)
            cases.append((tensor, pipeline, form, folder_of(work / f"{kind}-{form}-{tensor}-{pipeline}")))
            save(kind=kind, source=source, target=cases[-1][3], tensor=tensor, pipeline=pipeline, form=form)
        for tensor, pipeline, form, folder in cases:
            target = work / f"{kind}-{form}-{tensor}-{pipeline}-hf"
            oracle.convert(program, folder.parent, target, "--to", "hf")
            if tensors is None:
                tensors = oracle.tensors_of(target)
                theirs, complaints = oracle.loaded(target)
                with torch.no_grad():
                    difference = float((theirs(tokens).logits - wanted).abs().max())
                fault = "" if difference < 1e-4 and not complaints else f"logits differ by {difference} {complaints}"
            else:
                fault = oracle.same_tensors(tensors, oracle.tensors_of(target))
            bad += bool(fault)
            print(f"{'BAD ' if fault else 'ok  '} torch_dist {kind:6} {form:8} {tensor} x {pipeline} {fault}", flush=True)
    return bad


def check_written(program, work, kinds):
    import convert as oracle

    bad = 0
    for kind in kinds:
        for dtype in (torch.float32, torch.bfloat16):
            at = work / f"{kind}-{str(dtype)[6:]}"
            wanted = folder_of(at / "first")
            logits = at / "logits" if dtype == torch.float32 else None
            save(kind=kind, target=wanted, dtype=dtype, logits=logits)
            oracle.convert(program, wanted.parent, at / "hf", "--to", "hf")
            oracle.convert(program, at / "hf", at / "made", "--ckpt-format", "torch_dist", "--make-vocab-size-divisible-by", "64",
                           "--max-shard-size", "20k")
            for tensor, pipeline in ((1, 1), (2, 1), (1, 2), (2, 2)):
                fault = ""
                try:
                    save(reader, kind=kind, dtype=dtype, wanted=wanted, source=at / "made" / "release", tensor=tensor, pipeline=pipeline,
                         logits=logits)
                except torch.multiprocessing.ProcessRaisedException as error:
                    fault = str(error)
                bad += bool(fault)
                print(f"{'BAD ' if fault else 'ok  '} written    {kind:6} {str(dtype)[6:]:8} {tensor} x {pipeline} {fault}", flush=True)
    return bad


def golden(folder):
    """A model in bf16 by one process as Megatron's older files have it, and by 2 x 2 processes as torch_dist."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        small = dict(kind="llama", dtype=torch.bfloat16, sizes=(16, 24))
        save(**small, target=work / "first", plain=folder / "plain" / "mp_rank_00" / "model_optim_rng.pt")
        save(**small, source=work / "first", target=folder_of(folder / "divided"), tensor=2, pipeline=2, optimizer="masters")
        save(**small, target=work / "numbered", form="apart")
        save(**small, source=work / "numbered", target=folder_of(folder / "numbered"), tensor=2, form="apart")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--work")
    parser.add_argument("--golden", type=pathlib.Path)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--parts", nargs="*", default=["read", "written"])
    options = parser.parse_args()
    if options.golden:
        golden(options.golden)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(options.work or folder)
        bad = sum({"read": check, "written": check_written}[part](options.program, work / part, options.kinds) for part in options.parts)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
