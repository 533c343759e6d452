"""Runs of Megatron that stop and resume: checkpoints with optimizers, and the losses that PyTorch has from there.

  python tools/oracle/megatron_resume.py tests/golden/megatron/resume          (torch 2.15, megatron-core 0.16.1)

A GPTModel of megatron-core (fp32, on the CPU) is trained on samples of its GPTDataset by torch.optim.AdamW, with the groups of
parameters and the OptimizerParamScheduler of megatron-core. After STOP steps its state is saved, then training continues;
losses.txt has the loss, the gradient's norm and the learning rate of each step, before and after. The state is saved in these forms:

  gpt      2 x 2 ranks, mp_rank_TT_PPP/model_optim_rng.pt, the optimizer by groups; the head is tied
  llama    torch_dist of 2 x 1 ranks, by FP32Optimizer.sharded_state_dict
  buffer   2 x 1 ranks, distrib_optim.pt: vectors in the places of megatron-core's _ParamAndGradBuffer, in several buckets
  buckets  torch_dist of 2 x 1 ranks, bf16 weights, the vectors of `buffer` by buckets, as sharded_param_state_dp_reshardable has them
  zero     2 x 1 ranks, DeepSpeed's ZeRO 1 over three data-parallel ranks, as its stage_1_and_2.py saves it
  half     one rank; weights in bf16 and Float16OptimizerWithFloat16Params' fp32 copies, which are those of `llama`

megatron-core's dist_checkpointing divides weights and moments. Its optimizer classes want a GPU where they are made, so that
they are made without their constructors; files of the other forms have the keys that its sources write.
"""
import argparse
import collections
import dataclasses
import enum
import pathlib
import shutil
import sys
import tempfile
import types

import numpy
import torch

import megatron_torch_dist as dist

STEPS, STOP, BATCH, LENGTH = 14, 6, 4, 16
SIZES = (16, 24)  # hidden, ffn
RATE = dict(max_lr=1e-2, min_lr=1e-3, warmup=3, decay=12)


def build_corpus(prefix):
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(prefix) + ".bin", dtype=DType.optimal_dtype(128))
    random = numpy.random.RandomState(3)
    for length in (300, 200, 250, 400):
        # A walk over the vocabulary, so that there is something to learn.
        ids = (numpy.cumsum(random.randint(1, 4, length)) + random.randint(0, 128)) % 128
        builder.add_document(ids.astype(numpy.int64), [length])
    builder.finalize(str(prefix) + ".idx")


def samples(prefix):
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.utils import get_blend_from_list

    tokenizer = types.SimpleNamespace(eod=0, pad=0, unique_identifiers={}, vocab_size=128, special_tokens_dict={})
    with tempfile.TemporaryDirectory() as cache:
        config = GPTDatasetConfig(random_seed=1234, sequence_length=LENGTH, blend=get_blend_from_list([str(prefix)]),
                                  split="100,0,0", path_to_cache=cache, tokenizer=tokenizer, reset_position_ids=False,
                                  reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False)
        train = BlendedMegatronDatasetBuilder(GPTDataset, [STEPS * BATCH, 0, 0], lambda: True, config).build()[0]
        rows = [train._query_document_sample_shuffle_indices(i)[0] for i in range(STEPS * BATCH)]
    return torch.from_numpy(numpy.stack(rows).astype(numpy.int64))


def adam_of(model):
    from megatron.core.optimizer import OptimizerConfig, _get_param_groups

    config = OptimizerConfig(optimizer="adam", lr=RATE["max_lr"], min_lr=RATE["min_lr"])
    groups = _get_param_groups([model], config, None)
    return torch.optim.AdamW(groups, lr=RATE["max_lr"], betas=(0.9, 0.95), eps=1e-8)


def scheduler_of(optimizer):
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    return OptimizerParamScheduler(optimizer, 0.0, RATE["max_lr"], RATE["min_lr"], RATE["warmup"] * BATCH,
                                   RATE["decay"] * BATCH, "cosine", 0.1, 0.1, STEPS * BATCH, "constant")


def fp32_optimizer(adam):
    """FP32Optimizer, whose constructor wants a GPU."""
    from megatron.core.optimizer.optimizer import FP32Optimizer

    def make_state(optimizer, _):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter] = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(parameter),
                                              "exp_avg_sq": torch.zeros_like(parameter)}

    made = object.__new__(FP32Optimizer)
    made.optimizer, made.config, made.init_state_fn, made.is_stub_optimizer = adam, None, make_state, False
    return made


