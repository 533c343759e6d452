"""Tokenizers of PyPI beside `piton bench tokenizer`, one thread each, in turns, on the same machine.

    python bench/compare/text.py --tokenizers DIR --english FILE... --chinese FILE...

DIR holds the files of gpt2, qwen2.5, llama2, bert and t5-small, a folder each. Wants tokenizers,
sentencepiece and tiktoken (pip install) and a built piton. Documents are the lines that are not empty.
Two readings:
  fresh     the texts once, by a tokenizer that has just been made: no word is remembered (one measurement a
            round; piton in --fresh)
  repeated  the texts over and over up to --megabytes: words come back, as they do in a corpus
Hugging Face is called with encode_batch_fast (no offsets) and TOKENIZERS_PARALLELISM=false, tiktoken with encode_ordinary,
sentencepiece with encode of the list and one thread.

Writes bench/results/DATE-tokenizers.json with the commands, the commit, the machine and all times.
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

from train import ROOT, cpu_model, text_of

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"


def tokenizers_peer(make):
    """`make` gives a tokenizer of the package tokenizers."""
    def ready():
        tokenizer = make()
        return lambda lines: sum(len(e.ids) for e in tokenizer.encode_batch_fast(lines, add_special_tokens=False))
    return ready


def cases(folder):
    """(name, piton's tokenizer, {peer: function that makes an encoder of lines})."""
    import sentencepiece
    import tiktoken
    import tokenizers

    sys.path.insert(0, str(ROOT / "tools" / "oracle"))
    import compare_tokenizers as oracle

    def gpt2():
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(folder / "gpt2/encoder.json"),
                                                                         str(folder / "gpt2/vocab.bpe")))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        return tokenizer

    def gpt2_tiktoken():
        encoding = tiktoken.Encoding("gpt2", pat_str=oracle.GPT2, mergeable_ranks=oracle.gpt2_ranks(),
                                     special_tokens={"<|endoftext|>": 50256})
        return lambda lines: sum(len(encoding.encode_ordinary(line)) for line in lines)

    def llama2_sentencepiece():
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "llama2/tokenizer.model"))
        return lambda lines: sum(len(ids) for ids in processor.encode(lines, num_threads=1))

    def from_file(name):
        return lambda: tokenizers.Tokenizer.from_file(str(folder / name / "tokenizer.json"))

    def bert(name):
        return lambda: tokenizers.BertWordPieceTokenizer(str(folder / "bert" / name), lowercase=True)._tokenizer

    english_bert, chinese_bert = "bert-large-uncased-vocab.txt", "bert-base-chinese-vocab.txt"
    return [("gpt2", folder / "gpt2", {"tokenizers": tokenizers_peer(gpt2), "tiktoken": gpt2_tiktoken}),
            ("qwen2.5", folder / "qwen2.5", {"tokenizers": tokenizers_peer(lambda: oracle.qwen()[0])}),
            ("llama2", folder / "llama2", {"tokenizers": tokenizers_peer(from_file("llama2")),
                                           "sentencepiece": llama2_sentencepiece}),
            ("bert", folder / "bert" / english_bert, {"tokenizers": tokenizers_peer(bert(english_bert))}),
            ("bert-chinese", folder / "bert" / chinese_bert, {"tokenizers": tokenizers_peer(bert(chinese_bert))}),
            ("t5-small", folder / "t5-small", {"tokenizers": tokenizers_peer(from_file("t5-small"))})]


def piton(arguments, folder, files, fresh):
    command = [arguments.piton, "bench", "tokenizer", "--input", *files, "--tokenizer-name-or-path", str(folder),
               "--megabytes", "0" if fresh else str(arguments.megabytes), "--rounds", "1", "--json", "--quiet"]
    command += ["--fresh"] if fresh else []
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizers", type=pathlib.Path, required=True)
    parser.add_argument("--english", nargs="+", required=True)
    parser.add_argument("--chinese", nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=20, help="of the repeated reading, for piton; peers take a tenth")
    parser.add_argument("--only", nargs="+", help="names of tokenizers")
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--output")
    arguments = parser.parse_args()
    results = []
    for language in ("english", "chinese"):
        files = getattr(arguments, language)
        lines = [line for file in files for line in pathlib.Path(file).read_text().split("\n") if line]
        size = sum(len(line.encode()) for line in lines)
        for name, folder, peers in cases(arguments.tokenizers.resolve()):
            if arguments.only and name not in arguments.only:
                continue
            for reading in ("fresh", "repeated"):
                times = max(1, arguments.megabytes * 100000 // size) if reading == "repeated" else 1
                kept = {peer: make() for peer, make in peers.items()} if reading == "repeated" else {}
                raw = {"piton": [], **{peer: [] for peer in peers}}
                tokens = {}
                for _ in range(arguments.rounds):
                    ours = piton(arguments, folder, files, reading == "fresh")
                    raw["piton"].append(ours["mb_per_second"])
                    tokens["piton"] = ours["tokens"] / ours["text_bytes"]
                    for peer, make in peers.items():
                        encode = kept.get(peer) or make()
                        start = time.perf_counter()
                        count = sum(encode(lines) for _ in range(times))
                        raw[peer].append(1e-6 * size * times / (time.perf_counter() - start))
                        tokens[peer] = count / (size * times)
                best = {who: max(rates) for who, rates in raw.items()}
                result = {"tokenizer": name, "language": language, "reading": reading, "text_bytes": size,
                          "best_mb_per_second": best, "tokens_per_byte": tokens,
                          "times": {peer: best["piton"] / best[peer] for peer in peers}, "raw_mb_per_second": raw}
                results.append(result)
                print(f"{name:9} {language:8} {reading:8} piton {best['piton']:7.1f} MB/s   "
                      + "   ".join(f"{peer} {best[peer]:.2f} ({best['piton'] / best[peer]:.1f} x)" for peer in peers),
                      file=sys.stderr, flush=True)
    import sentencepiece as sp
    import tiktoken as tk
    import tokenizers as hf

    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    names = " ".join(pathlib.Path(file).name for file in arguments.english), " ".join(pathlib.Path(file).name for file in arguments.chinese)
    record = {"command": f"python bench/compare/text.py --tokenizers DIR --english {names[0]} --chinese {names[1]} "
                         f"--rounds {arguments.rounds} --megabytes {arguments.megabytes}",
              "piton_command": "piton bench tokenizer --input FILES --tokenizer-name-or-path DIR/NAME --megabytes N --rounds 1 --json [--fresh]",
              "commit": text_of("git", "rev-parse", "HEAD"), "date": date,
              "machine": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "system": platform.system()},
              "peers": {"tokenizers": hf.__version__, "sentencepiece": sp.__version__, "tiktoken": tk.__version__},
              "results": results}
    path = pathlib.Path(arguments.output) if arguments.output else ROOT / "bench" / "results" / f"{date[:10]}-tokenizers.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
