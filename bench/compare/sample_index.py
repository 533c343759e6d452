"""Building the index of samples of BERT: piton beside Megatron-core's helper (build_mapping), on one corpus.

    python bench/compare/sample_index.py [--documents 200000] [--rounds 3] [--note shared]

Wants megatron-core, numpy and a built piton. Writes a corpus of documents of sentences of drawn lengths; its tokens are
zeros in a sparse file, since only the lengths count. Megatron's time is that of the call alone, on arrays that are in
memory: it reads lengths and documents without checks, and shuffles. Piton's is that of `piton inspect samples` less that
on a corpus of ten documents, so it has the opening of the index file too: each length, offset and document bound is
checked against the files, then the same spans are made and shuffled. In turns; the best of each counts.

Writes bench/results/DATE-sample-index.json.
"""
import argparse
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

from train import ROOT

sys.path.insert(0, str(ROOT / "bench"))
from record import record  # noqa: E402

SEQUENCE, SEED, EPOCHS = 512, 1234, 1
WORK = {"peer": "build_mapping on arrays in memory; no checks of them",
        "piton": "a process that opens the index file, checks every length, offset and document, and makes the mapping, "
                 "less one on ten documents"}


def write_corpus(prefix, documents, draw):
    import numpy

    sentences = draw.integers(2, 40, documents)
    lengths = draw.integers(4, 60, int(sentences.sum())).astype(numpy.int32)
    bounds = numpy.concatenate(([0], sentences.cumsum())).astype(numpy.int64)
    offsets = numpy.concatenate(([0], lengths[:-1].astype(numpy.int64).cumsum() * 2)).astype(numpy.int64)
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(bounds)))
        for array in (lengths, offsets, bounds):
            file.write(array.tobytes())
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(2 * int(lengths.sum()))
    return bounds, lengths


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--note", help="about the machine: 'shared' if others use it meanwhile")
    parser.add_argument("--output", help="default: bench/results/DATE-sample-index.json")
    arguments = parser.parse_args()

    import megatron.core
    import numpy
    from megatron.core.datasets import helpers_cpp

    draw = numpy.random.default_rng(3)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        bounds, lengths = write_corpus(folder / "all", arguments.documents, draw)
        write_corpus(folder / "few", 10, draw)
        (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]) + "\n")

        def peer():
            start = time.perf_counter()
            mapping = helpers_cpp.build_mapping(bounds, lengths, EPOCHS, 2**31 - 1, SEQUENCE - 3, 0.1, SEED, False, 2)
            return time.perf_counter() - start, len(mapping)

        def piton(corpus):
            start = time.perf_counter()
            run = subprocess.run(
                [arguments.piton, "inspect", "samples", "--model-family", "bert", "--data-path", str(folder / corpus),
                 "--split", "100,0,0", "--seq-length", str(SEQUENCE), "--tokenizer-type", "BertWordPieceLowerCase",
                 "--vocab-file", str(folder / "vocab.txt"), "--json"], capture_output=True, text=True)
            if run.returncode != 0:
                raise SystemExit(run.stderr)
            return time.perf_counter() - start

        peers, own = [], []
        for turn in range(arguments.rounds):
            seconds, samples = peer()
            peers.append(seconds)
            own.append([piton("all"), piton("few")])
            print(f"round {turn + 1}: peer {seconds:.3f} s, piton {own[-1][0] - own[-1][1]:.3f} s", flush=True)
    seconds = min(all_ for all_, _ in own) - min(few for _, few in own)
    result = {
        "what": f"index of {samples} samples of BERT over {len(lengths)} sentences",
        "work": WORK,
        "peer": {"megatron_core": megatron.core.__version__},
        "piton_seconds": seconds, "peer_seconds": min(peers), "times_peer": min(peers) / seconds,
        "raw": {"peer": peers, "piton_all_and_few": own},
    }
    path = record("sample-index", f"python bench/compare/sample_index.py --documents {arguments.documents}", result,
                  arguments.note, arguments.output)
    print(f"{path}: piton {seconds:.3f} s, peer {min(peers):.3f} s, ratio {result['times_peer']:.2f}")


if __name__ == "__main__":
    main()
