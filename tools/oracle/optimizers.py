"""Losses of ten steps of torch.optim.AdamW and torch.optim.SGD (torch 2.15, transformers 5.23), in float64.

    python tools/oracle/optimizers.py tests/golden        writes optimizers.txt

The models, weights and the batch are those of tests/golden/gpt2.safetensors and llama.safetensors (models.py). Matrices and
tables decay, vectors do not. A line: model, optimizer, rate, momentum, weight decay, bound of the gradients' norm (0: none),
then the loss before each step and after the last, then the ten norms of the gradients before they are clipped.
"""
import sys

import torch
from safetensors.torch import load_file

import models

STEPS = 10
CASES = [("adamw", 3e-3, 0, 0.1, 1.0), ("sgd", 0.1, 0.9, 0.1, 1.0), ("sgd", 0.3, 0.0, 0.0, 0.0), ("sgd", 0.2, 0.5, 0.01, 0.0)]
folder = sys.argv[1]


def trained(build, golden, kind, rate, momentum, decay, clip):
    model, names = build()

    def canonical(name, tensor):
        view = names[name][1]
        return tensor if view is None else view(tensor)

    ours = {name: torch.nn.Parameter(golden[f"weight.{name}"].double()) for name in names}
    groups = [{"params": [p for p in ours.values() if p.ndim == 2], "weight_decay": decay},
              {"params": [p for p in ours.values() if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = (torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8) if kind == "adamw" else
                 torch.optim.SGD(groups, lr=rate, momentum=momentum))
    tokens, labels, mask = golden["tokens"].long(), golden["labels"].long(), golden["mask"].double()
    losses, norms = [], []
    for step in range(STEPS + 1):
        with torch.no_grad():
            for name, (parameter, _) in names.items():
                canonical(name, parameter).copy_(ours[name])
        model.zero_grad()
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none")
        loss = (loss * mask.flatten()).sum() / mask.sum()
        loss.backward()
        losses.append(loss.item())
        if step == STEPS:
            break
        for name, (parameter, _) in names.items():
            ours[name].grad = canonical(name, parameter.grad).clone()
        norms.append(torch.nn.utils.clip_grad_norm_(list(ours.values()), clip or float("inf")).item())
        optimizer.step()
    return losses + norms


with open(f"{folder}/optimizers.txt", "w") as file:
    file.write(f"# Written by tools/oracle/optimizers.py with torch {torch.__version__}.\n")
    for name, build in (("gpt2", models.gpt2), ("llama", models.llama)):
        golden = load_file(f"{folder}/{name}.safetensors")
        for case in CASES:
            values = " ".join(f"{value:.12g}" for value in trained(build, golden, *case))
            file.write(f"{name} {' '.join(map(str, case))} {values}\n")
