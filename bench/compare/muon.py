"""A training step with Muon beside one with AdamW, by `piton bench train`, in turns.

    python bench/compare/muon.py [--rounds 5] [-- OPTION of piton bench train ...]

Default: GPT-2 124M in bf16, 4 x 1024 on 2 threads. Wants a built piton. Each round takes steps of both, one after the
other; the best step of each counts. Notes the load of the machine before each step.
Writes bench/results/DATE-muon-NAME.json.
"""
import argparse
import datetime
import json
import os
import subprocess

from train import ROOT, cpu_model, text_of


def step(piton, optimizer, options):
    load = os.getloadavg()[0]
    run = subprocess.run([piton, "bench", "train", "--optimizer", optimizer, *options, "--rounds", "2", "--no-floor",
                          "--json", "--quiet"], stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(run.stdout)
    return {"seconds": result["best_seconds"], "peak_gflops": result.get("peak_gflops"), "load": round(load, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="gpt2-124m-bf16-4x1024")
    parser.add_argument("options", nargs="*", help="of piton bench train, after --")
    arguments = parser.parse_args()
    options = arguments.options or ["--model", "gpt2-124m", "--bf16", "--micro-batch-size", "4", "--seq-length", "1024",
                                    "--threads", "2"]
    rounds = []
    for number in range(arguments.rounds):
        rounds.append({kind: step(arguments.piton, kind, options) for kind in ("adam", "muon")})
        one = rounds[-1]
        print(f"round {number + 1}: adam {one['adam']['seconds']:.3f} s (load {one['adam']['load']}), "
              f"muon {one['muon']['seconds']:.3f} s (load {one['muon']['load']}), "
              f"{one['muon']['seconds'] / one['adam']['seconds']:.3f} x", flush=True)
    best = {kind: min(one[kind]["seconds"] for one in rounds) for kind in ("adam", "muon")}
    now = datetime.datetime.now(datetime.timezone.utc)
    path = ROOT / "bench" / "results" / f"{now.date().isoformat()}-muon-{arguments.name}.json"
    path.write_text(json.dumps({
        "what": "a training step with Muon beside one with AdamW, in turns",
        "command": " ".join(["python bench/compare/muon.py --rounds", str(arguments.rounds), "--", *options]),
        "commit": text_of("git", "rev-parse", "HEAD"),
        "date": now.isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "system": os.uname().sysname},
        "best_seconds": best,
        "times_adam": best["muon"] / best["adam"],
        "rounds": rounds,
    }, indent=1) + "\n")
    print(f"best: {best['adam']:.3f} s and {best['muon']:.3f} s, {best['muon'] / best['adam']:.3f} x; {path}")


if __name__ == "__main__":
    main()
