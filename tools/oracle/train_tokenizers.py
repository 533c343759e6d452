"""Tokenizers that the `tokenizers` library trains, for tests and for comparison.

    python -m venv VENV && VENV/bin/pip install tokenizers transformers
    VENV/bin/python tools/oracle/train_tokenizers.py corpus SHARED_TEXT_FOLDER   # writes tests/golden/tokenizer_training
    VENV/bin/python tools/oracle/train_tokenizers.py golden                      # the same, from its corpus.jsonl
    VENV/bin/python tools/oracle/train_tokenizers.py compare build/piton CASE VOCAB FILE.jsonl ...

`compare` trains both on the same records, says how long each took, whether they agree, and whether Transformers
reads what Piton wrote and gives the ids that `piton tokenize` gives.
"""
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "tokenizer_training")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def without_added(tokenizer, kept):
    """The tokenizer as JSON; of its added tokens, those in `kept`."""
    out = json.loads(tokenizer.to_str())
    out["added_tokens"] = [t for t in out["added_tokens"] if t["content"] in kept]
    return out


def byte_level(texts, size, pattern=None, special=("<|endoftext|>",), normalizer=None, min_frequency=2, digits=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    steps = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    if pattern:
        steps += [pre_tokenizers.Split(Regex(pattern), "isolated"),
                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    else:
        steps += [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=min_frequency, special_tokens=list(special),
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def metaspace():
    return pre_tokenizers.Sequence([pre_tokenizers.Split("\n", "isolated"),
                                    pre_tokenizers.Metaspace(prepend_scheme="first")])


def byte_fallback(texts, size, limit=None):
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    limited = {"limit_alphabet": limit} if limit else {}
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False, **limited,
                                  special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)])
    tokenizer.train_from_iterator(texts, trainer)
    return without_added(tokenizer, special)


