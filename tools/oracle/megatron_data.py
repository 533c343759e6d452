"""Golden corpora, samples and masks from Megatron-core's own dataset code.

    python -m venv VENV && VENV/bin/pip install numpy
    VENV/bin/pip download --no-deps megatron-core==0.16.1 && unzip megatron_core*.whl -d WHEEL
    VENV/bin/python tools/oracle/megatron_data.py WHEEL tests/golden

Megatron's dataset files and its compiled helpers run as they are. They import torch for a base class,
for `is_initialized` and for a handful of array calls; a stand-in on NumPy serves those, and the rest
of megatron.core is not loaded.
"""
import datetime
import os
import sys
import tempfile
import types
import zlib

import numpy

wheel, golden = sys.argv[1], sys.argv[2]


class Array(numpy.ndarray):
    """What gpt_dataset.py asks of a torch tensor."""
    device = None

    def long(self): return self.astype(numpy.int64)
    def contiguous(self): return numpy.ascontiguousarray(self).view(Array)
    def clone(self): return self.copy()
    def numel(self): return self.size
    def numpy(self): return numpy.asarray(self)


def array(values): return numpy.asarray(values).view(Array)


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


dataset_class = type("Dataset", (), {})
torch = module("torch", Tensor=Array, float=numpy.float32, long=numpy.int64,
               from_numpy=array,
               ones=lambda n, dtype=None, device=None: array(numpy.ones(n, dtype)),
               arange=lambda n, dtype=None, device=None: array(numpy.arange(n, dtype=dtype)),
               zeros_like=lambda x: array(numpy.zeros_like(x)))
torch.utils = module("torch.utils", data=module("torch.utils.data", Dataset=dataset_class))
torch.distributed = module("torch.distributed", is_initialized=lambda: False, get_rank=lambda: 0)
for name, folder in [("megatron", "megatron"), ("megatron.core", "megatron/core"),
                     ("megatron.core.datasets", "megatron/core/datasets")]:
    module(name).__path__ = [os.path.join(wheel, folder)]
module("megatron.core.utils", log_single_rank=lambda *a, **k: None)
module("megatron.core.msc_utils",
       MultiStorageClientFeature=type("F", (), {"is_enabled": staticmethod(lambda: False)}))
module("megatron.core.tokenizers", MegatronTokenizerBase=object)

from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.gpt_dataset import (GPTDataset, GPTDatasetConfig, MockGPTDataset,  # noqa: E402
                                                MockGPTLowLevelDataset)
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder  # noqa: E402
from megatron.core.datasets.utils import get_blend_from_list  # noqa: E402

head = [f"# megatron-core 0.16.1, numpy {numpy.__version__}: "
        f"python tools/oracle/megatron_data.py WHEEL tests/golden, {datetime.date.today()}"]


class Tokenizer:
    eod, eos, pad, vocab_size = 7, 7, 3, 60000
    unique_identifiers = {}
    special_tokens_dict = {"eos_token": 7}


def build_corpus(prefix, documents, first_id, vocabulary, sequences=1, seed=0):
    """Ids count upwards from first_id, so that a row of ids tells where it was read."""
    lengths = numpy.random.RandomState(seed)
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=DType.optimal_dtype(vocabulary))
    next_id = first_id
    for _ in range(documents):
        sizes = [int(lengths.randint(1, 20)) for _ in range(sequences)]
        ids = numpy.arange(next_id, next_id + sum(sizes))
        builder.add_document(ids, sizes)
        next_id += sum(sizes)
    builder.finalize(prefix + ".idx")


folder = os.path.join(golden, "megatron")
os.makedirs(folder, exist_ok=True)
build_corpus(f"{folder}/a", 307, 100, 60000, seed=1)
build_corpus(f"{folder}/b", 40, 10000, 70000, sequences=3, seed=2)
build_corpus(f"{folder}/c", 1, 20000, 60000, seed=3)