def complete(arguments):
    arguments.__dict__.update(
        vocab_size=128, global_batch_size=BATCH, micro_batch_size=2, seq_length=LENGTH, seed=1234, optimizer="adam",
        adam_beta1=0.9, adam_beta2=0.95, adam_eps=1e-8, clip_grad=1.0, lr=RATE["max_lr"], train_iters=STEPS, iteration=STOP,
        consumed_train_samples=STOP * BATCH, consumed_valid_samples=0, rampup_batch_size=None, loss_scale=None, fp16=False)
    return arguments


def train(model, adam, scheduler, rows, steps, lines, kind):
    parameters = [p for group in adam.param_groups for p in group["params"]]
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
    positions = torch.arange(LENGTH)[None]
    for step in steps:
        batch = rows[step * BATCH : (step + 1) * BATCH]
        adam.zero_grad()
        logits = model(batch[:, :-1].contiguous(), positions, mask)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 128), batch[:, 1:].reshape(-1))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        rate = max(group["lr"] for group in adam.param_groups)
        adam.step()
        scheduler.step(BATCH)
        lines.append(f"{kind} {step + 1} {loss.item():.9g} {norm.item():.9g} {rate:.12g}")


def facts(arguments, scheduler):
    return {"args": complete(arguments), "checkpoint_version": 3.0, "iteration": STOP,
            "opt_param_scheduler": scheduler.state_dict(), "rng_state": [{"random_rng_state": None}]}


def put(folder, name, file, value):
    path = folder / f"iter_{STOP:07}" / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path)


def vectors(model, adam, buckets):
    """What DistributedOptimizer.get_parameter_state_dp_zero gathers."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBuffer

    parameters = list(model.parameters())
    ranks = types.SimpleNamespace(tp=parallel_state.get_tensor_model_parallel_group(),
                                  dp_cp=parallel_state.get_data_parallel_group())
    buffer = _ParamAndGradBuffer(
        DistributedDataParallelConfig(use_distributed_optimizer=True), torch.float32, torch.float32, parameters,
        parallel_state.get_data_parallel_group(), buckets, {p: "" for p in parameters}, 1.0, list(range(len(parameters))), False,
        ranks)
    kinds = ("param", "exp_avg", "exp_avg_sq")
    state = {key: torch.zeros(buffer.numel_unpadded) for key in kinds}
    first, parts = 0, []
    for bucket in buffer.buckets:
        for parameter in bucket.params:
            begin = first + buffer.param_index_map[parameter][0] - bucket.offset
            for key, vector in state.items():
                value = parameter.detach() if key == "param" else adam.state[parameter][key]
                vector[begin : begin + value.numel()] = value.flatten()
        parts.append({key: state[key][first : first + bucket.numel_unpadded].clone() for key in kinds})
        first += bucket.numel_unpadded
    assert buckets is None or len(buffer.buckets) > 2
    state["numel_unpadded"] = buffer.numel_unpadded
    return {"buckets_coalesced": True, 0: {(torch.float32, torch.float32): state}}, parts


def save_buckets(model, adam, kept, state, target, rank):
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor

    _, parts = vectors(model, adam, 500)
    key = f"optimizer.distributed.dp_group_idx_{rank}"
    shards = {}
    for bucket, kinds in enumerate(parts):
        for kind, vector in kinds.items():
            size = vector.numel()
            cut = size // 3 + 1  # of two data-parallel ranks
            for begin, end in ((0, cut), (cut, size)):
                shards[bucket, kind, begin] = ShardedTensor(
                    f"{key}.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_{bucket}.{kind}", vector[begin:end].clone(),
                    vector.dtype, (end - begin,), (size,), (begin,), None, replica_id=(0, 0, 0), flattened_range=None,
                    allow_shape_mismatch=False)
    model.to(torch.bfloat16)
    state["args"].params_dtype = torch.bfloat16
    state["model"] = model.sharded_state_dict()
    state["optimizer"] = {"optimizer": ShardedObject(f"{key}.optimizer", kept, (1,), (0,), replica_id=(0, 0, 0)),
                          "param_state": shards}
    if rank == 0:
        target.mkdir(parents=True)
    torch.distributed.barrier()
    dist_checkpointing.save(state, str(target))


def save_half(model, adam, arguments, scheduler, folder):
    groups = [list(group["params"]) for group in adam.param_groups]
    arguments.params_dtype = torch.bfloat16
    state = facts(arguments, scheduler)
    # The copies need not be what the weights were rounded from; but they must round to them.
    state["model"] = {key: value.to(torch.bfloat16) if torch.is_tensor(value) else value
                      for key, value in model.state_dict().items()}
    state["optimizer"] = {"optimizer": adam.state_dict(),
                          "fp32_from_fp16_params": [[p.detach().clone() for p in group] for group in groups]}
    put(folder, "mp_rank_00", "model_optim_rng.pt", state)


def deepspeed_classes():
    """Those whose objects are in DeepSpeed's files, under their names."""
    def module(name, **members):
        for i, letter in enumerate(name + "."):
            if letter == ".":
                sys.modules.setdefault(name[:i], types.ModuleType(name[:i]))
        for key, value in members.items():
            value.__module__ = name
            setattr(sys.modules[name], key, value)
        return members

    class LossScaler:
        def __init__(self):
            self.cur_scale = 1.0

    module("deepspeed.runtime.fp16.loss_scaler", LossScaler=LossScaler)
    stage = enum.IntEnum("ZeroStageEnum", {"disabled": 0, "optimizer_states": 1})
    module("deepspeed.runtime.zero.config", ZeroStageEnum=stage)
    address = dataclasses.make_dataclass("fragment_address", [("numel", int), ("start", int)])
    module("deepspeed.utils.tensor_fragment", fragment_address=address)
    for made, name in ((LossScaler, "LossScaler"), (stage, "ZeroStageEnum"), (address, "fragment_address")):
        made.__qualname__ = made.__name__ = name
    return LossScaler, stage, address


