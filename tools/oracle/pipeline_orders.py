"""Orders of passes on the stages of a pipeline, by Megatron-core and PyTorch, one stage a line.

    python -m venv VENV && VENV/bin/pip install torch megatron-core==0.16.1
    VENV/bin/python tools/oracle/pipeline_orders.py > tests/golden/pipeline_orders.txt

A line: schedule, stages p, chunks a stage v, micro-batches M, group G, stage, and its passes: F1.2 is the forward of
micro-batch 1 in chunk 2 of the model, B a whole backward, I and W its halves (input and weight gradients).
"""
import datetime
import sys

import torch
import megatron.core
from megatron.core.pipeline_parallel import schedules as megatron_schedules
from torch.distributed.pipelining import schedules as torch_schedules


class Ranks:
    """What get_pp_rank_microbatches asks of a communicator."""

    def __init__(self, size, rank, chunks):
        self.pp_group = self
        self._size, self._rank, self.virtual_pipeline_model_parallel_size = size, rank, chunks

    def size(self):
        return self._size

    def rank(self):
        return self._rank


def interleaved(p, v, micro_batches, group, rank):
    """The loops of forward_backward_pipelining_with_interleaving over Megatron's own table and warm-up."""
    table = megatron_schedules.get_schedule_table(micro_batches, v, group)
    total, _, warm_up, _ = megatron_schedules.get_pp_rank_microbatches(
        micro_batches, v, group, p2p_communicator=Ranks(p, rank, v))
    forward = [f"F{m}.{c * p + rank}" for m, c in table]
    backward = [f"B{m}.{(v - 1 - c) * p + rank}" for m, c in table]
    order = forward[:warm_up]
    for k in range(total - warm_up):
        order += [forward[warm_up + k], backward[k]]
    return order + backward[total - warm_up:]


def of_torch(kind, p, micro_batches, rank):
    schedule = object.__new__(kind)
    schedule.pp_group_size = p
    schedule.num_stages = schedule._num_stages = 2 * p
    schedule._n_microbatches = micro_batches
    schedule.stage_index_to_group_rank = {c: min(c, 2 * p - 1 - c) for c in range(2 * p)}
    letters = {"FORWARD": "F", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W", "FULL_BACKWARD": "B"}
    order = []
    for action in schedule._calculate_single_rank_operations(rank):
        if action is None:
            continue
        for one in action.sub_actions or [action]:
            order.append(f"{letters[one.computation_type.name]}{one.microbatch_index}.{one.stage_index}")
    return order


def line(name, p, v, micro_batches, group, rank, order):
    print(name, p, v, micro_batches, group, rank, *order)


print(f"# tools/oracle/pipeline_orders.py, {datetime.date.today()}: megatron-core {megatron.core.__version__}, "
      f"torch {torch.__version__.split('+')[0]}, Python {sys.version.split()[0]}")
for p, v, micro_batches, group in [(2, 2, 2, 2), (2, 2, 6, 2), (2, 3, 4, 2), (3, 2, 9, 3), (4, 2, 8, 4), (4, 3, 12, 4),
                                   (2, 2, 7, 3), (3, 2, 8, 5), (4, 2, 4, 4)]:
    if 0 < micro_batches % group < p:
        continue
    for rank in range(p):
        line("interleaved", p, v, micro_batches, group, rank, interleaved(p, v, micro_batches, group, rank))
for name, kind in [("zb-v", torch_schedules.ScheduleZBVZeroBubble), ("dualpipe-v", torch_schedules.ScheduleDualPipeV)]:
    for p, micro_batches in [(1, 2), (2, 3), (2, 4), (2, 5), (3, 6), (4, 8), (4, 11)]:
        if name == "dualpipe-v" and micro_batches < 2 * p:
            continue
        for rank in range(p):
            line(name, p, 2, micro_batches, 0, rank, of_torch(kind, p, micro_batches, rank))
