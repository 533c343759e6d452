"""Runs of Megatron with expert ranks that stop and resume: checkpoints with optimizers, and the losses that Megatron-core has.

  python tools/oracle/megatron_experts_resume.py tests/golden/megatron/resume          (torch 2.15, megatron-core 0.16.1)

After megatron_resume.py, whose corpus, schedule and forms these are. A GPTModel of megatron-core with experts that have a capacity
(fp32, on the CPU) is trained by two processes, which are expert ranks and data-parallel ranks: each has half of the batch, routes
its tokens and drops some. After STOP steps its state is saved, then training continues; experts_losses.txt has the loss, the
gradient's norm and the learning rate of each step. The optimizer is a ChainedOptimizer: one of the experts of a rank, one of all
else. The state is saved in these forms:

  experts_groups   mp_rank_00_EEE/model_optim_rng.pt, both optimizers by groups
  experts_buffer   the same with distrib_optim.pt: both optimizers' vectors, those of all else on rank 0 alone
  experts_half     one more, weights in bf16 and fp32 copies of both optimizers
  experts_dist     torch_dist, both optimizers by the names of their weights
  experts_buckets  torch_dist, bf16 weights, the vectors of both optimizers by buckets, as sharded_param_state_dp_reshardable has them

Without training, with random moments, more experts are saved in the last form (many_buckets), with the parameters in the order of
TEGroupedMLP: the first matrices of all experts of a layer, then the second ones.
"""
import argparse
import pathlib
import shutil
import sys

import torch

import megatron_experts as experts
import megatron_resume as resume
from megatron_torch_dist import randomize, spawned

CAPACITY = dict(moe_expert_capacity_factor=1.0, moe_token_drop_policy="probs", moe_aux_loss_coeff=0.05,
                moe_router_load_balancing_type="aux_loss", moe_router_dtype="fp32")
MANY = 36  # experts of many_buckets
FORMS = ("experts_groups", "experts_buffer", "experts_half", "experts_dist", "experts_buckets", "many_buckets")


class Chained:
    """Both optimizers' groups, for the scheduler."""

    def __init__(self, parts):
        self.param_groups = [group for part in parts for group in part.param_groups]


def optimizers_of(model):
    from megatron.core.optimizer import OptimizerConfig, _get_param_groups

    config = OptimizerConfig(optimizer="adam", lr=resume.RATE["max_lr"], min_lr=resume.RATE["min_lr"])
    groups = _get_param_groups([model], config, None)
    return [torch.optim.AdamW([group for group in groups if group["is_expert_parallel"] == own], lr=resume.RATE["max_lr"],
                              betas=(0.9, 0.95), eps=1e-8) for own in (False, True)]


def is_expert(parameter):
    return not getattr(parameter, "allreduce", True)


def reduce_gradients(parameters):
    """As DistributedDataParallel does; the norm of all gradients, to which they are clipped."""
    squares = torch.zeros(2, dtype=torch.float64)
    for parameter in parameters:
        if not is_expert(parameter):
            torch.distributed.all_reduce(parameter.grad)
        parameter.grad /= 2
        squares[int(is_expert(parameter))] += parameter.grad.double().square().sum()
    own = squares[1:].clone()
    torch.distributed.all_reduce(own)
    norm = (squares[0] + own[0]).sqrt()
    for parameter in parameters:
        parameter.grad *= min(1.0, 1.0 / (norm.item() + 1e-6))
    return norm.item()


def train(rank, model, parts, scheduler, rows, steps, lines):
    parameters = list(model.parameters())
    length = resume.LENGTH
    mask = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)
    for step in steps:
        batch = rows[step * resume.BATCH :][: resume.BATCH].chunk(2)[rank]
        model.zero_grad()
        for parameter in parameters:  # an expert may get no token
            parameter.grad = torch.zeros_like(parameter)
        logits = model(batch[:, :-1].contiguous(), torch.arange(length)[None], mask)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 128), batch[:, 1:].reshape(-1))
        loss.backward()
        norm = reduce_gradients(parameters)
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        rate = max(group["lr"] for part in parts for group in part.param_groups)
        for part in parts:
            part.step()
        scheduler.step(resume.BATCH)
        lines.append(f"experts {step + 1} {mean.item() / 2:.9g} {norm:.9g} {rate:.12g}")


