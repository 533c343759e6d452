"""Golden losses of GPT-2 and Bloom with a prefix and with the biases of ALiBi, by plain PyTorch in float64.

  python tools/oracle/attention_masks.py tests/golden > tests/golden/attention_masks.txt    (torch 2.15, safetensors)

The weights and the batch are those of gpt2.safetensors and bloom.safetensors there; without a prefix and with bias 0
the first loss is theirs. With a prefix, the first tokens of each sample have no label, and see one another up to the
first token that has one. A line: model, 1 with a prefix, number of the bias (0: m (j - i), 2: -m |j - i|, 3: -m
sqrt(|j - i|)), the norm of all gradients, and the losses of six steps of SGD with rate 0.1.
"""
import sys

import torch
from safetensors.torch import load_file

HEADS, UNLABELLED = 6, (4, 0, 11)


def slopes():
    lower = 4  # the largest power of two below six heads
    return torch.tensor([2 ** (-8 * k / lower) for k in range(1, lower + 1)] +
                        [2 ** (-8 * (2 * k - 1) / (2 * lower)) for k in range(1, HEADS - lower + 1)],
                        dtype=torch.float64)


def forward(w, tokens, mask, prefix, bias):
    batch, length = tokens.shape
    norm = lambda x, name: torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)
    linear = lambda x, name: x @ w[name + ".weight"].T + w[name + ".bias"]
    x = w["embedding.token.weight"][tokens]
    if "embedding.position.weight" in w:
        x = x + w["embedding.position.weight"][:length]
    else:
        x = norm(x, "embedding.norm")
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    visible = (j <= i).expand(batch, length, length)
    if prefix:
        first = (mask > 0).int().argmax(dim=1)
        visible = visible | (j <= first[:, None, None])
    added = torch.zeros(HEADS, length, length, dtype=torch.float64)
    if "embedding.position.weight" not in w:
        distance = (j - i).double()
        of = {0: distance, 2: -distance.abs(), 3: -distance.abs().sqrt()}[bias]
        added = slopes()[:, None, None] * of
    for layer in range(2):
        at = f"layers.{layer}."
        y = norm(x, at + "attention_norm")
        q, k, v = (linear(y, at + "attention." + part).unflatten(2, (HEADS, -1)).transpose(1, 2)
                   for part in ("query", "key", "value"))
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + added
        scores = scores.masked_fill(~visible[:, None], -torch.inf)
        x = x + linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), at + "attention.output")
        y = linear(norm(x, at + "mlp_norm"), at + "mlp.up")
        x = x + linear(torch.nn.functional.gelu(y, approximate="tanh"), at + "mlp.down")
    return norm(x, "final_norm") @ w["embedding.token.weight"].T


def losses(folder, model, prefix, bias):
    golden = load_file(f"{folder}/{model}.safetensors")
    w = {name[7:]: value.double().requires_grad_() for name, value in golden.items() if name.startswith("weight.")}
    tokens, labels, mask = golden["tokens"].long(), golden["labels"].long(), golden["mask"].double().clone()
    tokens, labels, mask = (x.reshape(3, -1) for x in (tokens, labels, mask))
    if prefix:
        for sample, count in enumerate(UNLABELLED):
            mask[sample, :count] = 0
    found = []
    for step in range(6):
        logits = forward(w, tokens, mask, prefix, bias)
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        loss = (each * mask.flatten()).sum() / mask.sum()
        gradients = torch.autograd.grad(loss, list(w.values()))
        if step == 0:
            norm = sum(g.square().sum() for g in gradients).sqrt()
            if not prefix and bias == 0:
                assert abs(loss - golden["loss"][0]) < 1e-6, (model, loss, golden["loss"])
        found.append(loss.item())
        with torch.no_grad():
            for parameter, gradient in zip(w.values(), gradients):
                parameter -= 0.1 * gradient
    return [norm.item()] + found


if __name__ == "__main__":
    print("# " + __doc__.splitlines()[0])
    print(f"# tools/oracle/attention_masks.py, torch {torch.__version__}, 2026-11-26")
    for model, prefix, bias in (("gpt2", 0, 0), ("gpt2", 1, 0), ("bloom", 0, 0), ("bloom", 0, 3), ("bloom", 1, 0),
                                ("bloom", 1, 2), ("bloom", 1, 3)):
        print(model, prefix, bias, *(f"{x:.12f}" for x in losses(sys.argv[1], model, prefix, bias)))
