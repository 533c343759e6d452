"""Losses of ten steps of torch.optim.AdamW and torch.optim.SGD (torch 2.15, transformers 5.23), in float64.

    python tools/oracle/optimizers.py tests/golden        writes optimizers.txt and rates/decoupled_rates.txt

The models, weights and the batch are those of tests/golden/gpt2.safetensors and llama.safetensors (models.py). Matrices and
tables decay, vectors do not. A line: model, optimizer, rate, momentum, weight decay, bound of the gradients' norm (0: none),
then the loss before each step and after the last, then the ten norms of the gradients before they are clipped.

rates/decoupled_rates.txt: AdamW with a separate group for the table of tokens and the head, whose rate is not that of the rest, nor
a fixed multiple of it. A line: model, the pairs of rates of the ten steps, then losses and norms as above.
"""
import sys

import torch
from safetensors.torch import load_file

import models

STEPS = 10
CASES = [("adamw", 3e-3, 0, 0.1, 1.0), ("sgd", 0.1, 0.9, 0.1, 1.0), ("sgd", 0.3, 0.0, 0.0, 0.0), ("sgd", 0.2, 0.5, 0.01, 0.0)]
folder = sys.argv[1]


def optimizer_of(kind, rate, momentum, decay):
    def make(ours):
        groups = [{"params": [p for p in ours.values() if p.ndim == 2], "weight_decay": decay},
                  {"params": [p for p in ours.values() if p.ndim == 1], "weight_decay": 0.0}]
        return (torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8) if kind == "adamw" else
                torch.optim.SGD(groups, lr=rate, momentum=momentum)).step
    return make


with open(f"{folder}/optimizers.txt", "w") as file:
    file.write(f"# Written by tools/oracle/optimizers.py with torch {torch.__version__}.\n")
    for name, build in (("gpt2", models.gpt2), ("llama", models.llama)):
        golden = load_file(f"{folder}/{name}.safetensors")
        for case in CASES:
            losses, norms = models.trained(build, golden, STEPS, optimizer_of(*case[:-1]), clip=case[-1])
            values = " ".join(f"{value:.12g}" for value in losses + norms)
            file.write(f"{name} {' '.join(map(str, case))} {values}\n")

# Lines with a warm-up of three steps from 1e-4 on: to 3e-3 and down to 1e-3, and to 1e-2 and down to 1e-4.
RATES = [tuple(1e-4 + (top - 1e-4) * n / 3 if n <= 3 else low + (top - low) * (10 - n) / 7
               for top, low in ((3e-3, 1e-3), (1e-2, 1e-4))) for n in range(STEPS)]


def decoupled(ours):
    ends = {name for name in ours if name in ("embedding.token.weight", "head.weight")}
    groups = [{"params": [p for name, p in ours.items() if (name in ends) == apart and (p.ndim == 2) == decays],
               "weight_decay": 0.1 if decays else 0.0, "apart": apart}
              for apart in (False, True) for decays in (False, True)]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    left = list(RATES)

    def update():
        rates = left.pop(0)
        for group in optimizer.param_groups:
            group["lr"] = rates[group["apart"]]
        optimizer.step()
    return update


with open(f"{folder}/rates/decoupled_rates.txt", "w") as file:
    file.write(f"# Written by tools/oracle/optimizers.py with torch {torch.__version__}.\n")
    for name, build in (("gpt2", models.gpt2), ("llama", models.llama)):
        golden = load_file(f"{folder}/{name}.safetensors")
        losses, norms = models.trained(build, golden, STEPS, decoupled)
        rates = " ".join(f"{rate:.17g}" for pair in RATES for rate in pair)
        file.write(f"{name} {rates} {' '.join(f'{value:.12g}' for value in losses + norms)}\n")
