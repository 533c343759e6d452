"""What changes from step to step, by Megatron-core (PyPI megatron-core 0.16.1, --no-deps; torch 2.15).

    python tools/oracle/megatron_schedules.py tests/golden

writes
  megatron_weight_decays.txt   style, start, end, batch, samples of the increase, then the decay after 0, 1, 2, 3, 5, 8,
                               13, ... steps: OptimizerParamScheduler.get_wd
  megatron_batches.txt         whole batch, micro-batch x ranks, first batch, increment, samples of the ramp-up, samples
                               of the run, updates of the run, then batch and consumed samples before each of the first
                               updates: RampupBatchsizeNumMicroBatchesCalculator, and update_train_iters() of
                               Megatron-LM's training.py as it is written there
  megatron_loss_scales.txt     initial and least scale, window, hysteresis, then "." (finite) or "x" and the scale after
                               it for each step: DynamicGradScaler
"""
import random
import sys
import warnings

import torch
from megatron.core import num_microbatches_calculator as batches
from megatron.core.optimizer.grad_scaler import DynamicGradScaler
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

warnings.filterwarnings("ignore")
STEPS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
HEAD = "# Written by tools/oracle/megatron_schedules.py with megatron-core 0.16.1.\n"
folder = sys.argv[1]


def weight_decays(style, start, end, batch, samples):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=1e-3, min_lr=1e-4, lr_warmup_steps=0, lr_decay_steps=samples,
        lr_decay_style="constant", start_wd=start, end_wd=end, wd_incr_steps=samples, wd_incr_style=style)
    for step in STEPS:
        scheduler.num_steps = step * batch
        yield scheduler.get_wd()


with open(f"{folder}/megatron_weight_decays.txt", "w") as file:
    file.write(HEAD)
    for style, start, end in (("constant", 0.1, 0.1), ("linear", 0.0, 0.1), ("linear", 0.033, 0.4),
                              ("cosine", 0.0, 0.1), ("cosine", 0.02, 0.02), ("cosine", 0.01, 0.4)):
        for batch, samples in ((1, 130), (8, 700), (3, 301)):
            values = " ".join(f"{value:.17g}" for value in weight_decays(style, start, end, batch, samples))
            file.write(f"{style} {start} {end} {batch} {samples} {values}\n")


def updates(calculator, ramp, whole, samples):
    iterations = consumed = 0
    while consumed <= ramp and consumed < samples:
        calculator.update(consumed, consistency_check=False)
        consumed += calculator.get_current_global_batch_size()
        iterations += 1
    if samples > consumed:
        iterations += (samples - consumed) // whole
    return iterations


with open(f"{folder}/megatron_batches.txt", "w") as file:
    file.write(HEAD)
    for whole, share, start, increment, ramp, samples in (
            (16, 2, 4, 4, 100, 300), (8, 1, 1, 1, 7, 50), (8, 2, 2, 2, 24, 20), (32, 4, 8, 8, 97, 400),
            (12, 1, 3, 3, 1000, 700), (12, 3, 6, 6, 1, 100), (1024, 8, 16, 16, 30000, 40000),
            (48, 4, 8, 4, 333, 1000), (7, 1, 1, 2, 10, 30)):
        calculator = batches.RampupBatchsizeNumMicroBatchesCalculator(
            whole, share, 1, False, 1, start, increment, ramp)
        line = [whole, share, start, increment, ramp, samples, updates(calculator, ramp, whole, samples)]
        consumed = 0
        for _ in range(24):
            calculator.update(consumed, consistency_check=True)
            line += [calculator.get_current_global_batch_size(), consumed]
            consumed += calculator.get_current_global_batch_size()
        file.write(" ".join(map(str, line)) + "\n")

on_the_host = torch.tensor
torch.tensor = lambda values, dtype, device: on_the_host(values, dtype=dtype)
draw = random.Random(5)
with open(f"{folder}/megatron_loss_scales.txt", "w") as file:
    file.write(HEAD)
    for initial, least, window, hysteresis in ((65536.0, 1.0, 5, 2), (4294967296.0, 1.0, 4, 1), (32.0, 4.0, 2, 2),
                                               (3.0, 0.5, 3, 3)):
        for share in (0.2, 0.5):
            scaler = DynamicGradScaler(initial, least, 2.0, 0.5, window, hysteresis)
            line = [f"{initial:g}" if initial < 1e6 else f"{initial:.0f}", f"{least:g}", window, hysteresis]
            for _ in range(48):
                overflow = draw.random() < share
                scaler.update(overflow)
                line += ["x" if overflow else ".", f"{scaler.scale.item():.17g}"]
            file.write(" ".join(map(str, line)) + "\n")
