"""Golden corpora and samples of masked words from Megatron-core's own BERT and T5 datasets.

    python -m venv VENV && VENV/bin/pip install torch megatron-core==0.16.1
    VENV/bin/python tools/oracle/masked_samples.py golden tests/golden/masked
    VENV/bin/python tools/oracle/masked_samples.py compare build/piton CORPUS VOCAB.txt COUNT

golden writes two small corpora, their vocabulary, another one of the same words in which [PAD] has id 3, and
samples.txt. compare makes COUNT samples of a
corpus of sentences (piton preprocess --split-sentences) for three seeds and both tasks, and compares
each with what `piton inspect samples --json` prints.
"""
import datetime
import json
import os
import subprocess
import sys
import tempfile
import zlib

import numpy
import torch

torch.distributed.get_rank = lambda *arguments: 0  # Megatron builds its index on rank 0 alone

from megatron.core.datasets.bert_dataset import (BERTMaskedWordPieceDataset,  # noqa: E402
                                                 BERTMaskedWordPieceDatasetConfig)
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder  # noqa: E402
from megatron.core.datasets.t5_dataset import (T5MaskedWordPieceDataset,  # noqa: E402
                                               T5MaskedWordPieceDatasetConfig)
from megatron.core.datasets.utils import get_blend_from_list  # noqa: E402


class Tokenizer:
    """Ids of Megatron-LM's BertWordPiece tokenizers: the lines of vocab.txt, [BOS], [EOS], <extra_id_i>."""

    unique_identifiers = {}
    special_tokens_dict = {}

    def __init__(self, vocabulary, extra_ids):
        pieces = list(vocabulary)

        def add(piece):
            if piece not in pieces:
                pieces.append(piece)
            return pieces.index(piece)

        self.bos, self.eos = add("[BOS]"), add("[EOS]")
        self.additional_special_tokens_ids = [add(f"<extra_id_{i}>") for i in range(extra_ids)]
        self.pad, self.cls, self.sep, self.mask = (pieces.index(f"[{name}]") for name in ("PAD", "CLS", "SEP", "MASK"))
        self.eod = self.eos
        self.inv_vocab = dict(enumerate(pieces))
        self.vocab_size = len(pieces)


def build(task, words, split, s, decoder, seed, sizes, vocabulary, cache, mask_prob=0.15, short_prob=0.1, pairs=True):
    """The three sets that Megatron's pretrain_bert.py and pretrain_t5.py read."""
    common = dict(random_seed=seed, sequence_length=s, blend=get_blend_from_list(words), split=split,
                  path_to_cache=cache, tokenizer=Tokenizer(vocabulary, 0 if task == "bert" else 100),
                  masking_probability=mask_prob, short_sequence_probability=short_prob, masking_do_full_word=True,
                  masking_do_permutation=False, masking_use_longer_ngrams=False)
    if task == "bert":
        config = BERTMaskedWordPieceDatasetConfig(masking_max_ngram=3, masking_use_geometric_distribution=False,
                                                  classification_head=pairs, **common)
        kind = BERTMaskedWordPieceDataset
    else:
        config = T5MaskedWordPieceDatasetConfig(sequence_length_decoder=decoder, masking_max_ngram=10,
                                                masking_use_geometric_distribution=True, **common)
        kind = T5MaskedWordPieceDataset
    return BlendedMegatronDatasetBuilder(kind, list(sizes), lambda: True, config).build()


def bert_sample(data, index):
    """A sample in whose types and padding mask padding is 0. Megatron writes the id of padding there, which with
    another id than 0 attends to padding, and names types that do not exist. Where padding is follows from a second
    sample, made as if no token were padding."""
    sample = data[index]
    pad = data._pad_token_id
    if pad == 0:
        return sample
    data._pad_token_id = -1
    plain = data[index]
    data._pad_token_id = pad
    added = plain["types"] == -1
    sample["types"] = numpy.where(added, 0, plain["types"])
    sample["padding_mask"] = numpy.where(added | (plain["text"] == pad), 0, 1)
    return sample


def line(task, index, data):
    """As `piton inspect samples --json` prints it."""
    sample = bert_sample(data, index) if task == "bert" and hasattr(data, "_pad_token_id") else data[index]
    names = ([("ids", "text"), ("types", "types"), ("labels", "labels"), ("is_random", "is_random"),
              ("padding_mask", "padding_mask"), ("loss_mask", "loss_mask")] if task == "bert" else
             [("encoder_ids", "text_enc"), ("decoder_ids", "text_dec"), ("labels", "labels"), ("loss_mask", "loss_mask"),
              ("encoder_mask", "enc_mask"), ("decoder_mask", "dec_mask")])
    shown = {"index": index}
    for name, theirs in names:
        value = sample[theirs]
        shown[name] = value.tolist() if isinstance(value, numpy.ndarray) else int(value)
    return json.dumps(shown, separators=(",", ":"))


def write_corpus(prefix, documents, pieces, seed):
    """Documents of 0 to 12 sentences; some ids are special ones, and two sentences are too long."""
    random = numpy.random.RandomState(seed)
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=DType.optimal_dtype(pieces))
    for number in range(documents):
        sizes = random.randint(1, 40, random.randint(0, 13)).tolist()
        if number in (7, 8):
            sizes = [5, 513, 9] if number == 7 else [600]
        ids = random.randint(5, pieces, sum(sizes))
        special = random.random_sample(sum(sizes)) < 0.02
        ids[special] = random.randint(0, 5, int(special.sum()))
        builder.add_document(ids, sizes)
    builder.finalize(prefix + ".idx")


