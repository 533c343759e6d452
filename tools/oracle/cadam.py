"""Losses of ten steps of CAdam in PyTorch (torch 2.15, transformers 5.23), in float64, and its state in small numbers.

    python tools/oracle/cadam.py tests/golden        writes cadam.txt

CAdam is AscendSpeed's optimizer of that name; the class below is a plain statement of its rule: the momentum is kept as
float16 numbers and one float32 scale for each row. The models, weights and the batch are those of
tests/golden/gpt2.safetensors and llama.safetensors (models.py). All goes by CAdam(beta 0.965) at a rate of 1e-3;
tensors of two dims decay by 0.1; gradients are clipped to norm 1. A line: model, then the loss before each step and
after the last. After "state": three steps of a [2, 3] parameter at rate 0.01, decay 0.1 and beta 0.9, a line each:
gradients, then parameter, stored momentum, scales.
"""
import sys

import torch
from safetensors.torch import load_file

import models

RATE, STEPS = 1e-3, 10


class CAdam:
    def __init__(self, parameters, rate, beta):
        self.parameters, self.rate, self.beta = parameters, rate, beta  # (tensor, decay)
        self.stored = [torch.zeros_like(p, dtype=torch.float16) for p, _ in parameters]
        self.scales = [torch.ones(p.shape[:-1] + (1,), dtype=torch.float32) for p, _ in parameters]

    @torch.no_grad()
    def step(self):
        for (p, decay), stored, scale in zip(self.parameters, self.stored, self.scales):
            m = self.beta * (stored.to(p.dtype) * scale) + (1 - self.beta) * p.grad
            scale.copy_(m.abs().amax(dim=-1, keepdim=True) / 65503 + 1e-8)
            stored.copy_((m / scale).clamp(-65503, 65503))
            p.mul_(1 - self.rate * decay).sub_(self.rate * m.sign())


def cadam_of(ours):
    return CAdam([(p, 0.1 if p.ndim == 2 else 0.0) for p in ours.values()], RATE, 0.965).step


def numbers(values):
    return " ".join(f"{value:.12g}" for value in values)


def main():
    with open(f"{sys.argv[1]}/cadam.txt", "w") as file:
        file.write(f"# Written by tools/oracle/cadam.py with torch {torch.__version__}.\n")
        for name, build in (("gpt2", models.gpt2), ("llama", models.llama)):
            losses, _ = models.trained(build, load_file(f"{sys.argv[1]}/{name}.safetensors"), STEPS, cadam_of)
            file.write(f"{name} {numbers(losses)}\n")
        p = torch.tensor([[1, -0.5, 2], [3, 0.25, -4]], dtype=torch.float64)
        cadam = CAdam([(p, 0.1)], 0.01, 0.9)
        for gradient in ([0.5, -1, 1e-4, 0, 2e-5, -1e-5], [0.25, 2, -3e-4, 0, -1e-5, 1e-4], [-9, -1, 0, 0, 0, 0]):
            p.grad = torch.tensor(gradient, dtype=torch.float64).reshape(2, 3)
            cadam.step()
            state = (p, cadam.stored[0], cadam.scales[0])
            file.write(f"state {numbers(gradient)} " + " ".join(numbers(t.flatten().tolist()) for t in state) + "\n")


main()
