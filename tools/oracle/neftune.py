"""Losses of training passes with noise on embeddings, by the hook of Transformers, for tests/golden/neftune.txt.

  python tools/oracle/neftune.py tests/golden/neftune.txt    (torch 2.15, transformers 5.24, xxhash)

Each line: the name of a folder of tests/golden/huggingface, alpha, the loss, and the norm of the gradient of the table of
tokens. The batch is the first TOKENS tokens of expected.safetensors, as one text, in float64, in training mode without dropout.
The hook of transformers.integrations.neftune draws its numbers by Tensor.uniform_, in whose place is what Piton draws:
Philox4x32-10 of the key XXH3("embedding.noise", seed 1234) and the counter {sample, 0, position, column / 4}, as signed
integers over 2^31.
"""
import datetime
import importlib.metadata as metadata
import pathlib
import sys
import unittest.mock

import numpy
import torch
import transformers
import xxhash
from safetensors.torch import load_file
from transformers.integrations.neftune import activate_neftune

HUGGINGFACE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/huggingface"
CASES = {"llama": 5.0, "gpt2": 5.0, "bloom": 10.0, "gemma3": 15.0, "granite": 5.0}  # factors of embeddings, and none
TOKENS, SAMPLE = 24, 7


def philox(key, counter):
    mask = numpy.uint64(0xFFFFFFFF)
    low, high = (numpy.uint64(key & 0xFFFFFFFF), numpy.uint64(key >> 32))
    c = [numpy.asarray(x, dtype=numpy.uint64) for x in counter]
    for _ in range(10):
        a, b = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        shift = numpy.uint64(32)
        c = [(b >> shift) ^ c[1] ^ low, b & mask, (a >> shift) ^ c[3] ^ high, a & mask]
        low, high = (low + numpy.uint64(0x9E3779B9)) & mask, (high + numpy.uint64(0xBB67AE85)) & mask
    return numpy.stack(c, -1)


def noise(rows, columns):
    key = xxhash.xxh3_64_intdigest(b"embedding.noise", seed=1234)
    blocks = (columns + 3) // 4
    position, block = numpy.meshgrid(numpy.arange(rows), numpy.arange(blocks), indexing="ij")
    zero = numpy.zeros_like(position)
    words = philox(key, (zero + SAMPLE, zero, position, block)).reshape(rows, -1)[:, :columns]
    return torch.from_numpy(words.astype(numpy.uint32).view(numpy.int32) / 2.0**31)


def uniform(self, low, high):
    assert self.dim() == 3 and self.size(0) == 1 and float(low) == -float(high)
    return self.copy_(noise(self.size(1), self.size(2))[None] * float(high))


def case(name, alpha):
    model = transformers.AutoModelForCausalLM.from_pretrained(HUGGINGFACE / name, dtype=torch.float64).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    tokens = load_file(HUGGINGFACE / name / "expected.safetensors")["tokens"].long().flatten()[None, :TOKENS]
    activate_neftune(model, alpha)
    with unittest.mock.patch.object(torch.Tensor, "uniform_", uniform):
        loss = model(tokens, labels=tokens).loss
    loss.backward()
    gradient = model.get_input_embeddings().weight.grad
    return f"{name} {alpha} {loss.item():.12f} {gradient.norm().item():.12f}"


def main():
    origin = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    lines = [case(name, alpha) for name, alpha in CASES.items()]
    head = f"# tools/oracle/neftune.py, {datetime.date.today()}, {origin}\n"
    pathlib.Path(sys.argv[1]).write_text(head + "\n".join(lines) + "\n")


main()