def save_zero(model, adam, state, folder, rank, parts=3):
    scaler, stage, address = deepspeed_classes()
    named = {parameter: name for name, parameter in model.named_parameters()}
    state.update(module=model.state_dict(), optimizer=None, global_steps=STOP, dp_world_size=parts, mp_world_size=2,
                 param_shapes=[collections.OrderedDict((named[p], p.shape) for p in group["params"]) for group in adam.param_groups])
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / f"mp_rank_{rank:02}_model_states.pt")
    flat = []
    for group in adam.param_groups:
        def joined(of):
            whole = torch.cat([of(p).detach().flatten() for p in group["params"]])
            return torch.nn.functional.pad(whole, (0, -whole.numel() % (2 * parts))), whole.numel()
        flat.append({"param": joined(lambda p: p), "exp_avg": joined(lambda p: adam.state[p]["exp_avg"]),
                     "exp_avg_sq": joined(lambda p: adam.state[p]["exp_avg_sq"])})
    groups = adam.state_dict()["param_groups"]
    for part in range(parts):
        def own(of, padded):
            vector, size = of
            length = vector.numel() // parts
            end = min((part + 1) * length, vector.numel() if padded else size)
            return vector[part * length : end].clone()
        mappings = [collections.OrderedDict((named[p], address(p.numel(), 0)) for p in group["params"])
                    for group in adam.param_groups]
        saved = {"loss_scaler": scaler(), "dynamic_loss_scale": False, "overflow": False, "clip_grad": 1.0,
                 "base_optimizer_state": {
                     "state": {i: {"step": torch.tensor(float(STOP)), "exp_avg": own(one["exp_avg"], True),
                                   "exp_avg_sq": own(one["exp_avg_sq"], True)} for i, one in enumerate(flat)},
                     "param_groups": [{**group, "params": [i]} for i, group in enumerate(groups)]},
                 "single_partition_of_fp32_groups": [own(one["param"], False) for one in flat],
                 "zero_stage": stage(1), "group_paddings": [0] * len(flat), "partition_count": [parts] * len(flat),
                 "ds_version": "0.14.0", "param_slice_mappings": mappings}
        torch.save({"optimizer_state_dict": saved, "ds_config": {}, "ds_version": "0.14.0"},
                   folder / f"zero_pp_rank_{part}_mp_rank_{rank:02}_optim_states.pt")


def name_of(t, p, pipeline):
    return f"mp_rank_{t:02}_{p:03}" if pipeline > 1 else f"mp_rank_{t:02}"


