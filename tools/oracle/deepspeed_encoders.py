"""Checkpoints of Megatron-core's BERT and T5 that DeepSpeed itself has saved.

  python tools/oracle/deepspeed_encoders.py tests/golden/megatron_encoders
      (torch 2.15, megatron-core 0.16.1, deepspeed 0.19.8; after megatron_encoders.py golden)

deepspeed_zero3.py says how DeepSpeed is installed. Engines of the models of bert and t5, with their weights, save in the
folders of these:

  deepspeed   without ZeRO, of one rank: mp_rank_00_model_states.pt
  zero3       ZeRO-3, of two data-parallel ranks, without moments
"""
import os
import pathlib
import shutil
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import torch

import deepspeed_zero3
import megatron_encoders as encoders
import megatron_torch_dist as dist

ITERATION = 5  # of the files of megatron_encoders.py


def config(stage):
    return {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1000,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}


def worker(rank, world, port, root, name, form):
    import deepspeed
    from megatron.core import parallel_state

    dist.join(rank, world, port)
    deepspeed.init_distributed("gloo")
    parallel_state.initialize_model_parallel(1, 1)
    model, arguments = encoders.model_of(name)
    model.load_state_dict(encoders.rank_file(root / name), strict=False)
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters()), mpu=deepspeed_zero3.groups_of_ranks(),
        config=config(3 if form == "zero3" else 0))
    engine.global_steps = ITERATION
    facts = {"args": arguments, "checkpoint_version": 3.0, "iteration": ITERATION}
    target = root / name / form
    engine.save_checkpoint(str(target), tag=f"global_step{ITERATION}", client_state=facts)
    torch.distributed.barrier()
    if rank == 0:
        for script in target.rglob("*.py"):
            script.unlink()
    torch.distributed.barrier()
    os._exit(0)  # DeepSpeed's exit handlers want GPUs


def main():
    root = pathlib.Path(sys.argv[1]).absolute()
    for name in ("bert", "t5"):
        for form, ranks in (("deepspeed", 1), ("zero3", 2)):
            shutil.rmtree(root / name / form, ignore_errors=True)
            dist.spawned(worker, ranks, root, name, form)


if __name__ == "__main__":
    main()
