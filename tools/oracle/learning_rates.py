"""Learning rates by Megatron-core's OptimizerParamScheduler (PyPI megatron-core 0.16.1, --no-deps; torch 2.15).

    python tools/oracle/learning_rates.py tests/golden        writes megatron_learning_rates.txt and
                                                              rates/megatron_group_rates.txt

A line: decay style, style of the annealing or "-", batch, samples of warm-up, of decay, of annealing, then the rates
after 0, 1, 2, 3, 5, 8, 13, ... steps up to beyond the decay. Highest rate 1e-3, lowest 1e-4.

rates/megatron_group_rates.txt: of two groups of weights, after a warm-up that starts above 0. A line: decay style, start of the
warm-up, highest and lowest rate of the second group ("-": as the first), then for these steps the rates of both groups.
"""
import itertools
import sys
import warnings

import torch
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

warnings.filterwarnings("ignore")
STEPS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)


def rates(style, annealing, batch, warmup, decay, anneal, init=0.0, group=()):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1e-3)
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=init, max_lr=1e-3, min_lr=1e-4, lr_warmup_steps=warmup, lr_decay_steps=decay,
        lr_decay_style=style, start_wd=0.0, end_wd=0.0, wd_incr_steps=decay, wd_incr_style="constant",
        wsd_decay_steps=anneal or None, lr_wsd_decay_style=annealing)
    group = dict(group)
    result = []
    for step in STEPS:
        scheduler.num_steps = step * batch
        result.append(scheduler.get_lr(group))
    return result


cases = [("constant", None, 0), ("linear", None, 0), ("cosine", None, 0), ("inverse-square-root", None, 0)]
cases += [("WSD", annealing, anneal) for annealing in ("linear", "cosine", "exponential", "minus_sqrt")
          for anneal in (150, 290)]
with open(f"{sys.argv[1]}/megatron_learning_rates.txt", "w") as file:
    file.write("# Written by tools/oracle/learning_rates.py with megatron-core 0.16.1.\n")
    for (style, annealing, anneal), (batch, warmup, decay) in itertools.product(
            cases, ((1, 3, 130), (8, 20, 700), (8, 0, 501), (3, 1, 300))):
        if anneal > decay:
            continue
        values = " ".join(f"{rate:.17g}" for rate in rates(style, annealing, batch, warmup, decay, anneal))
        file.write(f"{style} {annealing or '-'} {batch} {warmup} {decay} {anneal} {values}\n")

with open(f"{sys.argv[1]}/rates/megatron_group_rates.txt", "w") as file:
    file.write("# Written by tools/oracle/learning_rates.py with megatron-core 0.16.1.\n")
    for style, init, (highest, lowest) in itertools.product(
            ("constant", "linear", "cosine", "inverse-square-root", "WSD"), (0.0, 2e-5),
            ((2e-3, 3e-4), (5e-4, None), (5e-5, 0.0))):
        group = {"max_lr": highest} | ({} if lowest is None else {"min_lr": lowest})
        shape = (style, "cosine", 1, 5, 100, 60 if style == "WSD" else 0)
        pairs = zip(rates(*shape, init), rates(*shape, init, group))
        values = " ".join(f"{rate:.17g}" for pair in pairs for rate in pair)
        file.write(f"{style} {init} {highest} {'-' if lowest is None else lowest} {values}\n")
