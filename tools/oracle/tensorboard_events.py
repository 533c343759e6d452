"""Event files as TensorBoard writes and reads them.

  tensorboard_events.py golden          records of TensorBoard's own writer, in hexadecimal, for
                                        tests/unit/train/tensorboard_sink_test.cpp
  tensorboard_events.py check RUN       reads RUN/tensorboard as TensorBoard does, and compares with
                                        RUN/metrics.jsonl; prints the tags, the steps of each, and the
                                        largest difference

Needs tensorboard (2.21 was used) from PyPI.
"""

import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c


def record(event):
    body = event.SerializeToString()
    length = struct.pack("<Q", len(body))
    return (length + struct.pack("<I", masked_crc32c(length)) + body +
            struct.pack("<I", masked_crc32c(body)))


def golden():
    scalars = Summary(value=[Summary.Value(tag="lm loss", simple_value=10.5),
                             Summary.Value(tag="learning-rate", simple_value=1.5e-4)])
    print(record(Event(wall_time=1700000000.25, step=0, file_version="brain.Event:2")).hex())
    print(record(Event(wall_time=1700000001.5, step=300, summary=scalars)).hex())
    print(record(Event(wall_time=1700000002.0, step=301,
                       session_log=SessionLog(status=SessionLog.START))).hex())


NAMES = {"lm loss": "lm_loss", "learning-rate": "learning_rate", "grad-norm": "grad_norm",
         "loss-scale": "loss_scale", "tokens-per-second": "tokens_per_second",
         "lm loss validation": "validation_loss"}


def check(run):
    run = pathlib.Path(run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    worst = 0.0
    for tag in sorted(events.Tags()["scalars"]):
        scalars = events.Scalars(tag)
        print(f"{tag}: {len(scalars)} steps, {scalars[0].step} to {scalars[-1].step}")
        if tag not in NAMES:
            continue
        wanted = {line["iteration"]: line[NAMES[tag]] for line in lines if NAMES[tag] in line}
        if [scalar.step for scalar in scalars] != sorted(wanted):
            sys.exit(f"{tag}: steps {[s.step for s in scalars]}, wanted {sorted(wanted)}")
        for scalar in scalars:
            want = wanted[scalar.step]
            worst = max(worst, abs(scalar.value - want) / max(abs(want), 1e-30))
    print(f"largest relative difference {worst:.2e}")
    if worst > 1e-6:
        sys.exit("figures differ")


if sys.argv[1:] == ["golden"]:
    golden()
elif len(sys.argv) == 3 and sys.argv[1] == "check":
    check(sys.argv[2])
else:
    sys.exit(__doc__)