# words of --data-path, split, s, seed, samples of train, valid, test
cases = [
    ("a", "1,1,1", 8, 1234, (100, 10, 5)),
    ("a", "8,1,1", 8, 1234, (250, 30, 37)),
    ("a", "8,1,1", 16, 7, (1000, 100, 50)),        # several epochs
    ("a", "8,1,1", 8, 42, (375, 60, 20)),          # a last epoch apart
    ("a", "98,2,0", 5, 1, (1900, 3, 0)),
    ("a", "100,0,0", 64, 99, (300, 0, 0)),
    ("b", "90,5,5", 8, 1234, (2000, 7, 7)),
    ("c", "1,0,0", 4, 5, (40, 0, 0)),              # fewer tokens than some samples need
    ("1 a", "8,1,1", 8, 1234, (250, 30, 37)),      # one prefix with a weight
    ("0.3 a 0.7 b", "8,1,1", 8, 1234, (500, 40, 20)),
    ("30 a 70 b", "90,10,0", 16, 3, (700, 40, 0)),
    ("a b c", "1,0,0", 4, 1234, (500, 0, 0)),      # no weights, by length
    ("a b c", "1,0,0", 4, 1234, (100000, 0, 0)),
    (" ".join(f"{w} {p}" for w, p in zip([0.1, 0.2, 0.3, 0.7, 1.1, 1.3, 0.05, 0.9, 0.33], "aabbabcab")),
     "1,0,0", 8, 11, (900, 0, 0)),
]
lines = list(head)
lines.append("# case WORDS | SPLIT | s | seed | train valid test; set NAME SIZE CRC32 of all rows as int32; "
             "row INDEX s+1 ids")
here = os.getcwd()
os.chdir(folder)
with tempfile.TemporaryDirectory() as cache:
    for words, split, s, seed, sizes in cases:
        lines.append(f"case {words} | {split} | {s} | {seed} | {sizes[0]} {sizes[1]} {sizes[2]}")
        config = GPTDatasetConfig(random_seed=seed, sequence_length=s, blend=get_blend_from_list(words.split()),
                                  split=split, path_to_cache=cache, tokenizer=Tokenizer(),
                                  reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
                                  create_attention_mask=False)
        sets = BlendedMegatronDatasetBuilder(GPTDataset, list(sizes), lambda: True, config).build()
        for name, data in zip(("train", "valid", "test"), sets):
            if data is None:
                continue
            rows = []
            for i in range(len(data)):
                part, index = data, i
                if hasattr(data, "dataset_index"):
                    part, index = data.datasets[data.dataset_index[i]], data.dataset_sample_index[i]
                rows.append(part._query_document_sample_shuffle_indices(index)[0].astype(numpy.int32))
            crc = zlib.crc32(numpy.concatenate(rows).astype("<i4").tobytes()) if rows else 0
            lines.append(f"set {name} {len(rows)} {crc}")
            for i in list(range(min(3, len(rows)))) + ([len(rows) - 1] if len(rows) > 3 else []):
                lines.append(f"row {i} " + " ".join(map(str, rows[i])))
os.chdir(here)
open(os.path.join(golden, "megatron_samples.txt"), "w").write("\n".join(lines) + "\n")

# --mock-data: made-up sequences, without a corpus and with thirds for the three sets.
lines = list(head)
lines.append("# lengths CRC32 of all lengths as int32; case V eod | s | seed | train valid test; set NAME SIZE; "
             "row INDEX s+1 ids")


class MockTokenizer(Tokenizer):
    def __init__(self, vocabulary, eod): self.vocab_size, self.eod = vocabulary, eod


