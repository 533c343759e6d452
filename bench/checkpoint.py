"""Time of a save and of a load of a checkpoint, compared with plain sequential writing and reading of the same bytes.

  python bench/checkpoint.py build/piton [--model gpt2-124m] [--work DIR] [--repeat 5] [--json]

Measures, in turns, on the disk of --work:

  write  the bytes of a checkpoint, which are in memory, into new files, in order, in blocks of 8 MB, each file with fsync
  save   `piton pretrain --no-async-save`, the time of its timer save-checkpoint: files, hashes, fsync, rename
  read   the files of a checkpoint, in order, in blocks of 8 MB, into one buffer
  load   `piton pretrain --load`, the time of its timer load-checkpoint: hashes, values in place

A read and a load begin with the files out of the page cache (fsync, then posix_fadvise). The bars: plain time is 85 % of Piton's or
more, by medians. Needs three times the bytes on the disk, and once in memory; removes all that it made.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BLOCK = 8 << 20
BAR = 0.85
TIMER = r"{} \.+: \(?([0-9.]+)"


def tensor_files(folder):
    return sorted(folder.glob("*.safetensors"))


def write(target, contents):
    start = time.monotonic()
    target.mkdir()
    for name, content in contents:
        with open(target / name, "wb", buffering=0) as file:
            for at in range(0, len(content), BLOCK):
                file.write(content[at:at + BLOCK])
            os.fsync(file.fileno())
    seconds = time.monotonic() - start
    shutil.rmtree(target)
    return seconds


def drop_from_cache(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def read(folder, block):
    drop_from_cache(folder)
    start = time.monotonic()
    for path in tensor_files(folder):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(block):
                pass
    return time.monotonic() - start


def run(options, timer, *flags):
    """Seconds of a timer of `piton pretrain`."""
    command = [options.program, "pretrain", "--model", options.model, "--bf16", "--mock-data", "--seq-length", "16", "--no-async-save",
               "--timing-log-level", "1", "--timing-log-option", "max", *map(str, flags)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(TIMER.format(timer), done.stdout)
    if done.returncode != 0 or not found:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}, no {timer}\n{done.stdout}")
    return float(found.group(1)) * 1e-3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--work")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    times = {"write": [], "save": [], "read": [], "load": []}
    block = bytearray(BLOCK)
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        work = pathlib.Path(work)
        kept = work / "kept"
        run(options, "save-checkpoint", "--train-iters", 1, "--save", kept)
        checkpoint = kept / "iter_0000001"
        contents = [(path.name, memoryview(path.read_bytes())) for path in tensor_files(checkpoint)]
        total = sum(len(content) for _, content in contents)
        for _ in range(options.repeat):
            os.sync()
            times["write"].append(write(work / "plain", contents))
            os.sync()
            times["save"].append(run(options, "save-checkpoint", "--train-iters", 1, "--save", work / "saved"))
            shutil.rmtree(work / "saved")
            os.sync()
            times["read"].append(read(checkpoint, block))
            drop_from_cache(kept)
            times["load"].append(run(options, "load-checkpoint", "--train-iters", 1, "--load", kept))
    results = {"bytes": total, "files": len(contents)}
    for name, seconds in times.items():
        results[name] = {"seconds": [round(one, 3) for one in seconds], "median_seconds": round(statistics.median(seconds), 3),
                         "gb_per_second": round(total * 1e-9 / statistics.median(seconds), 3)}
    bad = False
    for mine, plain in (("save", "write"), ("load", "read")):
        share = results[plain]["median_seconds"] / results[mine]["median_seconds"]
        results[mine][f"share_of_{plain}"] = round(share, 3)
        bad = bad or share < BAR
        if not options.json:
            print(f"{'ok  ' if share >= BAR else 'BAD '} {mine} {results[mine]['median_seconds']:.2f} s "
                  f"({min(times[mine]):.2f} to {max(times[mine]):.2f}), {plain} {results[plain]['median_seconds']:.2f} s "
                  f"({min(times[plain]):.2f} to {max(times[plain]):.2f}): {share:.1%}")
    print(json.dumps(results) if options.json else f"{total * 1e-9:.2f} GB in {len(contents)} files")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
