"""A training step on two ranks of this machine: PyTorch's DDP or FSDP2 over gloo beside Piton's layouts, in turns.

    python bench/compare/train_ranks.py [--wrap ddp|fsdp] [--variant weights-compile]

Wants PyTorch and transformers, Open MPI and a built piton. Each rank has its share of the cores. DDP is compared with
`piton bench train` of data ranks, FSDP2, of which each block is a unit, with --zero-stage
3. Variants of PyTorch as in train.py. The peer's ranks stay in memory, and wait for a line on their standard input, while
Piton is measured; the time of a step is that of the slower rank. The best of each counts.

Writes bench/results/DATE-train-ranks-WRAP-MODEL-DTYPE-BxS.json.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import socket
import subprocess
import sys
import time

from train import ROOT, command_line, cpu_model, make_labels, make_model, text_of, write_result

LAYOUTS = {"ddp": ["--zero-stage", "0"], "fsdp": ["--zero-stage", "3"]}


class PeerRank:
    """One process of PyTorch, which makes a step for each line that it reads."""

    def __init__(self, arguments, rank, port):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(arguments.world_size),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self.process = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--rank"], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self):
        self.process.stdin.write("step\n")
        self.process.stdin.flush()

    def seconds(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a rank of PyTorch ended with status {self.process.wait()}")
        return float(line)


def run_rank(arguments):
    import torch
    import torch.distributed

    torch.set_num_threads(arguments.threads)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    model, vocabulary = make_model(arguments.model, arguments.seq_length)
    weights, _, compiled = arguments.variant.partition("-")
    if weights == "weights" and arguments.dtype == "bf16":
        model = model.to(torch.bfloat16)
    model.train()
    if arguments.wrap == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (arguments.world_size,))
        blocks = model.transformer.h if arguments.model == "gpt2-124m" else model.model.layers
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    call = torch.compile(model) if compiled else model
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=arguments.wrap == "ddp")
    torch.manual_seed(2 + torch.distributed.get_rank())
    ids = torch.randint(0, vocabulary, (arguments.micro_batch_size, arguments.seq_length))
    labels = make_labels(arguments.model, ids, 0)
    for _ in sys.stdin:
        torch.distributed.barrier()
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=weights == "autocast"):
            loss = call(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(time.perf_counter() - start, flush=True)


def piton_command(arguments):
    command = [str(ROOT / "tools" / "launch.sh"), str(arguments.world_size), arguments.piton, "bench", "train", "--model",
               arguments.model, "--micro-batch-size", str(arguments.micro_batch_size), "--seq-length",
               str(arguments.seq_length), "--threads", str(arguments.threads), "--rounds", str(arguments.steps),
               "--no-floor", "--json", "--quiet", *LAYOUTS[arguments.wrap]]
    return command + (["--bf16"] if arguments.dtype == "bf16" else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrap", choices=sorted(LAYOUTS), default="ddp")
    parser.add_argument("--model", default="gpt2-124m", choices=["gpt2-124m", "llama-134m"])
    parser.add_argument("--micro-batch-size", type=int, default=4)
    parser.add_argument("--seq-length", type=int, default=1024)
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--variant", default="weights-compile", help="of PyTorch: autocast or weights; -compile: compiled")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1, help="of each side in a round")
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--note", help="about the machine: 'shared' if others use it meanwhile")
    parser.add_argument("--output", help="default: bench/results/DATE-train-ranks-...json; - for stdout alone")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        return run_rank(arguments)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [PeerRank(arguments, rank, port) for rank in range(arguments.world_size)]

    def peer_step():
        for rank in ranks:
            rank.begin()
        return max([rank.seconds() for rank in ranks])

    for _ in range(2):
        peer_step()
    print("warmed up PyTorch", file=sys.stderr, flush=True)
    peers, piton = [], []
    for turn in range(arguments.rounds):
        peers += [peer_step() for _ in range(arguments.steps)]
        run = subprocess.run(piton_command(arguments), capture_output=True, text=True, check=True)
        piton.append(json.loads(run.stdout))
        print(f"round {turn + 1}: PyTorch {min(peers):.4f}, piton {min(one['best_seconds'] for one in piton):.4f}",
              file=sys.stderr, flush=True)
    for rank in ranks:
        rank.process.stdin.close()
        rank.process.wait()

    import torch
    import transformers

    tokens = arguments.micro_batch_size * arguments.seq_length * arguments.world_size
    own = min(one["best_seconds"] for one in piton)
    result = {
        "what": f"training step of {arguments.world_size} ranks: PyTorch's {arguments.wrap} over gloo",
        "command": command_line(arguments).replace("train.py", "train_ranks.py"),
        "piton_command": " ".join(["tools/launch.sh", str(arguments.world_size), "piton", *piton_command(arguments)[3:]]),
        "commit": text_of("git", "rev-parse", "HEAD"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": arguments.threads * arguments.world_size, "system": platform.system(),
                    **({"note": arguments.note} if arguments.note else {})},
        "peer": {"torch": torch.__version__, "transformers": transformers.__version__, "variant": arguments.variant},
        "tokens_per_step": tokens,
        "piton_tokens_per_second": tokens / own,
        "peer_tokens_per_second": tokens / min(peers),
        "times_peer": min(peers) / own,
        "raw": {"peer_seconds": peers, "piton": piton},
    }
    name = f"train-ranks-{arguments.wrap}-{arguments.model}-{arguments.dtype}-{arguments.micro_batch_size}x{arguments.seq_length}"
    path = write_result(result, arguments.output, name)
    if path is not None:
        print(f"{path}: piton {tokens / own:.0f} tokens/s, PyTorch ({arguments.wrap}, {arguments.variant}) "
              f"{tokens / min(peers):.0f}, ratio {min(peers) / own:.2f}")


if __name__ == "__main__":
    main()
