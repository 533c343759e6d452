#!/usr/bin/env python3
"""Writes tests/golden/nf4.txt: codes and scales of NF4 with double quantization by bitsandbytes.

    python tools/oracle/nf4.py tests/golden/nf4.txt

Packages: bitsandbytes, torch. The values are drawn by a generator that the test repeats
(tests/unit/codes/code_format_test.cpp).
"""
import sys

import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_blockwise, quantize_4bit

ROWS, COLUMNS = 40, 512


def values():
    state, out = 1, []
    for i in range(ROWS * COLUMNS):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(((state >> 8) % 65536 / 32768 - 1) * (1 + (i // 64) % 7))
    return torch.tensor(out, dtype=torch.float32).reshape(ROWS, COLUMNS)


def main():
    packed, state = quantize_4bit(values(), blocksize=64, compress_statistics=True, quant_type="nf4")
    codes = "".join(f"{byte:02x}" for byte in packed.flatten().tolist())  # the first code is high
    scales = dequantize_blockwise(state.absmax, state.state2) + state.offset
    with open(sys.argv[1], "w") as file:
        file.write(f"# bitsandbytes {bitsandbytes.__version__}, torch {torch.__version__}\n")
        file.write(codes + "\n")
        file.write(" ".join(repr(scale) for scale in scales.tolist()) + "\n")


main()
