"""lm-evaluation-harness with Transformers beside `piton eval`, in turns, on the same machine.

    python bench/compare/evaluate.py MODEL BENCH --tasks mmlu hellaswag lambada

Wants lm_eval (0.4.13), torch and transformers (see tools/oracle/evaluation.py) and a built piton. MODEL is a
Hugging Face folder, BENCH a folder of data as tools/oracle/evaluation.py reads it. Both sides answer the first
--limit questions of each subject, MMLU with five examples, with at most --batch texts at once. Of the harness
the requests alone are timed, in bf16 and in fp32 (--dtypes), of which the faster counts; of piton the whole command. Seconds of all threads
(cpu_seconds) tell about a busy machine.

Writes bench/results/DATE-evaluation.json with the commands, the commit, the machine, all times, the scores of
both sides, the tokens that piton computed, and the largest memory of both.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "oracle"))
from record import record
from train import ROOT

FILES = {"mmlu": "mmlu", "hellaswag": "hellaswag_val_subset.jsonl", "lambada": "lambada"}


def harness(options, dtype):
    """Seconds, those of all threads, and the mean of `acc` of each task."""
    import evaluation
    import torch
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(options.threads)
    lm = HFLM(pretrained=options.model, device="cpu", dtype=dtype, batch_size=options.batch)
    out = {}
    for task in options.tasks:
        seconds, cpu_seconds, right = 0.0, 0.0, []
        for name, subject, file, rows, shots in evaluation.cases(options.bench, options.limit[task]):
            if name != task:
                continue
            made = evaluation.make_task(file, rows, shots)
            begin, cpu_begin = time.perf_counter(), time.process_time()
            samples = evaluation.run(lm, name, subject, made, options.limit[task], False)["samples"]
            seconds += time.perf_counter() - begin
            cpu_seconds += time.process_time() - cpu_begin
            right += [s["metrics"]["acc,none"] for s in samples]
        out[task] = {"seconds": seconds, "cpu_seconds": cpu_seconds, "questions": len(right),
                     "acc": sum(right) / len(right)}
    out["largest_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return out


def command_of(options, task, results):
    return [options.piton, "eval", "--load", options.model, "--task", task, "--task-data-path",
            str(pathlib.Path(options.bench) / FILES[task]), "--max-eval-samples", str(options.limit[task]),
            "--num-shots", "5" if task == "mmlu" else "0", "--batch-size", str(options.batch),
            "--save-results", results]


def piton(options):
    out, memory = {}, 0
    for task in options.tasks:
        with tempfile.TemporaryDirectory() as results:
            begin = time.perf_counter()
            run = subprocess.Popen(command_of(options, task, results), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(run.pid, 0)
            seconds = time.perf_counter() - begin
            if status != 0:
                raise SystemExit(f"{' '.join(command_of(options, task, 'DIR'))}: status {status}")
            memory = max(memory, usage.ru_maxrss)
            found = json.loads((pathlib.Path(results) / "results.json").read_text())
        cpu_seconds = usage.ru_utime + usage.ru_stime
        out[task] = {"seconds": seconds, "cpu_seconds": cpu_seconds, "results": found["results"], "computation": found.get("computation")}
    out["largest_memory_mib"] = memory / 1024
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("bench")
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--tasks", nargs="+", default=list(FILES), choices=list(FILES))
    parser.add_argument("--limits", nargs="+", type=int, default=[10, 60, 100], help="questions of each subject")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], help="of the harness")
    parser.add_argument("--dtype", help="one round of the harness in this type, in this process")
    options = parser.parse_args()
    options.limit = dict(zip(options.tasks, options.limits))
    if options.dtype:
        print(json.dumps(harness(options, options.dtype)))
        return
    rounds = []
    for _ in range(options.rounds):
        one = {"piton": piton(options)}
        for dtype in options.dtypes:
            run = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--dtype", dtype], check=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            one[f"lm_eval {dtype}"] = json.loads(run.stdout.splitlines()[-1])
        rounds.append(one)
    ratios, cpu_ratios = {}, {}
    for task in options.tasks:
        best = {side: min(one[side][task]["seconds"] for one in rounds) for side in rounds[0]}
        ratios[task] = min(s for side, s in best.items() if side != "piton") / best["piton"]
        cpu = {side: min(one[side][task]["cpu_seconds"] for one in rounds) for side in rounds[0]}
        cpu_ratios[task] = min(s for side, s in cpu.items() if side != "piton") / cpu["piton"]
        print(task, {side: round(s, 2) for side, s in best.items()}, f"{ratios[task]:.2f} x", flush=True)
    options.piton, options.model, options.bench = "piton", "MODEL", "BENCH"
    commands = [" ".join(command_of(options, task, "DIR")) for task in options.tasks]
    print(record("evaluation", commands, {"ratios": ratios, "cpu_ratios": cpu_ratios, "rounds": rounds, "limits": options.limit,
                                          "batch": options.batch}))


if __name__ == "__main__":
    main()
