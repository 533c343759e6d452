"""Optimizers in files of data-parallel ranks, as Megatron-LM of 2022 to June 2023 saves its distributed optimizer.

  python tools/oracle/megatron_shares.py tests/golden/megatron/resume      (torch 2.15, megatron-core 0.16.1; after megatron_resume.py)

Loads the weights and moments of resume/llama and resume/gpt and saves them with the optimizer in mp_rank_TT[_PPP]_DDD/optim.pt:

  shares       llama, 2 tensor x 3 data-parallel ranks; APEX's FusedAdam, which counts updates in its groups
  shares_gpt   gpt, 2 tensor x 2 pipeline x 2 data-parallel ranks; torch's AdamW, which counts them in its states
  shares_half  llama, 3 data-parallel ranks; weights in bf16, with fp32 copies
  shares_one   the same of one data-parallel rank in model_optim_rng.pt, as AscendSpeed saves it

The division is written after the published source, which wants GPUs: class DistributedOptimizer of megatron/optimizer/
distrib_optimizer.py (build_model_gbuf_range to build_model_and_main_param_groups, state_dict), the grad buffer of
megatron/model/distributed.py, get_param_groups of megatron/optimizer/__init__.py and save_checkpoint of megatron/checkpointing.py,
of Megatron-LM at v3.0 (bigcode-project/Megatron-LM has the same), and AscendSpeed's copies of them.
"""
import math
import pathlib
import shutil
import sys

import torch

import megatron_resume as resume
import megatron_torch_dist as dist


def grad_buffer(model):
    """DistributedDataParallel: the place of each parameter, in reverse order, one right behind another."""
    total = sum(parameter.nelement() for parameter in model.parameters())
    index_map, left = {}, total
    for parameter in model.parameters():
        left -= parameter.nelement()
        index_map[parameter] = (left, left + parameter.nelement())
    return total, index_map


def own_ranges(model, rank, world):
    """build_model_gbuf_range and build_model_gbuf_param_range_map: the part of each parameter that a rank has."""
    total, index_map = grad_buffer(model)
    largest = int(math.ceil(total / world))
    start, end = rank * largest, min(total, (rank + 1) * largest)
    ranges = {}
    for parameter, (first, last) in index_map.items():
        local_first, local_last = max(0, first - start), min(end - start, last - start)
        if local_last > local_first:
            inside = max(0, start - first)
            ranges[parameter] = (inside, inside + local_last - local_first)
    return ranges


def groups_of(model, ranges):
    """get_param_groups and build_optimizer_group_ranges: the parameters of a rank's groups; groups without any go."""
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        if parameter in ranges:
            no_decay = name.endswith(".bias") or len(parameter.shape) == 1
            (plain if no_decay else decayed).append(parameter)
    groups = [{"params": decayed, "wd_mult": 1.0, "lr_mult": 1.0}, {"params": plain, "wd_mult": 0.0, "lr_mult": 1.0}]
    return [group for group in groups if group["params"]]


def share(model, moments, copies, rank, world, fused):
    """DistributedOptimizer.state_dict() of a rank. `copies`: fp32 values of 16-bit parameters, or None."""
    ranges = own_ranges(model, rank, world)
    groups = groups_of(model, ranges)

    def cut(whole, parameter):
        begin, end = ranges[parameter]
        return whole.detach().reshape(-1)[begin:end].clone().float()

    state, main, shards = {}, [], []
    for group in groups:
        own = []
        for parameter in group["params"]:
            shard = cut(parameter if copies is None else copies[parameter], parameter)
            # copy_tensor_model_parallel_attributes
            shard.tensor_model_parallel, shard.partition_dim, shard.partition_stride = parameter.dim() == 2, 0, 1
            own.append(shard)
            state[shard] = {kind: cut(value, parameter) for kind, value in moments[parameter].items()}
        main.append(own)
        shards.append({**group, "params": own, "lr": 1e-2, "weight_decay": 0.1 * group["wd_mult"]})
    adam = torch.optim.AdamW(shards, betas=(0.9, 0.95), eps=1e-8)
    for shard, values in state.items():
        adam.state[shard] = values if fused else {"step": torch.tensor(float(resume.STOP)), **values}
    saved = adam.state_dict()
    if fused:
        for group in saved["param_groups"]:
            group["step"] = resume.STOP
    return {"optimizer": saved, "shard_fp32_from_float16_groups": main if copies else [[] for _ in main]}


