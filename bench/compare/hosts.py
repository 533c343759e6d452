"""Slices (CoC) against whole collectives on two hosts, in turns: what their overlap gains on a real network.

    python bench/compare/hosts.py --link "rate 1gbit burst 256kb latency 50ms" --rounds 3
    python bench/compare/hosts.py --layout "--context-parallel-size 2 --cp-comm-type a2a" --name a2a --model ...

The hosts are network namespaces of this machine, whose links tc shapes (tools/launch_hosts.sh; wants root and
iproute2). Each has one rank on one core, and the two divide each layer: by default TP 2 with sequence parallelism,
whose linears are cut. A round runs `piton bench train` once for each number of slices; the best step of each counts.
gain = whole / sliced - 1. Next to it: the same by `bench train --step-time`, the clock of `piton plan` with the link
and the kernel calls measured, and what MindSpeed publishes for slices of linears on its machines.

Writes bench/results/DATE-NAME-hosts-RATE.json with the command, the commit, the machine and all raw outputs.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from record import record

PUBLISHED = {"Bloom 7B": 0.0320, "Bloom 176B": 0.0547, "LLaMA2 70B": 0.0785}
MODEL = "--model gpt2-124m --bf16 --seq-length 512 --micro-batch-size 4"
LAYOUT = "--tensor-model-parallel-size 2 --sequence-parallel"


class Hosts:
    """Two hosts of one rank each."""

    def __init__(self, options, folder):
        self.options = options
        # Each rank sees one core: a host of one rank would take all of them.
        self.one_core = folder / "one_core.sh"
        self.one_core.write_text(f'#!/bin/sh\nexec taskset -c "$OMPI_COMM_WORLD_RANK" {options.piton} "$@"\n')
        self.one_core.chmod(0o755)

    def command(self, slices):
        return ["bench", "train", *self.options.model.split(), *self.options.layout.split(), "--threads", "1",
                "--rounds", str(self.options.steps), "--no-floor", "--step-time", "--json", "--quiet",
                "--num-slices", str(slices)]

    def run(self, slices):
        environment = {**os.environ, **({"PITON_LINK": self.options.link} if self.options.link else {})}
        done = subprocess.run([ROOT / "tools" / "launch_hosts.sh", "2", "1", self.one_core, *self.command(slices)],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode == 77:
            raise SystemExit(done.stderr.strip())
        if done.returncode != 0:
            raise SystemExit(f"{slices} slices: exit {done.returncode}\n{done.stderr}")
        # What each host has sent, which the script prints, is of all steps.
        return {"output": json.loads(done.stdout), "hosts": done.stderr.strip().splitlines(),
                "load": os.getloadavg()[0]}


def summary(runs):
    """Best and planned step of each number of slices, and the gains over the first one."""
    best = {slices: min(one["output"]["best_seconds"] for one in of_one) for slices, of_one in runs.items()}
    planned = {slices: min(one["output"]["planned_step_seconds"] for one in of_one) for slices, of_one in runs.items()}
    whole = next(iter(runs))
    return {slices: {"best_seconds": best[slices], "gain": best[whole] / best[slices] - 1,
                     "planned_seconds": planned[slices], "planned_gain": planned[whole] / planned[slices] - 1,
                     "sent_bytes_a_rank": of_one[0]["output"]["ranks"][0]["sent_bytes"]}
            for slices, of_one in runs.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--link", default="rate 1gbit burst 256kb latency 50ms",
                        help='of each host, as tc tbf takes it; "" for links that are not limited')
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 2, 4, 8], help="the first one is compared with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="measured after each start")
    parser.add_argument("--model", default=MODEL, help="options of piton bench train")
    parser.add_argument("--layout", default=LAYOUT, help="options of the two ranks")
    parser.add_argument("--name", default="coc", help="of the file of results")
    parser.add_argument("--note", help="about the machine: 'shared' if others use it meanwhile")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("hosts.py: needs two cores, one for each host")
    runs = {slices: [] for slices in options.slices}
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(options, pathlib.Path(folder))
        for number in range(options.rounds):
            for slices in runs:
                runs[slices].append(hosts.run(slices))
                seconds = runs[slices][-1]["output"]["best_seconds"]
                print(f"round {number + 1}: {slices} slices: {seconds:.3f} s", flush=True)
    table = summary(runs)
    for slices, row in table.items():
        print(f"{slices} slices: {row['best_seconds']:.3f} s, gain {100 * row['gain']:.1f} %; "
              f"planned {row['planned_seconds']:.3f} s, gain {100 * row['planned_gain']:.1f} %")
    rate = options.link.split()[1] if options.link else "unlimited"
    command = f"PITON_LINK=\"{options.link}\" tools/launch_hosts.sh 2 1 piton {' '.join(hosts.command('P'))}"
    result = {"link": options.link, "slices": table, "published_gain": PUBLISHED, "runs": runs}
    print(record(f"{options.name}-hosts-{rate}", command, result, note=options.note))


if __name__ == "__main__":
    main()
