"""Runs `piton bench` and keeps its object with the command, the commit and the machine.

    python bench/record.py decode -- decode --model llama-1.1b --bf16

writes bench/results/DATE-decode.json. Standard library alone.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "compare"))
from train import ROOT, cpu_model, text_of


def record(name, command, result, note=None, path=None):
    """Writes bench/results/DATE-NAME.json, or `path`. `note`: about the machine, 'shared' if others use it meanwhile."""
    now = datetime.datetime.now(datetime.timezone.utc)
    path = pathlib.Path(path or ROOT / "bench" / "results" / f"{now.date().isoformat()}-{name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({
        "command": command,
        "commit": text_of("git", "rev-parse", "HEAD"),
        "date": now.isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "system": platform.system(),
                    **({"note": note} if note else {})},
        "result": result,
    }, indent=1) + "\n")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("name")
    parser.add_argument("arguments", nargs="+", help="of piton bench, after --")
    options = parser.parse_args()
    run = subprocess.run([options.piton, "bench", *options.arguments, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    command = " ".join(["piton bench", *options.arguments])
    print(record(options.name, command, json.loads(run.stdout)))


if __name__ == "__main__":
    main()
