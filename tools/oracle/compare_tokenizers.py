#!/usr/bin/env python3
"""Compares `piton tokenize` with the tokenizers of the field, id by id.

Peers: tokenizers, sentencepiece, tiktoken (PyPI). Every family is compared on all lines of
../shared/data/text, on the inputs of ../shared/data/tokenizers/vectors, and on random Unicode
strings. Families whose files are not there get a small vocabulary, trained here by the peer.

  tools/oracle/compare_tokenizers.py compare --piton build/piton [--count 1000000] [--only NAME ...]
  tools/oracle/compare_tokenizers.py golden  --out tests/golden/tokenizers.jsonl
  tools/oracle/compare_tokenizers.py train   --work DIR      (only makes the small vocabularies)
"""
import argparse
import base64
import datetime
import glob
import itertools
import json
import os
import random
import subprocess
import sys
import time

import sentencepiece
import tiktoken
import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "..", "shared", "data")
VOCABULARIES = os.path.join(DATA, "tokenizers")

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LOWER, UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDINGS}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Characters whose category has moved since Unicode 8, of which age BERT's tables are.
MOVED = [f"a{c}b {c}" for c in "\u166d\u1734\u1885\u1886\ua9bd\U000111c9"]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def real_lines():
    lines = []
    for path in sorted(glob.glob(os.path.join(DATA, "text", "*"))):
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            text = file.read()
        lines += [line for line in text.split("\n")]
    for path in sorted(glob.glob(os.path.join(VOCABULARIES, "vectors", "*.inp"))):
        with open(path, encoding="utf-8", newline="") as file:
            lines += file.read().split("\n__ggml_vocab_test__\n")
    return lines


def training_lines():
    lines = []
    for name in ("wikitext2_valid.txt", "zh_hongloumeng.txt", "sample_text_unicode.txt"):
        with open(os.path.join(DATA, "text", name), encoding="utf-8") as file:
            lines += file.read().split("\n")[:3000]
    return [line for line in lines if line.strip()]


def random_strings(count, seed, names=()):
    """Strings of mixed kinds: all of Unicode, one block, letters and marks, code, spaces, names."""
    rng = random.Random(seed)
    blocks = [(0x20, 0x7E), (0x20, 0x7E), (0x09, 0x0D), (0xA0, 0xFF), (0x100, 0x24F), (0x300, 0x36F),
              (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F),
              (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x20A0, 0x20CF),
              (0x2150, 0x218F), (0x2460, 0x24FF), (0x2E80, 0x2FDF), (0x3000, 0x30FF),
              (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE00, 0xFE0F),
              (0xFF00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF),
              (0xE0000, 0xE01EF), (0x10FFF0, 0x10FFFF)]
    words = ["the", " the", "don't", "I'LL", "'s", "  ", "\n", "\r\n", "\t", " 123", "4567", "Hello",
             "中文", "，", "…", "’s", "'ſ", "e\u0301", "한국어", "हिन्दी", "🦙", "👨‍👩‍👧", "\u2581", "ﬁ", "İ", "ß",
             "\u200d", "\ufeff", "\u3000", "x" * 20, "=" * 9, "\u0000", "ΑΣ ", "<0x0A>"] + list(names)

    def character():
        kind = rng.random()
        if kind < 0.15:
            while True:
                c = rng.randrange(0x110000)
                if not 0xD800 <= c < 0xE000:
                    return chr(c)
        low, high = rng.choice(blocks)
        return chr(rng.randint(low, high))

    for _ in range(count):
        kind = rng.random()
        if kind < 0.001:
            # Words far longer than any piece: one character, few, a block, all of Unicode.
            low, high = rng.choice(blocks)
            few = [character() for _ in range(rng.randint(1, 4))]
            length = rng.randint(65, 3000)
            yield rng.choice([
                lambda: few[0] * length,
                lambda: "".join(rng.choice(few) for _ in range(length)),
                lambda: "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length)),
                lambda: "".join(chr(rng.randint(low, high)) for _ in range(length)),
                lambda: "".join(character() for _ in range(length))])()
        elif kind < 0.3:
            yield "".join(rng.choice(words) if rng.random() < 0.5 else character()
                          for _ in range(rng.randint(1, 12)))
        elif kind < 0.6:
            yield "".join(character() for _ in range(rng.randint(1, 16)))
        elif kind < 0.8:
            low, high = rng.choice(blocks)
            yield "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 40)))
        else:
            yield "".join(rng.choice(words) + rng.choice(["", " ", " ", "\n"])
                          for _ in range(rng.randint(1, 12)))


