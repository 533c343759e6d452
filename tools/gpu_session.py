#!/usr/bin/env python3
"""Everything that needs a GPU, in the order of what is needed first.

    cmake --preset cuda $(tools/fetch-arrow.sh)                                    without a GPU: the build
    cmake --build --preset cuda --target piton unit_device_cuda unit_kernels_cuda
    tools/gpu_session.py OUT_FOLDER [--parts PART ...] [--build build-cuda]        on the GPU

Parts: tests, losses (both back ends, many options), layouts (two ranks over NCCL, also on one GPU), chain
(train, resume, fine-tune, generate, score), graphs (steps as CUDA graphs have the losses of launches), steps (times, with
PyTorch if it is installed), calls (bench of kernels, decoding), profile (Nsight Compute), sanitizers. A part never
stops at a failure. Each command has a log; summary.txt has a line for each with its exit code and its seconds. The exit
code is 1 if a test or a comparison failed.
"""
import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ["tests", "losses", "layouts", "chain", "graphs", "steps", "calls", "profile", "sanitizers"]

STEPS = ("--mock-data --vocab-size 257 --seq-length 64 --micro-batch-size 2 --global-batch-size 8 --train-iters 6 "
         "--log-interval 1 --lr 1e-3 --seed 7").split()
GPT, LLAMA = "gpt2-tiny", "llama-tiny"
EXPERTS = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 96"
# name: (model, options). Losses of both back ends differ by at most 1e-4, in 16 bits by 5e-3.
TRAINING = {
    "gpt": (GPT, ""),
    "gpt_bf16": (GPT, "--bf16"),
    "gpt_fp16": (GPT, "--fp16 --initial-loss-scale 4096"),
    "llama": (LLAMA, ""),
    "llama_bf16": (LLAMA, "--bf16"),
    "llama_fp16": (LLAMA, "--fp16 --initial-loss-scale 4096"),
    "dropout": (GPT, "--bf16 --hidden-dropout 0.2 --attention-dropout 0.2"),
    "recompute": (LLAMA, "--bf16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
    "selective": (LLAMA, "--bf16 --recompute-granularity selective --recompute-modules core_attn layernorm"),
    "residual_fp32": (LLAMA, "--bf16 --fp32-residual-connection"),
    "fp8_tensorwise": (LLAMA, "--bf16 --fp8-format hybrid"),
    "fp8_blockwise": (LLAMA, "--bf16 --fp8-format e4m3 --fp8-recipe blockwise"),
    "alibi": (GPT, "--bf16 --position-embedding-type alibi"),
    "window": (LLAMA, "--bf16 --pre-tockens 16"),
    "documents": (LLAMA, "--bf16 --reset-attention-mask --reset-position-ids"),
    "muon": (LLAMA, "--optimizer muon"),
    "experts": (LLAMA, EXPERTS),
    "sgd": (LLAMA, "--optimizer sgd"),
    "cadam": (LLAMA, "--optimizer cadam"),
    "offload_optimizer": (LLAMA, "--bf16 --remote-device cpu"),
    "qwen3": ("qwen3-0.6b", "--bf16 --num-layers 2 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 "
              "--num-query-groups 2 --kv-channels 16"),
    "bloom": ("", "--bf16 --model-family bloom --max-position-embeddings 64 --num-layers 2 --hidden-size 64 "
              "--num-attention-heads 4"),
    "gemma": ("", "--bf16 --model-family gemma --max-position-embeddings 64 --num-layers 2 --hidden-size 64 "
              "--num-attention-heads 4 --ffn-hidden-size 96 --kv-channels 32"),
}
# name: (model, options) of two ranks. Losses are those of one process.
LAYOUTS = {
    "data": (GPT, ""),
    "tensor": (GPT, "--tensor-model-parallel-size 2"),
    "sequence": (LLAMA, "--tensor-model-parallel-size 2 --sequence-parallel"),
    "pipeline": (LLAMA, "--pipeline-model-parallel-size 2"),
    "zero_1": (LLAMA, "--zero-stage 1"),
    "zero_2": (LLAMA, "--zero-stage 2"),
    "zero_3": (LLAMA, "--zero-stage 3"),
    "context": (LLAMA, "--context-parallel-size 2"),
    "context_heads": (LLAMA, "--context-parallel-size 2 --cp-comm-type a2a"),
    "context_gathered": (LLAMA, "--context-parallel-size 2 --cp-comm-type allgather"),
    "muon_zero_3": (LLAMA, "--optimizer muon --zero-stage 3"),
    "zb_h1": (LLAMA, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"),
    "experts_gathered": (LLAMA, EXPERTS + " --expert-model-parallel-size 2"),
    "experts_rows": (LLAMA, EXPERTS + " --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall"),
}


class Session:
    def __init__(self, arguments):
        self.build = ROOT / arguments.build
        self.piton = str(self.build / "piton")
        self.out = pathlib.Path(arguments.out)
        self.limit = arguments.seconds
        self.failed = []
        self.lock = threading.Lock()
        self.out.mkdir(parents=True, exist_ok=True)
        self.summary = open(self.out / "summary.txt", "a")

    def say(self, line):
        with self.lock:
            print(line, flush=True)
            self.summary.write(line + "\n")
            self.summary.flush()

    def run(self, name, command, counts=True, seconds=None, environment=None):
        """Runs a command with a log. counts: its failure is one of the session."""
        begin = time.monotonic()
        with open(self.out / f"{name}.log", "w") as log:
            try:
                code = subprocess.run([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                                      timeout=seconds or self.limit,
                                      env={**os.environ, **(environment or {})}).returncode
            except subprocess.TimeoutExpired:
                code = 124
        self.say(f"{name:32} exit {code:3}  {time.monotonic() - begin:5.1f} s")
        if code != 0 and counts:
            self.failed.append(name)
        return code

    def text(self, name):
        return (self.out / f"{name}.log").read_text(errors="replace")

    def losses(self, name):
        return [float(loss) for loss in re.findall(r"lm loss: ([0-9.E+-]+)", self.text(name))]

    def compare(self, name, other, allowed):
        ours, theirs = self.losses(name), self.losses(other)
        if not ours or len(ours) != len(theirs):
            self.say(f"{name:32} against {other}: {len(ours)} and {len(theirs)} losses: FAILED")
            self.failed.append(name)
            return
        difference = max(abs(a - b) for a, b in zip(ours, theirs))
        good = difference <= allowed  # not if one is NaN
        self.say(f"{name:32} against {other}: {difference:.2g}, wanted at most {allowed}{'' if good else ': FAILED'}")
        if not good:
            self.failed.append(name)

    def judge(self, name, good, what):
        self.say(f"{name:32} {what}{'' if good else ': FAILED'}")
        if not good:
            self.failed.append(name)

    def pretrain(self, kernels, model, options):
        preset = ["--model", model] if model else []
        return [self.piton, "pretrain", "--kernels", kernels, *preset, *STEPS, *options.split()]

    def tests(self):
        self.run("device", ["nvidia-smi", "-q"], counts=False)
        self.run("doctor", [self.piton, "doctor"])
        self.run("unit_device", [self.build / "tests/unit_device_cuda"])
        self.run("unit_kernels", [self.build / "tests/unit_kernels_cuda"])

    def train_both(self, name):
        model, options = TRAINING[name]
        for kernels in ["cpu", "cuda"]:
            self.run(f"train_{name}_{kernels}", self.pretrain(kernels, model, options), seconds=60,
                     environment={"OMP_NUM_THREADS": "2"})
        self.compare(f"train_{name}_cuda", f"train_{name}_cpu", 5e-3 if "16" in options else 1e-4)

    def in_parallel(self, work, names, workers):
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, names))

    def training(self):
        self.in_parallel(self.train_both, TRAINING, max(1, (os.cpu_count() or 2) // 3))

    def two_ranks(self, place):
        number, name = place
        model, options = LAYOUTS[name]
        several = self.gpus() >= 2
        ranks = []
        for rank in range(2):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                           "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29500 + 10 * number)}
            if not several:
                # NCCL refuses two ranks with one GPU. With two names for the host it takes them for GPUs of two hosts.
                environment |= {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
            with open(self.out / f"two_{name}_{rank}.log", "w") as log:
                ranks.append(subprocess.Popen(self.pretrain("cuda", model, options), stdout=log, cwd=ROOT,
                                              stderr=subprocess.STDOUT, env=environment))
        end = time.monotonic() + 120
        for rank in ranks:
            try:
                rank.wait(max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                rank.kill()
        last = max((0, 1), key=lambda rank: self.text(f"two_{name}_{rank}").count("lm loss"))
        kinds = ["gpt"] if model == GPT else [kind for kind in ("muon", "experts") if kind in name] + ["llama"]
        self.compare(f"two_{name}_{last}", f"train_{kinds[0]}_cpu", 1e-4)

    def layouts(self):
        for name in ["gpt", "llama", "muon", "experts"]:
            model, options = TRAINING[name]
            if not (self.out / f"train_{name}_cpu.log").exists():
                self.run(f"train_{name}_cpu", self.pretrain("cpu", model, options))
        self.in_parallel(self.two_ranks, list(enumerate(LAYOUTS)), 3)

    # From a text to a tuned model by both back ends; runs are saved by one and go on by the other.
    def chain(self):
        here = (self.out / "chain").resolve()
        here.mkdir(exist_ok=True)
        with gzip.open(ROOT / "recipes/demo/shakespeare_train.txt.gz") as text:
            book = text.read(250_000)
        (here / "book.txt").write_bytes(book)
        (here / "part.txt").write_bytes(book[:20_000])
        lines = [line.strip() for line in book.decode(errors="replace").splitlines() if len(line) > 20][:400]
        (here / "chats.json").write_text(json.dumps([{"instruction": first, "input": "", "output": second}
                                                     for first, second in zip(lines[::2], lines[1::2])]))
        tokens = ["--tokenizer-type", "ByteTokenizer"]
        self.run("chain_book", [self.piton, "preprocess", "--input", here / "book.txt", *tokens, "--append-eod",
                                "--output-prefix", here / "book"])
        self.run("chain_chats", [self.piton, "preprocess", "--input", here / "chats.json", "--handler-name",
                                 "AlpacaStyleInstructionHandler", "--prompt-type", "default", *tokens,
                                 "--output-prefix", here / "chats"])

        def train(name, kernels, *options):
            self.run(name, [self.piton, "pretrain", "--kernels", kernels, "--model", "llama-tiny", *tokens,
                            "--data-path", here / "book_text_document", "--seq-length", 128, "--micro-batch-size", 16,
                            "--train-iters", 100, "--lr", "3e-3", "--eval-iters", 0, "--log-interval", 1, *options])

        def hashes(name, folder):
            self.run(name, [self.piton, "inspect", folder, "--hash"])
            return re.findall(r"(?:weights|optimizer) +([0-9a-f]{32})", self.text(name))

        for kernels in ["cpu", "cuda"]:
            train(f"chain_half_{kernels}", kernels, "--exit-interval", 50, "--save", here / kernels)
            shutil.copytree(here / kernels, here / f"{kernels}_first", symlinks=True)
        for kernels, other in [("cpu", "cuda"), ("cuda", "cpu")]:
            train(f"chain_rest_{kernels}", kernels, "--save", here / kernels, "--load", here / kernels)
            folder = here / f"{kernels}_first"
            train(f"chain_{kernels}_then_{other}", other, "--save", folder, "--load", folder)
        train("chain_whole_cuda", "cuda", "--save", here / "whole")
        same = hashes("chain_hash_resumed", here / "cuda") == hashes("chain_hash_whole", here / "whole")
        self.judge("chain_resumed", same, "weights and optimizer of a resumed run have the bits of one without a stop")
        self.compare("chain_half_cuda", "chain_half_cpu", 1e-3)
        self.compare("chain_cuda_then_cpu", "chain_rest_cuda", 5e-3)
        self.compare("chain_cpu_then_cuda", "chain_rest_cpu", 5e-3)

        model = here / "cpu"
        for name, options in {"plain": "", "cache_int8": "--kv-cache-dtype int8"}.items():
            texts = []
            for kernels in ["cpu", "cuda"]:
                log = f"chain_generate_{name}_{kernels}"
                self.run(log, [self.piton, "generate", "--kernels", kernels, "--load", model, "--prompt", "ROMEO:",
                               "--greedy", "--max-new-tokens", 60, *options.split()])
                texts.append([line for line in self.text(log).splitlines() if not re.match(r"\[20|warning", line)])
            self.judge(f"chain_generate_{name}", texts[0] == texts[1], "the texts of both back ends are the same")
        scores = []
        for kernels in ["cpu", "cuda"]:
            self.run(f"chain_score_{kernels}", [self.piton, "score", "--kernels", kernels, "--load", model,
                                                here / "part.txt"])
            scores += [float(x) for x in re.findall(r"loss ([0-9.]+) nats", self.text(f"chain_score_{kernels}"))]
        self.judge("chain_score", len(scores) == 2 and abs(scores[0] - scores[1]) <= 1e-5, f"losses {scores}")
        for name, options in {"all": "", "lora": "--lora-target-modules all-linear", "bf16": "--bf16",
                              "dora": "--lora-target-modules all-linear --use-dora"}.items():
            for kernels in ["cpu", "cuda"]:
                self.run(f"chain_tune_{name}_{kernels}",
                         [self.piton, "finetune", "--kernels", kernels, "--load", model, "--data-path", here / "chats",
                          "--prompt-type", "default", "--seq-length", 128, "--micro-batch-size", 4,
                          "--global-batch-size", 8, "--train-iters", 6, "--lr", "1e-3", "--log-interval", 1,
                          *options.split()])
            self.compare(f"chain_tune_{name}_cuda", f"chain_tune_{name}_cpu", 5e-3 if name == "bf16" else 1e-3)

    # A step that is recorded as a CUDA graph has the bits of one whose kernels are launched.
    def graphs(self):
        for name in ["gpt_bf16", "llama_fp16", "dropout", "recompute", "muon", "cadam"]:
            model, options = TRAINING[name]
            for form in ["", " --no-cuda-graph"]:
                self.run(f"graph_{name}" + ("_launched" if form else ""), self.pretrain("cuda", model, options + form), seconds=60)
            self.compare(f"graph_{name}", f"graph_{name}_launched", 0)
            self.judge(f"graph_{name}", "steps are recorded as CUDA graphs" in self.text(f"graph_{name}"),
                       "its steps are recorded")

    def gpus(self):
        return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())

    # Without dropout, as PyTorch's.
    def step(self, name, model, micro, length, *more, iterations=8, batches=1):
        self.run(name, [self.piton, "pretrain", "--kernels", "cuda", "--model", model, "--mock-data", "--bf16",
                        "--seq-length", length, "--micro-batch-size", micro, "--global-batch-size", micro * batches,
                        "--train-iters", iterations, "--log-interval", 1, *more])
        times = [float(x) for x in re.findall(r"per iteration \(ms\): ([0-9.]+)", self.text(name))]
        share = re.findall(r"share of peak: ([0-9.]+)", self.text(name))
        if times:
            self.say(f"{name:32} best step {min(times):.1f} ms, last share of peak {share[-1] if share else '?'} %")

    def steps(self):
        plain = ["--hidden-dropout", "0", "--attention-dropout", "0"]
        self.step("step_gpt2_8", "gpt2-124m", 8, 1024, *plain)
        self.step("step_gpt2_32", "gpt2-124m", 32, 1024, *plain)
        self.step("step_gpt2_32_dropout", "gpt2-124m", 32, 1024, "--hidden-dropout", "0.1", "--attention-dropout",
                  "0.1")
        self.step("step_llama_8", "llama-1.1b", 8, 2048)
        # The time of the host: the GPU has next to nothing to do.
        self.step("step_gpt2_host", "gpt2-124m", 1, 64, *plain, iterations=20)
        # The same without graphs.
        launched = "--no-cuda-graph"
        self.step("step_gpt2_8_launched", "gpt2-124m", 8, 1024, *plain, launched)
        self.step("step_gpt2_32_launched", "gpt2-124m", 32, 1024, *plain, launched)
        self.step("step_llama_8_launched", "llama-1.1b", 8, 2048, launched)
        self.step("step_gpt2_host_launched", "gpt2-124m", 1, 64, *plain, launched, iterations=20)
        # Eight micro-batches a step.
        for name, more in [("step_gpt2_8x8", []), ("step_gpt2_8x8_launched", [launched])]:
            self.step(name, "gpt2-124m", 8, 1024, *plain, *more, batches=8)

    def torch(self):
        if subprocess.run(["python3", "-c", "import torch, transformers; assert torch.cuda.is_available()"],
                          capture_output=True).returncode != 0:
            return
        for model, micro, length in [("gpt2-124m", 8, 1024), ("gpt2-124m", 32, 1024), ("llama-1.1b", 8, 2048)]:
            name = f"torch_{model}_{micro}"
            self.run(name, ["python3", "bench/compare/train_cuda.py", "--model", model, "--micro-batch-size", micro,
                            "--seq-length", length, "--forms", "compile"], counts=False)
            times = re.findall(r'"compile": \[(.*)\]', self.text(name))
            if times:
                self.say(f"{name:32} best step {1e3 * min(map(float, times[0].split(','))):.1f} ms")
        self.run("torch_attention", ["python3", "bench/compare/attention_cuda.py"], counts=False)

    def bench(self, name, *words):
        self.run(name, [self.piton, "bench", *words, "--kernels", "cuda"])

    def calls(self):
        self.bench("bench_train", "train", "--model", "gpt2-124m", "--bf16", "--seq-length", "1024",
                   "--micro-batch-size", "32", "--rounds", "3", "--profile", "--hidden-dropout", "0",
                   "--attention-dropout", "0")
        self.bench("bench_attention", "attention", "--bf16", "--model", "llama2-7b", "--num-attention-heads", "16",
                   "--hidden-size", "2048", "--seq-length", "16384", "--micro-batch-size", "1", "--rounds", "3")
        self.bench("bench_optimizer", "optimizer", "--bf16", "--elements", "500000000", "--rounds", "3")
        self.bench("bench_decode", "decode", "--model", "llama-1.1b", "--bf16", "--tokens", "32", "--rounds", "3")
        self.bench("bench_decode_8", "decode", "--model", "llama-1.1b", "--bf16", "--tokens", "32", "--rounds", "3",
                   "--micro-batch-size", "8")
        self.bench("bench_decode_7b", "decode", "--model", "llama2-7b", "--bf16", "--tokens", "32", "--rounds", "3")
        self.bench("bench_prefill", "prefill", "--model", "llama-1.1b", "--bf16", "--context", "2048", "--rounds", "3")

    def profile(self):
        if shutil.which("ncu") is None:
            self.say("profile: no ncu")
            return
        self.run("profile", ["ncu", "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--clock-control", "none",
                             "--csv", "--log-file", self.out / "profile.csv", self.piton, "pretrain", "--kernels",
                             "cuda", "--model", "gpt2-124m", "--mock-data", "--bf16", "--seq-length", 1024,
                             "--micro-batch-size", 32, "--train-iters", 2, "--global-batch-size", 32,
                             "--hidden-dropout", 0, "--attention-dropout", 0])

    def sanitizers(self):
        if shutil.which("compute-sanitizer") is None:
            self.say("sanitizers: no compute-sanitizer")
            return
        for tool in ["memcheck", "racecheck", "initcheck"]:
            for case in ["fp32_plain", "bf16_plain"]:
                self.run(f"sanitizer_{tool}_{case}",
                         ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9",
                          self.build / "tests/unit_kernels_cuda", f"--gtest_filter=*AgreeWithTheReference/{case}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--parts", nargs="+", choices=[*PARTS, "torch"], default=[*PARTS, "torch"])
    parser.add_argument("--build", default="build-cuda")
    parser.add_argument("--seconds", type=float, default=300, help="limit of one command")
    arguments = parser.parse_args()
    session = Session(arguments)
    if not pathlib.Path(session.piton).exists():
        sys.exit(f"gpu_session: no {session.piton}; build it: cmake --build --preset cuda")
    for part in arguments.parts:
        getattr(session, "training" if part == "losses" else part)()
    session.say(f"failed: {', '.join(session.failed) or 'nothing'}")
    sys.exit(1 if session.failed else 0)


if __name__ == "__main__":
    main()
