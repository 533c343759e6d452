#!/usr/bin/env python3
"""PEFT's DoRA under dropout against the formula of src/nn/linear.cpp, which tests/unit/nn compares the linears with.

  pip install torch peft
  python tools/oracle/dora_dropout.py

Replaces the dropout of PEFT's layer by a fixed mask, and compares its output, and the gradients of x, A, B and the
magnitudes, with those of the formula, in float64. Prints the largest differences (peft 0.21.2, torch 2.15: 9e-15).
"""

import peft
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 9)

    def forward(self, x):
        return self.linear(x)


class Mask(torch.nn.Module):
    """dropout(x) with a fixed mask; PEFT looks at `p`."""

    def __init__(self, probability, shape):
        super().__init__()
        self.p = probability
        self.factors = (torch.rand(shape) > probability).double() / (1 - probability)

    def forward(self, x):
        return x * self.factors


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    scale = 1.75
    model = peft.get_peft_model(Model(), peft.LoraConfig(r=3, lora_alpha=3 * scale, target_modules=["linear"], use_dora=True,
                                                         lora_dropout=0.3)).double().train()
    layer = model.base_model.model.linear
    torch.nn.init.normal_(layer.lora_B.default.weight)
    layer.lora_magnitude_vector.default.weight.data.mul_(1.3)
    mask = layer.lora_dropout["default"] = Mask(0.3, (10, 6))
    x = torch.randn(10, 6, requires_grad=True)
    weight, bias = layer.base_layer.weight, layer.base_layer.bias
    a, b = layer.lora_A.default.weight, layer.lora_B.default.weight
    magnitude = layer.lora_magnitude_vector.default.weight
    factor = magnitude / (weight + scale * b @ a).norm(dim=1).detach()
    masked = mask(x)
    formula = (x - masked) @ weight.T + bias + factor * (masked @ weight.T + scale * (masked @ a.T) @ b.T)
    output = model(x)
    slope = torch.randn_like(output)
    print("output", (output - formula).abs().max().item())
    of = [x, a, b, magnitude]
    for name, got, wanted in zip(["x", "A", "B", "magnitudes"], torch.autograd.grad((output * slope).sum(), of, retain_graph=True),
                                 torch.autograd.grad((formula * slope).sum(), of)):
        print("gradient of", name, (got - wanted).abs().max().item())


if __name__ == "__main__":
    main()