class Family:
    """A vocabulary: how piton opens it, and what the peers say of a list of texts or of ids."""

    def __init__(self, name, flags, encode, decode=None, special=False, parse=False, names=(),
                 trained=False):
        self.name, self.flags, self.encode, self.decode = name, flags, encode, decode
        self.special, self.parse, self.names, self.trained = special, parse, names, trained


def hf(name, flags, tokenizer, names=(), trained=False, variants=True, decode=True):
    """The family as text, with special tokens parsed, and framed."""
    def plain(texts):
        tokenizer.encode_special_tokens = True
        return [one.ids for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def parsed(texts):
        tokenizer.encode_special_tokens = False
        return [one.ids for one in tokenizer.encode_batch_fast(texts, add_special_tokens=True)]

    decoder = (lambda rows: tokenizer.decode_batch(rows, skip_special_tokens=False)) if decode else None
    yield Family(name, flags, plain, decoder, names=names, trained=trained)
    if variants:
        yield Family(name + "+special", flags, parsed, None, True, True, names, trained)


def saved(work, name, tokenizer):
    folder = os.path.join(work, name)
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    return ["--tokenizer-name-or-path", folder]


def qwen():
    folder = os.path.join(VOCABULARIES, "qwen2.5")
    tokenizer = Tokenizer(models.BPE.from_file(os.path.join(folder, "vocab.json"),
                                               os.path.join(folder, "merges.txt")))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        added = json.load(file)["added_tokens_decoder"]
    for _, token in sorted(added.items(), key=lambda item: int(item[0])):
        one = AddedToken(token["content"], lstrip=token["lstrip"], rstrip=token["rstrip"],
                         normalized=token["normalized"], single_word=token["single_word"])
        (tokenizer.add_special_tokens if token["special"] else tokenizer.add_tokens)([one])
    return tokenizer, [token["content"] for token in added.values()]


def gpt2_ranks():
    """GPT-2's files as tiktoken's ranks."""
    folder = os.path.join(VOCABULARIES, "gpt2")
    with open(os.path.join(folder, "encoder.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    alphabet, extra = {}, 0
    for byte in range(256):
        if byte in shown:
            alphabet[chr(byte)] = byte
        else:
            alphabet[chr(256 + extra)] = byte
            extra += 1
    return {bytes(alphabet[c] for c in piece): rank for piece, rank in vocabulary.items()
            if piece != "<|endoftext|>"}


def real_families():
    folder = os.path.join(VOCABULARIES, "gpt2")
    flags = ["--tokenizer-name-or-path", folder]
    gpt2 = Tokenizer(models.BPE.from_file(os.path.join(folder, "encoder.json"),
                                          os.path.join(folder, "vocab.bpe")))
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gpt2.decoder = decoders.ByteLevel()
    gpt2.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    yield from hf("gpt2", flags, gpt2, ["<|endoftext|>"])
    encoding = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=gpt2_ranks(),
                                 special_tokens={"<|endoftext|>": 50256})
    yield Family("gpt2-tiktoken", flags, encoding.encode_ordinary_batch)
    tokenizer, names = qwen()
    yield from hf("qwen2.5", ["--tokenizer-name-or-path", os.path.join(VOCABULARIES, "qwen2.5")],
                  tokenizer, names)
    folder = os.path.join(VOCABULARIES, "llama2")
    yield from hf("llama2", ["--tokenizer-name-or-path", folder],
                  Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), ["<s>", "</s>", " <s>"])
    sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    yield Family("llama2-sentencepiece",
                 ["--tokenizer-name-or-path", folder, "--tokenizer-not-use-fast"],
                 sp.encode, sp.decode)
    folder = os.path.join(VOCABULARIES, "t5-small")
    yield from hf("t5", ["--tokenizer-name-or-path", folder],
                  Tokenizer.from_file(os.path.join(folder, "tokenizer.json")),
                  ["<extra_id_0>", "<pad>", "</s>"])
    for name in ("bert-large-uncased", "bert-base-chinese"):
        path = os.path.join(VOCABULARIES, "bert", name + "-vocab.txt")
        bert = tokenizers.BertWordPieceTokenizer(path, lowercase=True)
        yield from hf(name, ["--tokenizer-name-or-path", path], bert._tokenizer,
                      ["[MASK]", "[CLS]", "[UNK]"])


def trained_families(work):
    lines = training_lines()
    os.makedirs(work, exist_ok=True)

    def train(tokenizer, trainer):
        tokenizer.train_from_iterator(lines, trainer)
        return tokenizer

    def byte_level(pattern, specials, prefix_space=False):
        tokenizer = Tokenizer(models.BPE())
        steps = []
        if pattern:
            steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=not pattern))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
        tokenizer.decoder = decoders.ByteLevel()
        return train(tokenizer, trainers.BpeTrainer(
            vocab_size=3000, special_tokens=specials, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))

    llama3 = byte_level(LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>"])
    state = json.loads(llama3.to_str())
    state["model"]["ignore_merges"] = True
    llama3 = Tokenizer.from_str(json.dumps(state))
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair=None,
                                      special_tokens=[("<|begin_of_text|>", 0)])])
    yield from hf("llama3-like", saved(work, "llama3-like", llama3), llama3,
                  ["<|begin_of_text|>"], True)

    harmony = byte_level(O200K, ["<|startoftext|>", "<|return|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>"])
    yield from hf("gpt-oss-like", saved(work, "gpt-oss-like", harmony), harmony, ["<|start|>", "<|message|>"], True)

    bloom = byte_level(BLOOM, ["<unk>", "<s>", "</s>", "<pad>"])
    yield from hf("bloom-like", saved(work, "bloom-like", bloom), bloom, ["<s>"], True)

    roberta = byte_level(None, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], True)
    roberta.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    roberta.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=False, normalized=False)])
    roberta.add_tokens([AddedToken("word", single_word=True), AddedToken("Right", rstrip=True),
                        AddedToken("\u00e9t\u00e9", normalized=True)])
    yield from hf("roberta-like", saved(work, "roberta-like", roberta), roberta,
                  [" <mask>", "  <mask> ", "word", " word ", "words", "Right  ", "\u00e9t\u00e9"], True)

    other = byte_level(r"\p{N}{1,3}(?=(?:\p{N}{3})*\b)|[\p{L}\p{M}]+|\s+|[^\s\p{L}\p{M}\p{N}]+",
                       ["<x>"])
    yield from hf("pattern-like", saved(work, "pattern-like", other), other, ["<x>"], True)

    metaspace = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    metaspace.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    train(metaspace, trainers.BpeTrainer(
        vocab_size=3000, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)],
        limit_alphabet=1500, show_progress=False, max_token_length=12))
    state = json.loads(metaspace.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    metaspace = Tokenizer.from_str(json.dumps(state))
    yield from hf("mistral-like", saved(work, "mistral-like", metaspace), metaspace,
                  ["<s>", "</s>"], True)

    unknown = Tokenizer(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>", fuse_unk=False))
    unknown.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(),
                                               normalizers.StripAccents(), normalizers.Strip()])
    unknown.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    unknown.decoder = decoders.BPEDecoder()
    train(unknown, trainers.BpeTrainer(vocab_size=2000, special_tokens=["[UNK]"],
                                       limit_alphabet=300, show_progress=False,
                                       end_of_word_suffix="</w>"))
    yield from hf("bpe-suffix", saved(work, "bpe-suffix", unknown), unknown, [], True, False)

    fused = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    fused.normalizer = normalizers.Sequence([normalizers.NFKC(),
                                             normalizers.Replace(Regex(r" {2,}"), " "),
                                             normalizers.Replace("ll", "LL")])
    fused.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Split("e", "merged_with_next"), pre_tokenizers.Digits(False)])
    train(fused, trainers.BpeTrainer(vocab_size=2000, special_tokens=["[UNK]"], limit_alphabet=300,
                                     show_progress=False))
    yield from hf("bpe-fused", saved(work, "bpe-fused", fused), fused, [], True, False)

    nfd = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    nfd.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.BertNormalizer(
        lowercase=False, strip_accents=True, handle_chinese_chars=True, clean_text=True)])
    nfd.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    nfd.decoder = decoders.WordPiece()
    train(nfd, trainers.WordPieceTrainer(vocab_size=2000, special_tokens=["[UNK]", "[CLS]", "[SEP]"],
                                         show_progress=False))
    nfd.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield from hf("wordpiece-like", saved(work, "wordpiece-like", nfd), nfd, ["[SEP]"], True)

    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    unigram.decoder = decoders.Metaspace(prepend_scheme="always")
    train(unigram, trainers.UnigramTrainer(vocab_size=8000, special_tokens=["<unk>", "<s>"],
                                           unk_token="<unk>", show_progress=False))
    yield from hf("unigram-like", saved(work, "unigram-like", unigram), unigram, ["<s>"], True)

    text = os.path.join(work, "training.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    for name, settings in {
            "sp-unigram": dict(model_type="unigram", vocab_size=6000),
            "sp-unigram-bytes": dict(model_type="unigram", vocab_size=6000, byte_fallback=True,
                                     normalization_rule_name="identity", character_coverage=0.98,
                                     user_defined_symbols=["<sep>", "word", "\u4e2d\u6587"]),
            "sp-bpe": dict(model_type="bpe", vocab_size=6000),
            "sp-bpe-bytes": dict(model_type="bpe", vocab_size=6000, byte_fallback=True,
                                 normalization_rule_name="nfkc", character_coverage=0.98,
                                 remove_extra_whitespaces=False, add_dummy_prefix=False,
                                 user_defined_symbols=["<sep>", "word", "\u4e2d\u6587"]),
            "sp-bpe-suffix": dict(model_type="bpe", vocab_size=6000, split_by_whitespace=False,
                                  treat_whitespace_as_suffix=True,
                                  normalization_rule_name="nmt_nfkc_cf")}.items():
        folder = os.path.join(work, name)
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(os.path.join(folder, "tokenizer.model")):
            sentencepiece.SentencePieceTrainer.train(
                input=text, model_prefix=os.path.join(folder, "tokenizer"), minloglevel=2,
                max_sentence_length=100000, **settings)
        sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
        yield Family(name, ["--tokenizer-name-or-path", folder], sp.encode, sp.decode, trained=True,
                     names=["<sep>", "word", " word"])

    ranks = gpt2_ranks()
    path = os.path.join(work, "gpt2.tiktoken")
    with open(path, "w", encoding="utf-8") as file:
        for piece, rank in ranks.items():
            file.write(base64.b64encode(piece).decode() + " " + str(rank) + "\n")
    encoding = tiktoken.Encoding("x", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
    yield Family("tiktoken", ["--tokenizer-type", "TikTokenizer", "--vocab-file", path],
                 encoding.encode_ordinary_batch, trained=True)


def run_piton(piton, family, texts, decode=False):
    command = [piton, "tokenize", "--json-strings"] + family.flags
    if decode:
        command.append("--decode")
    if family.special:
        command.append("--add-special-tokens")
    if family.parse:
        command.append("--parse-special-tokens")
    done = subprocess.run(command, input="\n".join(texts) + "\n", capture_output=True, text=True,
                          encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"{family.name}: {done.stderr}")
    return done.stdout.split("\n")[:-1]


def random_lines(arguments, families):
    """Random strings as lines of JSON: made once, for all families, with the names of all of them."""
    path = os.path.join(arguments.work, f"random-{arguments.seed}-{arguments.count}.jsonl")
    if not os.path.exists(path):
        os.makedirs(arguments.work, exist_ok=True)
        names = sorted({name for family in families for name in family.names})
        with open(path + ".part", "w", encoding="utf-8") as file:
            for text in random_strings(arguments.count, arguments.seed, names):
                file.write(json.dumps(text) + "\n")
        os.rename(path + ".part", path)
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


def compare(arguments):
    failures = 0
    lines = [] if arguments.skip_lines else [json.dumps(line) for line in real_lines()]
    if arguments.every_character:
        lines += [json.dumps(f"a{chr(c)}b {chr(c)}") for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    families = list(real_families()) if arguments.which != "trained" else []
    if arguments.which != "real":
        families += list(trained_families(arguments.work))
    for family in families:
        if arguments.only and family.name not in arguments.only:
            continue
        rows = itertools.chain(lines, random_lines(arguments, families))
        start, count, wrong, decoded_wrong = time.time(), 0, 0, 0
        # A chunk at a time: a million strings with their ids do not fit into memory side by side.
        while chunk := list(itertools.islice(rows, arguments.chunk)):
            count += len(chunk)
            got = run_piton(arguments.piton, family, chunk)
            assert len(got) == len(chunk), (family.name, len(got), len(chunk))
            ids_of = [[int(word) for word in line.split()] for line in got]
            texts = [json.loads(line) for line in chunk]
            for text, ids, wanted in zip(texts, ids_of, family.encode(texts), strict=True):
                if ids != wanted:
                    wrong += 1
                    if wrong <= arguments.show:
                        print(f"  {family.name}: {text!r}\n    got    {ids}\n    wanted {wanted}")
            if family.decode:
                spelt = run_piton(arguments.piton, family, got, True)
                for ids, line, wanted in zip(ids_of, spelt, family.decode(ids_of), strict=True):
                    if json.loads(line) != wanted:
                        decoded_wrong += 1
                        if decoded_wrong <= arguments.show:
                            print(f"  {family.name}: decode {ids}\n    got    {line}\n"
                                  f"    wanted {json.dumps(wanted)}")
            if time.time() - start > arguments.minutes * 60:
                break
        failures += wrong + decoded_wrong
        print(f"{family.name}: {count} texts, {wrong} differ; "
              f"{decoded_wrong if family.decode else 'not'} decoded {'differ' if family.decode else ''}",
              flush=True)
    return 1 if failures else 0


def golden(arguments):
    """A few hundred texts a family whose files are in the shared data."""
    head = {"made_by": "tools/oracle/compare_tokenizers.py golden",
            "tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__,
            "tiktoken": tiktoken.__version__, "date": str(datetime.date.today())}
    with open(arguments.out, "w", encoding="utf-8") as file:
        file.write(json.dumps(head) + "\n")
        for family in real_families():
            for text in itertools.chain(random_strings(arguments.count, arguments.seed, family.names), MOVED):
                row = {"family": family.name, "text": text, "ids": family.encode([text])[0]}
                if family.decode:
                    row["decoded"] = family.decode([row["ids"]])[0]
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["compare", "golden", "train"])
    parser.add_argument("--piton", default=os.path.join(ROOT, "build", "piton"))
    parser.add_argument("--work", default="/tmp/piton-tokenizers")
    parser.add_argument("--out", default=os.path.join(ROOT, "tests", "golden", "tokenizers.jsonl"))
    parser.add_argument("--count", type=int, default=100000, help="random strings")
    parser.add_argument("--chunk", type=int, default=20000, help="strings that piton gets at once")
    parser.add_argument("--minutes", type=float, default=1e9, help="at most, a family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--skip-lines", action="store_true")
    parser.add_argument("--every-character", action="store_true", help="each character of Unicode in a word and alone")
    parser.add_argument("--which", choices=["all", "real", "trained"], default="all")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    if arguments.action == "train":
        return 0 if list(trained_families(arguments.work)) else 1
    return compare(arguments) if arguments.action == "compare" else golden(arguments)


if __name__ == "__main__":
    sys.exit(main())