def wordpiece(texts, size):
    """The library adds "##c" in the order of a hash table; given as special tokens they have Piton's order."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    words = set()
    for text in texts:
        words.update(w for w, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text)))
    alphabet = sorted({c for w in words for c in w})
    continuing = sorted({c for w in words for c in w[1:]})
    trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=2, show_progress=False,
                                        special_tokens=special + alphabet + ["##" + c for c in continuing])
    tokenizer.train_from_iterator(texts, trainer)
    return without_added(tokenizer, special)


def unigram(texts, size):
    special = ["<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(),
                                                 normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = metaspace()
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 1)])
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


# Name: flags of piton train-tokenizer, vocabulary, and the same with the library.
CASES = {
    "gpt2": ([], 900, byte_level),
    "llama3": (["--pre-tokenizer", "llama3", "--normalizer", "nfc", "--min-frequency", "1", "--special-tokens",
                "<|begin_of_text|>", "<|end_of_text|>", "the"], 1200,
               lambda texts, size: byte_level(texts, size, LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>", "the"],
                                              normalizers.NFC(), 1)),
    "qwen2": (["--pre-tokenizer", "qwen2"], 700, lambda texts, size: byte_level(texts, size, QWEN2)),
    "digits": (["--split-digits", "--min-frequency", "30"], 2000,
               lambda texts, size: byte_level(texts, size, min_frequency=30, digits=True)),
    "bpe": (["--algorithm", "bpe"], 1500, byte_fallback),
    "bpe-limited": (["--algorithm", "bpe", "--limit-alphabet", "60"], 700,
                    lambda texts, size: byte_fallback(texts, size, 60)),
    "wordpiece": (["--algorithm", "wordpiece"], 1800, wordpiece),
    "unigram": (["--algorithm", "unigram"], 3000, unigram),  # no piece is cut
    "unigram-cut": (["--algorithm", "unigram"], 2500, unigram),
}


def make_corpus(folder):
    """Some of everything: English, Chinese, marks and emoji, numbers, code."""
    read = lambda name: open(os.path.join(folder, name), encoding="utf-8").read()
    documents = [p for p in read("tinyshakespeare.txt")[:40000].split("\n\n")]
    documents += [line for line in read("zh_hongloumeng.txt")[:4000].split("\n") if line]
    for n in range(40):
        documents.append(f"item {n * 37 % 101}: {n * n * 7919} = 0x{n * 4099:x}, {n / 7:.5f}\n\tfor (int i = {n}; "
                         f"i < {n + 3}; ++i) sum += a[i];\r\n  return sum;   // it's {n % 5} o'clock, we'll see")
    documents += ["naïve café — „Größe“ … ﬁne № 5", "👩‍👩‍👧 😀😀 🏳️‍🌈", "सभी मनुष्यों को गौरव", "مرحبا بالعالم", "e\u0301tude ÅNGSTRÖM İstanbul",
                  "tab\there  two   spaces", "", "\n\n", "aaaa aaaaa aaaaaa abababab ababab " * 4,
                  "\u3000全角\u3000スペース ｶﾀｶﾅ", "<|endoftext|> <s> [CLS] ##ing <0x0A> ▁x"]
    os.makedirs(GOLDEN, exist_ok=True)
    with open(os.path.join(GOLDEN, "corpus.jsonl"), "w", encoding="utf-8") as out:
        for text in documents:
            out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def texts_of(files):
    for name in files:
        with open(name, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]


def make_golden():
    texts = list(texts_of([os.path.join(GOLDEN, "corpus.jsonl")]))
    for name, (flags, size, train) in CASES.items():
        trained = train(texts, size)
        if "unigram" not in name:
            for _ in range(3):
                assert train(texts, size) == trained, f"{name}: not the same twice"
        head = {"made_by": "tools/oracle/train_tokenizers.py golden", "tokenizers": tokenizers.__version__,
                "date": str(datetime.date.today())}
        with open(os.path.join(GOLDEN, name + ".json"), "w", encoding="utf-8") as out:
            json.dump({"origin": head, "flags": flags + ["--vocab-size", str(size)], "tokenizer": trained}, out,
                      ensure_ascii=False, separators=(",", ":"))
            out.write("\n")


def difference(ours, theirs):
    """What differs first, or ""; scores of unigram pieces may differ by rounding."""
    for key in sorted(set(ours) | set(theirs)):
        if key != "model" and ours.get(key) != theirs.get(key):
            return f"{key}: {ours.get(key)} and {theirs.get(key)}"
    a, b = ours["model"], theirs["model"]
    if a["type"] == "Unigram":
        mine, other = dict(map(tuple, a["vocab"])), dict(map(tuple, b["vocab"]))
        only = sorted(set(mine) ^ set(other))
        far = max((abs(mine[p] - other[p]) for p in mine if p in other), default=0)
        return f"{len(only)} of {len(mine)} pieces differ: {only[:8]}; scores by {far:.2g}" if only or far > 1e-6 else ""
    if a.get("merges") != b.get("merges"):
        first = next((i for i, (x, y) in enumerate(zip(a["merges"], b["merges"])) if x != y), None)
        return f"merges from {first} on: {a['merges'][first:first + 3]} and {b['merges'][first:first + 3]}" \
            if first is not None else "the number of merges"
    return "" if a == b else "the vocabulary"


def compare(piton, case, size, files):
    flags, _, train = CASES[case]
    corpus = list(texts_of(files))
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        subprocess.run([piton, "train-tokenizer", "--input", *files, "--vocab-size", str(size), "--save", folder, *flags],
                       check=True)
        ours_seconds = time.perf_counter() - begin
        ours = json.load(open(os.path.join(folder, "tokenizer.json"), encoding="utf-8"))
        begin = time.perf_counter()
        theirs = train(corpus, size)
        theirs_seconds = time.perf_counter() - begin
        print(f"{case} {size}: piton {ours_seconds:.2f} s, tokenizers {theirs_seconds:.2f} s, "
              f"{theirs_seconds / ours_seconds:.1f} x; {difference(ours, theirs) or 'the same'}")
        from transformers import AutoTokenizer
        loaded = AutoTokenizer.from_pretrained(folder)
        texts = corpus[:200]
        lines = "\n".join(json.dumps(t) for t in texts)
        ids = subprocess.run([piton, "tokenize", "--tokenizer-name-or-path", folder, "--json-strings",
                              "--add-special-tokens", "--parse-special-tokens"], input=lines.encode(), check=True,
                             capture_output=True).stdout.decode().split("\n")
        wrong = [t for t, line in zip(texts, ids) if loaded(t)["input_ids"] != [int(i) for i in line.split()]]
        print(f"  Transformers: {len(texts) - len(wrong)} of {len(texts)} texts have the same ids; "
              f"eos {loaded.eos_token!r}, bos {loaded.bos_token!r}, unk {loaded.unk_token!r}")


if __name__ == "__main__":
    if sys.argv[1] == "corpus":
        make_corpus(sys.argv[2])
    if sys.argv[1] in ("corpus", "golden"):
        make_golden()
    if sys.argv[1] == "compare":
        compare(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