def groups_only(part):
    kept = {key: value for key, value in part.state_dict().items() if key != "state"}
    for group in kept["param_groups"]:
        del group["params"]
        group["step"] = resume.STOP
    return {"optimizer": kept}


class Of:
    """Of a model the parameters of one optimizer, as vectors() reads them."""

    def __init__(self, model, own, grouped=False):
        named = [(name, parameter) for name, parameter in model.named_parameters() if is_expert(parameter) == own]
        if own and grouped:
            named.sort(key=lambda one: (int(one[0].split(".layers.")[1].split(".")[0]), "linear_fc2" in one[0]))
        self.own = [parameter for _, parameter in named]

    def parameters(self):
        return self.own


def save_ranks(rank, model, parts, facts, golden):
    name = f"mp_rank_00_{rank:03}"
    weights = {key: value if value is None else value.clone() for key, value in model.state_dict().items()}
    resume.put(golden / "experts_groups", name, "model_optim_rng.pt",
               {**facts, "model": weights, "optimizer": [part.state_dict() for part in parts]})
    resume.put(golden / "experts_buffer", name, "model_optim_rng.pt",
               {**facts, "model": weights, "optimizer": [groups_only(part) for part in parts]})
    states = [resume.vectors(Of(model, own), part, 500)[0] for own, part in zip((False, True), parts)]
    resume.put(golden / "experts_buffer", name, "distrib_optim.pt", [states[0] if rank == 0 else None, states[1]])
    half = {key: value.to(torch.bfloat16) if torch.is_tensor(value) and value.is_floating_point() else value for key, value in weights.items()}
    arguments = argparse.Namespace(**{**vars(facts["args"]), "params_dtype": torch.bfloat16})
    copies = [{"optimizer": part.state_dict(), "fp32_from_fp16_params": [[p.detach().clone() for p in group["params"]]
                                                                        for group in part.param_groups]} for part in parts]
    resume.put(golden / "experts_half", name, "model_optim_rng.pt", {**facts, "args": arguments, "model": half, "optimizer": copies})


def save_dist(rank, model, parts, facts, target):
    from megatron.core import dist_checkpointing

    state = {**facts, "model": model.sharded_state_dict()}
    state["optimizer"] = {i: resume.fp32_optimizer(part).sharded_state_dict(state["model"]) for i, part in enumerate(parts)}
    if rank == 0:
        target.mkdir(parents=True)
    torch.distributed.barrier()
    dist_checkpointing.save(state, str(target))


