"""Updates of TRL's GRPOTrainer beside `piton finetune --stage grpo`, in turns, on the same machine.

    python bench/compare/grpo.py

Wants TRL (pip install trl) and a built piton. Both get the 134M LLaMA of random weights that train.py has, in a
folder of Hugging Face, questions of --prompt tokens, and a reward that is the number of characters of an answer, or
in Piton a program that prints it. Random weights never end a text, so each answer has --answer tokens. One update
has --questions questions with 8 answers each, in one micro-batch: the answers are written, and learned from with
AdamW. Weights of TRL are bf16 (no fp32 copies, less work than Piton does with --bf16) and fp32, of which the faster counts.
The first update of each run warms up; the fastest of the others counts.

Writes bench/results/DATE-grpo-llama-134m.json with the command, the commit, the machine and all times of both sides.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from train import ROOT, cpu_model, make_model, text_of, write_result

GENERATIONS = 8


def write_model(folder):
    """The model with a tokenizer of words "w0", "w1", ..."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    torch.manual_seed(1)
    model, vocabulary = make_model("llama-134m", 1024)
    words = {f"w{i}": i for i in range(vocabulary - 1)}
    words["</s>"] = vocabulary - 1
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model.config.eos_token_id = model.generation_config.eos_token_id = vocabulary - 1
    model.config.bos_token_id = model.generation_config.bos_token_id = None
    model.config.use_cache = True
    model.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>").save_pretrained(folder)


def write_questions(path, arguments):
    draw = random.Random(1)
    with open(path, "w") as lines:
        for _ in range(64):
            words = " ".join(f"w{draw.randrange(30000)}" for _ in range(arguments.prompt))
            lines.write(json.dumps({"prompt": words}) + "\n")


def run_trl(model, questions, arguments, dtype):
    """Seconds of each update."""
    script = f"""
import json, time, torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
torch.set_num_threads({arguments.threads})
class Clock(TrainerCallback):
    times = []
    def on_step_begin(self, *rest, **more): self.begin = time.perf_counter()
    def on_step_end(self, *rest, **more): self.times.append(time.perf_counter() - self.begin)
model = AutoModelForCausalLM.from_pretrained({str(model)!r}, dtype=torch.{dtype})
config = GRPOConfig(output_dir={str(model) + "-trl"!r}, per_device_train_batch_size={arguments.questions * GENERATIONS},
                    num_generations={GENERATIONS}, max_completion_length={arguments.answer}, beta=0.0, max_steps={arguments.steps},
                    learning_rate=1e-6, lr_scheduler_type="constant", use_cpu=True, bf16=False, gradient_checkpointing=False,
                    report_to=[], save_strategy="no", logging_steps=1, optim="adamw_torch_fused", seed=1)
clock = Clock()
GRPOTrainer(model, reward_funcs=lambda completions, **more: [float(len(text)) for text in completions], args=config,
            processing_class=AutoTokenizer.from_pretrained({str(model)!r}),
            train_dataset=load_dataset("json", data_files={str(questions)!r}, split="train"), callbacks=[clock]).train()
print("times", json.dumps(clock.times))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    for line in run.stdout.splitlines():
        if line.startswith("times "):
            return json.loads(line[6:])
    raise SystemExit(f"TRL failed\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}")


def piton_command(model, questions, arguments, save):
    batch = arguments.questions * GENERATIONS
    reward = "python3 -uc 'import sys, json\nfor line in sys.stdin: print(len(json.loads(line)[\"completion\"]))'"
    return [arguments.piton, "finetune", "--stage", "grpo", "--load", model, "--data-path", questions, "--reward", "command",
            "--reward-command", reward, "--num-generations", GENERATIONS, "--max-completion-length", arguments.answer,
            "--seq-length", arguments.prompt + arguments.answer, "--micro-batch-size", batch, "--global-batch-size", batch,
            "--train-iters", arguments.steps, "--lr", "1e-6", "--lr-decay-style", "constant", "--bf16", "--threads",
            arguments.threads, "--save", save, "--no-save-optim", "--quiet"]


def run_piton(command, save, arguments):
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"piton failed\n{run.stderr[-2000:]}")
    lines = [json.loads(line) for line in open(pathlib.Path(save) / "metrics.jsonl")]
    if any(line["completion_length"] != arguments.answer for line in lines):
        raise SystemExit("piton's answers are shorter than TRL's")
    return [line["elapsed_ms"] / 1e3 for line in lines], [line["generation_ms"] / 1e3 for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--questions", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--output", help="default: bench/results/DATE-grpo-llama-134m.json; -: stdout")
    arguments = parser.parse_args()

    times = {"trl bfloat16": [], "trl float32": [], "piton": [], "piton generation": []}
    with tempfile.TemporaryDirectory() as folder:
        model, questions = pathlib.Path(folder) / "model", pathlib.Path(folder) / "questions.jsonl"
        write_model(model)
        write_questions(questions, arguments)
        for number in range(arguments.rounds):
            for dtype in ("bfloat16", "float32"):
                times["trl " + dtype].append(run_trl(model, questions, arguments, dtype))
            save = pathlib.Path(folder) / f"run{number}"
            whole, generation = run_piton(piton_command(model, questions, arguments, save), save, arguments)
            times["piton"].append(whole)
            times["piton generation"].append(generation)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        command = piton_command("MODEL", "questions.jsonl", arguments, "run")
        command = " ".join(["piton", *map(str, command[1:])])
    best = {name: min(min(run[1:]) for run in runs) for name, runs in times.items()}
    trl = min(best["trl bfloat16"], best["trl float32"])
    tokens = arguments.questions * GENERATIONS * arguments.answer
    result = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "commit": text_of("git", "rev-parse", "HEAD"),
              "cpu": cpu_model(), "threads": arguments.threads, "piton_command": command,
              "peer": "TRL " + text_of(sys.executable, "-c", "import trl; print(trl.__version__)"),
              "answer_tokens_of_an_update": tokens, "seconds": times, "best_seconds": best,
              "times_trl": trl / best["piton"]}
    path = write_result(result, arguments.output, "grpo-llama-134m")
    print(f"{path}: an update takes TRL {trl:.2f} s, piton {best['piton']:.2f} s "
          f"({best['piton generation']:.2f} s of it writes answers), {result['times_trl']:.2f} x")


if __name__ == "__main__":
    main()
