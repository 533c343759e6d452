"""Share of peak of a training step, other families compared with LLaMA of the same width, in turns.

    python bench/families.py [--rounds 2] [--seq-length 2048]

The recipes give the shapes. Models that do not fit in 24 GB keep their real width, heads and vocabulary, and have fewer layers.
A family is compared with LLaMA of its width, heads and number of layers. Bar: at most 5 points of share of peak below it.
Writes bench/results/DATE-families.json. Standard library alone.
"""
import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from record import ROOT, record

BAR = 0.05
NARROW = ["--hidden-size", "1024", "--ffn-hidden-size", "2816", "--num-attention-heads", "16", "--num-layers", "24"]
SGD = ["--optimizer", "sgd", "--sgd-momentum", "0"]  # AdamW's state of the wide models does not fit
# name: recipe, what is changed, the case it is compared with
CASES = {
    "llama 1024": ("llama-7b", NARROW, None),
    "bloom-560m": ("bloom-560m", [], "llama 1024"),
    "qwen1.5-0.5b": ("qwen1.5-0.5b", [], "llama 1024"),
    "llama-13b, 1 layer": ("llama-13b", ["--num-layers", "1", *SGD], None),
    "baichuan-13b, 1 layer": ("baichuan-13b", ["--num-layers", "1", *SGD], "llama-13b, 1 layer"),
}
KEPT = ("kernels", "tokens_per_second", "share_of_peak", "over_product_floor", "peak_gflops", "seconds", "memory_bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seq-length", type=int, default=2048)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    options = parser.parse_args()
    runs = {name: [] for name in options.cases}
    for _ in range(options.rounds):
        for name in options.cases:
            recipe, changes, _ = CASES[name]
            command = [options.piton, "bench", "train", str(ROOT / "recipes" / f"{recipe}.toml"), *changes,
                       "--micro-batch-size", "1", "--global-batch-size", "1", "--seq-length", str(options.seq_length),
                       "--rounds", "2", "--json"]
            result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            runs[name].append({key: result[key] for key in KEPT})
    shares = {name: max(run["share_of_peak"] for run in of_case) for name, of_case in runs.items()}
    for name, share in shares.items():
        peer = CASES[name][2]
        below = shares[peer] - share if peer in shares else 0
        compared = f", {100 * -below:+.1f} points to {peer}" if peer in shares else ""
        print(f"{'BAD ' if below > BAR else 'ok  '} {name:24} {share:6.1%} of peak{compared}")
    print(record("families", " ".join(["python", *sys.argv]), {"shares": shares, "runs": runs}))


if __name__ == "__main__":
    main()