def worker(rank, world, port, job):
    from megatron.core import dist_checkpointing, parallel_state

    dist.join(rank, world, port)
    parallel_state.initialize_model_parallel(job["tensor"], job["pipeline"])
    torch.manual_seed(11)
    model, arguments = dist.core_model(job["kind"], job["tensor"], job["pipeline"], torch.float32, *SIZES)
    adam = adam_of(model)
    scheduler = scheduler_of(adam)
    optimizer = fp32_optimizer(adam)
    work, golden = job["work"], job["golden"]
    if job["source"] is None:
        dist.randomize(model)
        rows, lines = torch.load(work / "rows.pt"), []
        train(model, adam, scheduler, rows, range(STOP), lines, job["kind"])
        state = {"model": model.sharded_state_dict()}
        state["optimizer"] = optimizer.sharded_state_dict(state["model"])
        (work / f"{job['kind']}-first").mkdir()
        dist_checkpointing.save(state, str(work / f"{job['kind']}-first"))
        if job["kind"] == "llama":
            save_half(model, adam, arguments, scheduler, golden / "half")
        train(model, adam, scheduler, rows, range(STOP, STEPS), lines, job["kind"])
        (work / f"{job['kind']}.losses").write_text("".join(line + "\n" for line in lines))
        torch.distributed.destroy_process_group()
        return
    state = {"model": model.sharded_state_dict()}
    state["optimizer"] = optimizer.sharded_state_dict(state["model"], is_loading=True)
    loaded = dist_checkpointing.load(state, str(job["source"]))
    model.load_state_dict(loaded["model"], strict=False)
    optimizer.load_state_dict(loaded["optimizer"])
    scheduler.num_steps = STOP * BATCH
    state = facts(arguments, scheduler)
    t, p = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_pipeline_model_parallel_rank()
    name = name_of(t, p, job["pipeline"])
    if job["form"] == "groups":
        state.update(model=model.state_dict(), optimizer=adam.state_dict())
        put(golden / "gpt", name, "model_optim_rng.pt", state)
    elif job["form"] in ("buffer", "buckets"):
        kept = {key: value for key, value in adam.state_dict().items() if key != "state"}
        for group in kept["param_groups"]:
            del group["params"]
            group["step"] = STOP
    if job["form"] == "buckets":
        save_buckets(model, adam, kept, state, golden / "buckets" / f"iter_{STOP:07}", t)
    elif job["form"] == "buffer":
        state.update(model=model.state_dict(), optimizer={"optimizer": kept})
        put(golden / "buffer", name, "model_optim_rng.pt", state)
        put(golden / "buffer", name, "distrib_optim.pt", vectors(model, adam, 500)[0])
    elif job["form"] == "zero":
        save_zero(model, adam, state, golden / "zero" / f"global_step{STOP}", t)
    elif job["form"] == "torch_dist":
        state["model"] = model.sharded_state_dict()
        state["optimizer"] = optimizer.sharded_state_dict(state["model"])
        target = golden / "llama" / f"iter_{STOP:07}"
        if rank == 0:
            target.mkdir(parents=True)
        torch.distributed.barrier()
        dist_checkpointing.save(state, str(target))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def spawn(**job):
    job = {"source": None, "form": "", "tensor": 1, "pipeline": 1, **job}
    dist.spawned(worker, job["tensor"] * job["pipeline"], job)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("golden", type=pathlib.Path)
    golden = parser.parse_args().golden
    for run in ("gpt", "llama", "buffer", "half", "zero", "buckets"):
        shutil.rmtree(golden / run, ignore_errors=True)
    golden.mkdir(parents=True, exist_ok=True)
    build_corpus(golden / "corpus")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        torch.save(samples(golden / "corpus"), work / "rows.pt")
        lines = [f"# tools/oracle/megatron_resume.py, torch {torch.__version__}: MODEL ITERATION LOSS NORM RATE\n"]
        for kind in ("gpt", "llama"):
            spawn(kind=kind, work=work, golden=golden)
            lines.append((work / f"{kind}.losses").read_text())
        (golden / "losses.txt").write_text("".join(lines))
        common = dict(work=work, golden=golden)
        spawn(kind="gpt", form="groups", tensor=2, pipeline=2, source=work / "gpt-first", **common)
        spawn(kind="llama", form="torch_dist", tensor=2, source=work / "llama-first", **common)
        spawn(kind="llama", form="buffer", tensor=2, source=work / "llama-first", **common)
        spawn(kind="llama", form="zero", tensor=2, source=work / "llama-first", **common)
        spawn(kind="llama", form="buckets", tensor=2, source=work / "llama-first", **common)
    for run in ("gpt", "llama", "buffer", "half", "buckets"):
        (golden / run / "latest_checkpointed_iteration.txt").write_text(str(STOP))
    (golden / "zero" / "latest").write_text(f"global_step{STOP}")


if __name__ == "__main__":
    sys.exit(main())