def save_buckets(rank, model, parts, facts, target, grouped=False):
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor

    optimizer = {}
    for i, (own, part) in enumerate(zip((False, True), parts)):
        key = f"chained_{i}.optimizer.distributed.dp_group_idx_{rank if own else 0}"
        _, buckets = resume.vectors(Of(model, own, grouped), part, 500)
        shards = {}
        for bucket, kinds in enumerate(buckets):
            for kind, vector in kinds.items():
                size = vector.numel()
                cuts = [0, size] if own else [0, size // 3 + 1, size]  # of one data-parallel rank, or of two
                for d, (begin, end) in enumerate(zip(cuts, cuts[1:])):
                    if not own and d != rank:
                        continue
                    shards[bucket, kind] = ShardedTensor(
                        f"{key}.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_{bucket}.{kind}", vector[begin:end].clone(),
                        vector.dtype, (end - begin,), (size,), (begin,), None, replica_id=(0, 0, 0), flattened_range=None,
                        allow_shape_mismatch=False)
        saved = ShardedObject(f"{key}.optimizer", groups_only(part)["optimizer"], (1,), (0,), replica_id=(0, 0, 0 if own else rank))
        optimizer[i] = {"optimizer": saved, "param_state": shards}
    model.to(torch.bfloat16)
    arguments = argparse.Namespace(**{**vars(facts["args"]), "params_dtype": torch.bfloat16})
    if rank == 0:
        target.mkdir(parents=True)
    torch.distributed.barrier()
    dist_checkpointing.save({**facts, "args": arguments, "model": model.sharded_state_dict(), "optimizer": optimizer}, str(target))


def worker(rank, world, port, job):
    from megatron.core.transformer.moe import moe_utils

    moe_utils.te_general_gemm = None  # of Transformer Engine
    experts.begin(rank, world, port, experts.Layout(expert=2))
    torch.manual_seed(11)
    model, arguments = experts.core_model(experts.Layout(expert=2), layers_with_experts=(1, 1), dtype=torch.float32, vocabulary=128,
                                          **CAPACITY)
    source = argparse.Namespace(**vars(arguments))
    randomize(model)
    for parameter in model.parameters():
        if not is_expert(parameter):
            torch.distributed.broadcast(parameter.data, 0)
    model.train()
    parts = optimizers_of(model)
    scheduler = resume.scheduler_of(Chained(parts))
    lines = []
    train(rank, model, parts, scheduler, job["rows"], range(resume.STOP), lines)
    facts = resume.facts(source, scheduler)
    save_ranks(rank, model, parts, facts, job["golden"])
    iteration = f"iter_{resume.STOP:07}"
    save_dist(rank, model, parts, facts, job["golden"] / "experts_dist" / iteration)
    kept = {key: value.clone() for key, value in model.state_dict().items() if value is not None}
    save_buckets(rank, model, parts, facts, job["golden"] / "experts_buckets" / iteration)
    model.to(torch.float32)
    model.load_state_dict(kept, strict=False)
    train(rank, model, parts, scheduler, job["rows"], range(resume.STOP, resume.STEPS), lines)
    if rank == 0:
        origin = f"# tools/oracle/megatron_experts_resume.py, torch {torch.__version__}: MODEL ITERATION LOSS NORM RATE\n"
        (job["golden"] / "experts_losses.txt").write_text(origin + "".join(line + "\n" for line in lines))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def worker_of_many(rank, world, port, golden):
    experts.EXPERTS, width = MANY, 2
    experts.SHAPE = {**experts.SHAPE, "num_layers": 1}
    experts.MOE = {**experts.MOE, "num_moe_experts": MANY, "moe_ffn_hidden_size": width}
    experts.begin(rank, world, port, experts.Layout(expert=2))
    torch.manual_seed(12)
    model, arguments = experts.core_model(experts.Layout(expert=2), layers_with_experts=(1,), dtype=torch.float32, vocabulary=128)
    arguments.moe_ffn_hidden_size = width
    parts = optimizers_of(model)
    for own, part in zip((False, True), parts):
        torch.manual_seed(13 + own * (1 + rank))
        for parameter in [p for group in part.param_groups for p in group["params"]]:
            parameter.data = torch.randn(parameter.shape)
            part.state[parameter] = {"step": torch.tensor(float(resume.STOP)), "exp_avg": torch.randn(parameter.shape),
                                     "exp_avg_sq": torch.rand(parameter.shape)}
    facts = resume.facts(arguments, resume.scheduler_of(Chained(parts)))
    save_buckets(rank, model, parts, facts, golden / "many_buckets" / f"iter_{resume.STOP:07}", grouped=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("golden", type=pathlib.Path)
    golden = parser.parse_args().golden
    for form in FORMS:
        shutil.rmtree(golden / form, ignore_errors=True)
    spawned(worker, 2, {"rows": resume.samples(golden / "corpus"), "golden": golden})
    spawned(worker_of_many, 2, golden)
    for form in FORMS:
        (golden / form / "latest_checkpointed_iteration.txt").write_text(str(resume.STOP))


if __name__ == "__main__":
    sys.exit(main())
