"""Start of a model from a cold page cache: a Hugging Face folder of 1.1 billion bf16 weights, compared with a plain read.

    python bench/load.py [--tokenizer ../shared/data/tokenizers/llama2] [--rounds 5] [--work DIR]

  read      every shard once, in blocks of 8 MB
  answer    piton generate: a prompt of eight tokens, one token of answer; the whole command

The page cache drops the shards before each run (posix_fadvise), where the system lets it. Bars: the answer within 1.5 times the
read; loading, that is the answer less what it takes from a warm cache beyond a warm read, at 85 % of the read's speed or more.
Runs alternate, and the best of each counts. Writes bench/results/DATE-load-1.1b.json. Standard library alone.
"""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import convert
from record import ROOT, record

SIZE = {"hidden": 2048, "ffn": 5632, "heads": 32, "vocabulary": 32000, "layers": 22}
GROUPS = 4


def shapes():
    narrow = SIZE["hidden"] // SIZE["heads"] * GROUPS
    for name, shape in convert.tensors_of(SIZE):
        yield name, (narrow, shape[1]) if "k_proj" in name or "v_proj" in name else shape


def weights(count):
    """Random bf16 between 2^-7 and 2^-5, either sign."""
    low = random.Random(1).randbytes(count)
    block = bytearray(2 * count)
    block[0::2] = low
    block[1::2] = low[::-1].translate(bytes(0x3C | (byte & 0x80) for byte in range(256)))
    return bytes(block)


def make_folder(folder, tokenizer):
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"):
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": SIZE["hidden"],
        "intermediate_size": SIZE["ffn"], "num_hidden_layers": SIZE["layers"], "num_attention_heads": SIZE["heads"],
        "num_key_value_heads": GROUPS, "vocab_size": SIZE["vocabulary"], "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}))
    convert.write_shard(folder / "model.safetensors", list(shapes()), weights(4 << 20))


def read(folder, cold):
    if cold:
        convert.drop_from_cache(folder)
    block = bytearray(convert.BLOCK)
    start = time.monotonic()
    for path in convert.files_of(folder):
        with open(path, "rb", buffering=0) as reader:
            while reader.readinto(block):
                pass
    return time.monotonic() - start


def answer(program, folder, cold):
    if cold:
        convert.drop_from_cache(folder)
    start = time.monotonic()
    subprocess.run([program, "generate", "--load", folder, "--prompt", "The quick brown fox jumps over the", "--greedy",
                    "--max-new-tokens", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "../shared/data/tokenizers/llama2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work")
    options = parser.parse_args()
    seconds = {f"{kind} {what}": [] for kind in ("cold", "warm") for what in ("read", "answer")}
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        folder = pathlib.Path(work) / "hf"
        make_folder(folder, options.tokenizer)
        total = sum(path.stat().st_size for path in convert.files_of(folder))
        for _ in range(options.rounds):
            for cold in (True, False):
                kind = "cold" if cold else "warm"
                seconds[f"{kind} read"].append(round(read(folder, cold), 4))
                seconds[f"{kind} answer"].append(round(answer(options.piton, folder, cold), 4))
    best = {name: min(runs) for name, runs in seconds.items()}
    ratio = best["cold answer"] / best["cold read"]
    loading = best["cold answer"] - (best["warm answer"] - best["warm read"])
    facts = {"bytes": total, "answer_over_read": round(ratio, 3), "load_share_of_read": round(best["cold read"] / loading, 3)}
    print(f"{'ok  ' if ratio <= 1.5 else 'BAD '} answer of 8 tokens: {ratio:.2f} of a cold read ({best['cold read']:.2f} s)")
    print(f"{'ok  ' if facts['load_share_of_read'] >= 0.85 else 'BAD '} load: {facts['load_share_of_read']:.1%} of a cold read's speed")
    print(record("load-1.1b", " ".join(["python", *sys.argv]), {**facts, "seconds": seconds}))


if __name__ == "__main__":
    main()
