"""Products and attention of PyTorch beside `piton bench gemm` and `piton bench attention`, in turns.

    python bench/compare/products.py --model gpt2-124m --rows 4096 --dtype bf16
    python bench/compare/products.py --model gpt2-124m --attention 4096 --dtype bf16

Wants PyTorch and a built piton. Each round measures every call of both sides once (or three times where it
takes below 5 ms); the best of each counts. PyTorch: linear, dy @ w and dy.T @ x; piton adds its weight
gradient in fp32, PyTorch writes it in the dtype of the weights, which is less work. Attention is
scaled_dot_product_attention, causal, and its backward.

Writes bench/results/DATE-products-... or DATE-attention-....json with the command, the commit, the machine
and all times of both sides.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

from train import ROOT, command_line, cpu_model, text_of

SHAPES = {"gpt2-124m": [(768, 2304), (768, 768), (768, 3072), (3072, 768)],
          "llama-134m": [(768, 2304), (768, 768), (768, 4096), (2048, 768)]}
KINDS = ["forward", "backward input", "backward weight"]
HEADS, WIDTH = 12, 64


class Timed:
    """One call of PyTorch."""

    def __init__(self, what, flops, call):
        self.what, self.flops, self.call, self.seconds = what, flops, call, []
        call()

    def sample(self):
        best = self.once()
        if best < 5e-3:
            best = min(best, self.once(), self.once())
        self.seconds.append(best)

    def once(self):
        start = time.perf_counter()
        self.call()
        return time.perf_counter() - start


def products(torch, arguments, dtype):
    calls = []
    for inner, outer in SHAPES[arguments.model]:
        x = torch.randn(arguments.rows, inner).to(dtype)
        w = torch.randn(outer, inner).to(dtype)
        dy = torch.randn(arguments.rows, outer).to(dtype)
        flops = 2 * arguments.rows * inner * outer
        name = f"{arguments.dtype} {arguments.rows} x {inner} -> {outer} "
        calls += [Timed(name + KINDS[0], flops, lambda x=x, w=w: torch.nn.functional.linear(x, w)),
                  Timed(name + KINDS[1], flops, lambda w=w, dy=dy: dy @ w),
                  Timed(name + KINDS[2], flops, lambda x=x, dy=dy: dy.t() @ x)]
    return calls


def attention(torch, arguments, dtype):
    sequence = arguments.attention
    q, k, v = (torch.randn(1, HEADS, sequence, WIDTH).to(dtype).requires_grad_() for _ in range(3))
    flops = 2 * HEADS * sequence * sequence * WIDTH
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(q, k, v, is_causal=True)
    dout = torch.randn_like(out)

    def forward():
        with torch.no_grad():
            attend(q, k, v, is_causal=True)

    name = f"{arguments.dtype} 1 x {sequence}, {HEADS}/{HEADS} heads of {WIDTH}, causal "
    return [Timed(name + "forward", flops, forward),
            Timed(name + "backward", 2 * flops,
                  lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))]


def piton_command(arguments):
    size = (["attention", "--micro-batch-size", "1", "--seq-length", str(arguments.attention)]
            if arguments.attention else ["gemm", "--rows", str(arguments.rows)])
    command = [arguments.piton, "bench", *size, "--model", arguments.model, "--threads", str(arguments.threads),
               "--rounds", "1", "--json", "--quiet"]
    return command + (["--bf16"] if arguments.dtype == "bf16" else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(SHAPES), default="gpt2-124m")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--attention", type=int, help="tokens: attention instead of products")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--output", help="default: bench/results/DATE-...json; - for stdout alone")
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)
    dtype = torch.bfloat16 if arguments.dtype == "bf16" else torch.float32
    peers = (attention if arguments.attention else products)(torch, arguments, dtype)
    runs = []
    for turn in range(arguments.rounds):
        for peer in peers:
            peer.sample()
        # A peak that others' work held down makes bench fail behind its figures; they are printed before.
        run = subprocess.run(piton_command(arguments), capture_output=True, text=True)
        if not run.stdout:
            raise SystemExit(run.stderr)
        runs.append(json.loads(run.stdout))
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr, flush=True)

    peak = max(run.get("peak_gflops", 0) for run in runs)
    calls = []
    for peer in peers:
        own = min(call["best_seconds"] for run in runs for call in run["calls"] if call["what"] == peer.what)
        best = min(peer.seconds)
        calls.append({"what": peer.what, "piton_gflops": peer.flops / own * 1e-9, "peer_gflops": peer.flops / best * 1e-9,
                      "times_peer": best / own, "piton_share_of_peak": peer.flops / own * 1e-9 / peak if peak else None})
    now = datetime.datetime.now(datetime.timezone.utc)
    groups = {}
    for kind in KINDS if not arguments.attention else ["forward", "backward", "ward"]:
        chosen = [(peer, call) for peer, call in zip(peers, calls) if peer.what.endswith(kind)]
        flops = sum(peer.flops for peer, _ in chosen) * 1e-9
        own = sum(peer.flops * 1e-9 / call["piton_gflops"] for peer, call in chosen)
        other = sum(min(peer.seconds) for peer, _ in chosen)
        name = "forward + backward" if kind == "ward" else kind
        groups[name] = {"piton_gflops": flops / own, "peer_gflops": flops / other, "times_peer": other / own,
                        "piton_share_of_peak": flops / own / peak if peak else None}
    result = {
        "what": "attention" if arguments.attention else "products of a block's linear maps",
        "command": command_line(arguments).replace("train.py", "products.py"),
        "commit": text_of("git", "rev-parse", "HEAD"),
        "date": now.isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": arguments.threads, "system": platform.system()},
        "peer": {"torch": torch.__version__},
        "peak_gflops": peak,
        "loading_peak_gflops": max(run.get("loading_peak_gflops", 0) for run in runs),
        "kinds": groups,
        "calls": calls,
        "raw": {"peer_seconds": {peer.what: peer.seconds for peer in peers}, "piton": runs},
    }
    text = json.dumps(result, indent=1) + "\n"
    for name, group in groups.items():
        share = f", {100 * group['piton_share_of_peak']:.1f} % of peak" if peak else ""
        print(f"{name}: piton {group['piton_gflops']:.0f} GFLOP/s{share}, PyTorch {group['peer_gflops']:.0f}, "
              f"ratio {group['times_peer']:.2f}", file=sys.stderr)
    if arguments.output == "-":
        print(text, end="")
        return
    size = f"attention-{arguments.attention}" if arguments.attention else f"products-{arguments.model}-{arguments.rows}"
    path = pathlib.Path(arguments.output) if arguments.output else (
        ROOT / "bench" / "results" / f"{now.date().isoformat()}-{size}-{arguments.dtype}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(path)


if __name__ == "__main__":
    main()
