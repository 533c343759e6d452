"""The runs of sentences of which samples of BERT and T5 are made: Piton beside Megatron-core's compiled helper
(build_mapping), on one corpus.

    cmake --build build --target bench_sample_index
    python bench/compare/sample_index.py [--documents 1000000 | --corpus PREFIX] [--rounds 7] [--note shared]

Wants megatron-core and numpy. Without --corpus (piton preprocess --split-sentences), writes one of documents of
sentences of drawn lengths; its tokens are zeros in a sparse file, since only the lengths count. Megatron's time is that
of the call alone, on arrays that are in memory. Piton's is that of make_sentence_spans on an opened corpus, which reads
the lengths from the index file (in the system's cache), on as many threads as it takes, and on one processor (taskset);
opening the corpus with all checks of its index is measured apart. In turns; the median and the best of each count. Both
must give the same runs in the same order.

Writes bench/results/DATE-sample-index.json: seconds by the clock, and of all processors.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from train import ROOT

sys.path.insert(0, str(ROOT / "bench"))
from record import record  # noqa: E402

SEQUENCE, SEED, SHORT = 512, 1234, 0.1
# Tokens that are not of the text, and the fewest sentences of a run.
TASKS = {"bert": (3, 2), "t5": (2, 1)}


def write_corpus(prefix, documents):
    import numpy

    draw = numpy.random.default_rng(3)
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


def read_index(prefix):
    import numpy

    data = pathlib.Path(f"{prefix}.idx").read_bytes()
    sequences, boundaries = struct.unpack_from("<QQ", data, 18)
    lengths = numpy.frombuffer(data, numpy.int32, sequences, 34).copy()
    return lengths, numpy.frombuffer(data, numpy.int64, boundaries, 34 + 12 * sequences).copy()


def summary(times):
    """Of pairs of seconds, by the clock and of the processors."""
    return {name: {"best": min(column), "median": statistics.median(column)}
            for name, column in zip(("clock", "processor"), zip(*times))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1000000)
    parser.add_argument("--corpus", help="of sentences, in place of a written one")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--program", default=str(ROOT / "build" / "bench_sample_index"))
    parser.add_argument("--note", help="about the machine: 'shared' if others use it meanwhile")
    parser.add_argument("--output", help="default: bench/results/DATE-sample-index.json")
    arguments = parser.parse_args()

    import megatron.core
    import numpy
    from megatron.core.datasets import helpers_cpp

    core = str(min(os.sched_getaffinity(0)))
    results = {}
    with tempfile.TemporaryDirectory() as name:
        prefix = arguments.corpus or f"{name}/corpus"
        if not arguments.corpus:
            write_corpus(prefix, arguments.documents)
        lengths, bounds = read_index(prefix)

        def peer(added, least):
            start, used = time.perf_counter(), time.process_time()
            mapping = helpers_cpp.build_mapping(bounds, lengths, 1, 2**31 - 1, SEQUENCE - added, SHORT, SEED, False, least)
            return (time.perf_counter() - start, time.process_time() - used), mapping

        def piton(added, least, before=(), output=()):
            run = subprocess.run([*before, arguments.program, prefix, str(SEQUENCE - added), str(SHORT), str(SEED),
                                  str(least), *output], capture_output=True, text=True)
            if run.returncode != 0:
                raise SystemExit(run.stderr)
            return json.loads(run.stdout)

        for task, settings in TASKS.items():
            piton(*settings, output=[f"{name}/spans"])
            _, mapping = peer(*settings)
            made = numpy.fromfile(f"{name}/spans", numpy.int64).reshape(-1, 3)
            assert made.shape == mapping.shape and (made == mapping).all(), f"{task}: other runs than Megatron's"
            del made, mapping
            peers, own, one = [], [], []
            for turn in range(arguments.rounds):
                seconds, mapping = peer(*settings)
                peers.append(seconds)
                samples = len(mapping)
                del mapping
                own.append(piton(*settings))
                one.append(piton(*settings, before=("taskset", "-c", core)))
                print(f"{task}, round {turn + 1}: peer {seconds[0]:.4f} s, piton {own[-1]['build'][0]:.4f} s, on one "
                      f"processor {one[-1]['build'][0]:.4f} s", flush=True)
            figures = {"peer": summary(peers), "piton": summary(run["build"] for run in own),
                       "piton_on_one_processor": summary(run["build"] for run in one),
                       "piton_opens_and_checks": summary(run["open_checked"] for run in one)}
            times = {kind: figures["peer"]["clock"][kind] / figures["piton"]["clock"][kind] for kind in ("best", "median")}
            alone = {kind: figures["peer"]["processor"][kind] / figures["piton_on_one_processor"]["processor"][kind]
                     for kind in ("best", "median")}
            results[task] = {"samples": samples, "times_peer": times, "times_peer_by_one_processor": alone, **figures,
                             "raw": {"peer": peers, "piton": own, "piton_on_one_processor": one}}
            print(f"{task}: {times['best']:.2f} times as fast by the best, {times['median']:.2f} by the median; by one "
                  f"processor's time {alone['best']:.2f} and {alone['median']:.2f}", flush=True)
    result = {"what": f"index of samples over {len(lengths)} sentences of {len(bounds) - 1} documents; equal to Megatron's",
              "peer": {"megatron_core": megatron.core.__version__}, **results}
    command = " ".join(["python bench/compare/sample_index.py", f"--rounds {arguments.rounds}",
                        "--corpus CORPUS" if arguments.corpus else f"--documents {arguments.documents}"])
    print(record("sample-index", command, result, arguments.note, arguments.output))


if __name__ == "__main__":
    main()
