#!/usr/bin/env python3
"""Registers, stack and spills of every CUDA kernel, as a table; exit code 1 if a register is spilled.

    tools/cuda_resources.py [--arch 90] [--nvcc nvcc] [FILE.cu ...]

Compiles src/kernels/cuda/*.cu, or some of them, for one compute capability, without linking. Needs nvcc and the include
folders of a configured build (build/compile_commands.json or build-cuda/compile_commands.json).
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = re.compile(
    r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers", re.DOTALL)


def include_folders():
    """Those of a C++ file of src/kernels."""
    for build in ("build-cuda", "build"):
        commands = ROOT / build / "compile_commands.json"
        if not commands.exists():
            continue
        for entry in json.loads(commands.read_text()):
            if "piton_kernels.dir" in entry.get("output", entry["command"]):
                found = re.findall(r"-(?:isystem|I) ?(\S+)", entry["command"])
                return ["-I" + folder for folder in found]
    return ["-I" + str(ROOT / "src")]


def resources(source, nvcc, arch):
    run = subprocess.run(
        [nvcc, "-std=c++20", "--fmad=false", "-O3", "-DFMT_USE_CONSTEXPR=1", f"-arch=sm_{arch}",
         "--resource-usage", "-c", "-o", "/dev/null", *include_folders(), str(source)],
        capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"cuda_resources: {source.name}: nvcc failed:\n{run.stderr}")
    for mangled, stack, stores, loads, registers in FIELDS.findall(run.stderr):
        name = subprocess.run(["c++filt", mangled], capture_output=True, text=True,
                              check=True).stdout.strip()
        name = name.replace("piton::cuda::", "").replace("(anonymous namespace)::", "")
        name = re.sub(r"^void ", "", name)
        name = re.sub(r"\(.*\)$", "", name) if name.endswith(")") else name
        yield name, int(registers), int(stack), int(stores) + int(loads)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="90")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("sources", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    spilled = []
    print("| kernel | registers | stack bytes | spilled bytes |\n| --- | --- | --- | --- |", flush=True)
    for source in options.sources or sorted((ROOT / "src/kernels/cuda").glob("*.cu")):
        for name, registers, stack, spills in resources(source, options.nvcc, options.arch):
            print(f"| `{name}` | {registers} | {stack} | {spills} |", flush=True)
            if spills:
                spilled.append(name)
    for name in spilled:
        print(f"cuda_resources: {name} spills registers", file=sys.stderr)
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