def golden(folder):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    random = numpy.random.RandomState(3)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary += [("##" if random.random_sample() < 0.4 else "") + f"w{i}" for i in range(295)]
    other = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"] + vocabulary[5:]
    for name, pieces in (("vocab.txt", vocabulary), ("vocab_pad_3.txt", other)):
        with open(name, "w") as file:
            file.write("\n".join(pieces) + "\n")
    write_corpus("x", 120, len(vocabulary), 1)
    write_corpus("y", 40, len(vocabulary), 2)
    lines = [f"# megatron-core 0.16.1, numpy {numpy.__version__}: "
             f"python tools/oracle/masked_samples.py golden tests/golden/masked, {datetime.date.today()}",
             "# case TASK | WORDS | SPLIT | s decoder | seed | train valid test | mask_prob short_prob pairs "
             "| VOCABULARY",
             "# set NAME SIZE CRC32 of all lines; then the first and the last of them"]
    cases = []
    for seed in (1, 1234, 99):
        for words in ("x", "y"):
            cases.append(("bert", words, "80,15,5", 64, 0, seed, (700, 20, 5), 0.15, 0.1, 1))
            cases.append(("t5", words, "80,15,5", 64, 40, seed, (700, 20, 5), 0.15, 0.1, 1))
    cases += [
        ("bert", "x", "90,5,5", 128, 0, 7, (100, 5, 5), 0.3, 0, 0),
        ("bert", "0.3 x 0.7 y", "1,0,0", 48, 0, 11, (300, 0, 0), 0.15, 0.5, 1),
        ("t5", "0.3 x 0.7 y", "1,0,0", 512, 128, 11, (200, 0, 0), 0.15, 0.03, 1),
        ("t5", "y", "1,0,0", 20, 64, 5, (50, 0, 0), 0.5, 1, 1),
        # Rows that are shorter than most sentences.
        ("bert", "x", "80,15,5", 20, 0, 3, (300, 20, 5), 0.15, 0.1, 1),
        ("bert", "x", "80,15,5", 12, 0, 4, (300, 20, 5), 0.3, 0.5, 0),
        ("t5", "x", "80,15,5", 12, 20, 6, (300, 20, 5), 0.3, 0.5, 1),
    ]
    cases.append(("bert", "y", "1,0,0", 64, 0, 2**31 - 1, (50, 0, 0), 0.15, 0.1, 1))  # the largest seed
    cases = [(*case, "vocab.txt") for case in cases]
    # The id of padding is not 0.
    cases += [
        ("bert", "x", "80,15,5", 64, 0, 1, (700, 20, 5), 0.15, 0.1, 1, "vocab_pad_3.txt"),
        ("bert", "x", "80,15,5", 64, 0, 2, (300, 20, 5), 0.3, 0.5, 0, "vocab_pad_3.txt"),
        ("t5", "x", "80,15,5", 64, 40, 1, (700, 20, 5), 0.15, 0.1, 1, "vocab_pad_3.txt"),
    ]
    with tempfile.TemporaryDirectory() as cache:
        for task, words, split, s, decoder, seed, sizes, mask_prob, short_prob, pairs, pieces_of in cases:
            lines.append(f"case {task} | {words} | {split} | {s} {decoder} | {seed} | {sizes[0]} {sizes[1]} {sizes[2]} "
                         f"| {mask_prob} {short_prob} {pairs} | {pieces_of}")
            pieces = vocabulary if pieces_of == "vocab.txt" else other
            sets = build(task, words.split(), split, s, decoder, seed, sizes, pieces, os.path.join(cache, pieces_of),
                         mask_prob, short_prob, bool(pairs))
            for name, data in zip(("train", "valid", "test"), sets):
                if data is None:
                    continue
                rows = [line(task, i, data) for i in range(len(data))]
                lines.append(f"set {name} {len(rows)} {zlib.crc32(''.join(row + chr(10) for row in rows).encode())}")
                lines += [rows[0], rows[-1]]
    with open("samples.txt", "w") as file:
        file.write("\n".join(lines) + "\n")


def compare(program, corpus, vocabulary_file, count):
    with open(vocabulary_file, encoding="utf-8") as file:
        vocabulary = [text.rstrip("\n") for text in file]
    failed = False
    for task, s, decoder in (("bert", 512, None), ("t5", 512, 128)):
        for seed in (1, 1234, 99):
            with tempfile.TemporaryDirectory() as cache:
                data = build(task, [corpus], "90,5,5", s, decoder, seed, (count, 0, 0), vocabulary, cache)[0]
                theirs = [line(task, i, data) for i in range(count)]
            command = [program, "inspect", "samples", "--model-family", task, "--data-path", corpus, "--split", "90,5,5",
                       "--seq-length", str(s), "--seed", str(seed), "--train-iters", str(count), "--count", str(count),
                       "--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", vocabulary_file, "--json", "--quiet"]
            if task == "t5":
                command += ["--decoder-seq-length", str(decoder), "--vocab-extra-ids", "100"]
            ours = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            equal = sum(a == b for a, b in zip(ours, theirs))
            print(f"{task} seed {seed}: {equal} of {len(theirs)} samples equal")
            failed |= ours != theirs
    sys.exit(1 if failed else 0)


if sys.argv[1] == "golden":
    golden(sys.argv[2])
else:
    compare(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
