#!/usr/bin/env python3
"""Writes tests/golden/float8.txt: numbers rounded to FP8 by torch, and products of such numbers in float64.

    python tools/oracle/float8.py tests/golden/float8.txt

Packages: torch. Scales are those of Transformer Engine's Float8CurrentScaling (tensorwise) and Float8BlockScaling
(blockwise): the largest number of the format over the largest size, in float32; the largest power of two that is no
larger. The factors are drawn by a generator that the test repeats (tests/ops/float8_values_test.cpp).
"""
import random
import sys

import torch

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def rounded(format):
    """Pairs of float32 numbers and what they become: random ones, halves between neighbors, subnormal ones."""
    random.seed(8)
    lowest, largest = (-12, 448.0) if format == "e4m3" else (-19, 57344.0)
    numbers = [random.uniform(-1, 1) * 2 ** random.randint(lowest, 8) for _ in range(60)]
    every = torch.arange(256, dtype=torch.uint8).view(FORMATS[format]).to(torch.float64)
    every = sorted(x for x in every.tolist() if x == x and 0 <= x <= largest)
    numbers += [(a + b) / 2 for a, b in zip(every, every[1:])] + [largest, -largest, 0.0]
    x = torch.tensor(numbers, dtype=torch.float32)
    return zip(x.tolist(), x.to(FORMATS[format]).to(torch.float32).tolist())


def drawn(seed, rows, columns):
    """Exact in bfloat16: whole numbers up to 128 times powers of two, other ones in each stretch of columns."""
    state, out = seed, []
    for i in range(rows * columns):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(((state >> 8) % 257 - 128) * 2.0 ** -(7 + (i // 40) % 4))
    return torch.tensor(out, dtype=torch.float32).reshape(rows, columns)


def factor(x, format, block):
    """x in float64 after rounding; block: rows and columns that have a scale together, None: all."""
    out = torch.empty_like(x, dtype=torch.float64)
    rows, columns = block or x.shape
    for i in range(0, x.shape[0], rows):
        for j in range(0, x.shape[1], columns):
            part = x[i:i + rows, j:j + columns]
            largest = part.abs().max()
            scale = torch.tensor(1.0)
            if largest > 0:
                scale = torch.tensor(torch.finfo(FORMATS[format]).max) / largest
                if block:
                    scale = torch.ldexp(torch.tensor(1.0), torch.frexp(scale).exponent - 1)
            q = (part * scale).to(FORMATS[format]).to(torch.float64)
            out[i:i + rows, j:j + columns] = q * (1 / scale).to(torch.float64)
    return out


def products(recipe, gradients):
    """Some elements of y and dx of x [2, 131] and W [130, 131], and of dW of 130 rows, [2, 3]."""
    block = (lambda *sizes: sizes) if recipe == "blockwise" else (lambda *sizes: None)
    w = factor(drawn(2, 130, 131), "e4m3", block(128, 128))
    y = factor(drawn(1, 2, 131), "e4m3", block(1, 128)) @ w.T
    dx = factor(drawn(3, 2, 130), gradients, block(1, 128)) @ w
    dw = factor(drawn(3, 130, 2), gradients, block(128, 1)).T @ factor(drawn(1, 130, 3), "e4m3", block(128, 1))
    return y.flatten()[::7], dx.flatten()[::7], dw.flatten()


def main():
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}", file=file)
        for format in FORMATS:
            for x, q in rounded(format):
                print(format, x.hex(), q.hex(), file=file)
        for recipe in ("tensorwise", "blockwise"):
            for gradients in FORMATS:
                for name, values in zip(("y", "dx", "dw"), products(recipe, gradients)):
                    print(recipe, gradients, name, *(x.hex() for x in values.tolist()), file=file)


if __name__ == "__main__":
    main()
