"""The optimizer's state in flat pieces, as Megatron-core before 0.14 saves that of a distributed optimizer.

  pip download --no-deps megatron-core==0.12.1 && unzip megatron_core*.whl -d WHEEL
  python tools/oracle/megatron_flat_states.py WHEEL tests/golden/megatron/resume      (torch 2.15; after megatron_resume.py)

Megatron-core 0.12's dist_checkpointing loads the fp32 weights and moments of resume/llama on 2 tensor x 2 data-parallel ranks and
saves them as resume/flat: weights in bf16; fp32 copies and moments as DistributedOptimizer.sharded_param_state_fs_model_space has them
(0.16 can no longer write this form). The pieces end within rows.
"""
import dataclasses
import functools
import pathlib
import shutil
import sys
import types

sys.path.insert(0, sys.argv[1])
sys.path.insert(1, str(pathlib.Path(__file__).parent))

# For a log of memory.
sys.modules["psutil"] = types.SimpleNamespace(Process=lambda *_: types.SimpleNamespace(memory_info=lambda: types.SimpleNamespace(rss=0)))

import numpy
import torch
import torch.distributed.checkpoint.filesystem as torch_files

numpy.product = numpy.prod  # gone since NumPy 2

import megatron_resume as resume
import megatron_torch_dist as dist


def worker(rank, world, port, golden):
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory
    from megatron.core.dist_checkpointing.optimizer import make_sharded_optimizer_tensor

    from megatron.core.dist_checkpointing.strategies import filesystem_async

    dist.join(rank, world, port)
    filesystem_async.mp = torch.multiprocessing  # this version writes in another process
    filesystem_async._write_item = functools.partial(torch_files._write_item, serialization_format=torch_files.SerializationFormat.TORCH_SAVE)
    parallel_state.initialize_model_parallel(2, 1)
    model, arguments = dist.core_model("llama", 2, 1, torch.float32, *resume.SIZES)
    folder = f"iter_{resume.STOP:07}"
    kinds = ("exp_avg", "exp_avg_sq")

    def sharded():
        state = model.sharded_state_dict()
        return state, [key for key, value in state.items() if isinstance(getattr(value, "data", None), torch.nn.Parameter)]

    state, names = sharded()
    moments = {name: {kind: make_sharded_optimizer_tensor(state[name], torch.zeros_like(state[name].data), f"optimizer.state.{kind}")
                      for kind in kinds} for name in names}
    loaded = dist_checkpointing.load({"model": state, "state": moments}, str(golden / "llama" / folder))
    model.load_state_dict(loaded["model"], strict=False)
    copies = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model.to(torch.bfloat16)
    state, names = sharded()
    part = parallel_state.get_data_parallel_rank()
    flat = {}
    for i, name in enumerate(names):
        base = state[name]
        cut = copies[name].numel() * 2 // 5 + 1
        piece = slice(0, cut) if part == 0 else slice(cut, copies[name].numel())
        flat[i] = {}
        for kind, value in {"fp32_param": copies[name], **loaded["state"][name]}.items():
            data = value.detach().flatten()[piece].clone()
            more = {} if isinstance(base, ShardedTensorFactory) else {"dtype": data.dtype}
            flat[i][kind] = dataclasses.replace(base, key=f"optimizer.state.{kind}.{base.key}", data=data, flattened_range=piece,
                                                replica_id=(*base.replica_id[:2], 0), **more)
    arguments.params_dtype = torch.bfloat16
    facts = {"args": resume.complete(arguments), "checkpoint_version": 3.0, "iteration": resume.STOP}
    target = golden / "flat" / folder
    if rank == 0:
        shutil.rmtree(golden / "flat", ignore_errors=True)
        target.mkdir(parents=True)
    torch.distributed.barrier()
    dist_checkpointing.save({**facts, "model": state, "optimizer": {
        "optimizer": {"param_groups": [{"lr": 0.1, "step": resume.STOP}]}, "param_state": flat}}, str(target))
    if rank == 0:
        (golden / "flat/latest_checkpointed_iteration.txt").write_text(str(resume.STOP))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    dist.spawned(worker, 4, pathlib.Path(sys.argv[2]))


if __name__ == "__main__":
    main()