def load_llama(model, golden):
    from megatron.core import dist_checkpointing

    adam = resume.adam_of(model)
    optimizer = resume.fp32_optimizer(adam)
    state = {"model": model.sharded_state_dict()}
    state["optimizer"] = optimizer.sharded_state_dict(state["model"], is_loading=True)
    loaded = dist_checkpointing.load(state, str(golden / "llama" / f"iter_{resume.STOP:07}"))
    model.load_state_dict(loaded["model"], strict=False)
    optimizer.load_state_dict(loaded["optimizer"])
    return adam


def load_gpt(model, golden, name):
    adam = resume.adam_of(model)
    loaded = torch.load(golden / "gpt" / f"iter_{resume.STOP:07}" / name / "model_optim_rng.pt", weights_only=False)
    model.load_state_dict(loaded["model"], strict=False)
    adam.load_state_dict(loaded["optimizer"])
    return adam


def worker(rank, world, port, job):
    from megatron.core import parallel_state

    dist.join(rank, world, port)
    parallel_state.initialize_model_parallel(job["tensor"], job["pipeline"])
    model, arguments = dist.core_model(job["kind"], job["tensor"], job["pipeline"], torch.float32, *resume.SIZES)
    t, p = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_pipeline_model_parallel_rank()
    golden, parts, name = job["golden"], job["parts"], resume.name_of(t, p, job["pipeline"])
    adam = load_gpt(model, golden, name) if job["kind"] == "gpt" else load_llama(model, golden)
    scheduler = resume.scheduler_of(adam)
    scheduler.num_steps = resume.STOP * resume.BATCH
    moments = {parameter: {kind: adam.state[parameter][kind] for kind in ("exp_avg", "exp_avg_sq")} for parameter in model.parameters()}
    copies = None
    if job["half"]:
        copies = {parameter: parameter.detach().clone() for parameter in model.parameters()}
        arguments.params_dtype = torch.bfloat16
        for parameter in model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
    state = resume.facts(arguments, scheduler)
    arguments.data_parallel_size = parts
    arguments.use_distributed_optimizer = True
    schedule = state.pop("opt_param_scheduler")
    state["model"] = model.state_dict()
    target = golden / job["form"]
    shares = [{"optimizer": share(model, moments, copies, part, parts, job["fused"]), "opt_param_scheduler": schedule}
              for part in range(parts)]
    if job["alone"]:
        resume.put(target, name, "model_optim_rng.pt", {**state, **shares[0]})
    else:
        resume.put(target, name, "model_rng.pt", state)
        for part, one in enumerate(shares):
            resume.put(target, f"{name}_{part:03}", "optim.pt", one)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def spawn(golden, form, **job):
    job = {"kind": "llama", "tensor": 1, "pipeline": 1, "parts": 3, "half": False, "fused": True, "alone": False, **job}
    shutil.rmtree(golden / form, ignore_errors=True)
    dist.spawned(worker, job["tensor"] * job["pipeline"], {**job, "golden": golden, "form": form})
    (golden / form / "latest_checkpointed_iteration.txt").write_text(str(resume.STOP))


def main():
    golden = pathlib.Path(sys.argv[1])
    spawn(golden, "shares", tensor=2)
    spawn(golden, "shares_gpt", kind="gpt", tensor=2, pipeline=2, parts=2, fused=False)
    spawn(golden, "shares_half", half=True)
    spawn(golden, "shares_one", half=True, parts=1, fused=False, alone=True)


if __name__ == "__main__":
    main()
