#!/usr/bin/env python3
"""Writes tests/golden/gptq.txt: codes of small matrices by GPTQ, in fp64, read off the paper.

    python tools/oracle/gptq.py tests/golden/gptq.txt

No packages. Frantar et al. 2022, arXiv:2210.17323: step 2 (the order of columns, lazy updates left out: they
change nothing), step 3 (the factor of Cholesky), algorithm 1. The inverse is computed by Gauss-Jordan, its factor
row by row. Values are drawn by a generator that the test repeats (tests/unit/codes/gptq_test.cpp).
"""
import struct
import sys

ROWS, COLUMNS, SAMPLES = 5, 24, 40
DAMPING = 0.01
CASES = [(4, 0, True), (4, 8, True), (4, 8, False), (8, 0, False), (8, 12, True)]  # bits, group, symmetric


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


class Generator:
    def __init__(self):
        self.state = 1

    def next(self):
        self.state = (self.state * 1103515245 + 12345) % 2**31
        return (self.state >> 8) % 256 / 128 - 1  # a multiple of 1/128: sums of squares are exact


def inverse(a):
    n = len(a)
    rows = [list(a[i]) + [float(i == j) for j in range(n)] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in range(n):
            if k != i:
                rows[k] = [x - rows[k][i] * y for x, y in zip(rows[k], rows[i])]
    return [row[n:] for row in rows]


def upper_factor(a):
    """U with U^T U = a."""
    n = len(a)
    u = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i, n):
            rest = a[i][j] - sum(u[k][i] * u[k][j] for k in range(i))
            u[i][j] = rest**0.5 if i == j else rest / u[i][i]
    return u


def scale_of(bits, symmetric, values):
    """The scale, and the code of 0: codes of 4 bits are 0 .. 15."""
    low, high = min(0.0, *values), max(0.0, *values)
    if symmetric:
        return single(single(max(-low, high)) / (7.5 if bits == 4 else 127)), 8 if bits == 4 else 0
    least, most = (0, 15) if bits == 4 else (-128, 127)
    scale = single(single(single(high) - single(low)) / (most - least))
    return scale, min(max(round(-single(low) / scale) + least, least), most)


def gptq(weights, u, bits, group, symmetric):
    least, most = (0, 15) if bits == 4 else (-127 if symmetric else -128, 127)
    codes, scales = [], []
    for row in weights:
        rest = list(row)
        for i in range(COLUMNS):
            if i % (group or COLUMNS) == 0:
                scale, zero = scale_of(bits, symmetric, rest[i : i + (group or COLUMNS)])
                scales.append(scale)
            code = min(max(round(rest[i] / scale) + zero, least), most)
            codes.append(code)
            error = (rest[i] - scale * (code - zero)) / u[i][i]
            for j in range(i + 1, COLUMNS):
                rest[j] -= error * u[i][j]
    return codes, scales


def main():
    draw = Generator()
    weights = [[draw.next() for _ in range(COLUMNS)] for _ in range(ROWS)]
    samples = [[draw.next() for _ in range(COLUMNS)] for _ in range(SAMPLES)]
    for sample in samples:  # inputs that depend on each other; number 5 is always 0
        for j in range(1, COLUMNS):
            sample[j] = sample[j] / 4 + sample[j - 1]
        sample[5] = 0.0
    squares = [[sum(x[i] * x[j] for x in samples) for j in range(COLUMNS)] for i in range(COLUMNS)]
    added = DAMPING * sum(squares[i][i] for i in range(COLUMNS)) / COLUMNS
    for i in range(COLUMNS):
        squares[i][i] = squares[i][i] + added if squares[i][i] else 1.0
    u = upper_factor(inverse(squares))
    with open(sys.argv[1], "w") as file:
        file.write(f"# tools/oracle/gptq.py, Python {sys.version.split()[0]}: bits, group, symmetric; codes; scales\n")
        for bits, group, symmetric in CASES:
            codes, scales = gptq(weights, u, bits, group, symmetric)
            file.write(f"{bits} {group} {int(symmetric)}\n")
            file.write(" ".join(map(str, codes)) + "\n")
            file.write(" ".join(map(repr, scales)) + "\n")


main()
