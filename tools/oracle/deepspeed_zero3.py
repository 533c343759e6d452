"""Checkpoints of DeepSpeed's ZeRO-3, saved by DeepSpeed itself.

  python tools/oracle/deepspeed_zero3.py tests/golden/megatron/resume
      (torch 2.15, megatron-core 0.16.1, deepspeed 0.19.8; after megatron_resume.py)

DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed compiles nothing; on the CPU (DS_ACCELERATOR=cpu, gloo) it compiles one op
when it starts. DeepSpeed divides the weights of resume/llama and, as the weights of other engines, both moments; the engine that has
all three saves them:

  zero3         fp32, 2 tensor x 3 data-parallel ranks; many groups, for they end after 500 elements of a rank
  zero3_half    bf16, 2 data-parallel ranks
  zero3_frozen  the same in bf16; the embedding and the norms of layer 0 are frozen, so that they have no fp32 copies
"""
import os
import pathlib
import shutil
import sys
import types

os.environ["DS_ACCELERATOR"] = "cpu"
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import torch

import megatron_resume as resume
import megatron_shares as shares
import megatron_torch_dist as dist


def config(half):
    own = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True,
           "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1000,
           "zero_optimization": {"stage": 3, "sub_group_size": 500, "stage3_param_persistence_threshold": 0}}
    if half:
        own["bf16"] = {"enabled": True}
    return own


def groups_of_ranks():
    """What DeepSpeed asks of Megatron's mpu, by the names of Megatron's versions that it knows."""
    from megatron.core import parallel_state as state

    return types.SimpleNamespace(
        get_model_parallel_rank=state.get_tensor_model_parallel_rank, get_model_parallel_world_size=state.get_tensor_model_parallel_world_size,
        get_model_parallel_group=state.get_tensor_model_parallel_group, get_data_parallel_rank=state.get_data_parallel_rank,
        get_data_parallel_world_size=state.get_data_parallel_world_size, get_data_parallel_group=state.get_data_parallel_group)


def engine_of(job, values, scheduler, half):
    """An engine whose weights are `values`."""
    import deepspeed

    model, arguments = dist.core_model("llama", job["tensor"], 1, torch.float32, *resume.SIZES)
    model.load_state_dict(values, strict=False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (job["frozen"] and ("embedding" in name or ".layers.0." in name and parameter.dim() == 1)))
    groups = [{**group, "params": [one for one in group["params"] if one.requires_grad]} for group in resume.adam_of(model).param_groups]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    scheduler.optimizer = adam
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=adam, lr_scheduler=scheduler, mpu=groups_of_ranks(),
                                                   config=config(half))
    return engine, optimizer, arguments


def worker(rank, world, port, job):
    import deepspeed
    from megatron.core import parallel_state

    dist.join(rank, world, port)
    deepspeed.init_distributed("gloo")
    parallel_state.initialize_model_parallel(job["tensor"], 1)
    model, _ = dist.core_model("llama", job["tensor"], 1, torch.float32, *resume.SIZES)
    golden = job["golden"]
    adam = shares.load_llama(model, golden)
    scheduler = resume.scheduler_of(adam)
    scheduler.num_steps = resume.STOP * resume.BATCH
    values = {"weight": {name: parameter.detach().clone() for name, parameter in model.named_parameters()}}
    for kind in ("exp_avg", "exp_avg_sq"):
        values[kind] = {name: adam.state[parameter][kind].clone() for name, parameter in model.named_parameters()}
    vectors = {kind: [vector.detach().clone() for vector in engine_of(job, own, scheduler, False)[1].fp32_partitioned_groups_flat]
               for kind, own in values.items()}
    engine, optimizer, arguments = engine_of(job, values["weight"], scheduler, job["half"])
    for i, vector in enumerate(optimizer.fp32_partitioned_groups_flat):
        vector.data.copy_(vectors["weight"][i])
        optimizer.optimizer.state[vector] = {"step": torch.tensor(float(resume.STOP)), "exp_avg": vectors["exp_avg"][i],
                                             "exp_avg_sq": vectors["exp_avg_sq"][i]}
    engine.global_steps = resume.STOP
    if job["half"]:
        arguments.params_dtype = torch.bfloat16
    facts = resume.facts(arguments, scheduler)
    del facts["opt_param_scheduler"]  # DeepSpeed saves it as lr_scheduler
    target = golden / job["form"]
    engine.save_checkpoint(str(target), tag=f"global_step{resume.STOP}", client_state=facts)
    torch.distributed.barrier()
    if rank == 0:
        for script in target.rglob("*.py"):
            script.unlink()
    torch.distributed.barrier()
    os._exit(0)  # DeepSpeed's exit handlers want GPUs


def spawn(golden, form, **job):
    job = {"tensor": 1, "parts": 2, "half": False, "frozen": False, **job}
    shutil.rmtree(golden / form, ignore_errors=True)
    dist.spawned(worker, job["tensor"] * job["parts"], {**job, "golden": golden, "form": form})


def main():
    golden = pathlib.Path(sys.argv[1]).absolute()
    spawn(golden, "zero3", tensor=2, parts=3)
    spawn(golden, "zero3_half", half=True)
    spawn(golden, "zero3_frozen", half=True, frozen=True)


if __name__ == "__main__":
    main()
