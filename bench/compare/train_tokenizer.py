"""`piton train-tokenizer` beside the trainers of Hugging Face's tokenizers, in turns, on the same texts and machine.

    python bench/compare/train_tokenizer.py --texts FILE... [--vocab 8000] [--repeat 4] [--rounds 3]

Wants the package tokenizers (pip install) and a built piton. Each measurement is a process of its own: piton's whole
time from its start to its end; of the peer the time of train_from_iterator alone, without its imports and reading. Both
by one thread; times are of the processor, so that other work on the machine counts little, and by the clock in the file. Peak memory is the process's largest resident set; of the peer less that of a process which has only
imported and read. The settings of the algorithms are those of tools/oracle/train_tokenizers.py, which compares the
vocabularies. Each line that is not empty is a document; --repeat says how often the texts are in the corpus.

Writes bench/results/DATE-train-tokenizer.json with the command, the commit, the machine and all times.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from train import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import record

CASES = {"byte-level-bpe": ("gpt2", []), "bpe": ("bpe", ["--algorithm", "bpe"]),
         "wordpiece": ("wordpiece", ["--algorithm", "wordpiece"]), "unigram": ("unigram", ["--algorithm", "unigram"])}
# The child of one measurement of the peer: seconds, entries.
PEER = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import train_tokenizers

class Timed:
    seconds = processor = 0
    def __init__(self, model):
        self.__dict__["inner"] = tokenizer(model)
    def __setattr__(self, name, value):
        setattr(self.inner, name, value)
    def __getattr__(self, name):
        return getattr(self.inner, name)
    def train_from_iterator(self, texts, trainer):
        start, used = time.perf_counter(), time.process_time()
        self.inner.train_from_iterator(texts, trainer)
        Timed.seconds += time.perf_counter() - start
        Timed.processor += time.process_time() - used

tokenizer, train_tokenizers.Tokenizer = train_tokenizers.Tokenizer, Timed
texts = [json.loads(line)["text"] for line in open(sys.argv[2], encoding="utf-8")]
entries = 0
if sys.argv[3] != "nothing":
    made = train_tokenizers.CASES[sys.argv[3]][2](texts, int(sys.argv[4]))
    entries = len(made["model"]["vocab"])
print(json.dumps([Timed.seconds, Timed.processor, entries]))
"""


def measured(command):
    """Output, seconds by the clock and of the processor, and peak bytes of a process."""
    environment = dict(os.environ, RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    output, error = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)}: {error}")
    return output, time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def peer(corpus, case, vocabulary):
    output, _, _, peak = measured([sys.executable, "-c", PEER, str(ROOT / "tools" / "oracle"), str(corpus), case, str(vocabulary)])
    seconds, processor, entries = json.loads(output)
    return (seconds, processor, peak), entries


def ours(program, corpus, flags, vocabulary, folder):
    _, *figures = measured([program, "train-tokenizer", "--input", str(corpus), "--vocab-size", str(vocabulary), *flags,
                                 "--threads", "1", "--quiet", "--overwrite", "--save", str(folder)])
    vocab = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return figures, len(vocab)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", nargs="+", type=pathlib.Path, required=True)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--note", default="", help="what else the machine did, kept with the result")
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    arguments = parser.parse_args()
    import tokenizers

    lines = [line for path in arguments.texts for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    results = []
    with tempfile.TemporaryDirectory() as name:
        corpus = pathlib.Path(name) / "corpus.jsonl"
        with open(corpus, "w", encoding="utf-8") as file:
            for _ in range(arguments.repeat):
                file.writelines(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in lines)
        size = arguments.repeat * sum(len(line.encode()) for line in lines)
        (_, _, base), _ = peer(corpus, "nothing", 0)
        for algorithm in arguments.only:
            case, flags = CASES[algorithm]
            figures = ("seconds", "processor_seconds", "peak_bytes")
            raw = {who: {figure: [] for figure in figures} for who in ("piton", "peer")}
            for _ in range(arguments.rounds):
                found, entries = ours(arguments.piton, corpus, flags, arguments.vocab, pathlib.Path(name) / algorithm)
                (seconds, processor, peak), theirs = peer(corpus, case, arguments.vocab)
                for who, values in (("piton", found), ("peer", (seconds, processor, peak - base))):
                    for figure, value in zip(figures, values):
                        raw[who][figure].append(value)
            best = {who: min(raw[who]["processor_seconds"]) for who in raw}
            one = {"algorithm": algorithm, "vocabulary": arguments.vocab, "text_bytes": size,
                   "entries": {"piton": entries, "peer": theirs}, "times": best["peer"] / best["piton"], **raw}
            results.append(one)
            print(f"{algorithm:15} piton {best['piton']:6.2f} s, {max(raw['piton']['peak_bytes']) / 1e6:5.0f} MB   tokenizers "
                  f"{best['peer']:6.2f} s, {max(raw['peer']['peak_bytes']) / 1e6:5.0f} MB   {one['times']:.1f} x", file=sys.stderr, flush=True)
    names = " ".join(path.name for path in arguments.texts)
    print(record.record("train-tokenizer", f"python bench/compare/train_tokenizer.py --texts {names} --vocab {arguments.vocab} "
                        f"--repeat {arguments.repeat} --rounds {arguments.rounds}",
                        {"tokenizers": tokenizers.__version__, "threads": 1, "note": arguments.note, "results": results}))


if __name__ == "__main__":
    main()
