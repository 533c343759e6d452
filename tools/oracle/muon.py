"""Losses of ten steps of torch.optim.Muon and AdamW (torch 2.15, transformers 5.23), in float64.

    python tools/oracle/muon.py tests/golden        writes muon.txt

The models, weights and the batch are those of tests/golden/gpt2.safetensors and llama.safetensors (models.py). Matrices of
layers go by torch.optim.Muon, q, k and v each as one, tables and vectors by AdamW(0.9, 0.95) at the same rate of 1e-2;
matrices and tables decay by 0.1; gradients are clipped to norm 1. torch's Newton-Schulz iteration rounds to bfloat16;
here it runs as it is written but for that cast. A line: model, adjust_lr_fn, 1 for Nesterov, then the loss before each
step and after the last. Lines of "bf16" have torch's own rounding, to show how far it is away.
"""
import sys

import torch
import torch.optim._muon as torch_muon
from safetensors.torch import load_file

import models

RATE, STEPS = 1e-2, 10
folder = sys.argv[1]
of_torch = torch_muon._zeropower_via_newtonschulz


def without_rounding(grad, ns_coefficients, ns_steps, eps):
    a, b, c = ns_coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if grad.size(0) > grad.size(1) else x


def optimizers_of(adjust, nesterov):
    def make(ours):
        matrices = [p for name, p in ours.items() if p.ndim == 2 and name.startswith("layers.")]
        tables = [p for name, p in ours.items() if p.ndim == 2 and not name.startswith("layers.")]
        vectors = [p for p in ours.values() if p.ndim == 1]
        muon = torch.optim.Muon(matrices, lr=RATE, weight_decay=0.1, momentum=0.95, nesterov=nesterov,
                                adjust_lr_fn=adjust)
        adam = torch.optim.AdamW([{"params": tables, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                 lr=RATE, betas=(0.9, 0.95), eps=1e-8)

        def step():
            muon.step()
            adam.step()
        return step
    return make


with open(f"{folder}/muon.txt", "w") as file:
    file.write(f"# Written by tools/oracle/muon.py with torch {torch.__version__}.\n")
    for name, build in (("gpt2", models.gpt2), ("llama", models.llama)):
        golden = load_file(f"{folder}/{name}.safetensors")
        for adjust, nesterov in (("original", True), ("match_rms_adamw", False), ("spectral_unclamped", True)):
            for kind, iteration in (("fp64", without_rounding), ("bf16", of_torch)):
                torch_muon._zeropower_via_newtonschulz = iteration
                losses, _ = models.trained(build, golden, STEPS, optimizers_of(adjust, nesterov))
                values = " ".join(f"{loss:.12g}" for loss in losses)
                file.write(f"{name} {adjust} {int(nesterov)} {kind} {values}\n")
