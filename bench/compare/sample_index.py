"""Building the index of samples of BERT: piton beside Megatron-core's helper (build_mapping), on one corpus.

    python bench/compare/sample_index.py [--documents 200000] [--rounds 3] [--note shared]

Wants megatron-core, numpy and a built piton. Writes a corpus of documents of sentences of drawn lengths; its tokens are
zeros in a sparse file, since only the lengths count. Megatron's time is that of the call alone; piton's is that of
`piton inspect samples` less that on a corpus of ten documents. In turns; the best of each counts.

Writes bench/results/DATE-sample-index.json.
"""
import argparse
import datetime
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import time

from train import ROOT, cpu_model, text_of

SEQUENCE, SEED, EPOCHS = 512, 1234, 1


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
        "command": f"python bench/compare/sample_index.py --documents {arguments.documents}",
        "commit": text_of("git", "rev-parse", "HEAD"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)),
                    **({"note": arguments.note} if arguments.note else {})},
        "peer": {"megatron_core": megatron.core.__version__},
        "piton_seconds": seconds, "peer_seconds": min(peers), "times_peer": min(peers) / seconds,
        "raw": {"peer": peers, "piton_all_and_few": own},
    }
    path = pathlib.Path(arguments.output or ROOT / "bench" / "results" / f"{result['date'][:10]}-sample-index.json")
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path}: piton {seconds:.3f} s, peer {min(peers):.3f} s, ratio {result['times_peer']:.2f}")


if __name__ == "__main__":
    main()