mock_lengths = MockGPTLowLevelDataset(MockTokenizer(2, 1)).sequence_lengths
lines.append(f"lengths {zlib.crc32(mock_lengths.astype('<i4').tobytes())}")
mock_cases = [
    (1000, 999, 512, 1234, (40, 10, 5)),
    (151, 7, 1000, 7, (300, 30, 30)),
    (50257, 50256, 4096, 1, (17000, 20000, 3)),  # more than an epoch of training and validation
]
for vocabulary, eod, s, seed, sizes in mock_cases:
    lines.append(f"case {vocabulary} {eod} | {s} | {seed} | {sizes[0]} {sizes[1]} {sizes[2]}")
    config = GPTDatasetConfig(random_seed=seed, sequence_length=s, tokenizer=MockTokenizer(vocabulary, eod),
                              reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
                              create_attention_mask=False)
    sets = BlendedMegatronDatasetBuilder(MockGPTDataset, list(sizes), lambda: True, config).build()
    for name, data in zip(("train", "valid", "test"), sets):
        lines.append(f"set {name} {len(data)}")
        for i in [0, 1, len(data) - 1]:
            row = data._query_document_sample_shuffle_indices(i)[0].astype(numpy.int32)
            shown = " ".join(map(str, row)) if s < 1000 else f"crc {zlib.crc32(row.astype('<i4').tobytes())}"
            lines.append(f"row {i} {shown}")
open(os.path.join(golden, "megatron_mock.txt"), "w").write("\n".join(lines) + "\n")

# Masks: rows of random ids below 12, in which 7 ends documents and 3 is padding.
lines = list(head)
lines.append("# case reset_position_ids reset_attention_mask eod_mask_loss; text: s+1 ids; then tokens, labels, "
             "loss mask, positions; eod 7, pad 3")
random = numpy.random.RandomState(5)
for flags in [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 1, 1)]:
    for _ in range(4):
        text = random.randint(0, 12, 33).astype(numpy.int64)
        data = GPTDataset.__new__(GPTDataset)
        data.config = types.SimpleNamespace(add_extra_token_to_sequence=True, tokenizer=Tokenizer(),
                                            reset_position_ids=bool(flags[0]), reset_attention_mask=bool(flags[1]),
                                            eod_mask_loss=bool(flags[2]), create_attention_mask=False)
        data._pad_token_id = 3
        data.masks_and_position_ids_are_cacheable = False
        data.masks_and_position_ids_are_cached = False
        original = text.copy()
        data._query_document_sample_shuffle_indices = lambda i: (text, None)
        item = data[0]
        lines.append("case %d %d %d" % flags)
        for row in (original, item["tokens"], item["labels"], item["loss_mask"].astype(int), item["position_ids"]):
            lines.append(" ".join(str(int(x)) for x in row))
open(os.path.join(golden, "megatron_masks.txt"), "w").write("\n".join(lines) + "\n")

# RandomState: words, bounded integers, shuffles, uniform and geometric numbers.
lines = [f"# numpy {numpy.__version__} RandomState: python tools/oracle/megatron_data.py, {datetime.date.today()}",
         "# words SEED first five 32-bit words; shuffle SEED LENGTH the shuffled range (or its crc32 as int64); "
         "uniform SEED five of random() x 2^53; geometric SEED twenty of geometric(0.2)"]
for seed in (0, 1, 1234, 4294967295):
    state = numpy.random.RandomState(seed)
    lines.append(f"words {seed} " + " ".join(str(int(x)) for x in state.randint(0, 2**32, 5, dtype=numpy.uint32)))
    state = numpy.random.RandomState(seed)
    lines.append(f"uniform {seed} " + " ".join(str(int(x * 2**53)) for x in state.random_sample(5)))
    state = numpy.random.RandomState(seed)
    lines.append(f"geometric {seed} " + " ".join(str(state.geometric(0.2)) for _ in range(20)))
    for length in (1, 2, 10, 33):
        order = numpy.arange(length)
        numpy.random.RandomState(seed).shuffle(order)
        lines.append(f"shuffle {seed} {length} " + " ".join(map(str, order)))
    order = numpy.arange(100000, dtype="<i8")
    numpy.random.RandomState(seed).shuffle(order)
    lines.append(f"crc {seed} 100000 {zlib.crc32(order.tobytes())}")
open(os.path.join(golden, "numpy_random.txt"), "w").write("\n".join(lines) + "\n")
