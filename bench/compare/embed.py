"""Vectors of 1,000 short lines: `piton embed` beside Transformers with the batching of sentence-transformers.

    python bench/compare/embed.py [--rounds 5] [--threads 1] [--note shared]

Wants PyTorch and transformers, and a built piton. A BERT of random weights (6 layers of width 384, as MiniLM) is written
as a Hugging Face folder with a WordPiece vocabulary of the lines. The peer sorts lines by length and pads batches of 32,
as sentence-transformers does, in fp32, and takes the mean of each; its time is without loading. Piton's time is that of
the command on all lines less that on one line, so without loading too. In turns; the best of each counts, by the clock
and by the processors, which other work on the machine disturbs less.

Writes bench/results/DATE-embed.json.
"""
import argparse
import collections
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from train import ROOT

sys.path.insert(0, str(ROOT / "bench"))
from record import record  # noqa: E402

LINES = 1000


def make_lines():
    draw = random.Random(5)
    words = ["".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(2, 9))) for _ in range(2000)]
    return words, [" ".join(draw.choice(words) for _ in range(draw.randint(4, 24))) for _ in range(LINES)]


def make_model(folder, words):
    import torch
    import transformers

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *collections.OrderedDict.fromkeys(words)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    model = transformers.BertModel(transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536))
    model.save_pretrained(folder)
    return tokenizer, model.eval()


def peer_vectors(tokenizer, model, lines):
    import torch

    order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    vectors = [None] * len(lines)
    with torch.no_grad():
        for begin in range(0, len(order), 32):
            part = order[begin:begin + 32]
            batch = tokenizer([lines[i] for i in part], padding=True, truncation=True, return_tensors="pt")
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"][..., None]
            for i, vector in zip(part, (hidden * mask).sum(1) / mask.sum(1)):
                vectors[i] = vector
    return torch.stack(vectors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--note", help="about the machine: 'shared' if others use it meanwhile")
    parser.add_argument("--output", help="default: bench/results/DATE-embed.json")
    arguments = parser.parse_args()
    import safetensors.torch
    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    words, lines = make_lines()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokenizer, model = make_model(folder, words)
        (folder / "all.txt").write_text("\n".join(lines) + "\n")
        (folder / "one.txt").write_text(lines[0] + "\n")

        def piton(texts):
            output = folder / f"{texts}.safetensors"
            output.unlink(missing_ok=True)
            start = time.perf_counter()
            process = subprocess.Popen([arguments.piton, "embed", "--load", str(folder), str(folder / f"{texts}.txt"),
                                        "--output", str(output), "--threads", str(arguments.threads), "--quiet"])
            _, status, usage = os.wait4(process.pid, 0)
            if status != 0:
                raise SystemExit(f"piton embed: status {status}")
            return time.perf_counter() - start, usage.ru_utime + usage.ru_stime

        peers, all_lines, one_line = [], [], []
        for turn in range(arguments.rounds):
            start, used = time.perf_counter(), time.process_time()
            wanted = peer_vectors(tokenizer, model, lines)
            peers.append((time.perf_counter() - start, time.process_time() - used))
            all_lines.append(piton("all"))
            one_line.append(piton("one"))
            print(f"round {turn + 1}: peer {peers[-1][0]:.3f} s, piton {all_lines[-1][0] - one_line[-1][0]:.3f} s; of the "
                  f"processors {peers[-1][1]:.3f} s, {all_lines[-1][1] - one_line[-1][1]:.3f} s", flush=True)
        (got,) = safetensors.torch.load_file(folder / "all.safetensors").values()
    difference = (got.double() - wanted.double()).abs().max().item()
    assert difference < 1e-4, difference
    seconds, processor = (min(times[kind] for times in all_lines) - min(times[kind] for times in one_line)
                          for kind in range(2))
    peer_seconds, peer_processor = (min(times[kind] for times in peers) for kind in range(2))
    result = {
        "what": f"vectors of {LINES} lines of 4 to 24 words",
        "threads": arguments.threads,
        "peer": {"torch": torch.__version__, "transformers": transformers.__version__},
        "piton_seconds": seconds, "peer_seconds": peer_seconds, "times_peer": peer_seconds / seconds,
        "piton_processor_seconds": processor, "peer_processor_seconds": peer_processor,
        "times_peer_by_processors": peer_processor / processor,
        "largest_difference": difference,
        "raw": {"peer": peers, "piton_all": all_lines, "piton_one": one_line},
    }
    command = f"python bench/compare/embed.py --rounds {arguments.rounds} --threads {arguments.threads}"
    path = record("embed", command, result, arguments.note, arguments.output)
    print(f"{path}: piton {seconds:.3f} s, peer {peer_seconds:.3f} s, ratio {result['times_peer']:.2f}; by the processors "
          f"{result['times_peer_by_processors']:.2f}")


if __name__ == "__main__":
    main()
