#!/usr/bin/env python3
"""Registers, shared memory, occupancy and limits of the CUDA kernels, as the table of docs/cuda.md.

    tools/cuda_resources.py [--build build-cuda] [--arch 90] [--cuobjdump cuobjdump] [--all]

Reads the objects of a build with CUDA (cmake --build --preset cuda). Needs cuobjdump of the CUDA toolkit. Exit code 1
if a kernel of any architecture has spilled registers to local memory, or a row of the table has no kernel any more
(--all also lists every instance).

The registers of a row are the largest over fp32, bf16 and fp16. The work is that of one call in a step of GPT-2 124M with
8 x 1024 tokens in bf16; of latents, in a pass of decoding over 32 texts of DeepSeek-V2-Lite with 4,096 tokens. Its limit
is the time of its bytes at 4.8 TB/s, or of its FLOPs at 67 TFLOP/s (H200, fp32), on tensor cores at 989 TFLOP/s.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES_A_SECOND, FLOPS, TENSOR_FLOPS = 4.8e12, 67e12, 989e12
ON_TENSOR_CORES = " on tensor cores"
ROWS, WIDTH, INNER, VOCABULARY, PARAMETERS = 8 * 1024, 768, 3072, 50304, 124_475_904
HIDDEN = 2 * ROWS * WIDTH  # bytes of a hidden state in bf16
LATENT_ROWS = 32 * 4096  # keys of texts of DeepSeek-V2-Lite
LATENT_SUMS = LATENT_ROWS // 128 * 16 * (512 + 2) * 4  # bytes that chunks of 128 keys leave
PRODUCT = 2 * 8 * 12 * 1024 * 1024 / 2 * 64  # FLOPs of one causal product of attention

# name in the sources: (what it does, threads, shared bytes, bytes of a call, FLOPs of a call)
KERNELS = {
    "attention_forward on tensor cores, d <= 64": ("attention forward, 16 bits", 128, 36_864, 4 * HIDDEN, 2 * PRODUCT),
    "attention_forward on tensor cores, d <= 128": ("", 128, 69_632, 0, 0),
    "attention_by_groups on tensor cores, d <= 64": (
        "the same by warpgroups", 384, 90_112, 4 * HIDDEN, 2 * PRODUCT),
    "attention_by_groups on tensor cores, d <= 128": ("", 256, 163_840, 0, 0),
    "attention_forward, d <= 64": ("the same, fp32", 256, 20_864, 8 * HIDDEN, 2 * PRODUCT),
    "attention_forward, d <= 128": ("", 256, 37_248, 0, 0),
    "attention_forward, d <= 256": ("all types", 256, 70_016, 0, 0),
    "cached_attention on tensor cores, d <= 64": ("attention over a cache in pages, 16 bits", 128, 36_864, 0, 0),
    "cached_attention on tensor cores, d <= 128": ("", 128, 69_632, 0, 0),
    "cached_attention, d <= 64": ("the same, fp32", 256, 20_864, 0, 0),
    "cached_attention, d <= 128": ("", 256, 37_248, 0, 0),
    "cached_attention, d <= 256": ("all types", 256, 70_016, 0, 0),
    "attend_to_chunk": ("attention of few queries to a cache", 128, 33_540, 0, 0),
    "attend_to_latent_chunk on tensor cores": (
        "attention to a cache of latents, 16 bits", 256, 99_304, LATENT_ROWS * 576 * 2 + LATENT_SUMS,
        LATENT_ROWS * 16 * 2 * (576 + 512)),
    "attend_to_latent_chunk_on_units": ("the same, fp32", 256, 75_072, 0, 0),
    "merge_latent_chunks": ("merge of its chunks", 128, 0, LATENT_SUMS, 0),
    "query_terms": ("terms of queries for the backward", 256, 0, 2 * HIDDEN, 0),
    "query_gradient on tensor cores, d <= 64": (
        "attention backward of queries, 16 bits", 128, 47_104, 5 * HIDDEN, 3 * PRODUCT),
    "query_gradient on tensor cores, d <= 128": ("", 128, 88_064, 0, 0),
    "query_gradient_by_groups on tensor cores, d <= 64": (
        "the same by warpgroups", 256, 98_304, 5 * HIDDEN, 3 * PRODUCT),
    "query_gradient_by_groups on tensor cores, d <= 128": ("", 256, 196_608, 0, 0),
    "query_gradient, d <= 64": ("the same, fp32", 256, 37_504, 12 * HIDDEN, 3 * PRODUCT),
    "query_gradient, d <= 128": ("", 256, 70_272, 0, 0),
    "query_gradient, d <= 256": ("", 128, 66_880, 0, 0),
    "key_gradient on tensor cores, d <= 64": (
        "attention backward of keys and values, 16 bits", 128, 47_104, 6 * HIDDEN, 4 * PRODUCT),
    "key_gradient on tensor cores, d <= 128": ("", 128, 88_064, 0, 0),
    "key_gradient_by_groups on tensor cores, d <= 64": (
        "the same by warpgroups", 256, 83_456, 6 * HIDDEN, 4 * PRODUCT),
    "key_gradient_by_groups on tensor cores, d <= 128": ("", 256, 165_376, 0, 0),
    "key_gradient, d <= 64": ("the same, fp32", 256, 41_984, 14 * HIDDEN, 4 * PRODUCT),
    "key_gradient, d <= 128": ("", 256, 74_752, 0, 0),
    "key_gradient, d <= 256": ("", 128, 68_096, 0, 0),
    "bias_gradient, d <= 64": ("attention backward of a bias of distances", 128, 17_728, 0, 0),
    "bias_gradient, d <= 128": ("", 128, 34_112, 0, 0),
    "bias_gradient, d <= 256": ("", 128, 66_880, 0, 0),
    "run_delta_forward": ("gated delta rule forward", 128, 0, 0, 0),
    "run_delta_backward": ("gated delta rule backward", 128, 8_240, 0, 0),
    "multiply_rows_by_weight": ("products of few rows", 256, 8_192, 0, 0),
    "norm_rows": ("norm forward", 256, 0, 2 * HIDDEN, 0),
    "norm_gradient_pass": ("norm backward with gain and bias", 256, 16_416, 4 * HIDDEN, 0),
    "norm_gradient_rows": ("norm backward of long rows, or without sums", 256, 0, 4 * HIDDEN, 0),
    "GainTerms over rows": ("gain and bias of long rows", 256, 16_384, 2 * HIDDEN, 0),
    "DropAndAdd": ("bias, dropout and residual", 256, 0, 3 * HIDDEN, 0),
    "DropGradient": ("dropout backward", 256, 0, 2 * HIDDEN, 0),
    "DropGradient over rows": ("the same with its bias", 256, 8_192, 2 * HIDDEN, 0),
    "LinearEnd": ("end of the first linear of an MLP, input kept", 256, 0, 8 * ROWS * INNER, 0),
    "largest_sizes": ("largest size of a factor in FP8", 256, 32, HIDDEN, 0),
    "write_codes": ("codes of a factor in FP8", 256, 33_824, 3 * HIDDEN // 2, 0),
    "ActivationGradient": ("activation backward", 256, 0, 6 * ROWS * INNER, 0),
    "RowTerm over rows": ("bias of that linear, backward", 256, 8_192, 2 * ROWS * INNER, 0),
    "LookUp": ("embedding forward", 256, 0, 2 * HIDDEN, 0),
    "add_table_rows": ("embedding backward", 256, 4_256, 5 * HIDDEN, 0),
    "statistics_rows": ("loss statistics of fp32 logits", 256, 0, 4 * ROWS * VOCABULARY, 0),
    "LossGradient": ("loss backward", 256, 0, 6 * ROWS * VOCABULARY, 0),
    "SquareBlocks": ("norm of the gradients", 256, 0, 4 * PARAMETERS, 0),
    "Adamw": ("AdamW with a bf16 copy", 256, 0, 30 * PARAMETERS, 0),
}
CHANNELS = {"8": "64", "16": "128", "32": "256"}  # of a lane: of a head


def functions(build, cuobjdump):
    """(architecture, demangled name, registers, local bytes) of every kernel of the build."""
    objects = sorted(build.glob("CMakeFiles/piton_kernels_cuda.dir/**/*.cu.o"))  # together or one by one
    objects += sorted(build.glob("CMakeFiles/piton_warpgroups.dir/**/*.cu.o"))
    if not objects:
        sys.exit(f"cuda_resources: {build}: no kernels of CUDA; build it with the preset cuda")
    found = []
    for path in objects:
        text = subprocess.run([cuobjdump, "-res-usage", str(path)], capture_output=True, text=True, check=True).stdout
        arch = ""
        name = ""
        for line in text.splitlines():
            if match := re.match(r"arch = sm_(\d+)", line):
                arch = match[1]
            elif match := re.match(r" Function (\S+):", line):
                name = match[1]
            elif match := re.match(r"  REG:(\d+) .*?LOCAL:(\d+)", line):
                found.append((arch, name, int(match[1]), int(match[2])))
    names = "\n".join(name for _, name, _, _ in found)
    plain = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True).stdout.splitlines()
    for (arch, _, registers, local), name in zip(found, plain):
        name = name.replace("piton::cuda::", "").replace("(anonymous namespace)::", "")
        yield arch, re.sub(r"^void ", "", name), registers, local


def group_of(name):
    """The row of an instance; None for instances in fp64, which are for checks."""
    if "double" in name:
        return None
    body = re.match(r"(run_elements|run_groups|run_spans|add_column_sums)<(?:ElementSpan<)?(\w+)", name)
    kernel = body[2] if body else re.match(r"\w+", name)[0]
    if body and body[1] == "add_column_sums":
        kernel += " over rows"
    if heads := re.match(r"(?:attention_forward|cached_attention|\w+_gradient)<(\w+), (\d+)", name):
        tensor = kernel != "bias_gradient" and heads[1] != "float" and heads[2] != "32"
        kernel += f"{ON_TENSOR_CORES if tensor else ''}, d <= {CHANNELS[heads[2]]}"
    if heads := re.match(r"\w+_by_groups<\w+, (\d+)", name):
        kernel += f"{ON_TENSOR_CORES}, d <= {16 * int(heads[1])}"
    return kernel + ON_TENSOR_CORES if kernel == "attend_to_latent_chunk" else kernel


def occupancy(registers, threads, shared):
    """Threads of a multiprocessor of compute capability 9.0 that run at a time, of 2048."""
    warps = threads // 32
    per_warp = (registers * 32 + 255) // 256 * 256
    blocks = min(64 // warps, 65536 // (per_warp * warps), 32)
    if shared:
        blocks = min(blocks, 228 * 1024 // (shared + 1024))
    return blocks * threads


def text_of(number, unit):
    if not number:
        return ""
    for factor, prefix in ((1e9, "G"), (1e6, "M")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-cuda")
    parser.add_argument("--arch", default="90")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    largest = {}
    spilled = []
    for arch, name, registers, local in functions(options.build, options.cuobjdump):
        if options.all:
            print(f"sm_{arch} {registers:3} registers, {local} bytes spilled: {name}")
        if local:
            spilled.append(f"sm_{arch}: {name}: {local} bytes")
        group = group_of(name)
        if arch == options.arch and group:
            largest[group] = max(largest.get(group, 0), registers)
    print("| kernel | work | threads | registers | shared bytes | occupancy | bytes | FLOPs | limit |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    missing = []
    for name, (work, threads, shared, moved, flops) in KERNELS.items():
        if name not in largest:
            missing.append(name)
            continue
        registers = largest.pop(name)
        share = occupancy(registers, threads, shared) / 2048
        peak = TENSOR_FLOPS if ON_TENSOR_CORES in name else FLOPS
        seconds = max(moved / BYTES_A_SECOND, flops / peak)
        limit = f"{seconds * 1e6:.0f} us" if seconds else ""
        print(f"| {name} | {work} | {threads} | {registers} | {shared or ''} | {100 * share:.0f} % | {text_of(moved, 'B')} "
              f"| {text_of(flops, '')} | {limit} |")
    others = ", ".join(f"{name} {registers}" for name, registers in sorted(largest.items()))
    print(f"\nRegisters of the others, of 256 threads: {others}.")
    for line in spilled:
        print(f"cuda_resources: {line} of spilled registers", file=sys.stderr)
    if missing:
        print(f"cuda_resources: no kernels for sm_{options.arch} are called {'; '.join(missing)}; mend KERNELS",
              file=sys.stderr)
    return 1 if spilled or missing else 0


if __name__ == "__main__":
    sys.exit(main())
